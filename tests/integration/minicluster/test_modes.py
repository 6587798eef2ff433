"""What the leader runs: every mode, its words and its exit code,
in the rendered scripts with a stand-in `flux`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.minicluster_pods import pods


def test_one_command_runs_as_one_job_of_the_whole_cluster() -> None:
    with pods("echo hello world", size=4, tasks=4) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0, 0, 0, 0], errors
        assert outputs[0].splitlines() == ["hello world"] * 4
        assert outputs[1:] == ["", "", ""]
        assert cluster.calls("submit") == [
            ["submit", "-N", "4", "-n", "4", "--quiet", "--watch", "echo", "hello", "world"]
        ]


@pytest.mark.parametrize(
    ("tasks", "flags"),
    [(1, ["-n", "1"]), (0, ["-N", "2"]), (2, ["-N", "2", "-n", "2"]), (5, ["-N", "2", "-n", "5"])],
)
def test_tasks_are_those_of_the_whole_cluster(tasks: int, flags: list[str]) -> None:
    with pods("true", size=2, tasks=tasks) as cluster:
        assert cluster.run()[0] == [0, 0]
        assert cluster.calls("submit")[0][1 : 1 + len(flags)] == flags


@pytest.mark.parametrize("code", [1, 3, 42, 127, 255])
def test_the_applications_exit_code_is_the_leaders_and_followers_end_well(code: int) -> None:
    with pods(f"exit {code}; true", size=2) as cluster:
        codes, _, errors = cluster.run()
        assert codes == [code, 0], errors


def test_words_reach_the_application_as_they_were_written() -> None:
    with pods("printf '<%s>' 'a  b' \"it's\" '$HOME' 'x;y|z'", size=1) as cluster:
        assert cluster.run()[1] == ["<a  b><it's><$HOME><x;y|z>"]


def test_a_command_that_needs_a_shell_has_one_in_each_task() -> None:
    with pods(
        'echo "$GREETING" && echo "rank $FLUX_TASK_RANK"',
        size=2,
        tasks=2,
        environment={"GREETING": 'say "hi" `now`'},
    ) as cluster:
        codes, outputs, _ = cluster.run()
        assert codes == [0, 0]
        assert outputs[0].splitlines() == ['say "hi" `now`', "rank 0", 'say "hi" `now`', "rank 1"]


def test_words_behind_the_wrapper_are_the_command_of_an_annotated_job() -> None:
    with pods("printf", size=1) as cluster:
        assert cluster.run("[%s]", "a b", "$(rm -rf /)", "*")[1] == ["[a b][$(rm -rf /)][*]"]


def test_a_launcher_is_the_initial_program_and_submits_its_own_jobs() -> None:
    with pods('flux submit --watch -n 2 echo inner && echo "$FLUX_URI"', size=2, launcher=True) as cluster:
        codes, outputs, _ = cluster.run()
        assert codes == [0, 0]
        assert outputs[0].splitlines()[:2] == ["inner", "inner"]
        assert outputs[0].splitlines()[2].startswith("local://")


def test_a_script_is_a_file_on_every_pod() -> None:
    script = '#!/bin/bash\nfor word in "$USER_WORD" \'$x\'; do\n  echo "$word"\ndone\n'
    with pods(size=2, commands={"script": script}, environment={"USER_WORD": "a b"}) as cluster:
        codes, outputs, _ = cluster.run()
        assert (codes, outputs[0].splitlines()) == ([0, 0], ["a b", "$x"])
        assert (cluster.directory(1) / "operator" / "command.sh").exists()


def test_every_line_of_a_batch_is_a_job_with_files_of_its_own(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with pods(
        "echo one\n-n 2 echo 'two  words'\n\necho $GREETING | cat\n",
        batch=True,
        logs=str(logs),
        environment={"GREETING": "hi"},
    ) as cluster:
        codes, _, errors = cluster.run()
        assert codes == [0, 0, 0], errors
        assert {path.name: path.read_text() for path in logs.glob("*.out")} == {
            "job-0.out": "one\n",
            "job-1.out": "two  words\ntwo  words\n",
            "job-3.out": "hi\n",
        }


def test_a_line_that_fails_fails_the_batch_and_is_named(tmp_path: Path) -> None:
    lines = "true\nbash -c 'exit 5'\nunsatisfiable request\nbash -c 'exit 3'\ntrue\n"
    with pods(lines, batch=True, logs=str(tmp_path / "logs")) as cluster:
        codes, _, errors = cluster.run()
        assert codes == [5, 0, 0]
        assert "line 1 of the batch failed with code 5: bash -c 'exit 5'" in errors[0]
        assert "line 2 of the batch failed with code 1: unsatisfiable request" in errors[0]
        assert "line 3 of the batch failed with code 3" in errors[0]
        assert "line 0" not in errors[0]
        assert len(cluster.calls("submit")) == 5


def test_a_raw_batch_is_a_script_whose_failing_lines_count() -> None:
    text = (
        "# comment\n"
        "for i in 1 2; do\n"
        "  echo $i\n"
        "done\n"
        "false\n"
        "bash -c 'exit 7'\n"
        "flux submit --flags=waitable bash -c 'exit 9'\n"
        "echo last\n"
    )
    with pods(text, batch=True, batchRaw=True, size=2) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [9, 0]
        assert outputs[0].splitlines() == ["1", "2", "f1", "last"]
        assert "line 5 of the batch failed with code 1: false" in errors[0]
        assert "line 6 of the batch failed with code 7: bash -c 'exit 7'" in errors[0]


def test_options_of_the_spec_reach_flux() -> None:
    flux = {
        "optionFlags": "-ompi=openmpi@5",
        "wrap": "strace",
        "logLevel": 7,
        "environment": {"FLAVOUR": "sweet $HOME"},
    }
    with pods(
        "bash -c 'echo \"$FLAVOUR\"'", size=1, flux=flux, maxSize=3, logging={"debug": True, "zeromq": True}
    ) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0], errors
        assert outputs[0] == f"sweet {cluster.directory(0) / 'work'}\n"
        start = cluster.calls("start")[0]
        assert {"--wrap=strace", "-Sbroker.quorum=1", "-Stbon.zmqdebug=1", "-Slog-stderr-level=7"} <= set(
            start
        )
        assert {"-ompi=openmpi@5", "-vvv"} <= set(cluster.calls("submit")[0])


SCHEDULER_PATHS = ("FLUX_MODULE_PATH_PREPEND", "FLUX_RC_EXTRA", "FLUX_MODPROBE_PATH_APPEND")


def test_flux_finds_fluxion_in_the_view_except_with_the_simple_scheduler() -> None:
    shown = f"printenv {' '.join(SCHEDULER_PATHS)}"
    with pods(f"bash -c '{shown}'", size=1) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0], errors
        view = cluster.directory(0) / "mount" / "view"
        assert outputs[0].splitlines() == [
            f"{view}/lib/flux/modules:{view}/lib64/flux/modules",
            f"{view}/etc/flux",  # the folder of rc1.d, not rc1.d itself
            f"{view}/etc/flux/modprobe",
        ]
    with pods(f"bash -c '{shown}; true'", size=1, flux={"scheduler": {"simple": True}}) as cluster:
        assert cluster.run()[:2] == ([0], [""])
