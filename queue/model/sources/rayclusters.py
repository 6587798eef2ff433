"""RayCluster of KubeRay (``ray.io/v1``): the head and the workers that it starts with are one gang.

Without Ray's autoscaler these are the replicas of each worker group, with it the smallest number of each
group. Workers beyond that are matched one by one, as the autoscaler adds them. A RayJob and a RayService make
RayClusters; the Job that submits a RayJob's work to its cluster is an ordinary Job of one pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluxqueue.api.bounds import max_pods
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.sources.gang_sources import (
    Gang,
    GangSource,
    Resource,
    Role,
    SizedObject,
    controller_name,
    limited,
    whole_number,
)

__all__ = ["RAY_CLUSTERS"]

_GROUP, _KIND = "ray.io", "RayCluster"
_NODE_TYPE, _WORKER_GROUP = "ray.io/node-type", "ray.io/group"
_HEAD = "head"


class _WorkerGroup(PartialObject, frozen=True):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None


class _Spec(PartialObject, frozen=True):
    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None
    worker_group_specs: list[_WorkerGroup] | None = None


class _RayCluster(SizedObject, frozen=True):
    spec: _Spec = _Spec()


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    return controller_name(pod.metadata, _GROUP, frozenset({_KIND}))


def _role_of(pod: Pod) -> str:
    node_type = pod.metadata.label(_NODE_TYPE)
    return _HEAD if node_type == _HEAD else _worker_role(pod.metadata.label(_WORKER_GROUP) or "")


def _worker_role(group: str) -> str:
    return f"worker/{group}"


def _read(_pods: Sequence[Pod], cluster: _RayCluster) -> Gang:
    spec = cluster.spec
    roles = [Role(_HEAD, 1)]
    for number, group in enumerate(spec.worker_group_specs or ()):
        if (
            pods := _workers(
                group, f"spec.workerGroupSpecs[{number}]", autoscaled=bool(spec.enable_in_tree_autoscaling)
            )
        ) > 0:
            roles.append(Role(_worker_role(group.group_name), pods))
    return Gang(limited(roles, None, ""), active=not (spec.suspend or cluster.metadata.deletion_timestamp))


def _leasts_of(cluster: _RayCluster) -> Mapping[str, int]:
    """Return with how few pods each worker group goes on: its ``minReplicas``.
    One whose replicas are several pods each goes on with all.
    """
    return {
        _worker_role(group.group_name): max(group.min_replicas or 0, 0)
        for group in cluster.spec.worker_group_specs or ()
        if (group.num_of_hosts or 1) == 1
    }


def _workers(group: _WorkerGroup, path: str, *, autoscaled: bool) -> int:
    """Return how many pods of a worker group start with the head."""
    if group.suspend:
        return 0
    hosts = whole_number(group.num_of_hosts, f"{path}.numOfHosts", default=1)
    least = whole_number(group.min_replicas, f"{path}.minReplicas", least=0, default=0)
    if autoscaled:
        return least * hosts
    most = (
        group.max_replicas
        if group.max_replicas is not None and 0 <= group.max_replicas <= max_pods()
        else max_pods()
    )
    replicas = whole_number(group.replicas, f"{path}.replicas", least=0, default=least)
    return min(max(replicas, least), max(most, least)) * hosts


RAY_CLUSTERS = GangSource(
    name="raycluster",
    api_version="ray.io/v1",
    kind=_KIND,
    group_of=_group_of,
    read=_read,
    controllers=frozenset({(_GROUP, _KIND)}),
    role_of=_role_of,
    leasts_of=_leasts_of,
    resource=Resource(_GROUP, "rayclusters", _KIND, ("v1",), _RayCluster),
)
