"""Judges the matching of the queue by the checks of our own scheduler, in memory, thousands of random worlds
in an hour.

These checks agree with kube-scheduler's in every verdict
(`tests/integration/scheduler_plugin/test_oracle.py`). Here all placements of the work are tried with them, on
the world as it is and on an empty copy, and compared with one scheduling cycle. The real scheduler judges the
same worlds in ``tests/e2e/test_differential.py``, a thousand times more slowly.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from support.differential_allocator import Allocator
from support.differential_earlier import EARLIER_SHARED, QUEUE
from support.differential_worlds import DELETED, SHARED, World, is_earlier, is_work, templates_of
from support.gang_standins import jobs_of_jobset
from support.known_differences import is_gang, known_difference
from support.memory_api import MemoryApi
from support.queue_bench import Bench, a_machine
from support.queue_builders import around

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.poddefaults import RuntimeClass
from fluxqueue.api.pods import Pod
from fluxqueue.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.context import ClusterContext, QueueDefaults
from fluxqueue.queue.cluster.devices import ClusterDevices
from fluxqueue.queue.cluster.slot_labels import label_for_pod
from fluxqueue.queue.intake.describe import describe_group, describe_job, describe_pod
from fluxqueue.queue.model.changes import Requeue
from fluxqueue.queue.model.groups import (
    JOB_SET,
    GatheredGroup,
    GroupKey,
    gather,
    gather_gang,
    gather_jobset,
    group_of,
)
from fluxqueue.queue.model.records import Allocation, NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.model.victim_views import VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FitStatus, check_gang

__all__ = ["Finding", "judge_in_memory"]

Json = dict[str, Any]
FOR_EVER = (Reason.UNSATISFIABLE, Reason.INVALID_REQUEST)
PASSING = ("ReadWriteOncePod", "is being made for node")
"""Words of refusals that do not count: the intake keeps such claims from others,
and a volume that is made for one pod comes for all."""
PRIORITIES = {body["metadata"]["name"]: body["value"] for _, body in EARLIER_SHARED if "value" in body} | {
    "meek": 0
}
TRIES = 4000
"""Placements that are tried at most; then nothing is known."""
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Finding:
    """What became of one world: the queue's verdict, the rule that was broken (empty: none),
    and a known difference instead.
    """

    verdict: str
    fault: str = ""
    known: str = ""


async def judge_in_memory(world: World) -> Finding:
    """Run one scheduling cycle in a world, and judge it; if work is preempted, more until it has gone."""
    made = world.marked("w")
    documents = [each for each in made if not is_earlier(each)]
    shared = Allocator(documents).shares and not all(
        is_gang(each) for each in documents if is_work(each) and "replicas" in each["spec"]
    )
    if shared or world.about == "resizes":
        return Finding("left out")  # the intake has one workload wait for the other; or nobody resizes
    caches = Caches(MemoryApi().api)
    _fill(caches, documents)
    async with a_machine(lambda: NOW, caches) as bench:
        pods = _pods([each for each in documents if is_work(each)])
        _fill_devices(bench.devices, documents)
        context = around(
            queues={"default": QueueDefaults(), QUEUE: QueueDefaults()},
            storage=caches.storage,
            devices=bench.devices,
            runtime_classes={each.metadata.name: each for each in caches.runtime_classes.list()},
            priority_classes=PRIORITIES,
        )
        bench.other_queues = {QUEUE: Discipline(Policy.EASY, preemption=Preemption.LOWER_PRIORITY)}
        bench.shown = _AnyVictim()
        earlier = [
            _Earlier(each, [*_described([each], _pods([each]), caches, context)])
            for each in made
            if is_earlier(each)
        ]
        if not await _run(bench, earlier):
            return Finding("not begun")
        works = [each for each in documents if is_work(each)]
        workloads = [each for each in _described(works, pods, caches, context) if each is not None]
        await bench.submit(*workloads)
        await bench.cycle()
        ended = await _let_victims_go(bench, earlier)
        rows = [bench.row(each.uid) for each in workloads]
        granted = [bench.ledger.allocation(row.id) for row in rows]
        running = [pod for each in earlier for pod in each.placed(bench, ended)]
    reasons = [row.reason for row in rows]
    verdict = next((each for each in FOR_EVER if each in reasons), None) or next(
        (each for each in reasons if each), Reason.NONE
    )
    message = next((row.message for row in rows if row.reason == verdict), "")
    if all(granted):
        nodes = [node for each in granted if each is not None for node in each.hosts]
        return Finding(
            "started", _without_slot(rows, pods, context) or _refused([*documents, *running], pods, nodes)
        )
    fault = ""
    spared = [each for each in running if each["spec"].get("priorityClassName") == "urgent"]
    if verdict in FOR_EVER and _places(world.marked("w", empty=True)):
        fault = f"false {verdict}, the empty world has a place: {message}"
        if verdict == Reason.UNSATISFIABLE:
            return Finding(verdict, fault)  # no known difference is a reason to say so
    elif ended and not any(granted):
        fault = f"{', '.join(ended)} ended for work that does not start; {verdict}: {message}"
    elif _places([*documents, *spared]):
        fault = f"the scheduler would place it; {verdict}: {message}"
    known = known_difference(world, message) if fault and not (ended and not any(granted)) else ""
    return Finding(verdict, "" if known else fault, known)


# ---- what runs before --------------------------------------------------------------------------------------


class _AnyVictim(OnlyJobs):
    def view(self, _workload: Workload, _allocation: Allocation) -> VictimView:
        return VictimView()


@dataclass(frozen=True)
class _Earlier:
    """Work that runs before, and its workloads."""

    document: Json
    workloads: Sequence[NewWorkload | None]

    def placed(self, bench: Bench, ended: Collection[str]) -> Iterator[Json]:
        """Yield its pods that have a node; not those of workloads that had to wait again, after the work."""
        pods = iter(_pods([self.document]))
        for workload in self.workloads:
            assert workload is not None
            row = bench.row(workload.uid)
            allocation = bench.ledger.allocation(row.id) if row.name not in ended else None
            for node in allocation.hosts if allocation is not None else ():
                pod = next(pods)
                yield {"kind": "Pod", **pod, "spec": {**pod["spec"], "nodeName": node}}


async def _run(bench: Bench, earlier: Sequence[_Earlier]) -> bool:
    """Start work; return False if some of it does not fit."""
    workloads = [each for work in earlier for each in work.workloads if each is not None]
    await bench.submit(*workloads)
    await bench.cycle()
    rows = [bench.row(each.uid) for each in workloads]
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows if row.jobid is not None])
    return all(row.jobid is not None for row in rows)


async def _let_victims_go(bench: Bench, earlier: Sequence[_Earlier]) -> list[str]:
    """Requeue what was preempted and run a cycle, while something is; return their names."""
    workloads = {each.uid: each for work in earlier for each in work.workloads if each is not None}
    ended: list[str] = []
    while victims := [row for row, _ in bench.ledger.evicting()]:
        ended += [row.name for row in victims]
        await bench.ledger.requeue(
            [Requeue(workload=row.id, reason=Reason.PREEMPTED, message="") for row in victims]
        )
        await bench.submit(*(workloads[row.uid] for row in victims))
        await bench.cycle()
    return ended


# ---- the queue ---------------------------------------------------------------------------------------------


def _described(
    works: Sequence[Json], pods: list[Json], caches: Caches, context: ClusterContext
) -> Iterator[NewWorkload | None]:
    work, *others = works
    if work["kind"] == "Job":
        body = copy.deepcopy(work)
        body["spec"]["suspend"] = True
        body["metadata"] |= {
            "uid": f"uid-of-{work['metadata']['name']}",
            "generation": 1,
            "resourceVersion": "1",
            "annotations": {"fluxqueue/suspended-by": "webhook"},
        }
        caches.jobs.apply(job := msgspec.convert(body, Job))
        yield describe_job(job, context)
        return
    gated = [_gated(each) for each in pods]
    for pod in gated:
        caches.pods.apply(pod)
    if work["kind"] == "JobSet":
        jobset = GroupKey(work["metadata"]["namespace"], work["metadata"]["name"], JOB_SET)
        jobs = [msgspec.convert(each, Job) for each in _jobs(work)]
        for each in jobs:
            caches.jobs.apply(each)
        gathered = gather_jobset(jobset, gated, jobs)
        assert gathered is not None
        yield describe_group(jobset, gathered, context)
        return
    key = group_of(gated[0])
    if key is None:
        for pod in gated:
            yield describe_pod(pod, context)
        return
    owner = msgspec.convert({"spec": {"replicas": len(pods)}}, ScaledWorkload)
    group: GatheredGroup | None = (
        gather(key, gated, None, NOW) if others or work["kind"] == "Pod" else gather_gang(gated, owner)
    )
    assert group is not None
    yield describe_group(key, group, context)


def _without_slot(rows: Sequence[Workload], pods: list[Json], context: ClusterContext) -> str:
    """Return which pod of a group has no slot of its size, so that it would be matched alone;
    empty if each has one.
    """
    groups = [row for row in rows if row.release_mode is ReleaseMode.GROUP]
    for row, pod in ((row, _gated(each)) for row in groups for each in pods):
        if label_for_pod(row.jobspec, row.namespace, pod.spec, context) is None:
            return f"no slot of its group is for {pod.metadata.name}"
    return ""


def _gated(pod: Json) -> Pod:
    return msgspec.convert({**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": names.GATE}]}}, Pod)


def _jobs(jobset: Json) -> list[Json]:
    """Return the Jobs of a JobSet, as its controller makes them."""
    meta = jobset["metadata"]
    owner = {
        "apiVersion": jobset["apiVersion"],
        "kind": "JobSet",
        "name": meta["name"],
        "uid": "uid-of-jobset",
    }
    jobs = jobs_of_jobset(copy.deepcopy(jobset), {**owner, "controller": True})
    for each in jobs:
        each["metadata"] |= {"namespace": meta["namespace"], "uid": f"uid-of-{each['metadata']['name']}"}
    return jobs


def _pods(works: Sequence[Json]) -> list[Json]:
    """Return the pods of work, as their controllers and admission make them."""
    pods: list[Json] = []
    for work, template, count in (
        (job, *made)
        for each in works
        for job in (_jobs(each) if each["kind"] == "JobSet" else [each])
        for made in templates_of(job)
    ):
        owner_name = work["metadata"]["name"]
        for _ in range(count):
            pod = copy.deepcopy({"metadata": template["metadata"], "spec": template["spec"]})
            name = owner_name if work["kind"] == "Pod" else f"{owner_name}-{len(pods)}"
            pod["metadata"] |= {
                "name": name,
                "namespace": work["metadata"]["namespace"],
                "uid": f"uid-{name}",
                "generation": 1,
            }
            pod["metadata"]["resourceVersion"] = "1"
            if work["kind"] != "Pod":
                job = work["kind"] == "Job"
                owner = {
                    "apiVersion": "batch/v1" if job else "apps/v1",
                    "kind": "Job" if job else "StatefulSet",
                    "name": owner_name,
                    "uid": f"uid-of-{owner_name}",
                    "controller": True,
                }
                pod["metadata"]["ownerReferences"] = [owner]
            pods.append(_admitted(pod))
    return pods


def _admitted(pod: Json) -> Json:
    spec = pod["spec"]
    if spec.get("runtimeClassName") == "heavy":
        spec["overhead"] = dict(SHARED[0][1]["overhead"]["podFixed"])
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container.setdefault("resources", {})
        resources["requests"] = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return pod


# ---- the cluster -------------------------------------------------------------------------------------------


def _fill(caches: Caches | SchedulerCaches, documents: list[Json]) -> None:
    shared = [{"kind": "StorageClass", **body} for path, body in SHARED if path.endswith("storageclasses")]
    stores: dict[str, tuple[ObjectCache[Any], Any]] = {
        "Node": (caches.nodes, Node),
        "Namespace": (caches.namespaces, Namespace),
        "Pod": (caches.pods, Pod),
        "PersistentVolume": (caches.storage.volumes, PersistentVolume),
        "PersistentVolumeClaim": (caches.storage.claims, PersistentVolumeClaim),
        "StorageClass": (caches.storage.classes, StorageClass),
        "CSINode": (caches.storage.csi_nodes, CSINode),
    }
    for kind, (store, struct) in stores.items():
        store.replace(
            [
                msgspec.convert(_stored(each), struct)
                for each in (*shared, *documents)
                if each["kind"] == kind and not is_work(each)
            ]
        )
    if isinstance(caches, Caches):
        caches.runtime_classes.replace([msgspec.convert(SHARED[0][1], RuntimeClass)])


def _fill_devices(devices: ClusterDevices, documents: list[Json]) -> None:
    stores: dict[str, tuple[ObjectCache[Any], Any]] = {
        "DeviceClass": (devices.classes, DeviceClass),
        "ResourceSlice": (devices.slices, ResourceSlice),
        "ResourceClaim": (devices.claims, ResourceClaim),
        "ResourceClaimTemplate": (devices.templates, ResourceClaimTemplate),
    }
    for kind, (store, struct) in stores.items():
        store.replace([msgspec.convert(_stored(each), struct) for each in documents if each["kind"] == kind])


def _stored(document: Json) -> Json:
    """Return a document as the API server and the kubelet complete it."""
    made = copy.deepcopy(document)
    meta = made["metadata"]
    meta |= {"uid": f"{made['kind']}/{meta.get('namespace', '')}/{meta['name']}", "resourceVersion": "1"}
    if DELETED in (meta.get("labels") or {}):
        meta["deletionTimestamp"] = "2026-11-21T07:59:00Z"
    if made["kind"] == "Node":
        made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        if made["spec"].get("unschedulable"):
            taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
            made["spec"]["taints"] = [*made["spec"].get("taints", ()), taint]
    if made["kind"] == "Pod":
        _admitted(made).setdefault("status", {"phase": "Running"})
    return made


# ---- the scheduler -----------------------------------------------------------------------------------------


class _Placing:
    """Tries placements of pods, one pod after the other as the scheduler does."""

    def __init__(self, documents: list[Json], pods: list[Json]) -> None:
        self._caches = SchedulerCaches(MemoryApi().api)
        _fill(self._caches, documents)
        self._pods = [
            msgspec.convert({**each, "spec": {**each["spec"], "resourceClaims": None}}, Pod) for each in pods
        ]
        self._allocator = Allocator(documents)
        self._tried = 0

    def anywhere(self, placed: tuple[tuple[Pod, str], ...] = ()) -> bool:
        """True if there is a placement of all pods, in some order of the first of them."""
        if len(placed) == len(self._pods):
            return True
        left = [
            pod for pod in self._pods if pod.metadata.uid not in {each.metadata.uid for each, _ in placed}
        ]
        for pod in left if not placed else left[:1]:
            for node in self._caches.nodes.list():
                self._tried += 1
                if self._tried > TRIES:
                    return False
                if self._fits((*placed, (pod, node.metadata.name))) and self.anywhere(
                    (*placed, (pod, node.metadata.name))
                ):
                    return True
        return False

    def on(self, nodes: Sequence[str]) -> str:
        """Return why these pods cannot be bound to these nodes in any order; empty if they can.

        Which pod gets which node is not told here.
        """
        if not self._allocator.fits(nodes):
            return "cannot allocate all claims"
        why = ""
        for order in itertools.islice(itertools.permutations(self._pods), 130):
            for hosts in {*itertools.islice(itertools.permutations(nodes), 130)}:
                results = check_gang([*zip(order, hosts, strict=True)], self._caches)
                why = next(
                    (each.message for each in results.values() if each.status is not FitStatus.FITS), ""
                )
                if not why or any(words in why for words in PASSING):
                    return ""
        return why

    def _fits(self, members: tuple[tuple[Pod, str], ...]) -> bool:
        if not self._allocator.fits([node for _, node in members]):
            return False
        return all(each.status is FitStatus.FITS for each in check_gang(members, self._caches).values())


def _places(documents: list[Json]) -> bool:
    return _Placing(documents, _pods([each for each in documents if is_work(each)])).anywhere()


def _refused(documents: list[Json], pods: list[Json], nodes: Sequence[str]) -> str:
    if len(nodes) != len(pods):
        return f"{len(pods)} pods have the nodes {nodes}"
    why = _Placing(documents, pods).on(nodes)
    return f"the scheduler would refuse it on {', '.join(nodes)}: {why}" if why else ""
