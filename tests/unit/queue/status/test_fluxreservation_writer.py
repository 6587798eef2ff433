"""The status of a FluxReservation is written from what is set aside,
and only once a cycle knows its present spec.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import make_node, make_reservation
from support.controller_bench import managed_caches, running, subscribed, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.occurrences import Occurrence
from fluxqueue.queue.model.reservation_plans import BookedReservation
from fluxqueue.queue.status.fluxreservation_status import conflicts_of
from fluxqueue.queue.status.fluxreservation_writer import FluxReservationWriter


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluxqueue.queue.status.work_status_writer._PACE_S", 0.01)


async def test_a_status_follows_what_is_set_aside_and_what_is_over_is_removed() -> None:
    memory = MemoryApi()
    memory.put("nodes", make_node("n1").build())
    memory.put("fluxreservations", make_reservation("course", start="2026-12-01T09:00:00", nodes=["n1"]))
    caches = managed_caches(memory)
    booked: dict[str, BookedReservation] = {}
    writer = subscribed(FluxReservationWriter(memory.api, caches, RecordingLedger(), lambda: booked), caches)

    def status() -> Any:
        return memory.get("fluxreservations", "course").get("status", {})

    async with running(writer.run()):
        writer.resync()
        plan = caches.reservations.plans["course"]
        booked["course"] = BookedReservation(plan, ("n1",), (Occurrence(32_503_680_000, 32_503_683_600),))
        writer.resync()
        await until(lambda: status().get("state") == "Planned")
        assert (status()["nodes"], status()["nodeCount"], status()["start"]) == (
            "n1",
            1,
            "3000-01-01T00:00:00Z",
        )
        booked["course"] = BookedReservation(plan)
        writer.resync()
        await until(lambda: status()["state"] == "Over")
        assert (status()["nodes"], status().get("start")) == ("", None)


async def test_a_reservation_is_compared_with_the_work_on_its_nodes_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of a hundred was compared with all work that runs, every few seconds,
    and the leader did nothing else for as long.
    """
    memory = MemoryApi()
    memory.put("nodes", make_node("n1").build())
    memory.put("fluxreservations", make_reservation("course", start="2026-12-01T09:00:00", nodes=["n1"]))
    caches = managed_caches(memory)
    here, elsewhere = (
        a_workload("here", state=State.RUNNING, jobid=7),
        a_workload("elsewhere", state=State.RUNNING, jobid=8),
    )
    ledger = RecordingLedger((here, an_allocation(["n1", "n2"])), (elsewhere, an_allocation(["n2"], jobid=8)))
    plan = caches.reservations.plans["course"]
    booked = {"course": BookedReservation(plan, ("n1",), (Occurrence(1_767_000_000, 1_767_003_600),))}
    compared: list[str] = []

    def conflicts(booked: Any, others: Any, live: Any, nodes: Any) -> Any:
        compared.extend(workload.name for workload, _ in live)
        return conflicts_of(booked, others, live, nodes)

    monkeypatch.setattr("fluxqueue.queue.status.fluxreservation_writer.conflicts_of", conflicts)
    writer = subscribed(FluxReservationWriter(memory.api, caches, ledger, lambda: booked), caches, ledger)
    async with running(writer.run()):
        writer.resync()
        await until(lambda: memory.get("fluxreservations", "course").get("status", {}).get("conflicts"))
    assert set(compared) == {"here"}
    (conflict,) = memory.get("fluxreservations", "course")["status"]["conflicts"]
    assert conflict.startswith("work of the namespace default runs on n1")
