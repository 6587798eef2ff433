"""Nodes are cordoned when a maintenance begins and uncordoned when it ends, whatever happened in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.builders import make_node, make_reservation
from support.controller_bench import RecordedEvents, managed_caches, running, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.occurrences import Occurrence
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.requeue.maintenances import Maintenances
from fluxqueue.queue.store.database import DatabaseUnavailable

NOW = int(EPOCH.timestamp())
ACTIVE, OVER = Occurrence(NOW - 60, NOW + 3_600), Occurrence(NOW - 60, NOW - 1)


class Stage:
    def __init__(self) -> None:
        self.memory = MemoryApi()
        for name in ("n1", "n2"):
            self.memory.put("nodes", make_node(name).build())
        self.events = RecordedEvents()
        self.ledger = RecordingLedger()
        self.evicted: list[WorkloadId] = []
        self.refused: set[WorkloadId] = set()
        self.failing: dict[WorkloadId, Exception] = {}
        self.booked: dict[str, BookedReservation] | None = None
        self.caches: Caches = managed_caches(self.memory)
        self.graces: dict[WorkloadId, str] = {}
        self.maintenances = Maintenances(
            self.memory.api,
            self.caches,
            self.ledger,
            lambda: self.booked,
            self.evict,
            self.end_graces,
            self.events.recorder,
        )
        subscribe(self.caches, self.ledger, self.maintenances)

    async def end_graces(self, causes: Mapping[WorkloadId, str]) -> None:
        self.graces |= causes

    async def evict(self, evictions: Sequence[Eviction]) -> list[WorkloadId]:
        for each in evictions:
            if (error := self.failing.get(each.workload)) is not None:
                raise error
        self.evicted += [each.workload for each in evictions]
        return [each.workload for each in evictions if each.workload in self.refused]

    def reserve(self, time: Occurrence, at_start: str = "drain") -> None:
        spec = {"start": "2026-12-01T09:00:00", "nodes": ["n1"], "maintenance": True, "atStart": at_start}
        self.memory.put("fluxreservations", make_reservation("power", **spec))
        plan = self.caches.reservations.plans["power"]
        self.booked = {"power": BookedReservation(plan, ("n1",), (time,))}
        self.maintenances.resync()

    def node(self, name: str) -> tuple[bool, str | None]:
        body: Any = self.memory.get("nodes", name)
        return bool(body["spec"].get("unschedulable")), (body["metadata"].get("annotations") or {}).get(
            "fluxqueue/maintenance"
        )


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr("fluxqueue.queue.requeue.maintenances._PACE_S", 0.01)
    monkeypatch.setattr("fluxqueue.queue.requeue.maintenances._EVERY_S", 0.1)
    made = Stage()
    async with running(made.maintenances.run()):
        yield made


async def test_a_node_is_cordoned_with_a_mark_and_uncordoned_at_the_end(stage: Stage) -> None:
    stage.reserve(ACTIVE)
    await until(lambda: stage.node("n1") == (True, "power"))
    assert stage.node("n2") == (False, None)
    assert not stage.evicted
    stage.reserve(OVER)
    await until(lambda: stage.node("n1") == (False, None))


async def test_before_the_first_cycle_of_a_leader_no_node_is_touched(stage: Stage) -> None:
    stage.reserve(ACTIVE)
    await until(lambda: stage.node("n1") == (True, "power"))
    stage.booked = None
    stage.maintenances.resync()
    stage.memory.put("nodes", make_node("n2").cordoned().annotation("fluxqueue/maintenance", "power").build())
    stage.booked = None
    await until(lambda: not stage.maintenances._changed.is_set())
    assert stage.node("n2") == (True, "power")


async def test_a_time_of_the_queue_that_is_an_hour_ahead_begins_no_maintenance(stage: Stage) -> None:
    stage.ledger.wall = lambda: EPOCH
    stage.ledger.now = EPOCH + timedelta(hours=1)
    stage.memory.put("nodes", make_node("n2").cordoned().annotation("fluxqueue/maintenance", "gone").build())
    stage.reserve(Occurrence(NOW + 3_000, NOW + 7_000))
    await until(lambda: stage.node("n2") == (False, None))
    assert stage.node("n1") == (False, None)


async def test_a_maintenance_that_was_deleted_ends(stage: Stage) -> None:
    stage.reserve(ACTIVE)
    await until(lambda: stage.node("n1") == (True, "power"))
    stage.booked = {}
    stage.maintenances.resync()
    await until(lambda: stage.node("n1") == (False, None))


async def test_work_is_evicted_only_where_that_is_asked_for(stage: Stage) -> None:
    workload = stage.ledger.put(a_workload(state=State.RUNNING, jobid=7), an_allocation(["n1"]))
    stage.reserve(ACTIVE, "evict")
    await until(lambda: workload.id in stage.evicted)
    assert stage.node("n1") == (True, "power")


async def test_preempted_work_is_evicted_once_and_has_no_grace_any_more(stage: Stage) -> None:
    told = a_workload(
        state=State.DRAINING,
        reason=Reason.PREEMPTED,
        jobid=7,
        requeue_state=RequeueState(stop_at=EPOCH + timedelta(hours=1)),
    )
    stage.ledger.put(told, an_allocation(["n1"]))
    stage.reserve(ACTIVE, "evict")
    await until(lambda: told.id in stage.graces)
    assert stage.evicted == []


async def test_work_that_cannot_be_evicted_is_told_once(stage: Stage) -> None:
    """Bare pods stay until they end, and each change of any work has the nodes compared again."""
    workload = stage.ledger.put(a_workload(state=State.RUNNING, jobid=7), an_allocation(["n1"]))
    stage.refused.add(workload.id)
    with capture_logs() as logs:
        stage.reserve(ACTIVE, "evict")
        await until(lambda: len(stage.evicted) > 2)
    assert [each["refused"] for each in logs if each["event"] == "maintenance.evicted"] == [1]


async def test_an_outage_of_postgres_postpones_the_evictions(stage: Stage) -> None:
    workload = stage.ledger.put(a_workload(state=State.RUNNING, jobid=7), an_allocation(["n1"]))
    stage.failing[workload.id] = DatabaseUnavailable("Postgres does not answer")
    stage.reserve(ACTIVE, "evict")
    await until(lambda: stage.node("n1") == (True, "power"))
    await until(lambda: not stage.maintenances._changed.is_set())
    stage.failing.clear()
    await until(lambda: workload.id in stage.evicted)


async def test_a_right_that_is_missing_is_said_on_the_reservation_and_it_is_tried_again(stage: Stage) -> None:
    stage.memory.fail_next("patch", "nodes", 403, "Forbidden", "nodes is forbidden")
    stage.reserve(ACTIVE)
    await until(lambda: bool(stage.events.events))
    subject, reason, message, _ = stage.events.events[0]
    assert (subject, reason) == ("FluxReservation power", "CordonFailed")
    assert "set reservations.enabled of the chart" in message
    await until(lambda: stage.node("n1") == (True, "power"))
