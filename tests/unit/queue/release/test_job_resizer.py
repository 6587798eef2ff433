"""How many pods of a running Job are wanted, and the patch that changes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from support.builders import JobBuilder, make_job, make_pod, make_queue
from support.controller_bench import RecordedEvents, managed_caches, running, until
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.kube.events import Severity
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.job_sizes import JobPods
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.moldable import GROWTH_PRIORITY
from fluxqueue.queue.model.records import ReleaseMode, Workload
from fluxqueue.queue.release.job_resizer import JobResizer

CREATED = EPOCH + timedelta(seconds=5)
JOBSPEC = jobspec_of("default/a", [SizedPods({"cpu": Decimal(1)}, 8)], duration_s=600, min_pods=2)


class Bench:
    """A Job of eight pods that was started with two, and what resizes it."""

    def __init__(self) -> None:
        self.memory = MemoryApi()
        self.caches: Caches = managed_caches(self.memory)
        self.ledger = RecordingLedger()
        self.events = RecordedEvents()
        self.resizer = JobResizer(self.memory.api, self.caches, self.ledger, self.events.recorder)
        self.put()

    def put(self, job: JobBuilder | None = None) -> Workload:
        builder = job or started()
        stored = self.memory.put("jobs", builder.uid("uid-of-a").build())
        workload = a_workload(
            uid=stored.metadata.uid, jobspec=JOBSPEC, pods=8, state=State.RUNNING, hosts="n[1-2]", jobid=7
        )
        self.workload = self.ledger.put(workload, an_allocation(["n1", "n2"], pods=["p0", "p1"]))
        return self.workload

    def pod(self, name: str, row: Workload | None = None, **metadata: str) -> None:
        builder = (
            make_pod(name)
            .owned_by("Job", "a")
            .with_("metadata.creationTimestamp", f"{CREATED:%Y-%m-%dT%H:%M:%SZ}")
        )
        for key, value in metadata.items():
            builder = builder.with_(f"metadata.{key}", value)
        self.memory.put("pods", builder.uid(name).build())
        if row is not None:
            self.ledger.put(replace(row, uid=name))

    def sizes(self) -> JobPods | None:
        return self.resizer.pods_of(self.workload)

    def parallelism(self) -> int:
        return int(self.memory.get("jobs", "a")["spec"]["parallelism"])


def started(parallelism: int = 2) -> JobBuilder:
    return make_job("a").indexed(8).with_("spec.parallelism", parallelism).with_("spec.suspend", False)


def waiting(priority: int = GROWTH_PRIORITY) -> Workload:
    return a_workload(kind="Pod", release_mode=ReleaseMode.POD, priority=priority)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_the_pods_of_a_job_are_counted(bench: Bench) -> None:
    for name in ("p0", "p1"):
        bench.pod(name)
    bench.pod("p2", waiting())
    assert bench.sizes() == JobPods(
        parallelism=2, full=8, least=2, left=8, active=3, waiting=1, waiting_since=CREATED
    )


@pytest.mark.parametrize(
    "job",
    [
        started().with_("spec.suspend", True),
        started(0),
        started().with_("status.conditions", [{"type": "Complete", "status": "True"}]),
    ],
    ids=["suspended", "scaled to zero", "complete"],
)
async def test_a_job_that_does_not_run_is_not_resized(bench: Bench, job: JobBuilder) -> None:
    workload = bench.put(job)
    assert bench.sizes() is None
    async with running(bench.resizer.run()):
        bench.resizer.resize(workload.id, 5)
        await until(lambda: bench.resizer._wanted == {})
    assert bench.memory.written("patch", "jobs") == []


async def test_a_job_is_left_alone_while_a_pod_of_it_ends_or_needs_another_node(bench: Bench) -> None:
    bench.pod("p0", waiting(priority=0))
    assert bench.sizes() is None
    again = Bench()
    again.pod("p0", deletionTimestamp="2026-01-01T00:00:00Z")
    assert again.sizes() is None


@pytest.mark.parametrize(("state", "full"), [("open", 8), ("held", 2), ("drained", 2)])
async def test_a_job_does_not_grow_in_a_queue_that_starts_nothing(
    bench: Bench, state: str, full: int
) -> None:
    bench.memory.put("fluxqueues", make_queue("default", state=state))
    sizes = bench.sizes()
    assert sizes is not None
    assert sizes.full == full


async def test_a_deleted_job_is_not_resized(bench: Bench) -> None:
    bench.memory.remove("jobs", "a")
    assert bench.sizes() is None
    async with running(bench.resizer.run()):
        bench.resizer.resize(bench.workload.id, 5)
        await until(lambda: bench.resizer._wanted == {})
    assert bench.memory.written("patch", "jobs") == []


async def test_a_job_grows_by_one_guarded_patch_and_an_event(bench: Bench) -> None:
    async with running(bench.resizer.run()):
        bench.resizer.resize(bench.workload.id, 5)
        assert bench.sizes() is None, "until the patch is done"
        await until(lambda: bench.parallelism() == 5)
        await until(lambda: bench.events.reasons == ["Grown"])
    (write,) = bench.memory.written("patch", "jobs")
    assert write.body["metadata"].keys() >= {"uid", "resourceVersion"}
    assert bench.events.events == [
        ("Job a", "Grown", "Job default/a grows from 2 to 5 pods: nodes are free", Severity.NORMAL)
    ]


async def test_pods_that_are_given_up_are_reported(bench: Bench) -> None:
    bench.put(started(5))
    async with running(bench.resizer.run()):
        bench.resizer.resize(bench.workload.id, 3)
        await until(lambda: bench.events.reasons == ["Shrunk"])
    sentence = "Job default/a goes back from 5 to 3 pods: other work took the nodes"
    assert bench.events.events == [("Job a", "Shrunk", sentence, Severity.WARNING)]


@pytest.mark.parametrize(
    ("status", "reason"), [(409, "Conflict"), (404, "NotFound"), (403, "Forbidden"), (422, "Invalid")]
)
async def test_a_refused_patch_is_decided_again_by_a_later_cycle(
    bench: Bench, status: int, reason: str
) -> None:
    bench.memory.fail_next("patch", "jobs", status, reason)
    requested: list[int] = []
    bench.resizer.subscribe(lambda: requested.append(status))
    async with running(bench.resizer.run()):
        bench.resizer.resize(bench.workload.id, 5)
        await until(lambda: bench.resizer._wanted == {})
    assert requested == ([status] if status in (409, 404) else []), (
        "another cycle, which nothing else may request"
    )
    assert (bench.parallelism(), bench.events.events) == (2, [])
    assert bench.sizes() is not None, "so that the next cycle can decide"
