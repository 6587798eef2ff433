"""The cluster as the queue sees it: the watched objects, and the questions that controllers ask about
them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.devices import DeviceTaintRule
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyLevel
from fluxqueue.kube.kinds import Key, Kind
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.composite_trees import CompositeTrees
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.cluster.context_builder import ContextBuilder
from fluxqueue.queue.cluster.devices import DeviceSource
from fluxqueue.queue.cluster.gang_objects import GangObjects, Lookup, Readable
from fluxqueue.queue.cluster.watched_objects import (
    BY_CLAIM,
    BY_DEVICE_SOURCE,
    BY_GROUP,
    BY_JOB,
    BY_MINICLUSTER,
    BY_NODE_NAME,
    BY_OBJECT,
    BY_POD_GROUP,
    BY_REPLICA_OWNER,
    GangObject,
    WatchedObjects,
)
from fluxqueue.queue.model.groups import GroupKey, first_pod_of, group_of, group_of_workload
from fluxqueue.queue.model.minicluster_jobs import belongs_to, owner_uid
from fluxqueue.queue.model.pods import age, owning_job_uid
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.gang_sources import GangSource
from fluxqueue.queue.model.sources.native_groups import (
    NATIVE_POD_GROUPS,
    NO_GROUP_CLAIMS,
    GroupClaims,
    claims_of_group,
)
from fluxqueue.queue.noderules import node_checks

__all__ = ["Caches"]


class Caches(WatchedObjects):
    """The watched objects of a cluster.

    Parameters
    ----------
    api
        Where to watch.
    all_but_system
        True if every namespace is managed that is not a system namespace and did not opt out; False if only
        those that opted in are.
    own_namespace
        The release namespace, which is never managed.
    miniclusters
        True if this queue runs the MiniClusters, so that they are watched.
    devices
        True if claims of devices are counted, so that they are watched.
    device_taint_rules
        In which version the cluster serves DeviceTaintRules; None if it does not.
    levels
        The levels of the topology, from the top down.

    Attributes
    ----------
    own_namespace
        As given.
    """

    def __init__(
        self,
        api: Api,
        *,
        all_but_system: bool = False,
        own_namespace: str = "",
        miniclusters: bool = False,
        devices: bool = False,
        device_taint_rules: Kind[DeviceTaintRule] | None = None,
        levels: tuple[TopologyLevel, ...] = DEFAULT_LEVELS,
    ) -> None:
        super().__init__(
            api, miniclusters=miniclusters, devices=devices, device_taint_rules=device_taint_rules
        )
        self._contexts = ContextBuilder(self, self._group_claims, levels)
        self.accounts = self._contexts.accounts
        self.reservations = self._contexts.reservations
        self.gang_objects = GangObjects(api)
        self.gang_objects.cache(NATIVE_POD_GROUPS.name).add_index(BY_JOB, _job_of_group)
        self.composite_trees = CompositeTrees(self.gang_objects)
        self.own_namespace = own_namespace
        self._all_but_system = all_but_system
        self._unmanaged = {*names.SYSTEM_NAMESPACES, own_namespace}

    def cluster_context(self, namespace: str) -> ClusterContext:
        """Return what must be known of the cluster to read an object in a namespace."""
        return self._contexts.of(namespace)

    # ---- namespaces and nodes ------------------------------------------------------------------------------

    def manages(self, namespace: str) -> bool:
        """True if the queue takes the work in a namespace."""
        if namespace in self._unmanaged:
            return False
        obj = self.namespaces.get("", namespace)
        label = obj.metadata.label(names.MANAGED_LABEL) if obj else None
        return label != "false" if self._all_but_system else label == "true"

    def namespace_ending(self, namespace: str) -> bool:
        """True if a namespace is missing or being deleted, so that no pod is created in it any more."""
        obj = self.namespaces.get("", namespace)
        return obj is None or obj.metadata.deletion_timestamp is not None

    def lost(self, node: str) -> bool:
        """True if the node of this name is missing or NotReady."""
        obj = self.nodes.get("", node)
        return obj is None or not obj.status.ready

    def _group_claims(self, namespace: str, name: str) -> GroupClaims:
        """Return the claims of a PodGroup; none if it is not there, or cannot be read."""
        group = self.gang_objects.find(NATIVE_POD_GROUPS, namespace, name).obj
        return claims_of_group(group) if group is not None else NO_GROUP_CLAIMS

    def closed(self, node: str, spec: PodSpec) -> bool:
        """True if a node takes no pod of this spec: it is missing, not ready or cordoned,
        or its taints or labels forbid it.
        """
        return bool(node_checks.closed(self.nodes.get("", node), spec))

    def closed_to_job(
        self, job: Job, pods: Iterable[Pod], *, started: bool, refused: Container[str] = ()
    ) -> Callable[[str], bool]:
        """Return a function that is true for the name of a node that takes no more pods of a released Job. It
        reads each node once.

        Parameters
        ----------
        job, pods
            The Job and its pods. Pods that are being deleted do not count as taking room.
        started
            True if all its pods have been bound once. Until then its nodes are known to have room. Later
            other pods may have filled them.
        refused
            Nodes on which a pod of the Job was refused recently.
        """
        spec = job.spec.template.spec
        if not started:
            return cache(lambda node: node in refused or self.closed(node, spec))
        leaving = {pod.metadata.uid for pod in pods if pod.metadata.deletion_timestamp}

        def has_obstacle(node: str) -> bool:
            if node in refused:
                return True
            present = [
                pod for pod in self.pods.by_index(BY_NODE_NAME, node) if pod.metadata.uid not in leaving
            ]
            return bool(self.obstacle(node, job.metadata.namespace, spec, present))

        return cache(has_obstacle)

    def obstacle(self, node: str, namespace: str, spec: PodSpec, present: Iterable[Pod]) -> str:
        """Return why a node does not take a pod of this spec now, beside the pods that are bound to it;
        empty if it may.
        """
        checked = node_checks.obstacle(
            self.nodes.get("", node), spec, present, from_devices=self.devices.extended
        )
        return checked or self.devices.shortage(node, namespace, spec)

    # ---- objects of workloads ------------------------------------------------------------------------------

    def job_or_pod(self, uid: str) -> Job | Pod | None:
        """Return the Job or Pod of a uid."""
        return self.jobs.get_by_uid(uid) or self.pods.get_by_uid(uid)

    def exists(self, uid: str) -> bool:
        """True if the object of a workload (by its uid) exists:
        a Job or a pod, or for a group its first pod or its FluxJob.
        """
        return self.job_or_pod(first_pod_of(uid)) is not None or self.fluxjob_of(uid) is not None

    def is_cancelled(self, uid: str) -> bool:
        """True if a person set ``spec.cancel`` in the FluxJob of an object."""
        fluxjob = self.fluxjob_of(uid)
        return fluxjob is not None and fluxjob.spec.cancel

    def fluxjob_of(self, uid: str) -> FluxJob | None:
        """Return the FluxJob of an object (by its uid), or None.

        It is in the object's namespace and has the name that the queue gives. A FluxJob that a tenant wrote
        elsewhere about somebody's object does not count.
        """
        obj = self.job_or_pod(first_pod_of(uid))
        fluxjobs = sorted(self.fluxjobs.by_index(BY_OBJECT, uid), key=_age)
        return next(
            (
                fluxjob
                for fluxjob in fluxjobs
                if obj is None or fluxjob.metadata.namespace == obj.metadata.namespace
            ),
            None,
        )

    def pods_of_job(self, uid: str) -> list[Pod]:
        """Return all pods of a Job, of any phase: those that it controls, and its services pod.

        Any user may write a uid. A pod of another namespace, or a services pod of another MiniCluster, is not
        the Job's. If the Job does not exist any more, garbage collection deletes such pods.
        """
        pods, job = self.pods.by_index(BY_JOB, uid), self.jobs.get_by_uid(uid)
        return pods if job is None else [pod for pod in pods if belongs_to(pod, job)]

    def pods_of_owner(self, owner: ReplicaOwner) -> list[Pod]:
        """Return all pods of a Deployment, ReplicaSet or StatefulSet, of any phase."""
        return self.pods.by_index(BY_REPLICA_OWNER, owner)

    def pods_with_claim(self, claim: Key) -> list[Pod]:
        """Return all pods that name a claim (namespace, name), of any phase."""
        return self.pods.by_index(BY_CLAIM, claim)

    def jobs_with_claim(self, claim: Key) -> list[Job]:
        """Return all Jobs whose template names a claim (namespace, name)."""
        return self.jobs.by_index(BY_CLAIM, claim)

    def users_of_devices(self, source: DeviceSource) -> list[Job | Pod]:
        """Return all Jobs, and all pods of any phase, that name a claim of devices or a template of such
        claims.
        """
        return [*self.jobs.by_index(BY_DEVICE_SOURCE, source), *self.pods.by_index(BY_DEVICE_SOURCE, source)]

    # ---- MiniClusters and groups ---------------------------------------------------------------------------

    def minicluster_of(self, job: Job) -> MiniCluster | None:
        """Return the MiniCluster that a Job belongs to."""
        uid = owner_uid(job)
        minicluster = (
            self.miniclusters.get(job.metadata.namespace, job.metadata.name) if uid is not None else None
        )
        return minicluster if minicluster is not None and minicluster.metadata.uid == uid else None

    def services_pods(self, minicluster_uid: str) -> list[Pod]:
        """Return the services pods of a MiniCluster, of any phase:
        the present one, and those that are being deleted.
        """
        pods, owner = (
            self.pods.by_index(BY_MINICLUSTER, minicluster_uid),
            self.miniclusters.get_by_uid(minicluster_uid),
        )
        return [pod for pod in pods if owner is None or pod.metadata.namespace == owner.metadata.namespace]

    def group_of(self, pod: Pod) -> GroupKey | None:
        """Return the group that a pod belongs to, checked against its Job if that is known."""
        return self._started_with(pod, group_of(pod, self.jobs.get_by_uid(owning_job_uid(pod) or "")))

    def named_group_of(self, pod: Pod) -> GroupKey | None:
        """Return the group that a pod says it belongs to."""
        return self._started_with(pod, group_of(pod))

    def _started_with(self, pod: Pod, key: GroupKey | None) -> GroupKey | None:
        if key is None or key.source != NATIVE_POD_GROUPS.name:
            return key
        return self.composite_trees.group_of(pod, key)

    def pods_of_group(self, key: GroupKey) -> list[Pod]:
        """Return all pods of a group, of any phase."""
        if key.source in (NATIVE_POD_GROUPS.name, COMPOSITE_POD_GROUPS.name):
            return self._pods_of_native_group(key)
        pods = self.pods.by_index(BY_GROUP, key)
        return [
            pod
            for pod in pods
            if (job := self.jobs.get_by_uid(owning_job_uid(pod) or "")) is None or group_of(pod, job) == key
        ]

    def _pods_of_native_group(self, key: GroupKey) -> list[Pod]:
        """Return the pods that start with a PodGroup of Kubernetes or a composite of them, and those in the
        slots of its workload.
        """
        trees = self.composite_trees
        groups = trees.leaves(key) if key.source == COMPOSITE_POD_GROUPS.name else [key]
        found = [pod for each in groups for pod in self.pods.by_index(BY_GROUP, each)]
        held = (self.pods.get_by_uid(uid) for uid in trees.held_by(key))
        every = {pod.metadata.uid: pod for pod in (*found, *held) if pod is not None}
        return [pod for pod in every.values() if self.group_of(pod) == key]

    def gang_object(self, source: GangSource, key: GroupKey, pods: Sequence[Pod]) -> Lookup:
        """Return the object that says the size of a gang of another project."""
        if source in (NATIVE_POD_GROUPS, COMPOSITE_POD_GROUPS):
            return self.composite_trees.lookup(key)
        if source.resource is None:
            return Lookup(Readable.YES)
        first = min(pods, key=age, default=None)
        return self.gang_objects.find(
            source, key.namespace, source.object_name(first, key.name) if first is not None else key.name
        )

    def pods_of_gang_object(self, found: GangObject) -> list[Pod]:
        """Return the pods of the gangs whose size an object says;
        with an empty name those of all objects of a source.
        """
        if found.source == COMPOSITE_POD_GROUPS.name and not found.name:
            found = GangObject(NATIVE_POD_GROUPS.name, "", "")
        return self.pods.by_index(BY_GROUP, found)

    def jobs_of_pod_group(self, source: str, namespace: str, name: str) -> list[Job]:
        """Return the Jobs whose template names a PodGroup of Kubernetes, and the one of which it was made
        with claims; with an empty name all that depend on any.
        """
        jobs = self.jobs.by_index(BY_POD_GROUP, GangObject(source, namespace, name))
        group = (
            self.gang_objects.find(NATIVE_POD_GROUPS, namespace, name).obj
            if source == NATIVE_POD_GROUPS.name
            else None
        )
        if group is not None and claims_of_group(group):
            made_of = (self.jobs.get_by_uid(uid) for uid in _job_of_group(group))
            jobs += [job for job in made_of if job is not None]
        return jobs

    def pod_group_of_job(self, job: Job) -> Any:
        """Return the PodGroup of Kubernetes that the Job controller made of a Job;
        None if there is none, or it cannot be read. Everybody may write an owner into one elsewhere.
        """
        made = self.gang_objects.cache(NATIVE_POD_GROUPS.name).by_index(BY_JOB, job.metadata.uid)
        return next((each for each in made if each.metadata.namespace == job.metadata.namespace), None)

    def members_of(self, workload: Workload, allocation: Allocation | None = None) -> list[Pod]:
        """Return the pods of a group: those in its slots, or, while no slot has a pod, those that wait.
        Not pods that are matched alone.
        """
        key = group_of_workload(workload)
        if key is None:
            return []
        in_slots = (
            {slot.pod_uid for slot in allocation.slots if slot.pod_uid} if allocation is not None else set()
        )
        return [pod for pod in self.pods_of_group(key) if not in_slots or pod.metadata.uid in in_slots]

    def pods_of_workload(self, workload: Workload, allocation: Allocation | None) -> list[Pod]:
        """Return the pods of a workload of any kind, of any phase."""
        if workload.release_mode is ReleaseMode.GROUP:
            return self.members_of(workload, allocation)
        if workload.release_mode is ReleaseMode.POD:
            pod = self.pods.get_by_uid(workload.uid)
            return [pod] if pod is not None else []
        return self.pods_of_job(workload.uid)

    def jobs_of_jobset(self, key: GroupKey) -> list[Job]:
        """Return the Jobs that a JobSet controls, finished ones too;
        not those being deleted, which it creates again.
        """
        return [job for job in self.jobs.by_index(BY_GROUP, key) if not job.metadata.deletion_timestamp]


def _job_of_group(group: Any) -> list[str]:
    """Return the uid of the Job of which a PodGroup was made; nothing if it was made of none."""
    owner = group.metadata.controller
    return [owner.uid] if owner is not None and owner.kind == "Job" else []


def _age(fluxjob: FluxJob) -> tuple[str, str]:
    """Sort key: the oldest first."""
    return fluxjob.metadata.creation_timestamp or "", fluxjob.metadata.name
