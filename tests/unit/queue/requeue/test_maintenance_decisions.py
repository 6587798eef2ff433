from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_node, make_reservation
from support.queue_builders import EPOCH, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxreservations import AtStart, FluxReservation
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.occurrences import Occurrence
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.model.reservation_plans import BookedReservation, plan_of
from fluxqueue.queue.requeue.maintenance_decisions import (
    evictions_for,
    nodes_in_maintenance,
    useless_graces,
    writes_for,
)

CORDONING = (AtStart.DRAIN, AtStart.EVICT)


def booked(*nodes: str, **spec: Any) -> BookedReservation:
    body = make_reservation(
        "power", **{"start": "2026-12-01T09:00:00", "nodes": [*nodes], "maintenance": True, **spec}
    )
    return BookedReservation(
        plan_of(msgspec.convert(body, FluxReservation)), nodes, (Occurrence(10, 20), Occurrence(30, 40))
    )


def node(name: str, *, cordoned: bool = False, marked: bool = False) -> Node:
    builder = make_node(name)
    builder = builder.cordoned() if cordoned else builder
    return msgspec.convert(
        (builder.annotation("fluxqueue/maintenance", "power") if marked else builder).build(), Node
    )


@pytest.mark.parametrize(
    ("now", "active"), [(9, False), (10, True), (19, True), (20, False), (35, True), (40, False)]
)
def test_nodes_are_in_maintenance_within_its_times(now: int, active: bool) -> None:
    assert nodes_in_maintenance([booked("a", atStart="drain")], now, CORDONING) == (
        {"a": "power"} if active else {}
    )


def test_a_maintenance_that_leaves_its_nodes_and_a_reservation_of_people_do_nothing() -> None:
    course = booked("b", maintenance=False, namespaces=["x"])
    assert nodes_in_maintenance([booked("a", atStart="leave"), course], 15, CORDONING) == {}
    assert nodes_in_maintenance([booked("a", atStart="drain")], 15, (AtStart.EVICT,)) == {}


@pytest.mark.parametrize(
    ("state", "wanted", "write"),
    [
        ({}, True, "power"),
        ({"cordoned": True, "marked": True}, True, "nothing"),
        ({"cordoned": True}, True, "nothing"),
        ({"marked": True}, True, "nothing"),
        ({"cordoned": True, "marked": True}, False, None),
        ({"marked": True}, False, None),
        ({"cordoned": True}, False, "nothing"),
        ({}, False, "nothing"),
    ],
)
def test_only_what_the_queue_cordoned_is_uncordoned_and_no_person_is_overruled(
    state: dict[str, bool], wanted: bool, write: str | None
) -> None:
    writes = writes_for([node("a", **state)], {"a": "power"} if wanted else {})
    assert [each.reservation for each in writes] == ([] if write == "nothing" else [write])


def test_a_write_names_the_node_as_it_was_read_and_marks_it_with_the_cordon() -> None:
    (cordon,) = writes_for([node("a")], {"a": "power"})
    patch: Any = cordon.patch
    assert patch["metadata"]["annotations"] == {"fluxqueue/maintenance": "power"}
    assert patch["spec"] == {"unschedulable": True}
    assert patch["metadata"].keys() == {"uid", "resourceVersion", "annotations"}
    (uncordon,) = writes_for([node("a", cordoned=True, marked=True)], {})
    patch = uncordon.patch
    assert (patch["metadata"]["annotations"], patch["spec"]) == (
        {"fluxqueue/maintenance": None},
        {"unschedulable": None},
    )


def test_work_on_the_nodes_is_evicted_once_with_a_sentence() -> None:
    running, elsewhere, draining = (
        a_workload(state=state, jobid=7) for state in (State.RUNNING, State.RUNNING, State.DRAINING)
    )
    live = [
        (running, an_allocation(["b", "a"])),
        (elsewhere, an_allocation(["c"])),
        (draining, an_allocation(["a"])),
    ]
    (eviction,) = evictions_for(live, {"a": "power"}, EPOCH)
    assert (eviction.workload, eviction.reason) == (running.id, Reason.RESERVATION)
    assert (
        eviction.message
        == f"{running.ref} was requeued: the maintenance power of node a began; it keeps its submit time"
    )


def test_work_that_is_ended_at_its_time_limit_is_not_evicted() -> None:
    limited = a_workload(
        state=State.RUNNING, jobid=7, started_at=EPOCH, requeue_state=RequeueState(time_limit=EPOCH)
    )
    assert evictions_for([(limited, an_allocation(["a"]))], {"a": "power"}, EPOCH) == []


@pytest.mark.parametrize(("after_s", "evicted"), [(0, False), (299, False), (300, True)])
def test_work_is_not_evicted_for_a_slot_that_it_gives_back_unless_its_pod_does_not_end(
    after_s: int, evicted: bool
) -> None:
    given = GivenBack(jobid=7, ranks=(1,), stop_at=EPOCH, message="it gave 1 of its 2 pods back")
    smaller = a_workload(state=State.RUNNING, jobid=7, requeue_state=RequeueState(given_back=given))
    now = EPOCH + timedelta(seconds=after_s)
    assert bool(evictions_for([(smaller, an_allocation(["b", "a"]))], {"a": "power"}, now)) is evicted
    assert evictions_for([(smaller, an_allocation(["b", "a"]))], {"b": "power"}, now), "a slot that it keeps"


@pytest.mark.parametrize(("node", "after_s", "ended"), [("a", 0, True), ("a", 60, False), ("c", 0, False)])
def test_preempted_work_on_the_nodes_has_no_use_for_its_grace(node: str, after_s: int, ended: bool) -> None:
    told = a_workload(
        state=State.DRAINING,
        reason=Reason.PREEMPTED,
        jobid=7,
        requeue_state=RequeueState(stop_at=EPOCH + timedelta(seconds=60)),
    )
    found = useless_graces(
        [(told, an_allocation(["b", node]))], {"a": "power"}, EPOCH + timedelta(seconds=after_s)
    )
    assert found == ({told.id: "the maintenance power of node a began"} if ended else {})
