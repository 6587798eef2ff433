"""Schedulers that are killed, frozen, stopped or cut off from the API server:
no pod is bound twice, and none stays unbound.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.scheduler_processes import WAIT_S, Room, SchedulerProcess, released

from fluxqueue.api.crashpoints import VARIABLE
from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint

Start = Callable[..., SchedulerProcess]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """A control plane without another scheduler of ours, whose API server may be restarted."""
    cluster = ControlPlane(service_folder / "scheduler", nodes=4)
    cluster.start()
    cluster.stop_component(Component.SCHEDULER, graceful=False)
    yield cluster
    cluster.destroy()


@pytest.fixture
def room(cluster: ControlPlane) -> Room:
    """A namespace for one test, in which pods can be created."""
    name = f"failover-{next(_numbers)}"
    cluster.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    wait_until(
        lambda: cluster.client.find(f"/api/v1/namespaces/{name}/serviceaccounts/default") is not None,
        "service account",
        WAIT_S,
    )
    return Room(cluster, name)


@pytest.fixture
def start(cluster: ControlPlane, room: Room, tmp_path: Path) -> Iterator[Start]:
    """Start a replica: ``start("a")`` leads, ``start("b", role="follower")`` follows.
    They share a Lease in the test's namespace.
    """
    made: list[SchedulerProcess] = []

    def begin(replica: str, *, role: str = "leader", **environment: str) -> SchedulerProcess:
        made.append(
            SchedulerProcess(
                cluster.kubeconfig, tmp_path, replica, namespace=room.namespace, environment=environment
            )
        )
        return made[-1].start(role=role)

    yield begin
    for scheduler in made:
        scheduler.process.send(signal.SIGCONT)
        scheduler.stop()


def gang(room: Room, *indexes: int) -> None:
    """Release these pods of a gang of four, each to its own node."""
    for index in indexes:
        room.create(released(f"gang-{index}", f"node-{index + 1}", gang=4).index(index))


def wait_all_bound(room: Room) -> None:
    for index in range(4):
        room.wait_bound(f"gang-{index}", f"node-{index + 1}")


def test_a_follower_takes_over_what_a_killed_leader_left(start: Start, room: Room) -> None:
    first = start("a")
    standby = start("b", role="follower")
    gang(room, 0, 1, 2)
    first.process.send(signal.SIGKILL)
    gang(room, 3)
    standby.wait_role("leader")
    wait_all_bound(room)


def test_a_leader_that_is_asked_to_stop_hands_over_at_once(start: Start, room: Room) -> None:
    first = start("a")
    standby = start("b", role="follower")
    first.process.send(signal.SIGTERM)
    assert first.wait_end() == 0
    lease = room.cluster.client.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{room.namespace}/leases/fluxqueue-scheduler"
    )
    assert not lease["spec"].get("holderIdentity", "").startswith("a_")
    standby.wait_role("leader")
    gang(room, 0, 1, 2, 3)
    wait_all_bound(room)


def test_a_leader_that_was_frozen_binds_nothing_when_it_wakes_up(start: Start, room: Room) -> None:
    frozen = start("a")
    gang(room, 0, 1, 2)
    standby = start("b", role="follower")
    frozen.process.send(signal.SIGSTOP)
    standby.wait_role("leader")
    for index in range(3):  # the queue takes the gang back and gives it other nodes
        room.annotate(f"gang-{index}", allocation="8", fluxion_nodes="node-4", gang_size="3")
    for index in range(3):
        room.wait_bound(f"gang-{index}", "node-4")
    frozen.process.send(signal.SIGCONT)
    assert frozen.wait_end() == 1
    assert "remedy" in frozen.process.log_text()


def wait_crash(doomed: SchedulerProcess) -> None:
    """Wait until the crash point ends the process.
    If it loses its Lease on a busy machine, start it again, as the kubelet does.
    """
    while (code := doomed.wait_end()) == 1:
        doomed.start()
    assert code == -signal.SIGKILL


@pytest.mark.parametrize(
    "point", [SchedulerCrashPoint.CHECKED, SchedulerCrashPoint.BOUND_ONE, SchedulerCrashPoint.BOUND]
)
def test_the_next_life_completes_a_gang_that_a_crash_interrupted(
    point: SchedulerCrashPoint, start: Start, room: Room, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    doomed = start("a", **{VARIABLE: str(armed)})
    armed.write_text(f"{point} {1 if point is SchedulerCrashPoint.CHECKED else 2}")
    gang(room, 0, 1, 2, 3)
    wait_crash(doomed)
    doomed.start()
    wait_all_bound(room)
    assert (
        sum(
            name.startswith("scheduler_schedule_attempts_total") and "error" in name
            for name in doomed.metrics()
        )
        == 0
    )


@pytest.mark.parametrize("point", [SchedulerCrashPoint.REFUSED, SchedulerCrashPoint.REPORTED])
def test_a_restart_reports_what_a_crash_left_unreported(
    point: SchedulerCrashPoint, start: Start, room: Room, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    doomed = start("a", **{VARIABLE: str(armed)})
    armed.write_text(str(point))
    room.create(released("large", "node-1", cpu="100"))
    wait_crash(doomed)
    doomed.start()
    room.wait_condition("large", "Unschedulable", "node-1", "cpu")
    wait_until(lambda: len(room.events("large", "FailedScheduling")) == 1, "the Event", WAIT_S)


def test_pods_released_around_a_restart_of_the_api_server_are_bound(start: Start, room: Room) -> None:
    scheduler = start("a")
    gang(room, 0, 1)
    room.cluster.restart_component(Component.API_SERVER)
    gang(room, 2, 3)

    def is_bound() -> bool:
        if not scheduler.process.running:  # its Lease ran out meanwhile; a kubelet would start it again
            scheduler.process.start()
        return all(room.node_of(f"gang-{index}") == f"node-{index + 1}" for index in range(4))

    wait_until(is_bound, "the gang bound", 2 * WAIT_S)


def test_two_that_both_believe_to_lead_bind_each_pod_once(
    start: Start, cluster: ControlPlane, room: Room, tmp_path: Path
) -> None:
    """Two Leases, so that both lead: only the preconditions prevent double binding."""
    start("a")
    other = SchedulerProcess(
        cluster.kubeconfig, tmp_path, "b", namespace=room.namespace, lease="another"
    ).start()
    try:
        pods = [f"p{number}" for number in range(40)]
        for number, name in enumerate(pods):
            room.create(released(name, f"node-{number % 4 + 1}", allocation=str(number)))
        for number, name in enumerate(pods):
            room.wait_bound(name, f"node-{number % 4 + 1}")
        wait_until(lambda: all(room.events(name, "Scheduled") for name in pods), "an Event for each", WAIT_S)
        assert [len(room.events(name, "Scheduled")) for name in pods] == [1] * len(pods)
        assert not any(room.events(name, "FailedScheduling") for name in pods)
    finally:
        other.process.stop()
