"""The cluster as the queue sees it: one store and reflector for each kind, with the indexes the controllers ask by."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import structlog

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, Members
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.objects import Job, Namespace, Node, Pod, PriorityClass, Taint
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.kube.errors import Silent
from fluxqueue.kube.kinds import (
    DAEMON_SETS,
    FLUXJOBS,
    FLUXQUEUES,
    JOBS,
    LIMIT_RANGES,
    MINICLUSTERS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
)
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.store import Change, Store
from fluxqueue.kube.transport import Api
from fluxqueue.queue.fluxclusters import job_served_by, owner_uid
from fluxqueue.queue.groups import JOB_SET, GroupKey, group_of, group_of_workload, jobset_of
from fluxqueue.queue.intake import QueueDefaults, Surroundings, owning_job_uid
from fluxqueue.queue.records import Allocation, Workload
from fluxqueue.queue.successors import Line, line_of

__all__ = ["Caches", "lasting_taints"]

log = structlog.get_logger()

_BY_JOB = "job"
_BY_MINICLUSTER = "minicluster"
_BY_OBJECT = "object"
_BY_GROUP = "group"
_BY_LINE = "line"


class Caches:
    """Stores of all kinds the queue watches, kept up to date by `run`.

    Parameters
    ----------
    api
        Where to watch.
    all_but_system
        Whether every namespace is managed that is not a system one or opted out, instead of those that opted in.
    own_namespace
        The release namespace: never managed.
    miniclusters
        Whether MiniClusters are ours to run, so that they are watched.
    coming_taints
        Of nodes the cluster may grow by: requests speak of them before any such node is there.
    """

    def __init__(
        self,
        api: Api,
        *,
        all_but_system: bool = False,
        own_namespace: str = "",
        miniclusters: bool = False,
        coming_taints: Iterable[Taint] = (),
    ) -> None:
        self.jobs: Store[Job] = Store()
        self.pods: Store[Pod] = Store()
        self.nodes: Store[Node] = Store()
        self.namespaces: Store[Namespace] = Store()
        self.priority_classes: Store[PriorityClass] = Store()
        self.fluxjobs: Store[FluxJob] = Store()
        self.fluxqueues: Store[FluxQueue] = Store()
        self.daemonsets: Store[DaemonSet] = Store()
        self.limit_ranges: Store[LimitRange] = Store()
        self.runtime_classes: Store[RuntimeClass] = Store()
        self.miniclusters: Store[MiniCluster] = Store()
        self.pods.add_index(_BY_JOB, _job_of)
        self.pods.add_index(_BY_GROUP, _group_of)
        self.pods.add_index(_BY_MINICLUSTER, _minicluster_of)
        self.jobs.add_index(_BY_GROUP, _jobset_of)
        self.pods.add_index(_BY_LINE, _line_of)
        self.fluxjobs.add_index(_BY_OBJECT, lambda fluxjob: (fluxjob.spec.object_ref.uid,))
        self._coming_taints = frozenset(coming_taints)
        self._around: Surroundings | None = None
        self._around_namespace: dict[str, Surroundings] = {}
        for store in (self.nodes, self.fluxqueues, self.priority_classes, self.runtime_classes):
            store.add_handler(self._forget_surroundings)
        self.namespaces.add_handler(lambda _change: self._around_namespace.clear())
        self.limit_ranges.add_handler(lambda _change: self._around_namespace.clear())
        self._all_but_system = all_but_system
        self._unmanaged = {*names.SYSTEM_NAMESPACES, own_namespace}
        self._reflectors: tuple[Reflector[Any], ...] = (
            Reflector(api, JOBS, self.jobs),
            Reflector(api, PODS, self.pods),
            Reflector(api, NODES, self.nodes),
            Reflector(api, NAMESPACES, self.namespaces),
            Reflector(api, PRIORITY_CLASSES, self.priority_classes),
            Reflector(api, FLUXJOBS, self.fluxjobs),
            Reflector(api, FLUXQUEUES, self.fluxqueues),
            Reflector(api, DAEMON_SETS, self.daemonsets),
            Reflector(api, LIMIT_RANGES, self.limit_ranges),
            Reflector(api, RUNTIME_CLASSES, self.runtime_classes),
            *((Reflector(api, MINICLUSTERS, self.miniclusters),) if miniclusters else ()),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Wait until every store is filled."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    @property
    def complaint(self) -> str | None:
        """Why news of some kind does not arrive, as its watch says; None while all is well.

        A watch of a kind of which nothing ever changes may be silent and is opened anew from time to time: that alone is no complaint.
        """
        errors = [error for reflector in self._reflectors if (error := reflector.last_error) is not None and not isinstance(error, Silent)]
        if errors:
            return str(errors[0])
        silent = [reflector for reflector in self._reflectors if not reflector.healthy]
        return "a watch is silent: news of the cluster does not arrive" if silent else None

    def lost(self, node: str) -> bool:
        """Whether nobody hears from the node of this name, be it there or not."""
        found = self.nodes.get("", node)
        return found is None or not found.status.ready

    def pods_of_job(self, uid: str) -> list[Pod]:
        """All pods of a Job, of whatever phase: those it controls, and the one that runs services beside them."""
        return self.pods.by_index(_BY_JOB, uid)

    def services_pods(self, minicluster_uid: str) -> list[Pod]:
        """The services pods of a MiniCluster, of whatever phase: the one that is to be there, and those that go."""
        return self.pods.by_index(_BY_MINICLUSTER, minicluster_uid)

    def minicluster_of(self, job: Job) -> MiniCluster | None:
        """The MiniCluster that a Job belongs to."""
        uid = owner_uid(job)
        found = self.miniclusters.get(job.metadata.namespace, job.metadata.name) if uid is not None else None
        return found if found is not None and found.metadata.uid == uid else None

    def pods_of_group(self, key: GroupKey) -> list[Pod]:
        """All pods that name a group and may, of whatever phase."""
        return [pod for pod in self.pods.by_index(_BY_GROUP, key) if self.group_of(pod) == key]

    def group_of(self, pod: Pod) -> GroupKey | None:
        """The group a pod belongs to, as far as its Job is known."""
        return group_of(pod, self.jobs.get_by_uid(owning_job_uid(pod) or ""))

    def members_of(self, workload: Workload, allocation: Allocation | None = None) -> list[Pod]:
        """The pods of a pod group: those in its places, or, while it has none, those that wait; but none that is matched on its own."""
        key = group_of_workload(workload)
        if key is None:
            return []
        standing = {slot.pod_uid for slot in allocation.slots if slot.pod_uid} if allocation is not None else set()
        return [pod for pod in self.pods_of_group(key) if not standing or pod.metadata.uid in standing]

    def jobs_of_jobset(self, key: GroupKey) -> list[Job]:
        """The Jobs that a JobSet controls, finished ones too; not those that are being deleted, which it makes anew."""
        return [job for job in self.jobs.by_index(_BY_GROUP, key) if not job.metadata.deletion_timestamp]

    def pods_of_line(self, line: Line) -> list[Pod]:
        """All pods of a Deployment, ReplicaSet or StatefulSet, of whatever phase."""
        return self.pods.by_index(_BY_LINE, line)

    def fluxjob_of(self, uid: str) -> FluxJob | None:
        """The FluxJob of an object (by its uid), or None."""
        return next(iter(self.fluxjobs.by_index(_BY_OBJECT, uid)), None)

    def manages(self, namespace: str) -> bool:
        """Whether work in a namespace is the queue's business."""
        if namespace in self._unmanaged:
            return False
        found = self.namespaces.get("", namespace)
        label = found.metadata.label(names.MANAGED_LABEL) if found else None
        return label != "false" if self._all_but_system else label == "true"

    def surroundings(self, namespace: str) -> Surroundings:
        """What reading an object in a namespace needs to know; worked out once, until something of it changes."""
        around = self._around_namespace.get(namespace)
        if around is None:
            if self._around is None:
                self._around = self._read_surroundings()
            found = self.namespaces.get("", namespace)
            around = self._around_namespace[namespace] = replace(
                self._around,
                namespace_labels=(found.metadata.labels or {}) if found else {},
                limit_ranges=tuple(sorted(self.limit_ranges.list(namespace), key=lambda item: item.metadata.name)),
            )
        return around

    def _read_surroundings(self) -> Surroundings:
        classes = self.priority_classes.list()
        return Surroundings(
            queues=self._queue_defaults(),
            priority_classes={item.metadata.name: item.value for item in classes},
            default_priority=next((item.value for item in classes if item.global_default), 0),
            runtime_classes={item.metadata.name: item for item in self.runtime_classes.list()},
            taints=self._taints(),
        )

    def _forget_surroundings(self, change: Change[Any]) -> None:
        old, new = change.old, change.new
        if isinstance(old, Node) and isinstance(new, Node) and lasting_taints(old) == lasting_taints(new):
            return  # a heartbeat
        self._around = None
        self._around_namespace.clear()

    def _queue_defaults(self) -> dict[str, QueueDefaults]:
        found = {queue.metadata.name: _rules(queue.spec) for queue in self.fluxqueues.list()}
        return {names.DEFAULT_QUEUE: QueueDefaults(), **found}

    def _taints(self) -> tuple[Taint, ...]:
        found = self._coming_taints.union(*(lasting_taints(node) for node in self.nodes.list()))
        return tuple(sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect)))


def lasting_taints(node: Node) -> frozenset[Taint]:
    """The taints somebody put on a node; those of a cordon or a failure make the whole node unavailable instead."""
    return frozenset(taint for taint in node.spec.taints or () if not taint.key.startswith("node.kubernetes.io/"))


def _rules(spec: FluxQueueSpec) -> QueueDefaults:
    return QueueDefaults(
        priority=spec.priority,
        max_priority=spec.max_priority,
        duration_s=spec.default_duration_seconds,
        max_duration_s=spec.max_duration_seconds,
        state=spec.state,
        node_selector=spec.node_selector or {},
        members=spec.namespaces or Members(),
    )


def _group_of(pod: Pod) -> Iterable[Hashable]:
    key = group_of(pod)
    return (key,) if key else ()


def _jobset_of(job: Job) -> Iterable[Hashable]:
    name = jobset_of(job)
    return (GroupKey(job.metadata.namespace, name, JOB_SET),) if name else ()


def _line_of(pod: Pod) -> Iterable[Hashable]:
    line = line_of(pod)
    return (line,) if line else ()


def _job_of(pod: Pod) -> Iterable[Hashable]:
    uid = owning_job_uid(pod)
    return (uid,) if uid else ()


def _minicluster_of(pod: Pod) -> Iterable[Hashable]:
    owner = pod.metadata.controller
    return (owner.uid,) if owner is not None and job_served_by(pod) is not None else ()
