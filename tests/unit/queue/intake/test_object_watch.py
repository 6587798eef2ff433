from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_pod
from support.controller_bench import subscribed, until
from support.memory_store import memory_ledger
from support.queue_builders import a_job, a_new_workload, a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.metadata import Namespace, ObjectMeta
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.watched_objects import GangObject
from fluxqueue.queue.intake.object_watch import ObjectWatch
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.groups import POD_GROUP, GroupKey
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.sources.registry import source_named


class Watched:
    """Caches, and what a watch of them enqueued; two workloads are pending,
    in different queues and namespaces.
    """

    def __init__(self, caches: Caches, watch: ObjectWatch, enqueued: list[str | GroupKey]) -> None:
        self.caches = caches
        self.watch = watch
        self.enqueued = enqueued

    def taken(self) -> list[str | GroupKey]:
        """Return what was enqueued since the last call."""
        taken = [*self.enqueued]
        self.enqueued.clear()
        return taken


@pytest.fixture
async def watched() -> Watched:
    caches, ledger, enqueued = Caches(cast("Api", None)), await memory_ledger(), list[str | GroupKey]()
    await ledger.upsert([a_new_workload("a"), a_new_workload("b", queue="gpu", namespace="science")])
    watch = subscribed(ObjectWatch(caches, ledger, enqueued.append, enqueued.append), caches, ledger)
    watch.resync()
    enqueued.clear()
    return Watched(caches, watch, enqueued)


def decoded(kind: type[Any], name: str, version: int = 1, **more: Any) -> Any:
    meta = {"name": name, "uid": name, "resourceVersion": str(version), **more.pop("metadata", {})}
    return msgspec.convert({"metadata": meta, **more}, kind)


def with_version(meta: ObjectMeta, version: int) -> ObjectMeta:
    return msgspec.structs.replace(meta, resource_version=str(version))


def test_a_job_is_enqueued_for_what_its_description_depends_on(watched: Watched) -> None:
    job = make_job("j").suspended(False)
    steps = (
        job,
        job.with_("status.active", 1),
        job.label("fluxqueue/queue", "gpu"),
        job.label("fluxqueue/queue", "gpu").suspended(),
    )
    taken = []
    for version, step in enumerate(steps, start=11):
        read = a_job(step, uid="j", generation=2 if step is steps[-1] else 1)
        watched.caches.jobs.apply(
            msgspec.structs.replace(read, metadata=with_version(read.metadata, version))
        )
        taken.append(watched.taken())
    assert taken == [["j"], [], ["j"], ["j"]], "a description does not depend on the number of active pods"


def test_a_gated_pod_enqueues_itself_its_group_and_a_job_without_a_row(watched: Watched) -> None:
    watched.caches.pods.apply(
        a_pod(make_pod("p").gate("fluxqueue").label("fluxqueue/pod-group", "mpi"), uid="p")
    )
    assert watched.taken() == [GroupKey("default", "mpi"), "p"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    watched.caches.pods.apply(
        a_pod(make_pod("q").gate("fluxqueue").with_("metadata.ownerReferences", [owner]), uid="q")
    )
    assert watched.taken() == ["q", "j"]


def test_a_pod_that_changes_its_group_enqueues_the_one_that_it_left(watched: Watched) -> None:
    taken = []
    for version, group in enumerate(("mpi", "other", None), start=11):
        pod = make_pod("p").gate("fluxqueue")
        read = a_pod(pod.label("fluxqueue/pod-group", group) if group else pod, uid="p")
        watched.caches.pods.apply(
            msgspec.structs.replace(read, metadata=with_version(read.metadata, version))
        )
        taken.append(watched.taken())
    mpi, other = GroupKey("default", "mpi"), GroupKey("default", "other")
    assert taken == [[mpi, "p"], [mpi, other, "p"], [other, "p"]]


def test_a_change_of_a_queue_enqueues_its_pending_work_only(watched: Watched) -> None:
    watched.caches.fluxqueues.apply(decoded(FluxQueue, "gpu", spec={"priority": 5}))
    assert watched.taken() == ["b"]
    watched.caches.fluxqueues.apply(
        decoded(FluxQueue, "gpu", 2, spec={"priority": 5}, metadata={"labels": {"a": "b"}})
    )
    assert watched.taken() == [], "its spec is the same"


def test_an_account_enqueues_the_pending_work_of_namespaces_that_it_gains_or_loses(watched: Watched) -> None:
    steps = (
        {"namespaces": ["science"]},
        {"namespaces": ["science"], "limits": {"running": 1}},
        {"namespaces": ["default"]},
    )
    taken = []
    for version, spec in enumerate(steps, start=1):
        watched.caches.fluxaccounts.apply(decoded(FluxAccount, "physics", version, spec=spec))
        taken.append(watched.taken())
    assert taken == [["b"], [], ["a", "b"]], "limits are no part of a description"


def test_a_namespace_that_opts_in_enqueues_its_jobs_that_have_no_row(watched: Watched) -> None:
    watched.caches.jobs.apply(a_job(make_job("new").namespace("science"), uid="new"))
    watched.taken()
    watched.caches.namespaces.apply(
        decoded(Namespace, "science", metadata={"labels": {"fluxqueue/managed": "true"}})
    )
    assert watched.taken() == ["b", "new"]


def test_a_new_taint_of_a_node_has_nothing_read_again(watched: Watched) -> None:
    watched.caches.nodes.apply(
        decoded(Node, "n1", spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})
    )
    assert watched.taken() == []


async def test_nothing_pending_is_enqueued_before_the_first_resync() -> None:
    caches, ledger, enqueued = Caches(cast("Api", None)), await memory_ledger(), list[str | GroupKey]()
    await ledger.upsert([a_new_workload("a")])
    watch = subscribed(ObjectWatch(caches, ledger, enqueued.append, enqueued.append), caches, ledger)
    watch.enqueue_namespace("default")
    assert enqueued == []
    watch.resync()
    assert enqueued == ["a"]


@pytest.mark.parametrize(("released", "reread"), [(True, False), (False, True)])
def test_a_pod_for_which_the_tracker_looks_for_a_slot_is_not_read(released: bool, reread: bool) -> None:
    row = a_workload("mpi", uid="uid-of-mpi", state=State.RUNNING, release_mode=ReleaseMode.GATE, jobid=7)
    allocation = an_allocation(["n0"]) if released else replace(an_allocation(["n0"]), released_at=None)
    caches, enqueued = Caches(cast("Api", None)), list[str | GroupKey]()
    watch = ObjectWatch(caches, RecordingLedger((row, allocation)), enqueued.append, enqueued.append)
    subscribe(caches, watch)
    caches.pods.apply(a_pod(make_pod("mpi-0").owned_by("Job", "mpi").gate("fluxqueue"), uid="mpi-0"))
    assert ("mpi-0" in enqueued) is reread
    enqueued.clear()
    watch.resync()
    assert ("mpi-0" in enqueued) is reread


def test_a_pod_of_a_group_that_has_a_workload_is_read_with_its_group() -> None:
    caches, ledger, enqueued = Caches(cast("Api", None)), RecordingLedger(), list[str | GroupKey]()
    subscribed(ObjectWatch(caches, ledger, enqueued.append, enqueued.append), caches, ledger)
    member = make_pod("p0").gate("fluxqueue").label("fluxqueue/pod-group", "mpi")
    caches.pods.apply(a_pod(member, uid="p0"))
    assert enqueued == [GroupKey("default", "mpi"), "p0"]
    enqueued.clear()
    ledger.put(a_workload("mpi", kind=POD_GROUP, release_mode=ReleaseMode.GROUP, pods=2))
    caches.pods.apply(a_pod(member.with_("metadata.name", "p1"), uid="p1"))
    assert enqueued == [GroupKey("default", "mpi")]


def test_a_pod_of_a_group_has_it_read_again_only_for_what_the_reading_depends_on() -> None:
    caches, ledger, enqueued = Caches(cast("Api", None)), RecordingLedger(), list[str | GroupKey]()
    subscribed(ObjectWatch(caches, ledger, enqueued.append, enqueued.append), caches, ledger)
    mpi, versions = GroupKey("default", "mpi"), iter(range(11, 99))
    member = make_pod("p0").gate("fluxqueue").label("fluxqueue/pod-group", "mpi")

    def reread_after(pod: PodBuilder) -> bool:
        enqueued.clear()
        read = a_pod(pod, uid="p0")
        caches.pods.apply(msgspec.structs.replace(read, metadata=with_version(read.metadata, next(versions))))
        return mpi in enqueued

    unscheduled = member.with_("status.conditions", [{"type": "PodScheduled", "status": "False"}])
    assert reread_after(member)
    assert not reread_after(unscheduled)
    released = unscheduled.with_("spec.schedulingGates", [])
    assert reread_after(released), "somebody removed the gate of a pod that waited"
    assert reread_after(unscheduled)
    group = a_workload(
        "mpi", kind=POD_GROUP, release_mode=ReleaseMode.GROUP, pods=2, state=State.ALLOCATED, jobid=7
    )
    ledger.put(group, an_allocation(["n0"]))
    assert not reread_after(released), "it has its slot"
    assert not reread_after(released.on_node("n0").phase("Running"))
    assert reread_after(
        unscheduled.label("fluxqueue/pod-group", "mpi").with_("metadata.annotations", {"a": "b"})
    ), "one that waits"


async def test_a_large_gang_is_not_looked_through_for_each_change_of_its_object(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        pod = make_pod(f"p{number}").gate("fluxqueue").label("scheduling.x-k8s.io/pod-group", "mpi")
        watched.caches.pods.apply(a_pod(pod, uid=f"p{number}"))
    watched.taken()
    resource = source_named("scheduler-plugins").resource
    assert resource is not None
    looked: list[GangObject] = []
    look = watched.caches.pods_of_gang_object

    def note(found: GangObject) -> list[Pod]:
        looked.append(found)
        return look(found)

    monkeypatch.setattr(watched.caches, "pods_of_gang_object", note)
    for version in range(1, 101):
        changed = decoded(
            resource.struct,
            "mpi",
            version,
            metadata={"namespace": "default", "labels": {"version": str(version)}},
        )
        watched.caches.gang_objects.cache("scheduler-plugins").apply(changed)
    assert len(looked) == len(watched.taken()) < 20
    before = len(looked)
    watched.caches.gang_objects.cache("scheduler-plugins").apply(
        decoded(resource.struct, "mpi", 101, metadata={"namespace": "default"})
    )
    await until(lambda: len(looked) > before)
    assert set(watched.taken()) == {GroupKey("default", "mpi", "PodGroup", "scheduler-plugins")}, (
        "with all that has changed meanwhile"
    )


async def test_a_resync_of_very_many_objects_leaves_turns_to_other_work() -> None:
    """50,000 pods of groups take 0.3 s, once a minute."""
    caches, enqueued = Caches(cast("Api", None)), list[str | GroupKey]()
    pod = a_pod(make_pod("p"), uid="p")
    for number in range(3_500):
        meta = msgspec.structs.replace(pod.metadata, name=f"p{number}", uid=f"p{number}")
        caches.pods.apply(msgspec.structs.replace(pod, metadata=meta))
    watch = ObjectWatch(
        caches, RecordingLedger((a_workload("mpi", uid="mpi"), None)), enqueued.append, enqueued.append
    )
    subscribe(caches, watch)
    enqueued.clear()
    watch.resync()
    counts = [len(enqueued)]
    while counts[-1] < 3_501:
        await asyncio.sleep(0)
        counts.append(len(enqueued))
    assert counts[:4] == [1_000, 2_000, 3_000, 3_501]
    assert len({*enqueued}) == 3_501
