"""A FluxJob is created for each workload, follows its row,
and is never written over an edit that is not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.builders import make_job, make_pod
from support.controller_bench import RecordedEvents, managed_caches, running, subscribed, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State, fluxjob_names
from fluxqueue.queue.model.changes import SlotWrites, TakenSlot
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import (
    FluxionJobId,
    ReleaseMode,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.spec_overrides import SpecOverrides
from fluxqueue.queue.status import fluxjob_pace, fluxjob_writer
from fluxqueue.queue.status.fluxjob_edits import expected_spec
from fluxqueue.queue.status.fluxjob_writer import FluxJobWriter

WAITING = a_workload("lammps", uid="job-uid", reason=Reason.WAITING_FOR_NODES, message="8 cpu are short")
RUNNING = replace(
    WAITING, state=State.RUNNING, jobid=FluxionJobId(7), hosts="n1", reason=Reason.NONE, message=""
)
NAME, NEXT_NAME, *_ = fluxjob_names("Job", "lammps", "job-uid")


@pytest.fixture
def memory() -> MemoryApi:
    memory = MemoryApi()
    memory.put("jobs", make_job("lammps").uid("job-uid").build())
    return memory


@pytest.fixture
async def writer(
    memory: MemoryApi,
    ledger: RecordingLedger,
    events: RecordedEvents,
    estimates: dict[WorkloadId, Estimate],
) -> AsyncIterator[FluxJobWriter]:
    caches = managed_caches(memory)
    made = FluxJobWriter(memory.api, caches, ledger, events.recorder, estimates)
    writer = subscribed(made, caches, ledger)
    async with running(writer.run()):
        yield writer


def fluxjob(memory: MemoryApi, name: str = NAME) -> Any:
    return memory.get("fluxjobs", name) or {}


def status(memory: MemoryApi, name: str = NAME) -> Any:
    return fluxjob(memory, name).get("status", {})


@pytest.mark.usefixtures("writer")
async def test_a_workload_gets_a_fluxjob_that_its_object_owns(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    ledger.put(WAITING)
    await until(lambda: status(memory))
    assert status(memory)["reason"] == "WaitingForNodes"
    assert fluxjob(memory)["spec"]["queue"] == "default"
    assert [owner["uid"] for owner in fluxjob(memory)["metadata"]["ownerReferences"]] == ["job-uid"]
    assert [(write.verb, write.resource) for write in memory.writes] == [("create", "fluxjobs")], (
        "one write, with the status"
    )


async def test_what_is_said_of_idle_work_is_shown_while_it_runs_and_is_so(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> None:
    caches, words = managed_caches(memory), ["idle since noon"]
    writer = FluxJobWriter(memory.api, caches, ledger, events.recorder, {}, lambda _workload: words[0])
    async with running(subscribed(writer, caches, ledger).run()):
        ledger.put(RUNNING)
        await until(lambda: status(memory).get("message") == "idle since noon")
        words[0] = ""
        writer.idle_changed(RUNNING.id)
        await until(lambda: "message" not in status(memory))
        assert status(memory)["state"] == "Running"


async def test_a_fluxjob_and_its_row_have_one_copy_of_their_texts(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> None:
    caches = managed_caches(memory)
    waiting = replace(WAITING, jobspec='{"version":1}')
    async with running(
        subscribed(FluxJobWriter(memory.api, caches, ledger, events.recorder, {}), caches, ledger).run()
    ):
        ledger.put(waiting)
        await until(lambda: caches.fluxjobs.get("default", NAME))
        shown = caches.fluxjobs.get("default", NAME)
    assert shown is not None
    assert shown.spec.jobspec is waiting.jobspec
    assert shown.status.message is waiting.message
    assert shown.spec.object_ref.uid is waiting.uid


@pytest.mark.usefixtures("writer")
async def test_work_that_starts_at_once_costs_one_write(memory: MemoryApi, ledger: RecordingLedger) -> None:
    submitted = replace(WAITING, reason=Reason.NONE, message="", submitted_at=ledger.clock())
    ledger.put(submitted)
    ledger.put(
        replace(
            submitted, state=State.ALLOCATED, jobid=FluxionJobId(7), hosts="n1", allocated_at=ledger.clock()
        )
    )
    ledger.put(replace(RUNNING, submitted_at=submitted.submitted_at))
    await until(lambda: status(memory))
    assert status(memory)["state"] == "Running"
    assert [(write.verb, write.resource) for write in memory.writes] == [("create", "fluxjobs")]


@pytest.mark.parametrize(("busy", "early_s"), [(False, None), (True, 8.0)])
async def test_among_much_work_a_fluxjob_waits_longer_for_the_start(
    memory: MemoryApi,
    ledger: RecordingLedger,
    writer: FluxJobWriter,
    monkeypatch: pytest.MonkeyPatch,
    busy: bool,
    early_s: float | None,
) -> None:
    if busy:
        monkeypatch.setattr(fluxjob_pace, "_BUSY", -1)
    starting = replace(RUNNING, state=State.ALLOCATED, submitted_at=ledger.clock() - timedelta(seconds=12))
    ledger.put(starting)
    assert (await writer._write(starting.id) or None) == early_s
    assert bool(fluxjob(memory)) is not busy


async def test_while_much_work_starts_fluxjobs_of_started_work_wait(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxjob_pace, "_STARTING", 0)
    memory.put("jobs", make_job("next").uid("next-uid").build())
    following = a_workload("next", uid="next-uid", state=State.ALLOCATED, submitted_at=ledger.clock())
    started = replace(RUNNING, submitted_at=ledger.clock())
    ledger.put(following)
    ledger.put(started)
    assert await writer._write(started.id) == 1.0
    assert not fluxjob(memory)
    ledger.put(replace(following, state=State.RUNNING))
    await until(lambda: status(memory).get("state") == "Running")


async def test_work_that_started_has_its_fluxjob_after_a_while_whatever_else_starts(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxjob_pace, "_STARTING", 0)
    ledger.put(a_workload("next", uid="next-uid", state=State.ALLOCATED, submitted_at=ledger.clock()))
    started = replace(RUNNING, submitted_at=ledger.clock() - timedelta(seconds=60))
    ledger.put(started)
    assert await writer._write(started.id) is None
    assert status(memory)["state"] == "Running"


async def test_work_that_does_not_start_keeps_no_fluxjob_waiting(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxjob_pace, "_STARTING", 0)
    stuck = a_workload(
        "next", uid="next-uid", state=State.ALLOCATED, allocated_at=ledger.clock() - timedelta(seconds=20)
    )
    ledger.put(stuck)
    started = replace(RUNNING, submitted_at=ledger.clock())
    ledger.put(started)
    assert await writer._write(started.id) is None
    assert status(memory)["state"] == "Running"


@pytest.mark.usefixtures("writer")
async def test_other_words_for_the_same_reason_are_collected(
    memory: MemoryApi, ledger: RecordingLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxjob_pace, "_MESSAGE_S", 0.6)
    ledger.put(WAITING)
    await until(lambda: status(memory))
    for short in range(4):
        ledger.put(replace(WAITING, message=f"{short} cpu are short"))
        await asyncio.sleep(0.1)
    await until(lambda: status(memory)["message"] == "3 cpu are short")
    assert len(memory.written("patch", "fluxjobs")) == 1
    monkeypatch.setattr(fluxjob_pace, "_MESSAGE_S", 3_600.0)
    ledger.put(replace(WAITING, reason=Reason.QUEUE_LIMIT, message="2 of 2 run"))
    await until(lambda: status(memory)["reason"] == "QueueLimit")  # another reason is shown soon


@pytest.mark.usefixtures("writer")
async def test_a_fluxjob_shows_the_reservation_that_its_reason_names(
    memory: MemoryApi,
    ledger: RecordingLedger,
    estimates: dict[WorkloadId, Estimate],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fluxjob_writer, "_ESTIMATES_EVERY_S", 3_600.0)
    monkeypatch.setattr(fluxjob_pace, "_MESSAGE_S", 0.1)
    ledger.put(WAITING)
    await until(lambda: status(memory))
    for start in (1, 2):
        at = WAITING.submitted_at + timedelta(hours=start)
        estimates[WAITING.id] = Estimate(position=1, eta=at, reserved=True)
        message = f"node n1 is reserved for it from {at:%H:%M} on"
        ledger.put(replace(WAITING, message=message))
        await until(partial(shows, memory, message))
        assert status(memory)["reservedAt"] == f"{at:%Y-%m-%dT%H:%M:%SZ}"
    assert len(memory.written("patch", "fluxjobs")) == 2, "one write for the reason and its time"


def shows(memory: MemoryApi, message: str) -> bool:
    return bool(status(memory)["message"] == message)


async def test_while_many_start_and_end_a_short_run_is_not_written(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.put(WAITING)
    await until(lambda: status(memory))
    monkeypatch.setattr(fluxjob_pace, "_MANY", 0.5)
    ledger.put(replace(RUNNING, started_at=ledger.clock()))
    assert await writer._write(RUNNING.id) == 10.0
    ledger.end(replace(RUNNING, state=State.COMPLETED, outcome=Outcome.SUCCEEDED))
    await until(lambda: status(memory)["state"] == "Completed")
    assert len(memory.written("patch", "fluxjobs")) == 1


@pytest.mark.usefixtures("writer")
async def test_work_that_has_ended_before_it_had_a_fluxjob_gets_one(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    ledger.put(RUNNING)
    ledger.end(replace(RUNNING, state=State.COMPLETED, outcome=Outcome.SUCCEEDED))
    await until(lambda: status(memory))
    assert status(memory)["state"] == "Completed"
    assert [(write.verb, write.resource) for write in memory.writes] == [("create", "fluxjobs")]


@pytest.mark.usefixtures("writer")
async def test_work_that_no_cycle_looks_at_gets_a_fluxjob_after_a_while(
    memory: MemoryApi, ledger: RecordingLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxjob_pace, "_UNDECIDED_S", 0.05)
    ledger.put(replace(WAITING, reason=Reason.NONE, message="", submitted_at=ledger.clock()))
    ledger.now += timedelta(seconds=1)
    await until(lambda: fluxjob(memory))
    assert set(status(memory)) == {"state", "submittedAt", "conditions"}
    assert status(memory)["state"] == "Pending"


@pytest.mark.usefixtures("writer")
async def test_an_older_crd_gets_the_status_by_its_subresource(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    memory.status_subresources["fluxjobs"] = True
    ledger.put(RUNNING)
    await until(lambda: status(memory).get("state") == "Running")
    ledger.end(replace(RUNNING, state=State.COMPLETED, outcome=Outcome.SUCCEEDED))
    await until(lambda: status(memory).get("state") == "Completed")


async def test_an_end_without_a_fluxjob_is_found_by_the_next_leader(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter
) -> None:
    done = make_job("lammps").uid("job-uid").label(names.SEEN_LABEL, names.SEEN_VALUE).build()
    memory.put("jobs", {**done, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    ledger.end_in_tables(replace(RUNNING, state=State.COMPLETED, outcome=Outcome.SUCCEEDED))
    writer.resync()
    await until(lambda: status(memory).get("state") == "Completed")


@pytest.mark.usefixtures("writer")
async def test_a_workload_whose_object_is_deleted_gets_none(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    ledger.put(a_workload("gone", uid="gone-uid", reason=Reason.WAITING_FOR_NODES))
    ledger.put(WAITING)
    await until(lambda: status(memory))
    assert len(memory.written("create", "fluxjobs")) == 1


@pytest.mark.usefixtures("writer")
async def test_a_fluxjob_of_another_object_keeps_its_name(memory: MemoryApi, ledger: RecordingLedger) -> None:
    memory.put("fluxjobs", {"metadata": {"name": NAME}, "spec": {"objectRef": {"uid": "another"}}})
    ledger.put(WAITING)
    await until(lambda: status(memory, NEXT_NAME))
    assert fluxjob(memory)["spec"]["objectRef"]["uid"] == "another"


@pytest.mark.usefixtures("writer")
async def test_the_end_is_written_from_the_tables(memory: MemoryApi, ledger: RecordingLedger) -> None:
    ledger.put(RUNNING)
    await until(lambda: status(memory).get("state") == "Running")
    ledger.end(replace(RUNNING, state=State.COMPLETED, outcome=Outcome.SUCCEEDED))
    await until(lambda: status(memory).get("state") == "Completed")
    assert status(memory)["outcome"] == "Succeeded"


async def test_an_end_that_nobody_has_written_is_found_by_a_resync(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter
) -> None:
    ledger.put(RUNNING)
    await until(lambda: status(memory).get("state") == "Running")
    ledger.end_in_tables(replace(RUNNING, state=State.FAILED, outcome=Outcome.FAILED))
    ledger._drop_workload(RUNNING.id)  # by a leader that ended before it wrote the FluxJob
    writer.resync()
    await until(lambda: status(memory).get("state") == "Failed")


@pytest.mark.usefixtures("writer")
async def test_a_deleted_fluxjob_is_created_again(memory: MemoryApi, ledger: RecordingLedger) -> None:
    ledger.put(replace(WAITING, overrides=SpecOverrides(hold=True)))
    await until(lambda: status(memory))
    memory.remove("fluxjobs", NAME)
    await until(lambda: status(memory))
    assert fluxjob(memory)["spec"]["hold"] is True


def pod_of_ring(uid: str) -> Any:
    return make_pod(f"ring-{uid}").label(names.POD_GROUP_LABEL, "ring").uid(uid).build()


@pytest.mark.usefixtures("writer")
async def test_a_group_whose_pods_are_all_replaced_gets_its_fluxjob_back(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    """A FluxJob goes with the last pod that it has as owner, and the next pod may come later."""
    ring = replace(
        RUNNING,
        kind="PodGroup",
        api_version="v1",
        name="ring",
        uid="ring-uid",
        release_mode=ReleaseMode.GROUP,
    )
    name, *_ = fluxjob_names("PodGroup", "ring", "ring-uid")
    memory.put("pods", pod_of_ring("first"))
    ledger.put(ring, an_allocation(["n1"], states=[SlotState.TAKEN], pods=["first"]))
    await until(lambda: fluxjob(memory, name))
    memory.remove("pods", "ring-first")
    await ledger.write_slots(SlotWrites(vacated=[(FluxionJobId(7), 0, "first")]))
    memory.remove("fluxjobs", name)
    await asyncio.sleep(0.1)
    assert not fluxjob(memory, name), "there is nothing that could own it"
    memory.put("pods", pod_of_ring("second"))
    await ledger.write_slots(SlotWrites(taken=[TakenSlot(FluxionJobId(7), 0, "second", "ring-second")]))
    await until(lambda: fluxjob(memory, name))
    assert [owner["uid"] for owner in fluxjob(memory, name)["metadata"]["ownerReferences"]] == ["second"]


@pytest.mark.usefixtures("writer")
async def test_a_pod_that_joins_its_group_later_owns_the_fluxjob_too(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    """The launcher of an MPIJob comes when its workers run, and remains when they are deleted."""
    ring = replace(
        RUNNING,
        kind="PodGroup",
        api_version="v1",
        name="ring",
        uid="ring-uid",
        release_mode=ReleaseMode.GROUP,
    )
    name, *_ = fluxjob_names("PodGroup", "ring", "ring-uid")
    memory.put("pods", pod_of_ring("worker"))
    allocated = an_allocation(["n1", "n1"], states=[SlotState.TAKEN, SlotState.FREE], pods=["worker", None])
    ledger.put(ring, allocated)
    await until(lambda: fluxjob(memory, name))
    memory.put("pods", pod_of_ring("launcher"))
    await ledger.write_slots(SlotWrites(taken=[TakenSlot(FluxionJobId(7), 1, "launcher", "ring-launcher")]))
    await until(lambda: len(fluxjob(memory, name)["metadata"]["ownerReferences"]) == 2)
    assert {owner["uid"] for owner in fluxjob(memory, name)["metadata"]["ownerReferences"]} == {
        "worker",
        "launcher",
    }


@pytest.mark.usefixtures("writer")
async def test_an_edit_is_not_overwritten_before_it_is_stored(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    ledger.put(WAITING)
    await until(lambda: status(memory))
    memory.put("fluxjobs", {**fluxjob(memory), "spec": {**fluxjob(memory)["spec"], "priority": 9}})
    ledger.put(replace(WAITING, message="4 cpu are short"))
    await until(lambda: status(memory)["message"] == "4 cpu are short")
    assert fluxjob(memory)["spec"]["priority"] == 9
    ledger.put(replace(WAITING, priority=9, overrides=SpecOverrides(priority=9)))
    await until(
        lambda: '"priority":9' in fluxjob(memory)["metadata"]["annotations"]["fluxqueue/acknowledged"]
    )


@pytest.mark.usefixtures("writer")
async def test_an_edit_of_running_work_is_reverted_with_an_event(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> None:
    ledger.put(RUNNING)
    await until(lambda: status(memory).get("state") == "Running")
    memory.put("fluxjobs", {**fluxjob(memory), "spec": {**fluxjob(memory)["spec"], "queue": "gpu"}})
    await until(lambda: fluxjob(memory)["spec"]["queue"] == "default")
    await until(lambda: events.events)
    assert events.reasons == ["EditRefused"]
    assert "spec.queue cannot change any more" in events.events[0][2]


@pytest.mark.usefixtures("writer")
async def test_a_fluxjob_without_owners_is_deleted_with_the_end_of_its_work(
    memory: MemoryApi, ledger: RecordingLedger
) -> None:
    ledger.put(RUNNING)
    await until(lambda: status(memory).get("state") == "Running")
    orphan = {**fluxjob(memory), "metadata": {**fluxjob(memory)["metadata"], "ownerReferences": []}}
    memory.remove("jobs", "lammps")
    memory.put("fluxjobs", orphan)
    ledger.end(replace(RUNNING, state=State.COMPLETED, outcome=Outcome.SUCCEEDED))
    await until(lambda: memory.written("delete", "fluxjobs"))


@pytest.mark.usefixtures("writer")
async def test_a_failure_of_one_fluxjob_is_reported_and_tried_again(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> None:
    memory.fail_next("create", "fluxjobs", 403, "Forbidden", "not allowed")
    ledger.put(WAITING)
    await until(lambda: status(memory))
    assert events.reasons == ["ProcessingFailed"]
    assert "could not be shown in its FluxJob" in events.events[0][2]


async def test_a_resync_compares_what_changed_since_the_last_one(
    memory: MemoryApi, ledger: RecordingLedger, writer: FluxJobWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def expected(workload: Workload) -> Any:
        compared.append(workload.name)
        return expected_spec(workload)

    monkeypatch.setattr(fluxjob_writer, "expected_spec", expected)
    other = replace(
        a_workload("other", uid="other-uid"), reason=Reason.WAITING_FOR_NODES, message="8 cpu are short"
    )
    memory.put("jobs", make_job("other").uid("other-uid").build())
    for row in (WAITING, other):
        ledger.put(row)
    await until(lambda: len(memory.written("create", "fluxjobs")) == 2)
    writer.resync()
    await until(lambda: {"lammps", "other"} <= set(compared))
    await until(lambda: len(writer._equal) == 2)
    compared.clear()
    writer.resync()
    memory.put("fluxjobs", fluxjob(memory) | {"status": {"state": "Running"}})  # by somebody who may
    writer.resync()
    await until(lambda: status(memory).get("state") == "Pending")
    assert set(compared) == {"lammps"}


async def test_a_fluxjob_is_due_until_the_caches_have_it(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = managed_caches(memory)
    writer = FluxJobWriter(memory.api, caches, ledger, events.recorder, {})
    ledger.put(WAITING)
    writer.resync()
    assert writer.is_due(WAITING)
    async with running(writer.run()):
        with monkeypatch.context() as patch:
            patch.setattr(caches, "fluxjob_of", lambda _uid: None)
            await until(lambda: status(memory))
            await asyncio.sleep(0)
            assert writer.is_due(WAITING), "it is created and not seen"
        await until(lambda: not writer.is_due(WAITING))


async def test_the_metadata_of_a_created_fluxjob_are_kept_once(
    memory: MemoryApi, ledger: RecordingLedger, events: RecordedEvents
) -> None:
    caches = managed_caches(memory)
    writer = FluxJobWriter(memory.api, caches, ledger, events.recorder, {})

    def kept_once() -> bool:
        present = caches.fluxjob_of(WAITING.uid)
        return present is not None and writer._created.get(WAITING.id) is present.metadata

    async with running(subscribed(writer, caches, ledger).run()):
        ledger.put(WAITING)
        await until(kept_once)
        ledger.put(replace(WAITING, reason=Reason.RESERVATION))
        await until(lambda: status(memory).get("reason") == "Reservation")
        assert kept_once()
