"""Released pods, bound by a scheduler process on a real control plane."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.scheduler_processes import WAIT_S, Room, SchedulerProcess, released

from fluxqueue.api import names
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api
from fluxqueue.local.processes import wait_until
from fluxqueue.scheduler_plugin.assignments import NodeAssignment
from fluxqueue.scheduler_plugin.binder import Binder, BindOutcome
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.gangs import Member
from fluxqueue.scheduler_plugin.limits import BindLimit

NewNode = Callable[..., str]
FOREIGN_GATE = "example.com/wait"


def test_a_released_pod_is_bound_to_its_node_with_one_event(scheduler: SchedulerProcess, room: Room) -> None:
    room.create(released("single", "node-3"))
    room.wait_bound("single", "node-3")
    assert room.condition("single")["status"] == "True"
    wait_until(lambda: len(room.events("single", "Scheduled")) == 1, "the Event", WAIT_S)
    (event,) = room.events("single", "Scheduled")
    assert event["reportingComponent"] == "fluxqueue-scheduler"
    assert not room.events("single", "FailedScheduling")


def test_a_held_pod_is_left_alone_until_it_has_a_node(scheduler: SchedulerProcess, room: Room) -> None:
    room.create(released("held", "node-1").without("metadata.annotations"))
    room.create(released("other", "node-1", allocation="other"))
    room.wait_bound("other", "node-1")
    assert not room.node_of("held")
    assert not room.condition("held")
    room.annotate("held", allocation="8", fluxion_nodes="node-2")
    room.wait_bound("held", "node-2")


def test_the_label_of_the_go_project_is_followed(scheduler: SchedulerProcess, room: Room) -> None:
    for index, node in enumerate(("node-5", "node-2")):
        pod = released(f"go-{index}", "").without("metadata.annotations").index(index)
        room.create(pod.label(names.GO_NODES_LABEL, "node-5__node-2"))
        room.wait_bound(f"go-{index}", node)


def test_a_list_of_the_go_project_that_is_too_short_is_reported_on_its_pod(
    scheduler: SchedulerProcess, room: Room
) -> None:
    pod = released("go", "").without("metadata.annotations").index(2)
    room.create(pod.label(names.GO_NODES_LABEL, "node-5__node-2"))
    room.wait_condition("go", "Unschedulable", "completion index 2")
    wait_until(lambda: len(room.events("go", "FailedScheduling")) == 1, "the Event", WAIT_S)


def test_gates_of_others_are_left_on_the_pod_and_respected(scheduler: SchedulerProcess, room: Room) -> None:
    room.create(released("gated", "node-1").gate(FOREIGN_GATE))
    room.create(released("other", "node-1", allocation="other"))
    room.wait_bound("other", "node-1")
    assert room.pod("gated")["spec"]["schedulingGates"] == [{"name": FOREIGN_GATE}]
    assert not room.node_of("gated")
    room.ungate("gated")
    room.wait_bound("gated", "node-1")


def test_a_gang_is_bound_when_the_last_of_its_pods_is_there(scheduler: SchedulerProcess, room: Room) -> None:
    for index in range(3):
        room.create(released(f"gang-{index}", f"node-{index + 1}", gang=4).index(index))
    room.create(released("other", "node-1", allocation="other"))
    room.wait_bound("other", "node-1")
    assert not any(room.node_of(f"gang-{index}") for index in range(3))
    room.create(released("gang-3", "node-4", gang=4).index(3))
    for index in range(4):
        room.wait_bound(f"gang-{index}", f"node-{index + 1}")


def test_a_gang_whose_pod_is_gated_by_somebody_else_waits_as_a_whole(
    scheduler: SchedulerProcess, room: Room
) -> None:
    room.create(released("gang-0", "node-1", gang=2).index(0))
    room.create(released("gang-1", "node-2", gang=2).index(1).gate(FOREIGN_GATE))
    room.create(released("other", "node-1", allocation="other"))
    room.wait_bound("other", "node-1")
    assert not room.node_of("gang-0")
    room.ungate("gang-1")
    room.wait_bound("gang-0", "node-1")
    room.wait_bound("gang-1", "node-2")


def test_a_waiting_gang_gets_a_reason(scheduler: SchedulerProcess, room: Room) -> None:
    room.create(released("gang-0", "node-1", gang=2).index(0))
    condition = room.wait_condition("gang-0", "WaitingForGang", "2 pods", "allocation 7")
    assert condition["status"] == "False"
    assert not room.events("gang-0", "FailedScheduling")
    room.create(released("gang-1", "node-2", gang=2).index(1))
    room.wait_bound("gang-0", "node-1")
    assert room.condition("gang-0")["status"] == "True"


def test_the_rest_of_a_started_gang_is_bound_pod_by_pod(scheduler: SchedulerProcess, room: Room) -> None:
    for index in range(2):
        room.create(released(f"gang-{index}", "node-1", gang=2).index(index))
    for index in range(2):
        room.wait_bound(f"gang-{index}", "node-1")
    room.cluster.client.request("DELETE", f"{room.path}/pods/gang-1", {"gracePeriodSeconds": 0})
    room.create(released("gang-1-again", "node-2", gang=2).index(1))
    room.wait_bound("gang-1-again", "node-2")


def test_a_gang_of_which_one_pod_has_no_room_is_not_bound_at_all(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    full = new_node(cpu="1")
    room.create(released("foreign", full, allocation="6", cpu="800m"))
    room.wait_bound("foreign", full)
    room.create(released("gang-0", "node-1", gang=2).index(0))
    room.create(released("gang-1", full, gang=2, cpu="500m").index(1))
    room.wait_condition("gang-1", "Unschedulable", full, "cpu")
    assert not room.node_of("gang-0")
    room.cluster.client.request("DELETE", f"{room.path}/pods/foreign", {"gracePeriodSeconds": 0})
    room.wait_bound("gang-1", full)
    room.wait_bound("gang-0", "node-1")


def test_members_of_a_gang_on_one_node_are_counted_together(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    small = new_node(cpu="1")
    for index in range(2):
        room.create(released(f"gang-{index}", small, gang=2, cpu="600m").index(index))
    room.wait_condition("gang-1", "Unschedulable", small)
    assert not room.node_of("gang-0")


def test_two_allocations_are_never_both_bound_where_there_is_room_for_one(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    small = new_node(cpu="1")
    pods = [f"rival-{number}" for number in range(12)]
    for number, name in enumerate(pods):
        room.create(released(name, small, allocation=str(number), cpu="600m"))

    def is_decided() -> bool:
        bound = [name for name in pods if room.node_of(name)]
        return bool(bound) and all(
            "cpu" in room.condition(name).get("message", "") for name in pods if name not in bound
        )

    wait_until(is_decided, "all decided", WAIT_S)
    assert [room.node_of(name) for name in pods if room.node_of(name)] == [small]


def test_a_refusal_is_reported_once_as_condition_and_event(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    small = new_node(cpu="1")
    room.create(released("large", small, cpu="2"))
    condition = room.wait_condition("large", "Unschedulable", small, "cpu")
    assert condition["status"] == "False"
    wait_until(lambda: len(room.events("large", "FailedScheduling")) == 1, "the Event", WAIT_S)
    version = room.pod("large")["metadata"]["resourceVersion"]
    for number in range(3):  # the node changes, the pod is checked again, and there is nothing new to report
        room.cluster.client.request(
            "PATCH", f"/api/v1/nodes/{small}", {"metadata": {"labels": {"changed": str(number)}}}
        )
        room.create(released(f"other-{number}", "node-1", allocation="other"))
        room.wait_bound(f"other-{number}", "node-1")
    assert room.pod("large")["metadata"]["resourceVersion"] == version
    (event,) = room.events("large", "FailedScheduling")
    assert (event["type"], event["count"], event["reportingComponent"]) == (
        "Warning",
        1,
        "fluxqueue-scheduler",
    )
    assert small in event["message"]


def test_a_refused_pod_whose_annotation_changes_is_bound_to_its_new_node(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    small = new_node(cpu="1")
    room.create(released("moved", small, cpu="2"))
    room.wait_condition("moved", "Unschedulable", small)
    room.annotate("moved", allocation="8", fluxion_nodes="node-4")
    room.wait_bound("moved", "node-4")


def test_a_pod_that_gets_a_refusing_node_again_is_reported_again(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    small = new_node(cpu="1")
    room.create(released("again", small, cpu="2"))
    room.wait_condition("again", "Unschedulable", small)
    room.annotate("again", allocation="8")

    def times_told() -> int:
        return sum(event["count"] for event in room.events("again", "FailedScheduling"))

    wait_until(lambda: times_told() == 2, "a second report", WAIT_S)


def test_a_cordoned_node_refuses_and_takes_the_pod_when_it_is_open_again(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    node = new_node()
    room.cluster.client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    room.create(released("early", node))
    room.wait_condition("early", "Unschedulable", node, "cordoned")
    room.cluster.client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
    room.wait_bound("early", node)


def test_a_node_that_does_not_exist_is_reported(scheduler: SchedulerProcess, room: Room) -> None:
    room.create(released("lost", "nowhere"))
    room.wait_condition("lost", "Unschedulable", "nowhere", "does not exist")


def test_pods_that_end_or_are_deleted_leave_room_for_those_that_were_refused(
    scheduler: SchedulerProcess, room: Room, new_node: NewNode
) -> None:
    small = new_node(cpu="1")
    room.create(released("first", small, cpu="600m").annotation("fluxqueue.local/run-seconds", "3"))
    room.wait_bound("first", small)
    room.create(released("second", small, allocation="8", cpu="600m"))
    room.wait_condition("second", "Unschedulable", small)
    room.wait_bound("second", small)
    assert room.pod("first")["status"]["phase"] == "Succeeded"


async def test_the_api_server_refuses_to_bind_a_pod_that_is_not_as_it_was_checked(room: Room) -> None:
    """The effect of the preconditions of a Binding, from the server itself."""
    async with Api.connect(room.cluster.kubeconfig) as api:

        async def bind(name: str, **other: str) -> None:
            meta = room.pod(name)["metadata"]
            known: dict[str, Any] = {"uid": meta["uid"], "resource_version": meta["resourceVersion"], **other}
            await api.bind(name, room.namespace, "node-1", **known)

        held = released("held", "node-1").without("metadata.annotations")
        room.create(held)
        with pytest.raises(Conflict):
            await bind("held", uid="00000000-0000-0000-0000-000000000000")
        before = room.pod("held")["metadata"]["resourceVersion"]
        room.annotate("held", allocation="8")
        with pytest.raises(Conflict):
            await bind("held", resource_version=before)
        assert not room.node_of("held")
        async with asyncio.timeout(60):
            while not room.node_of("held"):
                with contextlib.suppress(Conflict):  # something else changed the pod after it was read
                    await bind("held")
        with pytest.raises(Conflict):
            await bind("held")
        room.create(released("gated", "node-1").without("metadata.annotations").gate(FOREIGN_GATE))
        with pytest.raises(Conflict):
            await bind("gated")
        pod = (
            released("leaving", "node-1")
            .without("metadata.annotations")
            .with_("metadata.finalizers", ["example.com/keep"])
        )
        room.create(pod)
        await api.delete(PODS, "leaving", namespace=room.namespace)
        with pytest.raises(Conflict):
            await bind("leaving")
        room.cluster.client.request("PATCH", f"{room.path}/pods/leaving", {"metadata": {"finalizers": []}})
        wait_until(lambda: room.cluster.client.find(f"{room.path}/pods/leaving") is None, "gone", WAIT_S)
        with pytest.raises(NotFound):
            await api.bind("leaving", room.namespace, "node-1", uid="x", resource_version="1")


async def test_a_pod_that_is_withdrawn_between_check_and_bind_is_not_bound(room: Room) -> None:
    """The API server knows a change before the watch shows it."""
    async with Api.connect(room.cluster.kubeconfig) as api:
        room.create(released("withdrawn", "node-1").with_("spec.schedulerName", "nobody"))
        checked = await api.get(PODS, "withdrawn", room.namespace)
        caches = SchedulerCaches(api)
        caches.pods.apply(checked)
        caches.assume(checked, "node-1")
        room.annotate("withdrawn", allocation=None, fluxion_nodes=None)
        binder = Binder(api, caches, BindLimit(clock=time.monotonic))
        result = await binder.bind(Member(checked, NodeAssignment("node-1", "7"), 0.0))
        assert result.outcome is BindOutcome.CHANGED
        assert not room.node_of("withdrawn")


def test_the_metrics_have_the_names_of_the_stock_scheduler(scheduler: SchedulerProcess, room: Room) -> None:
    before = scheduler.metrics()
    room.create(released("counted", "node-1"))
    room.wait_bound("counted", "node-1")
    scheduled = 'scheduler_schedule_attempts_total{profile="FluxionScheduler",result="scheduled"}'
    wait_until(
        lambda: scheduler.metrics()[scheduled] > before.get(scheduled, 0.0), "the attempt counted", WAIT_S
    )
    now = scheduler.metrics()
    assert now["scheduler_pod_scheduling_attempts_count"] > 0
    assert {
        f'scheduler_pending_pods{{queue="{queue}"}}' for queue in ("active", "gated", "unschedulable")
    } <= now.keys()
    assert 'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}' in now
    assert not [name for name in now if name.startswith("fluxqueue_cycles")]
