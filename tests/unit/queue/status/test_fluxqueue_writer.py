"""The status of a FluxQueue is written when it differs, and a failure of one does not affect the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.builders import make_job
from support.controller_bench import RecordedEvents, managed_caches, running, subscribed, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.status.fluxqueue_writer import FluxQueueWriter


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluxqueue.queue.status.work_status_writer._PACE_S", 0.01)


@pytest.fixture
def memory() -> MemoryApi:
    memory = MemoryApi()
    for name in ("default", "gpu"):
        memory.put("fluxqueues", {"metadata": {"name": name}, "spec": {}})
    memory.put("jobs", make_job("lammps").build())
    return memory


@pytest.fixture
async def writer(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> AsyncIterator[FluxQueueWriter]:
    caches = managed_caches(memory)
    writer = subscribed(FluxQueueWriter(memory.api, caches, ledger, events.recorder), caches, ledger)
    async with running(writer.run()):
        yield writer


def status(memory: MemoryApi, name: str = "default") -> Any:
    return memory.get("fluxqueues", name).get("status", {})


async def test_counts_follow_the_rows_and_return_to_zero(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxQueueWriter
) -> None:
    writer.resync()
    await until(lambda: status(memory).get("pending") == 0)
    waiting = ledger.put(a_workload())
    started = ledger.put(a_workload(state=State.RUNNING, jobid=7), an_allocation(["n1", "n2"]))
    await until(
        lambda: (
            (status(memory)["pending"], status(memory)["running"], status(memory)["nodesInUse"]) == (1, 1, 2)
        )
    )
    ledger.end(replace(started, state=State.COMPLETED))
    ledger.end(waiting)
    await until(lambda: (status(memory)["pending"], status(memory)["running"]) == (0, 0))


async def test_an_equal_status_is_not_written_again(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxQueueWriter
) -> None:
    writer.resync()
    await until(lambda: status(memory) and status(memory, "gpu"))
    before = len(memory.writes)
    ledger.put(a_workload())
    await until(lambda: status(memory)["pending"] == 1)
    assert [write.name for write in memory.writes[before:]] == ["default"]


async def test_busy_queues_take_turns(memory: MemoryApi, ledger: RecordingLedger) -> None:
    names = [f"busy-{number:02}" for number in range(20)]
    for name in names:
        memory.put("fluxqueues", {"metadata": {"name": name}, "spec": {}})
    caches = managed_caches(memory)
    writer = subscribed(FluxQueueWriter(memory.api, caches, ledger), caches, ledger)
    await writer._write(names)
    for number, name in enumerate(names):
        ledger.put(a_workload(f"w{number}", uid=f"w{number}", queue=name))
    rounds: list[list[str]] = []
    for _ in range(5):
        before = len(memory.writes)
        await writer._write(names)
        rounds.append([write.name for write in memory.writes[before:]])
    assert [len(each) for each in rounds] == [6, 6, 6, 2, 0]
    assert sorted(name for each in rounds for name in each) == names, "each once"


async def test_a_rule_is_shown_before_counts(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxQueueWriter
) -> None:
    writer.resync()
    await until(lambda: status(memory, "gpu"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fluxqueue.queue.status.fluxqueue_writer._COUNTS_AT_ONCE", 0)
        ledger.put(a_workload(queue="gpu"))
        memory.put("fluxqueues", {**memory.get("fluxqueues", "gpu"), "spec": {"state": "held"}})
        await until(lambda: "Held" in [each["reason"] for each in status(memory, "gpu")["conditions"]])


async def test_the_heartbeat_of_a_node_compares_nothing(memory: MemoryApi, writer: FluxQueueWriter) -> None:
    memory.put("nodes", {"metadata": {"name": "n1", "labels": {"gpu": "no"}}})
    await until(lambda: status(memory, "gpu"))
    await until(lambda: not writer._changed.is_set())
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    memory.put("nodes", {"metadata": {"name": "n1", "labels": {"gpu": "no"}}, "status": ready})
    assert not writer._changed.is_set()
    memory.put("nodes", {"metadata": {"name": "n1", "labels": {"gpu": "yes"}}})
    assert writer._changed.is_set()


async def test_a_failure_of_one_queue_is_reported_on_it(
    memory: MemoryApi, writer: FluxQueueWriter, events: RecordedEvents
) -> None:
    memory.fail_next("patch", "fluxqueues/status", 422, "Invalid", "no such field")
    writer.resync()
    await until(lambda: status(memory) and status(memory, "gpu"))
    assert [(subject, reason) for subject, reason, _, _ in events.events] in (
        [("FluxQueue default", "ProcessingFailed")],
        [("FluxQueue gpu", "ProcessingFailed")],
    )


async def test_a_selector_without_nodes_is_shown_as_a_condition(
    memory: MemoryApi, writer: FluxQueueWriter
) -> None:
    memory.put("fluxqueues", {**memory.get("fluxqueues", "gpu"), "spec": {"nodeSelector": {"gpu": "yes"}}})
    writer.resync()
    await until(lambda: status(memory, "gpu"))
    starting = next(each for each in status(memory, "gpu")["conditions"] if each["type"] == "Starting")
    assert (starting["status"], starting["reason"]) == ("False", "NoNodes")
