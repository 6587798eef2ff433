"""What the leader runs, by real brokers: every mode, its words and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.minicluster_pods import Pods

MakePods = Callable[..., Pods]


def test_a_command_runs_on_every_host_of_the_cluster(brokers: MakePods) -> None:
    with brokers("hostname", size=4, tasks=4) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0, 0, 0, 0], errors
        assert sorted(outputs[0].split()) == [f"lammps-{index}" for index in range(4)]


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_applications_exit_code_is_the_leaders(brokers: MakePods, code: int) -> None:
    with brokers(f"exit {code}; true", size=2) as cluster:
        codes, _, errors = cluster.run()
        assert codes == [code, 0], errors


def test_words_and_variables_reach_each_task_as_they_were_written(brokers: MakePods) -> None:
    with brokers("printf '<%s>' 'a  b' \"it's\" '$HOME' 'x;y|z'", size=1) as cluster:
        assert cluster.run()[1] == ["<a  b><it's><$HOME><x;y|z>"]
    with brokers(
        'echo "$GREETING" && echo "rank $FLUX_TASK_RANK"',
        size=2,
        tasks=2,
        environment={"GREETING": 'say "hi" `now`'},
    ) as cluster:
        assert sorted(cluster.run()[1][0].splitlines()) == [
            "rank 0",
            "rank 1",
            'say "hi" `now`',
            'say "hi" `now`',
        ]


def test_a_launcher_submits_its_own_jobs(brokers: MakePods) -> None:
    with brokers("flux submit --watch -n 2 echo inner && echo outer", size=2, launcher=True) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0, 0], errors
        assert outputs[0].splitlines() == ["inner", "inner", "outer"]


def test_the_highest_code_of_a_batch_is_its_own_and_failed_lines_are_named(
    brokers: MakePods, tmp_path: Path
) -> None:
    with brokers(
        "echo one\nbash -c 'exit 5'\nbash -c 'exit 3'\n", size=2, batch=True, logs=str(tmp_path / "logs")
    ) as cluster:
        codes, _, errors = cluster.run()
        assert codes == [5, 0], errors
        assert (tmp_path / "logs" / "job-0.out").read_text() == "one\n"
        assert "line 1 of the batch failed with code 5" in errors[0]


def test_a_raw_batch_waits_for_its_waitable_jobs(brokers: MakePods) -> None:
    with brokers(
        "flux submit --quiet --flags=waitable bash -c 'exit 9'\necho last\n",
        size=1,
        batch=True,
        batchRaw=True,
    ) as cluster:
        codes, outputs, _ = cluster.run()
        assert codes[0] != 0
        assert outputs[0].splitlines()[-1] == "last"


def test_hooks_run_around_the_broker(brokers: MakePods) -> None:
    hooks = {
        "pre": "export SEEN='from pre'",
        "brokerPre": "echo broker",
        "workerPre": "echo worker",
        "post": "echo post",
    }
    with brokers("bash -c 'echo \"$SEEN\"'", size=2, commands=hooks) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0, 0], errors
        assert [output.splitlines() for output in outputs] == [
            ["broker", "from pre", "post"],
            ["worker", "post"],
        ]


def test_brokers_run_as_another_user(brokers: MakePods) -> None:
    with brokers("id -u", size=2, harness={"user": 1000}) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0, 0], errors
        assert outputs[0] == "1000\n"
