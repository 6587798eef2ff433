"""A leader that is stopped: its followers, and the state that it keeps."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.minicluster_pods import WAIT_S, pods, wait_until

from fluxqueue.minicluster.scripts import EXIT_REPLACEABLE


def test_followers_of_a_stopped_leader_join_the_next_one_and_end_with_it() -> None:
    with pods("sleep 60", size=3) as cluster:
        for index in range(3):
            cluster.start(index)
        cluster.wait_for("online")
        cluster.stop(0)
        code, _, error = cluster.finish(0)
        assert code == EXIT_REPLACEABLE
        assert "has been shut down" in error
        assert cluster.events("left") == cluster.events("broken") == []
        cluster.start(0)
        cluster.wait_for("online", 2)
        cluster.wait_for("joined", 4)
        assert cluster.flux(0, "shutdown").returncode == 0
        ended = [cluster.finish(index) for index in range(3)]
        assert [code for code, _, _ in ended[1:]] == [0, 0]
        assert "the instance goes on with its next leader" in ended[1][2]
        assert ended[0][0] not in (0, EXIT_REPLACEABLE)
        assert "shut down before its command ended" in ended[0][2]


def test_followers_of_a_leader_stopped_before_all_are_online_join_the_next() -> None:
    with pods("true", size=3) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(0)
        assert cluster.finish(0)[0] == EXIT_REPLACEABLE
        cluster.start(0)
        cluster.start(2)
        assert [cluster.finish(index)[0] for index in range(3)] == [0, 0, 0]


def test_a_follower_whose_next_leader_does_not_come_may_be_replaced() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.set(fq_patience=1)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("online")
        cluster.stop(0)
        assert [cluster.finish(index)[0] for index in (0, 1)] == [EXIT_REPLACEABLE, EXIT_REPLACEABLE]
        assert "the leader 127.0.0.1 is gone" in cluster.reason(1)


def test_the_code_of_a_command_that_has_ended_stands_when_its_leader_is_stopped() -> None:
    with pods("exit 3; true", size=2) as cluster:
        cluster.hold(0)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("finalizing", 2)
        cluster.stop(0)
        wait_until(lambda: cluster.calls("uptime") != [], "the leader asks for the state of its broker")
        cluster.hold(0, False)
        assert [cluster.finish(index)[0] for index in (0, 1)] == [3, 0]
        assert cluster.events("broken") == []
        assert cluster.calls("exec") == []


def test_a_leader_that_is_stopped_before_its_broker_starts_none() -> None:
    with pods("true", size=1, commands={"brokerPre": "echo waiting; sleep 2"}) as cluster:
        process = cluster.start(0)
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        cluster.stop(0)
        assert cluster.finish(0)[0] == EXIT_REPLACEABLE
        assert cluster.calls("start") == []
        assert "before its broker started" in cluster.reason(0)


@pytest.mark.parametrize("hook", ["pre", "brokerPre"])
def test_a_hook_that_does_not_end_ends_with_the_grace_period(hook: str) -> None:
    hooks = {hook: "echo waiting; sleep 600"}
    with pods(
        "true", size=1, commands=hooks, podTemplate={"spec": {"terminationGracePeriodSeconds": 3}}
    ) as cluster:
        process = cluster.start(0)
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        cluster.stop(0)
        assert process.wait(WAIT_S) == EXIT_REPLACEABLE
        assert "was asked to stop, and its processes were ended" in cluster.reason(0)


def test_a_leader_whose_program_ignores_signals_ends_within_the_grace_period(tmp_path: Path) -> None:
    program = (
        f"bash -c 'trap \"\" HUP; exec >/dev/null 2>&1; echo $$ >{tmp_path}/pid; while :; do sleep 0.1; done'"
    )
    with pods(
        program, size=1, launcher=True, podTemplate={"spec": {"terminationGracePeriodSeconds": 3}}
    ) as cluster:
        cluster.start(0)
        wait_until(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", "the program runs"
        )
        cluster.stop(0)
        try:
            assert cluster.processes[0].wait(WAIT_S) == EXIT_REPLACEABLE
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_state_is_dumped_when_the_instance_stops_and_restored_when_it_starts(tmp_path: Path) -> None:
    volume = {"claimName": "kept", "path": str(tmp_path)}
    with pods("sleep 60", size=1, state={"volume": volume}) as cluster:
        cluster.start(0)
        cluster.wait_for("online")
        cluster.stop(0)
        assert cluster.finish(0)[0] == EXIT_REPLACEABLE
        assert cluster.events("restored") == []
        kept = tmp_path / "flux-state.tgz"
        assert kept.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["flux-state.tgz"]
        cluster.start(0)
        cluster.wait_for("restored")
        assert bytes.fromhex(cluster.events("restored")[0]["restored"]) == kept.read_bytes()


def test_an_incomplete_dump_does_not_replace_a_complete_one(tmp_path: Path) -> None:
    kept = tmp_path / "flux-state.tgz"
    kept.write_bytes(b"whole")
    (tmp_path / ".new-flux-state.tgz").write_bytes(b"half")
    with pods(
        "true",
        size=1,
        state={"volume": {"claimName": "kept", "path": str(tmp_path)}},
        harness={"outcomes": {0: [{"exit": 1}]}},
    ) as cluster:
        _, _, errors = cluster.run()
        assert "not whole" in errors[0]
        assert kept.read_bytes() == b"whole"
