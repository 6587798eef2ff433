"""What comes of a release: stored, repeated, requeued or held."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.controller_bench import TriggerLog, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State, fluxjob_name
from fluxqueue.api.jobs import Job
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import Allocation, ReleaseMode
from fluxqueue.queue.release.blockers import PreparationFailed
from fluxqueue.queue.release.object_release import ObjectReleaser
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.release.releaser import Releaser

SUSPENDED = [{"type": "Suspended", "status": "True"}]
JOB = make_job("mpi").indexed(2).uid("job-uid").suspended().annotation("fluxqueue/suspended-by", "webhook")


class Bench:
    """An allocated Job of two pods that is due for release; ``job`` None: it is gone."""

    def __init__(self, job: JobBuilder | None = JOB, **changes: Any) -> None:
        self.row = a_workload(
            "mpi", uid="job-uid", state=State.ALLOCATED, pods=2, jobid=7, jobspec="{}", **changes
        )
        self.ledger = RecordingLedger((self.row, replace(an_allocation(["n0", "n1"]), released_at=None)))
        self.server, self.trigger = MemoryApi(), TriggerLog()
        self.caches = Caches(self.server.api)
        self.server.show_in(self.caches)
        self.reread: list[str] = []
        self.problem: Exception | None = None
        for node in ("n0", "n1"):
            self.ready(node)
        if job is not None:
            self.server.put("jobs", job.build())
        gates = PodGates(self.server.api, self.ledger, self.caches.pods.get_by_uid)
        self.objects = ObjectReleaser(self.server.api, self.caches, self.ledger.clock, gates, self._prepare)
        subscribe(self.caches, self.objects)
        self.releaser = Releaser(self.objects, self.ledger, self.trigger.trigger, self.reread.append)

    async def _prepare(self, _job: Job, _allocation: Allocation) -> None:
        if self.problem is not None:
            raise self.problem

    def ready(self, node: str, **spec: Any) -> None:
        body = {
            "metadata": {"name": node},
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.server.put("nodes", body)

    def refuse(self, field: str) -> None:
        """Refuse the next patch because of a field."""
        self.server.fail_next("patch", "jobs", 422, "Invalid", "Too long", field)

    async def round(self) -> None:
        """One round, a minute after the one before: a refused release is claimed again."""
        self.ledger.now += timedelta(minutes=1)
        await self.releaser.release_due()


async def test_a_job_is_resumed_on_its_nodes_by_one_patch_and_that_is_stored() -> None:
    bench = Bench()
    await bench.round()
    assert [write.name for write in bench.server.writes] == ["mpi"]
    job = bench.server.get("jobs", "mpi")
    assert job["spec"]["suspend"] is False
    assert job["spec"]["template"]["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == "n[0-1]"
    assert bench.ledger.written("note_released") == [7]


async def test_a_release_that_is_repeated_after_a_crash_sends_nothing() -> None:
    bench = Bench(JOB.label("fluxqueue/jobid", "7").suspended(False))
    await bench.round()
    assert (bench.server.writes, bench.ledger.written("note_released")) == ([], [7])


async def test_a_conflict_reads_the_job_again_and_sends_the_patch_again() -> None:
    bench = Bench()
    bench.server.fail_next("patch", "jobs", 409, "Conflict")
    await bench.round()
    assert bench.ledger.written("note_released") == [7]


async def test_a_status_that_the_cache_does_not_show_yet_costs_no_second_patch() -> None:
    job = JOB.label(names.SEEN_LABEL, names.SEEN_VALUE).pod_label("job-name", "mpi")
    bench = Bench(job)
    bench.server.pause()
    bench.server.put("jobs", job.with_("status.conditions", SUSPENDED).build())
    await bench.round()
    assert bench.ledger.written("note_released") == [7]
    assert bench.server.get("jobs", "mpi")["spec"]["suspend"] is False
    assert len(bench.server.writes) == 1


async def test_an_edit_that_the_cache_does_not_show_yet_is_not_overwritten() -> None:
    job = JOB.label(names.SEEN_LABEL, names.SEEN_VALUE).pod_label("job-name", "mpi")
    bench = Bench(job)
    bench.server.pause()
    bench.server.put("jobs", job.cpu("64").build())
    await bench.round()
    (requeue,) = bench.ledger.written("requeue")
    assert "was edited while it was being released" in requeue.message
    assert bench.server.writes == []


async def test_a_server_that_needs_the_first_status_of_a_job_is_waited_for() -> None:
    """Kubernetes 1.36.0 and 1.36.1."""
    bench = Bench(submitted_at=EPOCH)
    bench.ledger.now = EPOCH - timedelta(minutes=1)  # the round adds one
    bench.refuse(field="spec.template")
    await bench.round()
    assert bench.ledger.written("retry_releases_soon") == [7]
    assert bench.ledger.written("mark_release_failed") == []
    bench.ledger.now += timedelta(seconds=1, minutes=-1)
    releasing = asyncio.create_task(bench.round())
    await until(lambda: bench.objects._new_jobs._awaited)
    bench.server.put("jobs", JOB.with_("status.conditions", SUSPENDED).build())
    await releasing
    assert bench.ledger.written("note_released") == [7]


async def test_a_template_that_stays_fixed_is_a_refusal_in_the_end() -> None:
    bench = Bench()
    for _ in range(4):
        bench.refuse(field="spec.template")
        await bench.round()
    assert len(bench.ledger.written("mark_release_failed")) == 2
    assert len(bench.ledger.written("requeue")) == 1


async def test_a_stopped_job_loses_the_start_time_that_fixes_its_template() -> None:
    """Kubernetes before 1.36."""
    started = {"conditions": SUSPENDED, "startTime": "2026-01-01T00:00:00Z"}
    bench = Bench(JOB.with_("status", started))
    bench.refuse(field="spec.template")
    await bench.round()
    assert [write.resource for write in bench.server.writes] == ["jobs/status", "jobs"]
    assert bench.ledger.written("note_released") == [7]


@pytest.mark.parametrize("field", ["spec.template.annotations", ""])
async def test_a_patch_that_would_be_refused_again_is_sent_once(field: str) -> None:
    bench = Bench()
    for _ in range(6):
        bench.refuse(field=field)
    await bench.round()
    assert bench.server.calls_refused == 1
    ((_, message),) = bench.ledger.written("mark_release_failed")
    assert "Too long" in message


async def test_what_is_refused_does_not_delay_the_release_of_a_stranger() -> None:
    bench = Bench(None)
    for number in range(2, 103):
        name, namespace = f"job-{number}", "default" if number < 102 else "stranger"
        row = a_workload(
            name,
            id=number,
            uid=f"uid-{number}",
            namespace=namespace,
            state=State.ALLOCATED,
            jobid=number,
            jobspec="{}",
        )
        bench.ledger.put(row, replace(an_allocation(["n0"], jobid=number), released_at=None))
        bench.server.put("jobs", make_job(name).namespace(namespace).uid(f"uid-{number}").suspended().build())
    patched: list[str] = []
    call = bench.server.call

    async def refuse(request: Any, *arguments: Any, **options: Any) -> bytes:
        if request.verb == "patch":
            patched.append(request.path.split("/")[-1])
            await asyncio.sleep(0)
            if "/default/" in request.path:
                bench.refuse(field="spec.template.annotations")
        return await call(request, *arguments, **options)

    bench.server.call = refuse  # type: ignore[method-assign]
    await bench.round()
    assert patched.index("job-102") <= 16
    assert len(patched) == 101
    patched.clear()
    await bench.round()
    assert len(patched) == 100


async def test_a_job_that_was_edited_is_requeued_and_read_again() -> None:
    bench = Bench(JOB.with_("metadata.generation", 2))
    await bench.round()
    (requeue,) = bench.ledger.written("requeue")
    assert "was edited while it was being released" in requeue.message
    assert (bench.reread, bench.server.writes, bench.trigger.tasks) == (["job-uid"], [], ["schedule"])


async def test_a_job_whose_node_was_cordoned_is_requeued() -> None:
    bench = Bench()
    bench.ready("n1", unschedulable=True)
    await bench.round()
    assert (
        bench.ledger.written("requeue")[0].message
        == "Job default/mpi is planned again: node n1 is down: it is cordoned"
    )


async def test_a_released_job_keeps_its_nodes_though_the_cache_is_older() -> None:
    bench = Bench()
    bench.ready("n1", unschedulable=True)
    bench.server.pause()
    bench.server.put("jobs", JOB.label("fluxqueue/jobid", "7").suspended(False).build())
    await bench.round()
    assert (bench.ledger.written("note_released"), bench.ledger.written("requeue")) == ([7], [])


async def test_a_job_that_is_gone_ends_and_frees_its_nodes() -> None:
    bench = Bench(None)
    await bench.round()
    (ending,) = bench.ledger.written("finish")
    assert (ending.state, ending.outcome) == (State.CANCELLED, Outcome.CANCELLED)
    assert ending.message == "Job default/mpi was deleted before it was released"


async def test_what_cannot_be_prepared_is_requeued_with_the_reason() -> None:
    bench = Bench()
    bench.problem = PreparationFailed("another owner has a Service of that name")
    await bench.round()
    (requeue,) = bench.ledger.written("requeue")
    assert (requeue.reason, requeue.message) == (
        Reason.INVALID_REQUEST,
        "Job default/mpi: another owner has a Service of that name",
    )


async def test_three_refusals_in_a_row_hold_the_workload_with_the_servers_message() -> None:
    bench = Bench()
    for _ in range(3):
        bench.server.fail_next("patch", "jobs", 403, "Forbidden", "no resumes today")
        await bench.round()
    assert len(bench.ledger.written("mark_release_failed")) == 2
    (requeue,) = bench.ledger.written("requeue")
    assert requeue.reason is Reason.HELD
    assert "could not be released 3 times and is held" in requeue.message
    assert "no resumes today" in requeue.message
    _, state = bench.ledger.written("set_requeue_states")[-1]
    assert (state.unreleasable, state.refused_releases) == (bench.row.generation, (0, 0))


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (400, "BadRequest", "the patch cannot be applied"),
        (413, "RequestEntityTooLarge", "limit is 3145728"),
        (500, "", "etcdserver: request is too large"),
        (500, "", "trying to send message larger than max (2097200 vs. 2097152)"),
    ],
)
async def test_what_would_be_refused_again_frees_its_nodes_after_three_attempts(
    status: int, reason: str, message: str
) -> None:
    bench = Bench()
    for _ in range(3):
        bench.server.fail_next("patch", "jobs", status, reason, message)
        await bench.round()
    ((_, told), _) = bench.ledger.written("mark_release_failed")
    assert message in told
    (requeue,) = bench.ledger.written("requeue")
    assert requeue.reason is Reason.HELD
    assert bench.ledger.allocation(bench.row.id) is None


async def test_work_that_fails_again_and_again_while_others_are_released_says_why() -> None:
    bench = Bench()
    for number in range(1, 5):
        name, uid = f"other-{number}", f"uid-{number}"
        bench.server.fail_next("patch", "jobs", 503, "ServiceUnavailable", "no endpoints")
        await bench.round()
        assert len(bench.ledger.written("mark_release_failed")) == (number > 3)
        other = a_workload(
            name, id=100 + number, uid=uid, state=State.ALLOCATED, jobid=100 + number, jobspec="{}"
        )
        bench.server.put("jobs", make_job(name).uid(uid).suspended().build())
        allocation = an_allocation(["n0"], jobid=100 + number)
        bench.ledger.put(other, replace(allocation, released_at=None))
        await bench.releaser._release(other, allocation)
        bench.ledger.end(other)
    ((_, told),) = bench.ledger.written("mark_release_failed")
    assert "no endpoints" in told
    assert bench.ledger.written("retry_releases_soon") == [7] * 4
    bench.server.fail_next("patch", "jobs", 503, "ServiceUnavailable", "no endpoints")
    await bench.round()
    assert len(bench.ledger.written("mark_release_failed")) == 1, "it says so already"
    await bench.round()
    assert bench.ledger.written("note_released") == [7]


async def test_an_outage_gives_nobody_a_reason() -> None:
    bench = Bench()
    for _ in range(6):
        bench.server.fail_next("patch", "jobs", 503, "ServiceUnavailable")
        await bench.round()
    assert bench.ledger.written("mark_release_failed") == []


async def test_a_job_that_is_cancelled_is_not_released() -> None:
    bench = Bench()
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "mpi", "uid": "job-uid"}
    fluxjob = {
        "metadata": {"name": fluxjob_name("Job", "mpi", "job-uid")},
        "spec": {"objectRef": ref, "cancel": True},
    }
    bench.server.put("fluxjobs", fluxjob)
    await bench.round()
    assert bench.server.writes == []
    bench.server.put("fluxjobs", {**fluxjob, "spec": {"objectRef": ref, "cancel": False}})
    await bench.round()
    assert bench.ledger.written("note_released") == [7]


async def test_refusals_of_a_release_count_across_leaders_and_only_for_one_allocation() -> None:
    former = Bench()
    former.server.fail_next("patch", "jobs", 403, "Forbidden", "no resumes today")
    await former.round()
    ((_, state),) = former.ledger.written("set_requeue_states")
    for jobid, held in ((7, True), (8, False)):
        bench = Bench(requeue_state=msgspec.structs.replace(state, refused_releases=(jobid, 2)))
        bench.server.fail_next("patch", "jobs", 403, "Forbidden", "no resumes today")
        await bench.round()
        assert bool(bench.ledger.written("requeue")) is held
    assert state.refused_releases == (7, 1)


async def test_while_the_api_server_is_unavailable_the_release_is_due_again_soon() -> None:
    bench = Bench()
    bench.server.fail_next("patch", "jobs", 503, "ServiceUnavailable")
    await bench.round()
    assert (bench.ledger.written("retry_releases_soon"), bench.ledger.written("mark_release_failed")) == (
        [7],
        [],
    )


async def test_an_unknown_error_of_one_release_counts_as_a_refusal() -> None:
    bench = Bench()
    bench.problem = ValueError("No closing quotation")
    await bench.round()
    assert bench.ledger.written("mark_release_failed") == [
        (7, "Job default/mpi could not be released: No closing quotation")
    ]


async def test_a_single_pod_gets_its_node_and_loses_only_our_gate() -> None:
    bench = Bench(None, kind="Pod", release_mode=ReleaseMode.POD)
    bench.server.put("pods", make_pod("mpi").uid("job-uid").gate("fluxqueue", "example.com/wait").build())
    await bench.round()
    pod = bench.server.get("pods", "mpi")
    assert pod["spec"]["schedulingGates"] == [{"name": "example.com/wait"}]
    assert pod["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == "n0"
    assert bench.ledger.written("note_released") == [7]


async def test_a_group_is_stored_as_released_and_its_pods_are_left_to_the_tracker() -> None:
    bench = Bench(None, kind="PodGroup", release_mode=ReleaseMode.GROUP)
    await bench.round()
    assert (bench.ledger.written("note_released"), bench.server.writes) == ([7], [])
