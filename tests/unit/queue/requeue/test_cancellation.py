"""What ends when a person cancels a FluxJob, and what is left to its owner."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from support.builders import Builder, make_job, make_pod
from support.controller_bench import TriggerLog, running_controllers, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Outcome, State, fluxjob_name
from fluxqueue.kube.events import EventRecorder
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import ReleaseMode, Workload
from fluxqueue.queue.requeue.cancellation import Canceller

JOB = make_job("mpi").indexed(2).uid("the-uid")
POD = make_pod("bare").uid("the-uid")


class _Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def record(self, _subject: object, reason: str, message: str, **_how: object) -> None:
        self.events.append((reason, message))


class Bench:
    """A workload whose FluxJob is cancelled."""

    def __init__(self, plural: str, builder: Builder, row: Workload | None) -> None:
        allocation = an_allocation(["n0"]) if row is not None and row.state is not State.PENDING else None
        self.ledger = RecordingLedger(*([(row, allocation)] if row is not None else []))
        self.server, self.trigger, self.recorder = MemoryApi(), TriggerLog(), _Recorder()
        self.caches = Caches(self.server.api)
        self.canceller = Canceller(
            self.server.api,
            self.caches,
            self.ledger,
            self.trigger.trigger,
            cast(EventRecorder, self.recorder),
        )
        subscribe(self.caches, self.ledger, self.canceller)
        self.server.show_in(self.caches)
        body = self.server.put(plural, builder.build())
        kind = "Job" if plural == "jobs" else "Pod"
        ref = {"apiVersion": "v1", "kind": kind, "name": body.metadata.name, "uid": "the-uid"}
        self._name = fluxjob_name(kind, body.metadata.name, "the-uid")
        self.server.put(
            "fluxjobs", {"metadata": {"name": self._name}, "spec": {"objectRef": ref, "cancel": True}}
        )

    @property
    def cancel(self) -> Any:
        return self.server.get("fluxjobs", self._name)["spec"]["cancel"]


def a_row(kind: str, state: State, **changes: Any) -> Workload:
    mode = ReleaseMode.POD if kind == "Pod" else ReleaseMode.PIN
    jobid = None if state is State.PENDING else 7
    name = "bare" if kind == "Pod" else "mpi"
    return a_workload(name, kind=kind, uid="the-uid", release_mode=mode, state=state, jobid=jobid, **changes)


async def test_a_waiting_job_ends_and_stays_suspended_for_its_user() -> None:
    bench = Bench(
        "jobs", JOB.suspended().annotation("fluxqueue/suspended-by", "webhook"), a_row("Job", State.PENDING)
    )
    async with running_controllers(bench.canceller):
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.outcome) == (State.CANCELLED, Outcome.CANCELLED)
    job = bench.server.get("jobs", "mpi")
    assert (job["spec"]["suspend"], "fluxqueue/suspended-by" in job["metadata"].get("annotations", {})) == (
        True,
        False,
    )
    assert bench.trigger.tasks == ["schedule"]


def an_unreleased(bench: Bench, row: Workload) -> None:
    """Store that the grant of a workload is not released."""
    bench.ledger.put(row, replace(an_allocation(["n0"]), released_at=None))


async def test_a_job_with_nodes_that_is_not_released_ends_and_frees_them() -> None:
    row = a_row("Job", State.ALLOCATED)
    bench = Bench("jobs", JOB.suspended().annotation("fluxqueue/suspended-by", "webhook"), row)
    an_unreleased(bench, row)
    async with running_controllers(bench.canceller):
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.outcome) == (State.CANCELLED, Outcome.CANCELLED)
    assert bench.ledger.allocation(row.id) is None
    assert "fluxqueue/suspended-by" not in bench.server.get("jobs", "mpi")["metadata"].get("annotations", {})


async def test_a_release_that_is_under_way_ends_before_its_job_is_cancelled() -> None:
    row = a_row("Job", State.ALLOCATED)
    bench = Bench("jobs", JOB.suspended().annotation("fluxqueue/suspended-by", "webhook"), row)
    an_unreleased(bench, row)
    bench.ledger.now += timedelta(minutes=1)
    ((_, allocation),) = await bench.ledger.claim_releases(1)
    assert await bench.canceller._cancel("the-uid") is not None
    assert bench.server.writes == []
    bench.ledger.releases_done([allocation.jobid])
    await bench.canceller._cancel("the-uid")
    assert len(bench.ledger.written("finish")) == 1


async def test_a_job_whose_release_is_not_stored_yet_is_not_taken_for_one_that_waits() -> None:
    row = a_row("Job", State.ALLOCATED)
    bench = Bench("jobs", JOB.suspended(False).label("fluxqueue/jobid", "7"), row)
    an_unreleased(bench, row)
    assert await bench.canceller._cancel("the-uid") is not None
    assert (bench.server.writes, bench.ledger.written("finish")) == ([], [])


async def test_a_running_job_ends_with_its_run_once_its_pods_are_gone() -> None:
    row = a_row("Job", State.RUNNING, started_at=EPOCH, hosts="n0")
    bench = Bench("jobs", JOB.suspended(False).label("fluxqueue/jobid", "7"), row)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mpi", "uid": "the-uid", "controller": True}
    bench.server.put(
        "nodes", {"metadata": {"name": "n0"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    bench.server.put(
        "pods",
        make_pod("mpi-0").with_("metadata.ownerReferences", [owner]).on_node("n0").phase("Running").build(),
    )
    stopped = (
        JOB.suspended()
        .label("fluxqueue/jobid", "7")
        .with_("status.conditions", [{"type": "Suspended", "status": "True"}])
    )
    async with running_controllers(bench.canceller):
        await until(lambda: bench.ledger.written("mark_draining"))
        assert bench.server.get("jobs", "mpi")["spec"]["suspend"]
        bench.server.put("jobs", stopped.build())
        assert bench.ledger.written("finish") == []
        bench.server.remove("pods", "mpi-0")
        bench.server.put("jobs", stopped.label("seen", "again").build())
        await until(lambda: bench.ledger.written("finish"))
    (ending,) = bench.ledger.written("finish")
    assert ending.state is State.CANCELLED
    assert "was cancelled by spec.cancel of its FluxJob after it ran" in ending.message
    assert "fluxqueue/jobid" not in bench.server.get("jobs", "mpi")["metadata"]["labels"]
    assert bench.ledger.written("requeue") == bench.ledger.written("evict") == []
    (ended,) = await bench.ledger.stored_workloads([row.id])
    assert (ended.started_at, ended.hosts) == (EPOCH, "n0")
    assert [reason for reason, _ in bench.recorder.events] == ["Cancelling", "Cancelled"]


async def test_a_pod_that_waits_is_deleted_in_the_version_that_was_read() -> None:
    bench = Bench("pods", POD.gate("fluxqueue"), a_row("Pod", State.PENDING))
    bench.server.fail_next("delete", "pods", 409, "Conflict")
    async with running_controllers(bench.canceller):
        await until(lambda: bench.ledger.written("finish"))
    (deleted,) = bench.server.written("delete", "pods")
    assert set(deleted.body["preconditions"]) == {"uid", "resourceVersion"}


async def test_a_pod_that_runs_is_left_to_its_owner_and_the_cancellation_is_set_back() -> None:
    bench = Bench("pods", POD.on_node("n0").phase("Running"), a_row("Pod", State.RUNNING))
    async with running_controllers(bench.canceller):
        await until(lambda: bench.cancel is False)
    assert bench.server.written("delete", "pods") == []
    ((reason, message),) = bench.recorder.events
    assert (reason, "kubectl delete pod bare ends it" in message) == ("EditRefused", True)


async def test_a_cancelled_job_that_is_resumed_is_not_cancelled_any_more() -> None:
    bench = Bench("jobs", JOB.suspended(False), None)
    async with running_controllers(bench.canceller):
        await until(lambda: bench.cancel is False)


async def test_a_cancelled_job_that_stays_suspended_stays_cancelled() -> None:
    bench = Bench("jobs", JOB.suspended(), None)
    bench.canceller.resync()
    assert await bench.canceller._cancel("the-uid") is None
    assert (bench.cancel, bench.server.writes) == (True, [])
