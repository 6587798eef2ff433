"""LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``): each group of a leader and its workers is a gang.

Its pods say everything themselves: the name of the set, the index of their group and of themselves (labels),
and the size of a group (annotation). The groups start one by one, and a rolling update replaces one after
another, which is one gang after another.

Workers are created with their leader, but for two cases: ``startupPolicy: LeaderReady``, and an exclusive
topology, for which the leader must be on its node first. Then slots are kept for the workers, and the
LeaderWorkerSet says their size.

The domain of a group with an exclusive topology is chosen by rules about other pods, which its controller
gives to the leader alone. The workers follow by a node selector, which is known only then. So slots for them
are matched by the leader's rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Pod, PodTemplateSpec
from fluxqueue.queue.model.sources.gang_sources import (
    Gang,
    GangSource,
    InvalidGang,
    Resource,
    Role,
    SizedObject,
    named,
)

__all__ = ["LEADER_WORKER_SETS"]

_NAME = "leaderworkerset.sigs.k8s.io/name"
_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
_SIZE = "leaderworkerset.sigs.k8s.io/size"
_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_LEADER, _WORKERS = "leader", "worker"


class _Template(PartialObject, frozen=True):
    worker_template: PodTemplateSpec = PodTemplateSpec()


class _Spec(PartialObject, frozen=True):
    leader_worker_template: _Template = _Template()
    startup_policy: str = ""


class _LeaderWorkerSet(SizedObject, frozen=True):
    spec: _Spec = _Spec()


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    name, index = pod.metadata.label(_NAME), pod.metadata.label(_GROUP)
    return named(f"{name}-{index}") if name and index else None


def _role_of(pod: Pod) -> str:
    return _LEADER if pod.metadata.label(_WORKER) == "0" else _WORKERS


def _read(pods: Sequence[Pod], lws: _LeaderWorkerSet | None) -> Gang:
    sizes = {_size(pod) for pod in pods}
    if len(sizes) > 1:
        stated = ", ".join(str(size) for size in sorted(sizes))
        raise InvalidGang(
            f"its pods have different sizes in the annotation {_SIZE}, {stated}: "
            "wait for its controller, or delete the pods"
        )
    (size,) = sizes
    exclusive = any(pod.metadata.annotation(_EXCLUSIVE) for pod in pods)
    later = None
    if lws is not None and (exclusive or lws.spec.startup_policy == "LeaderReady"):
        later = lws.spec.leader_worker_template.worker_template
        leader = next((pod for pod in pods if _role_of(pod) == _LEADER), None)
        later = _following(later, leader) if exclusive and leader is not None else later
    workers = (Role(_WORKERS, size - 1, later),) if size > 1 else ()
    return Gang((Role(_LEADER, 1), *workers), active=lws is None or not lws.metadata.deletion_timestamp)


def _following(template: PodTemplateSpec, leader: Pod) -> PodTemplateSpec:
    """Return the template of workers with the leader's rules about other pods,
    and the labels that those select.
    """
    labels = {**(template.metadata.labels or {}), **(leader.metadata.labels or {})}
    return PodTemplateSpec(
        structs.replace(template.metadata, labels=labels),
        structs.replace(template.spec, affinity=leader.spec.affinity),
    )


def _size(pod: Pod) -> int:
    text = pod.metadata.annotation(_SIZE)
    if text is None:
        raise InvalidGang(f"pod {pod.metadata.name} has no annotation {_SIZE}: its controller writes it")
    try:
        return parse_group_size(text)
    except InvalidGroupSize as error:
        raise InvalidGang(f"annotation {_SIZE} of pod {pod.metadata.name}: {error}") from error


LEADER_WORKER_SETS = GangSource(
    name="leaderworkerset",
    api_version="leaderworkerset.x-k8s.io/v1",
    kind="LeaderWorkerSet",
    group_of=_group_of,
    read=_read,
    marks=frozenset({_NAME}),
    role_of=_role_of,
    resource=Resource(
        "leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", ("v1",), _LeaderWorkerSet
    ),
    object_of=lambda pod: pod.metadata.label(_NAME),
    optional=True,
)
