"""The rendered scripts, run: every mode, every ending, with a stand-in `flux` that is as strict as the real one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from minicluster_builders import minicluster
from minicluster_pods import WAIT_S, Pods

from fluxqueue.certs.curve import read_file
from fluxqueue.minicluster.broker import Share
from fluxqueue.rest.commands import read_environment

AGAIN = 213


def pods(
    command: str = "", size: int = 3, *, commands: dict[str, str] | None = None, harness: dict[str, Any] | None = None, **spec: Any
) -> Pods:
    container = {"image": "app:1", "command": command, "commands": commands or {}, "resources": {}}
    for field in ("launcher", "batch", "batchRaw", "logs", "environment"):
        if field in spec:
            container[field] = spec.pop(field)
    return Pods(minicluster(size=size, containers=[container], formTimeoutSeconds=10, **spec), **(harness or {}))


def test_one_command_runs_as_one_job_of_the_whole_cluster() -> None:
    with pods("echo hello world", size=4, tasks=4) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0, 0, 0, 0], errors
        assert outputs[0].splitlines() == ["hello world"] * 4
        assert outputs[1:] == ["", "", ""]
        assert cluster.calls("submit") == [["submit", "-N", "4", "-n", "4", "--quiet", "--watch", "echo", "hello", "world"]]


@pytest.mark.parametrize(("tasks", "flags"), [(1, ["-n", "1"]), (0, ["-N", "2"]), (2, ["-N", "2", "-n", "2"]), (5, ["-N", "2", "-n", "5"])])
def test_tasks_are_those_of_the_whole_cluster(tasks: int, flags: list[str]) -> None:
    with pods("true", size=2, tasks=tasks) as cluster:
        assert cluster.run()[0] == [0, 0]
        assert cluster.calls("submit")[0][1 : 1 + len(flags)] == flags


def test_followers_join_with_one_attempt_each_even_when_the_leader_comes_late() -> None:
    with pods("true", size=4) as cluster:
        for index in (1, 2, 3):
            cluster.start(index)
        assert not cluster.ready(1)
        cluster.start(0)
        codes = [cluster.finish(index)[0] for index in range(4)]
        assert codes == [0] * 4
        assert len(cluster.events("connecting")) == len(cluster.events("joined")) == 3
        assert cluster.events("missed") == []


@pytest.mark.parametrize("code", [1, 3, 42, 127, 255])
def test_the_applications_exit_code_is_the_leaders_and_followers_end_well(code: int) -> None:
    with pods(f"exit {code}; true", size=2) as cluster:
        codes, _, errors = cluster.run()
        assert codes == [code, 0], errors


def test_words_reach_the_application_as_they_were_written() -> None:
    with pods("printf '<%s>' 'a  b' \"it's\" '$HOME' 'x;y|z'", size=1) as cluster:
        assert cluster.run()[1] == ["<a  b><it's><$HOME><x;y|z>"]


def test_a_command_that_needs_a_shell_has_one_in_each_task() -> None:
    with pods('echo "$GREETING" && echo "rank $FLUX_TASK_RANK"', size=2, tasks=2, environment={"GREETING": 'say "hi" `now`'}) as cluster:
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
        "echo one\n-n 2 echo 'two  words'\n\necho $GREETING | cat\n", batch=True, logs=str(logs), environment={"GREETING": "hi"}
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
        "# comment\nfor i in 1 2; do\n  echo $i\ndone\nfalse\nbash -c 'exit 7'\nflux submit --flags=waitable bash -c 'exit 9'\necho last\n"
    )
    with pods(text, batch=True, batchRaw=True, size=2) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [9, 0]
        assert outputs[0].splitlines() == ["1", "2", "f1", "last"]
        assert "line 5 of the batch failed with code 1: false" in errors[0]
        assert "line 6 of the batch failed with code 7: bash -c 'exit 7'" in errors[0]


def test_a_cluster_without_a_command_stays_until_it_is_stopped() -> None:
    with pods(size=2, interactive=True) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("idle")
        assert cluster.ready(0)
        assert cluster.ready(1)
        assert cluster.calls("broker")[0][1].startswith("--config-path=")
        cluster.stop(0)
        assert cluster.finish(0)[0] == AGAIN
        assert cluster.finish(1)[0] == 0


def test_an_interactive_cluster_with_a_command_runs_it_and_stays() -> None:
    with pods("echo ran; exit 4", size=1, interactive=True) as cluster:
        process = cluster.start(0)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ran\n"
        while "the command ended with code 4" not in process.stderr.readline():
            pass
        assert cluster.ready(0)
        cluster.stop(0)
        assert cluster.finish(0)[0] == AGAIN


def test_readiness_is_what_the_brokers_say() -> None:
    with pods("sleep 60", size=3, minSize=2) as cluster:
        cluster.make(1)
        assert not cluster.ready(1)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        assert [cluster.ready(index) for index in (0, 1)] == [True, True]


def test_each_broker_has_a_copy_of_the_certificate_that_only_it_may_read() -> None:
    user = 12345 if os.geteuid() == 0 else None
    with pods("true", size=2, harness={"user": user}) as cluster:
        cluster.files["settings.sh"] = cluster.files["settings.sh"].replace("fq_patience='10'", "fq_patience='1'")
        cluster.run()  # the stand-in's own interpreter may be out of another user's reach
        for index in (0, 1):
            copy = cluster.directory(index) / "mount" / "config" / "curve" / "curve.cert"
            assert stat.S_IMODE(copy.stat().st_mode) == 0o600
            assert copy.stat().st_uid == (user or os.geteuid())
            assert read_file(copy) == cluster.certificate


def test_the_certificate_is_written_nowhere_else() -> None:
    with pods("true", size=2, logging={"debug": True, "zeromq": True}) as cluster:
        _, outputs, errors = cluster.run()
        for text in [*outputs, *errors, cluster.log.read_text(), *cluster.files.values()]:
            assert cluster.certificate.secret_key not in text
        copies = [path for path in cluster.directory(0).rglob("*") if path.is_file() and cluster.certificate.secret_key in path.read_text()]
        assert sorted(path.name for path in copies) == ["curve.cert", "curve.cert"]


def test_containers_that_are_started_again_change_nothing() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.init(0) == 0
        view = cluster.directory(0) / "mount"
        before = {path: path.lstat().st_mtime_ns for path in view.rglob("*")}
        assert cluster.init(0) == 0
        assert {path: path.lstat().st_mtime_ns for path in view.rglob("*")} == before
        assert cluster.run()[0] == [0]
        config = view / "config" / "etc" / "flux" / "config" / "broker.toml"
        first = config.read_text()
        assert cluster.run()[0] == [0]
        assert config.read_text() == first
        assert first.count("[bootstrap]") == 1


def test_an_init_container_that_was_stopped_in_the_middle_begins_anew() -> None:
    with pods("true", size=1) as cluster:
        mount = cluster.make(0) / "mount"
        (mount / ".view" / "bin").mkdir(parents=True)
        (mount / ".view" / "bin" / "half").touch()
        assert cluster.init(0) == 0
        assert (mount / "view" / "bin" / "flux").exists()
        assert not (mount / "view" / "bin" / "half").exists()
        assert (cluster.directory(0) / "software" / "library.so").exists()


def test_a_follower_that_loses_its_leader_joins_the_next_one() -> None:
    with pods("true", size=2, harness={"outcomes": {0: [{"lost": 9}]}}) as cluster:
        cluster.start(0)
        cluster.start(1)
        assert cluster.finish(0)[0] == 9
        cluster.start(0)
        assert cluster.finish(0)[0] == 0
        assert cluster.finish(1)[0] == 0
        assert len(cluster.events("joined")) == 2


def test_a_follower_whose_leader_is_gone_gives_up_and_says_so() -> None:
    with pods(
        "true",
        size=2,
        harness={"outcomes": {0: [{"lost": 9}]}},
    ) as cluster:
        cluster.files["settings.sh"] = cluster.files["settings.sh"].replace("fq_patience='10'", "fq_patience='1'")
        codes, _, errors = cluster.run()
        assert codes == [9, AGAIN]
        assert "rank 1: the leader 127.0.0.1 is gone" in errors[1]


def test_a_broker_that_ends_at_once_is_not_tried_for_ever() -> None:
    broken = {0: [{"exit": 1, "after": 1}], 1: [{"exit": 1}, {"exit": 2}, {"exit": 3}]}
    with pods("true", size=2, harness={"outcomes": broken}) as cluster:
        cluster.files["settings.sh"] = cluster.files["settings.sh"].replace("fq_patience='10'", "fq_patience='0'")
        cluster.start(1)
        code, _, error = cluster.finish(1)
        assert code == AGAIN
        assert "gone" in error or "ends at once, last with code 3" in error


def test_complete_workers_end_after_their_first_broker_whatever_its_code() -> None:
    with pods("true", size=2, flux={"completeWorkers": True}, harness={"outcomes": {0: [{"lost": 9}]}}) as cluster:
        assert cluster.run()[0] == [9, 0]


def test_a_pod_that_is_asked_to_stop_shuts_its_instance_down_in_order() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("online")
        cluster.stop(0)
        code, _, error = cluster.finish(0)
        assert (code, cluster.finish(1)[0]) == (AGAIN, 0)
        assert "has been shut down" in error


def test_a_follower_that_is_asked_to_stop_may_be_replaced() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(1)
        assert cluster.finish(1)[0] == AGAIN


def test_a_follower_that_goes_is_drained_first_and_lets_what_runs_there_end() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.wait_for("undrained")  # a new pod takes work, whatever its rank was drained for before
        busy = cluster.log.with_suffix(".busy-1")
        busy.write_text("f1\n")
        cluster.stop(1)
        cluster.wait_for("asked", 2)
        assert cluster.processes[1].poll() is None
        busy.unlink()
        assert cluster.finish(1)[0] == AGAIN
        assert [event["drained"] for event in cluster.events("drained")] == [1]
        assert cluster.calls("resource", "drain")[0][-1] == "its pod is being stopped"


def test_a_follower_waits_for_its_work_no_longer_than_its_pod_is_given() -> None:
    template = {"spec": {"terminationGracePeriodSeconds": 11}}
    with pods("sleep 60", size=2, podTemplate=template) as cluster:
        cluster.log.with_suffix(".busy-1").write_text("f1\n")
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(1)
        # How often it asks in its one second is the machine's to say; that it ends while its work goes on is the point.
        assert cluster.finish(1)[0] == AGAIN
        assert [event["drained"] for event in cluster.events("drained")] == [1]
        assert cluster.log.with_suffix(".busy-1").exists()


def test_where_all_of_it_ends_no_follower_waits_for_its_work() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.log.with_suffix(".busy-1").write_text("f1\n")
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(1)
        cluster.wait_for("asked")
        cluster.stop(0)
        assert [cluster.finish(index)[0] for index in (0, 1)] == [AGAIN, AGAIN]


def test_state_is_dumped_when_the_instance_stops_and_restored_when_it_starts(tmp_path: Path) -> None:
    volume = {"claimName": "kept", "path": str(tmp_path)}
    with pods("sleep 60", size=1, state={"volume": volume}) as cluster:
        cluster.start(0)
        cluster.wait_for("online")
        cluster.stop(0)
        assert cluster.finish(0)[0] == AGAIN
        assert cluster.events("restored") == []
        kept = tmp_path / "flux-state.tgz"
        assert kept.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["flux-state.tgz"]
        cluster.start(0)
        cluster.wait_for("restored")
        assert bytes.fromhex(cluster.events("restored")[0]["restored"]) == kept.read_bytes()


def test_half_a_dump_does_not_take_the_place_of_a_whole_one(tmp_path: Path) -> None:
    kept = tmp_path / "flux-state.tgz"
    kept.write_bytes(b"whole")
    (tmp_path / ".new-flux-state.tgz").write_bytes(b"half")
    with pods(
        "true", size=1, state={"volume": {"claimName": "kept", "path": str(tmp_path)}}, harness={"outcomes": {0: [{"exit": 1}]}}
    ) as cluster:
        _, _, errors = cluster.run()
        assert "not whole" in errors[0]
        assert kept.read_bytes() == b"whole"


def test_hooks_run_in_their_order_and_where_they_belong() -> None:
    hooks = {
        "init": "echo init",
        "pre": "export SEEN='from pre'; echo pre",
        "brokerPre": "echo broker",
        "workerPre": "echo worker",
        "post": "echo post",
        "prefix": "env WRAPPED=1",
    }
    with pods("bash -c 'echo \"$SEEN $WRAPPED\"'", size=2, commands=hooks) as cluster:
        codes, outputs, _ = cluster.run()
        assert codes == [0, 0]
        assert outputs[0].splitlines() == ["init", "pre", "broker", "from pre 1", "post"]
        assert outputs[1].splitlines() == ["init", "pre", "worker", "post"]


def test_a_hook_that_fails_is_said_and_ends_a_strict_pod() -> None:
    hooks = {"pre": "false\necho still here\nfalse"}
    with pods("true", size=1, commands=hooks) as cluster:
        codes, outputs, errors = cluster.run()
        assert (codes, outputs) == ([0], ["still here\n"])
        assert "commands.pre ended with code 1" in errors[0]
    with pods("true", size=1, commands=hooks, logging={"strict": True}) as cluster:
        codes, outputs, errors = cluster.run()
        assert (codes, outputs) == ([1], [""])
        assert "commands.pre failed with code 1" in errors[0]


def test_quiet_is_the_applications_output_alone() -> None:
    with pods("echo answer", size=2, commands={"pre": "echo noise; echo noise >&2"}, logging={"quiet": True}) as cluster:
        codes, outputs, errors = cluster.run()
        assert (codes, outputs, errors) == ([0, 0], ["answer\n", ""], ["", ""])
        assert "-Slog-stderr-level=0" in cluster.calls("start")[0]


def test_timed_says_how_long_start_and_submit_took() -> None:
    with pods("true", size=1, logging={"timed": True}) as cluster:
        error = cluster.run()[2][0]
        assert "FLUXTIME fluxstart wall time 0:" in error
        assert "FLUXTIME fluxsubmit wall time 0:" in error


def test_a_broker_without_flux_says_what_to_do() -> None:
    with pods("true", size=1, flux={"container": {"disable": True}}) as cluster:
        codes, _, errors = cluster.run(PATH="/usr/bin:/bin")
        assert codes == [127]
        assert "use an image with Flux" in errors[0]


def test_options_of_the_spec_reach_flux() -> None:
    flux = {"optionFlags": "-ompi=openmpi@5", "wrap": "strace", "logLevel": 7, "environment": {"FLAVOUR": "sweet $HOME"}}
    with pods("bash -c 'echo \"$FLAVOUR\"'", size=1, flux=flux, maxSize=3, logging={"debug": True, "zeromq": True}) as cluster:
        codes, outputs, errors = cluster.run()
        assert codes == [0], errors
        assert outputs[0] == f"sweet {cluster.directory(0) / 'work'}\n"
        start = cluster.calls("start")[0]
        assert {"--wrap=strace", "-Sbroker.quorum=1", "-Stbon.zmqdebug=1", "-Slog-stderr-level=7"} <= set(start)
        assert {"-ompi=openmpi@5", "-vvv"} <= set(cluster.calls("submit")[0])


SCHEDULER_PATHS = ("FLUX_MODULE_PATH_PREPEND", "FLUX_RC_EXTRA", "FLUX_MODPROBE_PATH_APPEND")


def test_flux_finds_fluxion_in_the_view_unless_the_simple_scheduler_is_asked_for() -> None:
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


def test_resources_are_those_of_the_allocation() -> None:
    with pods("true", size=2, harness={"given": [Share(4, 1), Share(8)]}) as cluster:
        assert cluster.run()[0] == [0, 0]
        text = (cluster.directory(1) / "mount" / "config" / "etc" / "flux" / "config" / "broker.toml").read_text()
        assert 'hosts = "lammps-0"\ncores = "0-3"\ngpus = "0"' in text
        assert 'hosts = "lammps-1"\ncores = "0-7"' in text


def test_the_environment_of_the_instance_can_be_sourced() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.run()[0] == [0]
        text = (cluster.directory(0) / "mount" / "flux-view.sh").read_text()
        assert "export fluxsocket=local://" in text
        assert (cluster.directory(0) / "mount" / "flux-connect.sh").exists()


def test_the_environment_of_jobs_from_beside_the_leader_is_the_applications_and_only_its_own_to_read() -> None:
    with pods("true", size=2, environment={"LINES": "one\ntwo"}, restful={"enabled": True}) as cluster:
        assert cluster.run()[0] == [0, 0]
        written = cluster.directory(0) / "mount" / "config" / "environment"
        variables = read_environment(written) or {}
        assert variables["LINES"] == "one\ntwo"
        assert variables["PATH"].split(":")[-1].endswith("view/bin")
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        assert not (cluster.directory(1) / "mount" / "config" / "environment").exists()


def test_where_nobody_submits_from_beside_the_leader_its_environment_is_not_written() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.run()[0] == [0]
        assert not (cluster.directory(0) / "mount" / "config" / "environment").exists()


def sidecar_cluster(**sidecar: Any) -> Pods:
    runner = {"image": "app:1", "command": "sleep 60", "runFlux": True}
    return Pods(minicluster(size=1, containers=[runner, {"name": "side", "image": "side:1", **sidecar}], formTimeoutSeconds=5))


def test_a_sidecar_waits_for_the_broker_and_speaks_to_it() -> None:
    with sidecar_cluster(
        command="flux ping --count=1 0; echo code $?", commands={"pre": "echo pre", "servicePre": "echo service"}
    ) as cluster:
        assert cluster.init(0) == 0
        side = cluster.start(0, "side", script="start.sh")
        cluster.start(0)
        assert side.stdout is not None
        assert [side.stdout.readline() for _ in range(3)] == ["pre\n", "service\n", "code 0\n"]
        assert side.poll() is None
        side.terminate()
        assert side.wait(WAIT_S) == 0
        side.communicate()


def test_a_sidecar_that_fails_ends_with_its_code() -> None:
    with sidecar_cluster(command="exit 6; true") as cluster:
        cluster.files["settings.sh"] = cluster.files["settings.sh"].replace("fq_patience='5'", "fq_patience='0'")
        side = cluster.start(0, "side", script="start.sh")
        _, error = side.communicate(timeout=WAIT_S)
        assert side.returncode == 6
        assert "sidecar side ended with code 6" in error
