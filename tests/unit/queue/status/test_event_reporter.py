"""The reporter sends each Event once, and maintains the label of work that can never start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from support.builders import make_job, make_pod
from support.controller_bench import RecordedEvents, managed_caches, running, subscribed, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.status import events as module
from fluxqueue.queue.status.event_budget import EventBudget
from fluxqueue.queue.status.events import EventReporter

IMPOSSIBLE = a_workload("lammps", uid="job-uid", reason=Reason.UNSATISFIABLE, message="no node has 99 cpu")


@pytest.fixture
def memory() -> MemoryApi:
    memory = MemoryApi()
    memory.put("jobs", make_job("lammps").uid("job-uid").build())
    memory.put("pods", make_pod("single").uid("pod-uid").build())
    return memory


@pytest.fixture
async def reporter(
    memory: MemoryApi,
    ledger: RecordingLedger,
    events: RecordedEvents,
    estimates: dict[WorkloadId, Estimate],
) -> AsyncIterator[EventReporter]:
    caches = managed_caches(memory)
    reporter = subscribed(
        EventReporter(memory.api, caches, ledger, events.recorder, estimates), caches, ledger
    )
    async with running(reporter.run()):
        yield reporter


def is_labelled(memory: MemoryApi, plural: str, name: str) -> bool:
    return names.UNSCHEDULABLE_LABEL in memory.get(plural, name)["metadata"].get("labels", {})


@pytest.mark.usefixtures("reporter")
async def test_work_that_can_never_start_gets_an_event_and_a_label(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> None:
    ledger.put(IMPOSSIBLE)
    await until(lambda: is_labelled(memory, "jobs", "lammps"))
    assert [(subject, reason, message) for subject, reason, message, _ in events.events] == [
        ("Job lammps", "Unsatisfiable", "no node has 99 cpu")
    ]
    ledger.put(replace(IMPOSSIBLE, reason=Reason.WAITING_FOR_NODES))
    await until(lambda: not is_labelled(memory, "jobs", "lammps"))


@pytest.mark.usefixtures("reporter")
async def test_a_single_pod_gets_the_label_too(memory: MemoryApi, ledger: RecordingLedger) -> None:
    ledger.put(replace(IMPOSSIBLE, uid="pod-uid", api_version="v1", kind="Pod", name="single"))
    await until(lambda: is_labelled(memory, "pods", "single"))


@pytest.mark.usefixtures("reporter")
async def test_a_requeue_is_reported_before_its_cause_is_overwritten(
    ledger: RecordingLedger, events: RecordedEvents
) -> None:
    ledger.put(IMPOSSIBLE)
    await until(lambda: events.events)
    requeued = replace(IMPOSSIBLE, reason=Reason.START_TIMEOUT, message="pod x was not bound", requeues=1)
    ledger.put(requeued)
    ledger.put(replace(requeued, reason=Reason.WAITING_FOR_NODES, message=""))
    assert [(reason, message) for _, reason, message, _ in events.events][1:] == [
        ("Requeued", "pod x was not bound")
    ]


async def test_an_event_for_which_there_was_no_room_is_sent_later(
    ledger: RecordingLedger, events: RecordedEvents, reporter: EventReporter
) -> None:
    events.full = True
    ledger._put_workload(IMPOSSIBLE)
    assert await reporter._reconcile(IMPOSSIBLE.id) is not None
    events.full = False
    assert await reporter._reconcile(IMPOSSIBLE.id) is None
    assert await reporter._reconcile(IMPOSSIBLE.id) is None
    assert [reason for _, reason, _, _ in events.events] == ["Unsatisfiable"]


async def test_a_requeue_for_which_there_was_no_room_is_told_later(
    ledger: RecordingLedger, events: RecordedEvents, reporter: EventReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DROPPED_LATER_S", 0.01)
    ledger.put(IMPOSSIBLE)
    await until(lambda: events.events)
    events.full = True
    ledger.put(replace(IMPOSSIBLE, reason=Reason.START_TIMEOUT, message="pod x was not bound", requeues=1))
    events.full = False
    await until(lambda: "Requeued" in events.reasons)


async def test_what_a_new_leader_finds_counts_as_reported(
    ledger: RecordingLedger, events: RecordedEvents, reporter: EventReporter
) -> None:
    ledger._put_workload(IMPOSSIBLE)
    reporter.resync()
    ledger.put(replace(IMPOSSIBLE, message="no node has 98 cpu"))
    await until(lambda: events.events)
    assert [message for _, _, message, _ in events.events] == ["no node has 98 cpu"]


async def test_no_burst_raises_the_rate_of_repeated_events(
    ledger: RecordingLedger, events: RecordedEvents, reporter: EventReporter
) -> None:
    """Two hundred waited when the former leader ended, an hour ago: a minute of the rate is sent at once."""
    for number in range(200):
        ledger._put_workload(replace(IMPOSSIBLE, id=WorkloadId(number + 1)))
    reporter.resync()
    ledger.now += timedelta(hours=1)
    reporter.resync()
    await until(lambda: len(events.events) >= 60)
    await until(lambda: not len(reporter._keys))
    assert 60 <= len(events.events) < 100


async def test_of_many_first_waits_the_first_hundred_are_reported_at_once(
    ledger: RecordingLedger, events: RecordedEvents, reporter: EventReporter
) -> None:
    reporter.resync()
    waiting = replace(IMPOSSIBLE, reason=Reason.WAITING_FOR_NODES)
    for number in range(200):
        ledger._put_workload(replace(waiting, id=WorkloadId(number + 1)))
    ledger.now += timedelta(minutes=1)
    reporter.resync()
    await until(lambda: len(events.events) >= 100)
    await until(lambda: not len(reporter._keys))
    assert 100 <= len(events.events) < 150


async def test_of_very_many_first_waits_some_are_tried_again_soon_and_the_others_in_the_next_sweep(
    ledger: RecordingLedger, events: RecordedEvents, reporter: EventReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LATER", 50)
    waiting = replace(IMPOSSIBLE, reason=Reason.WAITING_FOR_NODES)
    reporter.resync()
    for number in range(300):
        ledger._put_workload(replace(waiting, id=WorkloadId(number + 1)))
    ledger.now += timedelta(minutes=1)
    reporter.resync()
    await until(lambda: len(events.events) >= 100)
    await until(lambda: not len(reporter._keys))
    assert 50 <= reporter._keys.delayed <= 50 + 4
    told = len(events.events)
    reporter._waits = EventBudget(0.2, 100)
    reporter.resync()
    await until(lambda: len(events.events) >= told + 100)


async def test_a_burst_that_waits_costs_one_event_each_however_its_starts_move(
    ledger: RecordingLedger,
    events: RecordedEvents,
    reporter: EventReporter,
    estimates: dict[WorkloadId, Estimate],
) -> None:
    burst = [
        replace(IMPOSSIBLE, id=WorkloadId(number + 1), reason=Reason.WAITING_FOR_NODES, message="")
        for number in range(50)
    ]
    reporter.resync()
    for workload in burst:
        ledger._put_workload(workload)
    for minutes in range(1, 10):
        start = ledger.clock() + timedelta(hours=minutes)
        estimates |= {workload.id: Estimate(position=1, eta=start) for workload in burst}
        ledger.now += timedelta(minutes=1)
        reporter.resync()
        await until(lambda: not len(reporter._keys))
    assert events.reasons == ["WaitingForNodes"] * len(burst)
    assert all("expected to start by" in message for _, _, message, _ in events.events)


@pytest.mark.usefixtures("reporter")
async def test_the_release_of_work_that_waited_is_reported(
    ledger: RecordingLedger, events: RecordedEvents
) -> None:
    waited = replace(IMPOSSIBLE, reason=Reason.HELD, message="by a person")
    ledger.put(waited)
    await until(lambda: events.reasons == ["Held"])
    ledger.put(
        replace(
            waited, state=State.ALLOCATED, reason=Reason.NONE, message="", jobid=FluxionJobId(7), hosts="n1"
        )
    )
    await until(lambda: events.reasons == ["Held", "Released"])
