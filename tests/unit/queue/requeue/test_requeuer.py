"""How evicted workloads are brought to where nothing of them runs, and requeued."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.builders import Builder, JobBuilder, make_job, make_pod
from support.controller_bench import RecordedEvents, TriggerLog, running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Reason, State, fluxjob_name
from fluxqueue.kube.events import Severity
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.metrics import REQUEUES
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import (
    FluxionJobId,
    ReleaseMode,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.store.database import DatabaseUnavailable
from fluxqueue.queue.store.deltas import Delta

JOB = make_job("mpi").indexed(2).uid("uid-of-mpi").suspended(False).label("fluxqueue/jobid", "7")
STOPPED = JOB.suspended().with_("status.conditions", [{"type": "Suspended", "status": "True"}])
COMPLETE = [{"type": "Complete", "status": "True"}]
RUNS = make_pod("mpi-0").uid("mpi-0").owned_by("Job", "mpi").index(0).on_node("n0").phase("Running")


def a_job_row(**changes: Any) -> Workload:
    settings = {"uid": "uid-of-mpi", "state": State.RUNNING, "pods": 2, "jobid": 7, **changes}
    return a_workload("mpi", **settings)


class Bench:
    """A workload with the slots 0 and 1 on nodes n0 and n1, of which pod mpi-0 is stored in slot 0."""

    def __init__(self, row: Workload, plural: str = "jobs", *objects: Builder, released: bool = True) -> None:
        self.row = row
        allocation = an_allocation(["n0", "n1"], states=[SlotState.TAKEN], pods=["mpi-0"])
        held = allocation if released else replace(allocation, released_at=None)
        self.ledger = RecordingLedger((row, held if row.state is not State.PENDING else None))
        self.server, self.trigger = MemoryApi(), TriggerLog()
        self.caches = Caches(self.server.api)
        self.reread: list[str] = []
        self.events = RecordedEvents()
        gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.requeuer = Requeuer(
            self.server.api,
            self.caches,
            self.ledger,
            self.trigger.trigger,
            gates,
            self.reread.append,
            self.events.recorder,
        )
        subscribe(self.caches, self.ledger, self.requeuer)
        self.server.show_in(self.caches)
        self.node("n0", ready=True)
        for each in objects:
            self.server.put(plural, each.build())

    def node(self, name: str, *, ready: bool) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
        self.server.put("nodes", {"metadata": {"name": name}, "status": status})

    async def evict(self, reason: Reason = Reason.PREEMPTED) -> Sequence[int]:
        return await self.requeuer.evict(
            [Eviction(workload=self.row.id, reason=reason, message="for other work")]
        )


async def test_a_job_is_suspended_then_cleared_once_it_has_stopped_and_requeued_last() -> None:
    bench = Bench(a_job_row(), "jobs", JOB)
    bench.server.put("pods", RUNS.build())
    async with running_controllers(bench.requeuer):
        assert await bench.evict() == []
        await until(lambda: bench.server.get("jobs", "mpi")["spec"]["suspend"])
        assert bench.ledger.written("requeue") == []
        bench.server.remove("pods", "mpi-0")
        bench.server.put("jobs", STOPPED.pod_annotation("fluxqueue/allocation", "7").build())
        await until(lambda: bench.ledger.written("requeue"))
    (requeue,) = bench.ledger.written("requeue")
    assert (requeue.reason, requeue.message, requeue.kept) == (Reason.PREEMPTED, "for other work", ())
    job = bench.server.get("jobs", "mpi")
    assert "fluxqueue/jobid" not in job["metadata"].get("labels", {})
    assert "fluxqueue/allocation" not in job["spec"]["template"]["metadata"]["annotations"]
    assert (bench.reread[-1], "schedule" in bench.trigger.tasks) == ("uid-of-mpi", True)


async def test_a_job_that_is_cancelled_does_not_wait_again() -> None:
    bench = Bench(a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED), "jobs", STOPPED)
    spec = {"objectRef": {"kind": "Job", "name": "mpi", "uid": "uid-of-mpi"}, "cancel": True}
    bench.server.put(
        "fluxjobs", {"metadata": {"name": fluxjob_name("Job", "mpi", "uid-of-mpi")}, "spec": spec}
    )
    assert await bench.requeuer._proceed(bench.row.id) is not None
    assert (bench.ledger.writes, bench.server.writes) == ([], [])


async def test_a_job_that_conflicts_is_suspended_in_the_next_attempt() -> None:
    bench = Bench(a_job_row(), "jobs", JOB)
    bench.server.fail_next("patch", "jobs", 409, "Conflict")
    async with running_controllers(bench.requeuer):
        await bench.evict()
        await until(lambda: bench.server.get("jobs", "mpi")["spec"]["suspend"])


async def test_slots_of_pods_on_a_lost_node_stay_booked_until_the_pods_are_gone() -> None:
    bench = Bench(a_job_row(state=State.DRAINING, reason=Reason.NODES_UNAVAILABLE), "jobs", STOPPED)
    bench.node("n0", ready=False)
    bench.server.put("pods", RUNS.annotation("fluxqueue/allocation", "7").build())
    async with running_controllers(bench.requeuer):
        await until(lambda: bench.ledger.written("requeue"))
        assert bench.ledger.written("requeue")[0].kept == ((7, 0),)
        bench.server.remove("pods", "mpi-0")
        await until(lambda: bench.ledger.written("end_slots"))
    assert bench.ledger.written("end_slots") == [(7, 0)]


async def test_a_node_that_is_lost_ends_the_wait_for_its_pods() -> None:
    bench = Bench(a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED), "jobs", STOPPED)
    bench.server.put("pods", RUNS.build())
    async with running_controllers(bench.requeuer):
        bench.node("n0", ready=False)
        await until(lambda: bench.ledger.written("requeue"))


async def test_a_job_that_was_deleted_before_its_release_ends() -> None:
    bench = Bench(a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED), released=False)
    async with running_controllers(bench.requeuer):
        await until(lambda: bench.ledger.written("finish"))
    assert bench.ledger.written("finish")[0].message == "Job default/mpi was deleted before it was released"


async def test_the_eviction_of_a_bare_pod_that_may_run_is_refused() -> None:
    row = a_workload(
        "mpi-0", kind="Pod", uid="mpi-0", release_mode=ReleaseMode.POD, state=State.RUNNING, jobid=7
    )
    bench = Bench(row, "pods", make_pod("mpi-0").uid("mpi-0").on_node("n0").phase("Running"))
    assert await bench.evict(Reason.NODES_UNAVAILABLE) == [row.id]
    assert (bench.ledger.writes, bench.server.writes) == ([], [])


async def test_the_pod_of_an_owner_is_deleted_so_that_another_is_created() -> None:
    row = a_workload(
        "mpi-0", kind="Pod", uid="mpi-0", release_mode=ReleaseMode.POD, state=State.RUNNING, jobid=7
    )
    pod = make_pod("mpi-0").uid("mpi-0").owned_by("ReplicaSet", "web").on_node("n0").phase("Running")
    bench = Bench(row, "pods", pod)
    async with running_controllers(bench.requeuer):
        assert await bench.evict(Reason.NODES_UNAVAILABLE) == []
        await until(lambda: bench.server.written("delete", "pods"))
    assert bench.ledger.written("requeue") == [], "its slot ends when it is gone"


async def test_a_pod_that_was_never_released_waits_as_it_is() -> None:
    row = a_workload(
        "mpi-0",
        kind="Pod",
        uid="mpi-0",
        release_mode=ReleaseMode.POD,
        state=State.DRAINING,
        reason=Reason.PREEMPTED,
        jobid=7,
    )
    bench = Bench(row, "pods", make_pod("mpi-0").uid("mpi-0").gate("fluxqueue"), released=False)
    async with running_controllers(bench.requeuer):
        await until(lambda: bench.ledger.written("requeue"))
    assert bench.server.writes == []


async def test_a_workload_is_read_and_matched_again_when_its_backoff_ends() -> None:
    soon = RequeueState(not_before=EPOCH + timedelta(milliseconds=20))
    bench = Bench(
        a_job_row(state=State.PENDING, reason=Reason.NODES_UNAVAILABLE, requeue_state=soon), "jobs", STOPPED
    )
    await bench.requeuer.owners.repair()  # that its rights are known then would have work matched again too
    async with running_controllers(bench.requeuer):
        bench.ledger.now = EPOCH + timedelta(seconds=1)
        await until(lambda: bench.trigger.tasks)
    assert (bench.reread, bench.trigger.tasks) == (["uid-of-mpi"], ["schedule"])


async def test_a_job_without_an_allocation_in_it_is_requeued_without_a_patch() -> None:
    job: JobBuilder = make_job("mpi").indexed(2).uid("uid-of-mpi").suspended()
    stopped = job.with_("status.conditions", [{"type": "Suspended", "status": "True"}])
    bench = Bench(a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED), "jobs", stopped)
    async with running_controllers(bench.requeuer):
        await until(lambda: bench.ledger.written("requeue"))
    assert bench.server.writes == []


async def test_a_job_that_ended_while_it_was_evicted_is_left_to_the_tracker() -> None:
    bench = Bench(
        a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED),
        "jobs",
        JOB.with_("status.conditions", COMPLETE),
    )
    await bench.ledger.end_slots([(FluxionJobId(7), 0), (FluxionJobId(7), 1)])
    assert bench.ledger.allocation(bench.row.id) is None
    assert await bench.requeuer._proceed(bench.row.id) is None
    assert bench.ledger.written("finish") == []


async def test_a_job_that_is_preempted_with_a_grace_is_suspended_when_that_is_over() -> None:
    bench = Bench(a_job_row(), "jobs", JOB)
    state = RequeueState(stop_at=EPOCH + timedelta(seconds=30))
    await bench.requeuer.evict(
        [
            Eviction(
                workload=bench.row.id, reason=Reason.PREEMPTED, message="for other work", requeue_state=state
            )
        ]
    )
    assert await bench.requeuer._proceed(bench.row.id) == 30
    assert bench.server.get("jobs", "mpi")["spec"]["suspend"] is False
    bench.ledger.now = EPOCH + timedelta(seconds=30)
    assert await bench.requeuer._proceed(bench.row.id) is None
    assert bench.server.get("jobs", "mpi")["spec"]["suspend"] is True


async def test_a_grace_that_is_of_no_use_ends_at_once_and_its_job_is_told_why() -> None:
    state = RequeueState(stop_at=EPOCH + timedelta(hours=1), preempted_for=9)
    bench = Bench(a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED, requeue_state=state), "jobs", JOB)
    async with running_controllers(bench.requeuer):
        await bench.requeuer.end_graces({bench.row.id: "node n0 was lost under it"})
        await until(lambda: bench.server.get("jobs", "mpi")["spec"]["suspend"])
    await bench.requeuer.end_graces({bench.row.id: "node n0 was lost under it"})
    row = bench.ledger.get(bench.row.id)
    assert row is not None
    assert row.requeue_state == RequeueState(stop_at=EPOCH, preempted_for=9)
    told = "Job default/mpi stops before its grace is over: node n0 was lost under it"
    assert bench.events.events == [("Job mpi", "PreemptionNotice", told, Severity.WARNING)]


@pytest.mark.parametrize(
    "row",
    [
        a_job_row(requeue_state=RequeueState(stop_at=EPOCH + timedelta(hours=1))),
        a_workload(
            "mpi-0",
            kind="Pod",
            uid="mpi-0",
            release_mode=ReleaseMode.POD,
            state=State.DRAINING,
            reason=Reason.PREEMPTED,
            jobid=7,
            requeue_state=RequeueState(stop_at=EPOCH + timedelta(hours=1)),
        ),
    ],
    ids=["goes on", "a bare pod"],
)
async def test_what_would_not_be_evicted_keeps_its_grace(row: Workload) -> None:
    bench = Bench(row, "pods", make_pod("mpi-0").uid("mpi-0").on_node("n0").phase("Running"))
    await bench.requeuer.end_graces({row.id: "the maintenance power of node n0 began", WorkloadId(99): ""})
    assert bench.ledger.writes == []


async def test_a_grace_does_not_end_behind_the_withdrawal_of_its_preemption() -> None:
    told = RequeueState(stop_at=EPOCH + timedelta(seconds=60), preempted_for=9)
    row = a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED, requeue_state=told, started_at=EPOCH)
    bench = Bench(row, "jobs", JOB)
    async with bench.ledger._lock:  # both are decided while something else is stored
        writes = [
            asyncio.create_task(bench.ledger.evict([], {}, {row.id: "Job default/mpi goes on"})),
            asyncio.create_task(bench.requeuer.end_graces({row.id: "node n0 was lost under it"})),
        ]
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.gather(*writes)
    after = bench.ledger.get(row.id)
    assert after is not None
    assert (after.evicting, after.requeue_state.stop_at, bench.events.events) == (False, None, [])


@pytest.mark.parametrize("stored", [True, False])
async def test_a_job_is_not_stopped_while_its_preemption_is_being_withdrawn(
    monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    told = RequeueState(stop_at=EPOCH + timedelta(seconds=60), preempted_for=9)
    bench = Bench(
        a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED, requeue_state=told, started_at=EPOCH),
        "jobs",
        JOB,
    )
    sent, answered, store_evict = asyncio.Event(), asyncio.Event(), bench.ledger._memory.evict

    async def slow(*args: Any) -> Delta:
        sent.set()
        await answered.wait()
        if not stored:
            raise DatabaseUnavailable("away")
        return await store_evict(*args)

    monkeypatch.setattr(bench.ledger._memory, "evict", slow)
    withdrawal = asyncio.create_task(bench.requeuer.evict([], {}, {bench.row.id: "Job default/mpi goes on"}))
    await asyncio.wait(
        [withdrawal, waiter := asyncio.create_task(sent.wait())],
        timeout=5,
        return_when=asyncio.FIRST_COMPLETED,
    )
    assert waiter.done(), withdrawal
    await bench.requeuer.end_graces({bench.row.id: "node n0 was lost under it"})
    bench.ledger.now = EPOCH + timedelta(seconds=61)
    assert await bench.requeuer._proceed(bench.row.id) is not None
    answered.set()
    await asyncio.wait([withdrawal])
    assert (withdrawal.exception() is None) is stored
    await bench.requeuer._proceed(bench.row.id)
    assert bench.server.writes == [], "it goes on, or nobody knows yet"
    await bench.ledger.load()
    await bench.requeuer._proceed(bench.row.id)
    assert (bench.ledger.get(bench.row.id) or bench.row).state is (
        State.RUNNING if stored else State.DRAINING
    )
    assert bool(bench.server.writes) is not stored


async def test_a_job_that_is_being_stopped_does_not_go_on() -> None:
    told = RequeueState(stop_at=EPOCH, preempted_for=9)
    bench = Bench(
        a_job_row(state=State.DRAINING, reason=Reason.PREEMPTED, requeue_state=told, started_at=EPOCH),
        "jobs",
        JOB,
    )
    await bench.requeuer.evict([], {}, {bench.row.id: "Job default/mpi goes on"})
    assert (bench.ledger.get(bench.row.id) or bench.row).state is State.DRAINING


async def test_what_goes_on_or_is_chosen_again_in_its_grace_counts_as_no_requeue() -> None:
    bench = Bench(a_job_row(started_at=EPOCH), "jobs", JOB)
    counted = REQUEUES.labels(str(Reason.PREEMPTED))._value
    before = counted.get()
    told = RequeueState(stop_at=EPOCH + timedelta(seconds=60), preempted_for=9)
    eviction = Eviction(
        workload=bench.row.id, reason=Reason.PREEMPTED, message="for other work", requeue_state=told
    )
    goes_on = {bench.row.id: "Job default/mpi goes on"}
    for withdrawn in ({}, goes_on):
        await bench.requeuer.evict([eviction], {}, withdrawn)
        assert await bench.requeuer._proceed(bench.row.id) == 60
    await bench.requeuer.evict([], {}, goes_on)
    await bench.requeuer._proceed(bench.row.id)
    assert counted.get() == before
    await bench.requeuer.evict([eviction])
    bench.ledger.now = EPOCH + timedelta(seconds=61)
    for _ in range(2):
        await bench.requeuer._proceed(bench.row.id)
    assert counted.get() == before + 1
