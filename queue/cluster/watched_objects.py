"""The objects that the queue watches: one cache and one reflector for each kind,
with the indexes by which controllers look them up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from fluxqueue.api.clusterobjects import DaemonSet, Event, ResourceQuota
from fluxqueue.api.devices import DeviceTaintRule
from fluxqueue.api.disruptionbudgets import PodDisruptionBudget
from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob, is_named_for_its_object
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import NamedObject, Namespace, PriorityClass
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.nodes import Node
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.api.pods import Pod
from fluxqueue.kube import kinds
from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.object_cache import ObjectCache, PassingCache
from fluxqueue.kube.reflector import Reflector, WatchTimes
from fluxqueue.kube.transport import Api
from fluxqueue.kube.watches import Watches
from fluxqueue.queue.cluster.devices import ClusterDevices, sources_used
from fluxqueue.queue.cluster.storage import ClusterStorage, claims_used
from fluxqueue.queue.model.groups import JOB_SET, GroupKey, group_of, jobset_of
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.replacement_rules import replica_owner_of
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS
from fluxqueue.queue.model.sources.registry import source_named

__all__ = [
    "BY_CLAIM",
    "BY_DEVICE_SOURCE",
    "BY_GROUP",
    "BY_JOB",
    "BY_MINICLUSTER",
    "BY_NAMESPACE",
    "BY_NODE_NAME",
    "BY_OBJECT",
    "BY_POD_GROUP",
    "BY_REPLICA_OWNER",
    "GangObject",
    "WatchedObjects",
]

BY_JOB = "job"
BY_MINICLUSTER = "minicluster"
BY_OBJECT = "object"
BY_GROUP = "group"
BY_REPLICA_OWNER = "replica owner"
BY_NODE_NAME = "node name"
BY_NAMESPACE = "namespace"
BY_CLAIM = "claim"
BY_DEVICE_SOURCE = "device source"
BY_POD_GROUP = "pod group"
_SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", True, NamedObject)
_WITHOUT_BOOKMARKS = WatchTimes(lasts_s=(40, 60))
"""The API server sends no bookmarks for Events, so it must end an idle watch before that counts as broken."""
_FAILED_CREATIONS = "reason=FailedCreate,involvedObject.kind=Job"
"""Events that the Job controller writes when the API server refuses a pod."""


@dataclass(frozen=True, slots=True)
class GangObject:
    """An object that says the size of gangs, as the index `BY_GROUP` has it;
    both names are empty for all objects of a source.
    """

    source: str
    namespace: str
    name: str


class WatchedObjects:
    """Caches of all kinds that the queue watches, kept up to date by `watches`.

    Parameters
    ----------
    api
        Where to watch.
    miniclusters
        True if this queue runs the MiniClusters, so that they are watched.
    devices
        True if claims of devices are counted, so that they are watched.
    device_taint_rules
        In which version the cluster serves DeviceTaintRules; None if it does not.
    """

    def __init__(
        self,
        api: Api,
        *,
        miniclusters: bool,
        devices: bool = False,
        device_taint_rules: Kind[DeviceTaintRule] | None = None,
    ) -> None:
        self.jobs: ObjectCache[Job] = ObjectCache()
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.nodes: ObjectCache[Node] = ObjectCache()
        self.namespaces: ObjectCache[Namespace] = ObjectCache()
        self.priority_classes: ObjectCache[PriorityClass] = ObjectCache()
        self.fluxjobs: ObjectCache[FluxJob] = ObjectCache()
        self.fluxqueues: ObjectCache[FluxQueue] = ObjectCache()
        self.fluxaccounts: ObjectCache[FluxAccount] = ObjectCache()
        self.fluxreservations: ObjectCache[FluxReservation] = ObjectCache()
        self.daemonsets: ObjectCache[DaemonSet] = ObjectCache()
        self.limit_ranges: ObjectCache[LimitRange] = ObjectCache()
        self.runtime_classes: ObjectCache[RuntimeClass] = ObjectCache()
        self.miniclusters: ObjectCache[MiniCluster] = ObjectCache()
        self.failed_creations: ObjectCache[Event] = PassingCache()
        self.resource_quotas: ObjectCache[ResourceQuota] = ObjectCache()
        self.service_accounts: ObjectCache[NamedObject] = ObjectCache()
        self.disruption_budgets: ObjectCache[PodDisruptionBudget] = ObjectCache()
        self.storage = ClusterStorage()
        self.devices = ClusterDevices(counted=devices, find_node=lambda name: self.nodes.get("", name))
        self._add_indexes()
        self.watches = self._watch(
            api,
            miniclusters=miniclusters,
            devices=[*self._device_watches(api, device_taint_rules)] if devices else [],
        )

    def _add_indexes(self) -> None:
        self.pods.add_index(BY_JOB, _job_of)
        self.pods.add_index(BY_GROUP, _group_of)
        self.pods.add_index(BY_MINICLUSTER, _minicluster_of)
        self.pods.add_index(BY_REPLICA_OWNER, _replica_owner_of)
        self.pods.add_index(BY_NODE_NAME, _node_of)
        self.pods.add_index(BY_CLAIM, lambda pod: claims_used(pod.metadata.namespace, pod.spec))
        self.jobs.add_index(BY_GROUP, _jobset_of)
        self.disruption_budgets.add_index(BY_NAMESPACE, lambda budget: (budget.metadata.namespace,))
        self.pods.add_index(BY_DEVICE_SOURCE, lambda pod: sources_used(pod.metadata.namespace, pod.spec))
        self.jobs.add_index(BY_CLAIM, lambda job: claims_used(job.metadata.namespace, job.spec.template.spec))
        self.jobs.add_index(
            BY_DEVICE_SOURCE, lambda job: sources_used(job.metadata.namespace, job.spec.template.spec)
        )
        self.jobs.add_index(BY_POD_GROUP, _pod_group_of)
        self.fluxjobs.add_index(BY_OBJECT, _object_of)

    def _watch(self, api: Api, *, miniclusters: bool, devices: Iterable[Reflector[Any]]) -> Watches:
        return Watches(
            Reflector(api, kinds.JOBS, self.jobs),
            Reflector(api, kinds.PODS, self.pods),
            Reflector(api, kinds.NODES, self.nodes),
            Reflector(api, kinds.NAMESPACES, self.namespaces),
            Reflector(api, kinds.PRIORITY_CLASSES, self.priority_classes),
            Reflector(api, kinds.FLUXJOBS, self.fluxjobs),
            Reflector(api, kinds.FLUXQUEUES, self.fluxqueues),
            Reflector(api, kinds.FLUXACCOUNTS, self.fluxaccounts),
            Reflector(api, kinds.FLUXRESERVATIONS, self.fluxreservations),
            Reflector(api, kinds.DAEMON_SETS, self.daemonsets),
            Reflector(api, kinds.LIMIT_RANGES, self.limit_ranges),
            Reflector(api, kinds.RUNTIME_CLASSES, self.runtime_classes),
            Reflector(
                api,
                kinds.EVENTS,
                self.failed_creations,
                field_selector=_FAILED_CREATIONS,
                times=_WITHOUT_BOOKMARKS,
            ),
            Reflector(api, kinds.RESOURCE_QUOTAS, self.resource_quotas),
            Reflector(api, _SERVICE_ACCOUNTS, self.service_accounts),
            Reflector(api, kinds.DISRUPTION_BUDGETS, self.disruption_budgets),
            Reflector(api, kinds.CLAIMS, self.storage.claims),
            Reflector(api, kinds.VOLUMES, self.storage.volumes),
            Reflector(api, kinds.STORAGE_CLASSES, self.storage.classes),
            Reflector(api, kinds.CSI_NODES, self.storage.csi_nodes),
            *((Reflector(api, kinds.MINICLUSTERS, self.miniclusters),) if miniclusters else ()),
            *devices,
        )

    def _device_watches(
        self, api: Api, taint_rules: Kind[DeviceTaintRule] | None
    ) -> Iterable[Reflector[Any]]:
        yield Reflector(api, kinds.DEVICE_CLASSES, self.devices.classes)
        yield Reflector(api, kinds.DEVICE_SLICES, self.devices.slices)
        yield Reflector(api, kinds.DEVICE_CLAIMS, self.devices.claims)
        yield Reflector(api, kinds.DEVICE_CLAIM_TEMPLATES, self.devices.templates)
        if taint_rules is not None:
            yield Reflector(api, taint_rules, self.devices.taint_rules)


def _job_of(pod: Pod) -> Iterable[Hashable]:
    uid = owning_job_uid(pod)
    return (uid,) if uid else ()


def _group_of(pod: Pod) -> Iterable[Hashable]:
    key = group_of(pod)
    if key is None:
        return ()
    if not key.source:
        return (key,)
    name = source_named(key.source).object_name(pod, key.name)
    return key, GangObject(key.source, key.namespace, name), GangObject(key.source, "", "")


def _minicluster_of(pod: Pod) -> Iterable[Hashable]:
    owner = pod.metadata.controller
    return (owner.uid,) if owner is not None and job_served_by(pod) is not None else ()


def _replica_owner_of(pod: Pod) -> Iterable[Hashable]:
    owner = replica_owner_of(pod)
    return (owner,) if owner else ()


def _node_of(pod: Pod) -> Iterable[Hashable]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _jobset_of(job: Job) -> Iterable[Hashable]:
    name = jobset_of(job)
    return (GroupKey(job.metadata.namespace, name, JOB_SET),) if name else ()


def _pod_group_of(job: Job) -> Iterable[Hashable]:
    """Return the PodGroup that a Job names, and the mark of those that depend on PodGroups at all."""
    name, source, any_of_them = (
        job.pod_group,
        NATIVE_POD_GROUPS.name,
        GangObject(NATIVE_POD_GROUPS.name, "", ""),
    )
    if name:
        return GangObject(source, job.metadata.namespace, name), any_of_them
    return (any_of_them,) if job.spec.scheduling is not None and job.spec.scheduling.resource_claims else ()


def _object_of(fluxjob: FluxJob) -> Iterable[Hashable]:
    return (fluxjob.spec.object_ref.uid,) if is_named_for_its_object(fluxjob) else ()
