"""Pods of real brokers that are stopped, lost, replaced or late, and instances that are shut down."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.minicluster_pods import Pods, wait_until

from fluxqueue.minicluster.scripts import EXIT_REPLACEABLE

MakePods = Callable[..., Pods]


def online(cluster: Pods, *indices: int) -> None:
    for index in indices:
        wait_until(lambda index=index: cluster.ready(index), f"the broker of pod {index} is online")  # type: ignore[misc]  # a default argument


def seconds_until_online_again(cluster: Pods, *indices: int) -> float:
    """Start the leader again; return how long it took until all brokers were online."""
    began = time.monotonic()
    cluster.start(0)
    online(cluster, 0, *indices)
    return time.monotonic() - began


def shut_down(cluster: Pods) -> None:
    assert cluster.flux(0, "shutdown").returncode == 0


def test_an_instance_without_a_command_ends_well_when_it_is_shut_down(brokers: MakePods) -> None:
    with brokers(size=3, interactive=True) as cluster:
        for index in range(3):
            cluster.start(index)
        online(cluster, 0, 1, 2)
        shut_down(cluster)
        assert [cluster.finish(index)[0] for index in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("code", [0, 4])
def test_a_session_ends_with_the_code_of_its_command(brokers: MakePods, code: int) -> None:
    with brokers(f"exit {code}; true", size=2, interactive=True) as cluster:
        process = cluster.start(0)
        cluster.start(1)
        assert process.stderr is not None
        for line in process.stderr:
            if f"the command ended with code {code}" in line:
                break
        shut_down(cluster)
        assert [cluster.finish(index)[0] for index in (0, 1)] == [code, 0]


def test_followers_of_a_stopped_leader_join_the_next_one(
    brokers: MakePods, record_property: Callable[[str, object], None]
) -> None:
    with brokers(size=3, interactive=True) as cluster:
        for index in range(3):
            cluster.start(index)
        online(cluster, 0, 1, 2)
        cluster.stop(0)
        assert cluster.finish(0)[0] == EXIT_REPLACEABLE
        record_property("seconds until online again", seconds_until_online_again(cluster, 1, 2))
        shut_down(cluster)
        assert [cluster.finish(index)[0] for index in range(3)] == [0, 0, 0]


def test_followers_of_a_killed_leader_join_the_next_one(
    brokers: MakePods, record_property: Callable[[str, object], None]
) -> None:
    with brokers(size=3, interactive=True) as cluster:
        for index in range(3):
            cluster.start(index)
        online(cluster, 0, 1, 2)
        os.killpg(cluster.processes[0].pid, signal.SIGKILL)
        cluster.finish(0)
        record_property("seconds until online again", seconds_until_online_again(cluster, 1, 2))
        shut_down(cluster)
        assert [cluster.finish(index)[0] for index in range(3)] == [0, 0, 0]


def test_a_stopped_follower_leaves_and_its_replacement_joins(brokers: MakePods) -> None:
    with brokers(size=3, interactive=True) as cluster:
        for index in range(3):
            cluster.start(index)
        online(cluster, 0, 1, 2)
        cluster.stop(2)
        assert cluster.finish(2)[0] == EXIT_REPLACEABLE
        cluster.start(2)
        online(cluster, 0, 1, 2)
        shut_down(cluster)
        assert [cluster.finish(index)[0] for index in range(3)] == [0, 0, 0]


def test_followers_that_are_stopped_during_a_shutdown_do_not_break_it(
    brokers: MakePods, tmp_path: Path
) -> None:
    with brokers(f"until [ -e {tmp_path}/end ]; do sleep 0.1; done; exit 3", size=4) as cluster:
        for index in range(4):
            cluster.start(index)
        online(cluster, 1, 2, 3)
        (tmp_path / "end").touch()
        for index in (1, 2, 3):
            cluster.stop(index)
        codes = [cluster.finish(index)[0] for index in range(4)]
        assert codes[0] == 3
        assert set(codes[1:]) <= {0, EXIT_REPLACEABLE}


def test_followers_that_are_early_join_a_late_leader(brokers: MakePods) -> None:
    with brokers("echo formed", size=3) as cluster:
        for index in (1, 2):
            cluster.start(index)
        wait_until(
            lambda: (cluster.directory(2) / "mount" / "flux-connect.sh").exists(), "the followers wait"
        )
        cluster.start(0)
        ended = [cluster.finish(index) for index in range(3)]
        assert [code for code, _, _ in ended] == [0, 0, 0]
        assert ended[0][1] == "formed\n"


def test_a_broker_within_the_maximum_joins_a_running_instance(brokers: MakePods) -> None:
    with brokers(size=2, maxSize=3, interactive=True) as cluster:
        for index in range(2):
            cluster.start(index)
        online(cluster, 0, 1)
        cluster.start(2)
        online(cluster, 2)
        shut_down(cluster)
        assert [cluster.finish(index)[0] for index in range(3)] == [0, 0, 0]


def test_the_jobs_of_a_stopped_instance_are_those_of_the_next_one(brokers: MakePods, tmp_path: Path) -> None:
    volume = {"claimName": "kept", "path": str(tmp_path)}
    with brokers(size=1, interactive=True, state={"volume": volume}) as cluster:
        cluster.start(0)
        online(cluster, 0)
        assert cluster.flux(0, "submit", "--job-name=remembered", "--wait", "true").returncode == 0
        cluster.stop(0)
        assert cluster.finish(0)[0] == EXIT_REPLACEABLE
        cluster.start(0)
        online(cluster, 0)
        wait_until(
            lambda: "remembered" in cluster.flux(0, "jobs", "-a").stdout,
            "the restored instance lists the job",
        )
        shut_down(cluster)
        assert cluster.finish(0)[0] == 0
