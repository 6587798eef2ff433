from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.controller_bench import running, subscribed, until
from support.memory_api import MemoryApi
from support.memory_store import MemoryStore, memory_ledger
from support.queue_builders import a_job, a_pod
from support.queue_records import Leader

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace, PriorityClass
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster import owners
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake import controller, group_reader, object_reader
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger


@dataclass
class Bench:
    """An intake on an API server and a store in memory, and the control tasks that it requested."""

    api: MemoryApi
    caches: Caches
    store: MemoryStore
    ledger: Ledger
    intake: IntakeController
    requested: list[ControlTask] = field(default_factory=list)

    def apply(self, *builders: JobBuilder) -> list[str | GroupKey]:
        """Show suspended Jobs, and return their uids."""
        for builder in builders:
            name = str(builder.build()["metadata"]["name"])
            held = builder.suspended().annotation("fluxqueue/suspended-by", "webhook")
            self.caches.jobs.apply(a_job(held, uid=name))
        return [str(builder.build()["metadata"]["name"]) for builder in builders]

    def edit(self, builder: JobBuilder) -> None:
        """Show the next generation of a suspended Job."""
        held = builder.suspended().annotation("fluxqueue/suspended-by", "webhook")
        job = a_job(held, uid=str(builder.build()["metadata"]["name"]), generation=2)
        self.caches.jobs.apply(
            msgspec.structs.replace(
                job, metadata=msgspec.structs.replace(job.metadata, resource_version="11")
            )
        )


@pytest.fixture
async def bench() -> Bench:
    api = MemoryApi()
    caches, store, requested = Caches(api.api), MemoryStore(), list[ControlTask]()
    ledger = await memory_ledger(store=store)
    labels = {"fluxqueue/managed": "true"}
    caches.namespaces.apply(
        msgspec.convert({"metadata": {"name": "default", "uid": "ns", "labels": labels}}, Namespace)
    )

    def request(task: ControlTask) -> None:
        requested.append(task)

    return Bench(
        api,
        caches,
        store,
        ledger,
        subscribed(IntakeController(api.api, caches, ledger, Trigger(request)), caches, ledger),
        requested,
    )


async def test_a_burst_of_new_jobs_becomes_pending_and_requests_one_cycle(bench: Bench) -> None:
    await bench.intake.take_in(bench.apply(make_job("a"), make_job("b").indexed(4)))
    assert [(row.name, row.pods, row.state) for row in bench.ledger.all()] == [
        ("a", 1, State.PENDING),
        ("b", 4, State.PENDING),
    ]
    assert bench.requested == [ControlTask.SCHEDULE]


async def test_a_turn_of_costly_objects_ends_early_and_the_others_follow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = itertools.count()
    monkeypatch.setattr(controller, "thread_time", lambda: next(used))
    keys = bench.apply(*(make_job(name) for name in "abcdefgh"))
    await bench.intake.take_in(keys, most_s=1)
    assert [row.name for row in bench.ledger.all()] == ["a", "b"], "the time is over behind the second"
    bench.apply(make_job("new"))
    async with running(bench.intake.run()):
        await until(lambda: len(bench.ledger.all()) == 9)


async def test_a_job_that_did_not_change_requests_nothing(bench: Bench) -> None:
    keys = bench.apply(make_job("a"))
    await bench.intake.take_in(keys)
    bench.requested.clear()
    await bench.intake.take_in(keys)
    assert bench.requested == []


async def test_a_gated_pod_of_a_namespace_that_is_not_managed_is_matched_alone(bench: Bench) -> None:
    bench.caches.namespaces.replace([])
    bench.caches.pods.apply(a_pod(make_pod("solo").gate("fluxqueue"), uid="solo"))
    bench.caches.jobs.apply(a_job(make_job("stranger").suspended(), uid="stranger"))
    await bench.intake.take_in(["solo", "stranger"])
    assert [row.name for row in bench.ledger.all()] == ["solo"], (
        "the Job was not suspended by the webhook, and has no gated pod"
    )


async def test_a_pending_job_that_is_deleted_is_cancelled(bench: Bench) -> None:
    keys = bench.apply(make_job("a"))
    await bench.intake.take_in(keys)
    row = bench.ledger.by_uid("a")
    assert row is not None
    bench.caches.jobs.replace([])
    await bench.intake.take_in(keys)
    (ended,) = await bench.store.workloads([row.id])
    assert (ended.state, ended.outcome, ended.message) == (
        State.CANCELLED,
        Outcome.CANCELLED,
        "Job default/a was deleted while it waited",
    )


async def test_a_pending_job_that_finishes_without_the_queue_ends_like_it(bench: Bench) -> None:
    keys = bench.apply(make_job("a"))
    await bench.intake.take_in(keys)
    row = bench.ledger.by_uid("a")
    assert row is not None
    complete = make_job("a").with_("status.conditions", [{"type": "Complete", "status": "True"}])
    bench.caches.jobs.replace([])
    bench.caches.jobs.apply(a_job(complete, uid="a"))
    await bench.intake.take_in(keys)
    (ended,) = await bench.store.workloads([row.id])
    assert (ended.state, ended.outcome) == (State.COMPLETED, Outcome.SUCCEEDED)


async def test_an_object_that_cannot_be_read_does_not_stop_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(job: Job, *args: Any, **more: Any) -> NewWorkload | None:
        if job.metadata.name == "bad":
            raise ValueError("cannot be read")
        return describe_job(job, *args, **more)

    monkeypatch.setattr(object_reader, "describe_job", describe)
    await bench.intake.take_in(bench.apply(make_job("a"), make_job("bad"), make_job("b")))
    assert [row.name for row in bench.ledger.all()] == ["a", "b"]


async def test_an_incomplete_pod_group_waits_and_is_matched_when_all_pods_exist(bench: Bench) -> None:
    key = GroupKey("default", "mpi")
    for uid, reason in (("p0", "WaitingForGroup"), ("p1", "")):
        pod = (
            make_pod(uid)
            .gate("fluxqueue")
            .label("fluxqueue/pod-group", "mpi")
            .annotation("fluxqueue/pod-group-size", "2")
        )
        bench.caches.pods.apply(a_pod(pod, uid=uid))
        await bench.intake.take_in([key])
        row = bench.ledger.group(key)
        assert row is not None
        assert (row.pods, row.reason) == (2, reason)


@pytest.mark.parametrize(("left_s", "waits"), [(9, True), (-1, False), (60, False)])
async def test_a_group_whose_pods_are_being_replaced_stays_for_a_moment(
    bench: Bench, left_s: int, waits: bool
) -> None:
    key = GroupKey("default", "mpi")
    for uid in ("p0", "p1"):
        pod = (
            make_pod(uid)
            .gate("fluxqueue")
            .label("fluxqueue/pod-group", "mpi")
            .annotation("fluxqueue/pod-group-size", "2")
        )
        bench.caches.pods.apply(a_pod(pod, uid=uid))
    await bench.intake.take_in([key])
    row = bench.ledger.group(key)
    assert row is not None
    await bench.ledger.set_requeue_states(
        {row.id: RequeueState(starts=1, not_before=bench.ledger.clock() + timedelta(seconds=left_s))}
    )
    bench.caches.pods.replace([])
    await bench.intake.take_in([key])
    assert (bench.ledger.group(key) is not None) is waits


async def test_a_gang_whose_owner_cannot_be_read_is_not_taken_in_yet(bench: Bench) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    pod = (
        make_pod("db-0")
        .gate("fluxqueue")
        .annotation("fluxqueue/gang", "true")
        .with_("metadata.ownerReferences", [owner])
    )
    bench.caches.pods.apply(a_pod(pod, uid="db-0"))
    key = GroupKey("default", "db", "StatefulSet")
    bench.api.put(
        "statefulsets", {"metadata": {"name": "db", "namespace": "default"}, "spec": {"replicas": 3}}
    )
    bench.api.fail_next("get", "statefulsets", 500, "InternalError")
    await bench.intake.take_in([key])
    assert bench.ledger.group(key) is None
    await bench.intake.take_in([key])
    row = bench.ledger.group(key)
    assert row is not None
    assert row.pods == 3


async def test_the_owners_of_gangs_are_read_once_and_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them that wait would delay all other work in each sweep,
    if they were read one after the other.
    """
    keys = [GroupKey("default", f"db{number}", "StatefulSet") for number in range(3)]
    for key in keys:
        owner = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": key.name,
            "uid": key.name,
            "controller": True,
        }
        pod = (
            make_pod(f"{key.name}-0")
            .gate("fluxqueue")
            .annotation("fluxqueue/gang", "true")
            .with_("metadata.ownerReferences", [owner])
        )
        bench.caches.pods.apply(a_pod(pod, uid=f"{key.name}-0"))
        bench.api.put(
            "statefulsets", {"metadata": {"name": key.name, "namespace": "default"}, "spec": {"replicas": 3}}
        )
    await bench.intake.take_in(keys)
    asked: list[str] = []
    all_asked = asyncio.Event()

    async def read_owner(api: Api, owner: ReplicaOwner) -> ScaledWorkload | None:
        asked.append(owner.name)
        if len(asked) == len(keys):
            all_asked.set()
        await asyncio.wait_for(all_asked.wait(), timeout=60)
        return await owners.read_owner(api, owner)

    monkeypatch.setattr(group_reader, "read_owner", read_owner)
    await bench.intake.take_in([*keys, *(row.uid for row in bench.ledger.all())])
    assert sorted(asked) == ["db0", "db1", "db2"]
    assert [row.pods for row in bench.ledger.all()] == [3, 3, 3]


async def test_a_resync_enqueues_objects_and_rows(bench: Bench) -> None:
    bench.apply(make_job("a"))
    bench.intake.resync()
    bench.intake.enqueue("another")
    assert len(bench.intake._keys) == 2


async def test_a_resync_describes_only_what_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []

    def describe(job: Job, *args: Any, **more: Any) -> NewWorkload | None:
        described.append(job.metadata.name)
        return describe_job(job, *args, **more)

    async def again() -> list[str]:
        described.clear()
        bench.intake.resync()
        await bench.intake.take_in(keys)
        return described

    monkeypatch.setattr(object_reader, "describe_job", describe)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    keys = bench.apply(
        make_job("a"), make_job("b"), make_job("c").with_("spec.template.spec.volumes", volumes)
    )
    await bench.intake.take_in(keys)
    assert await again() == ["a", "b", "c"], "their rows are new"
    assert await again() == ["c"], "what others hold decides about its volume"
    brokers = make_job("d").with_("spec.template.metadata.annotations", {"fluxqueue/minicluster": "true"})
    keys += bench.apply(brokers)
    await bench.intake.take_in(keys)
    await again()
    assert await again() == ["c", "d"], "what others hold decides about its services pod"
    bench.caches.jobs.remove(
        msgspec.convert({"metadata": {"name": "d", "namespace": "default", "uid": "d"}}, Job)
    )
    assert await again() == ["c"]
    assert bench.ledger.by_uid("d") is None, "it was deleted"
    bench.edit(make_job("b").cpu("2"))
    assert await again() == ["b", "c"]
    await again()
    row = bench.ledger.by_uid("a")
    assert row is not None
    await bench.ledger.set_reasons(
        [ReasonChange(workload=row.id, reason=Reason.WAITING_FOR_NODES, message="")]
    )
    assert await again() == ["a", "c"]
    await again()
    bench.caches.priority_classes.apply(
        msgspec.convert({"metadata": {"name": "high", "uid": "pc"}, "value": 7}, PriorityClass)
    )
    assert await again() == ["a", "b", "c"]
    assert await again() == ["c"]
    await bench.ledger.load()
    assert await again() == ["a", "b", "c"], "nothing is known of the tables"


async def test_what_could_not_be_stored_is_described_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = bench.apply(make_job("a"))
    await bench.intake.take_in(keys)
    await bench.intake.take_in(keys)
    bench.edit(make_job("a").cpu("2"))
    stored = bench.store.upsert

    async def unavailable(*_words: Any) -> Any:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(bench.store, "upsert", unavailable)
    with pytest.raises(DatabaseUnavailable):
        await bench.intake.take_in(keys)
    monkeypatch.setattr(bench.store, "upsert", stored)
    before = bench.ledger.by_uid("a")
    await bench.intake.take_in(keys)
    assert before is not None
    assert bench.ledger.by_uid("a") != before


async def test_a_job_that_is_deleted_while_it_is_released_is_left_to_the_release(bench: Bench) -> None:
    keys = bench.apply(make_job("a"))
    await bench.intake.take_in(keys)
    (row,) = bench.ledger.all()
    await bench.ledger.grant([await Leader(bench.store, bench.ledger.epoch).grant_for(row)])
    ((_, allocation),) = await bench.ledger.claim_releases(1)
    bench.caches.jobs.replace([])
    await bench.intake.take_in(keys)
    assert bench.ledger.allocation(row.id) == allocation, "it may be released already, and have pods"
    bench.ledger.releases_done([allocation.jobid])
    await bench.intake.take_in(keys)
    (ended,) = await bench.store.workloads([row.id])
    assert ended.message == "Job default/a was deleted before it was released"
