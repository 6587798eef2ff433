"""Which pod follows which, where a controller keeps up a number of them.

A Deployment's pod is replaced by one of the next ReplicaSet, a StatefulSet's by one of its own name: in both cases by another object with
another uid, which is a workload of its own. It would have to queue behind all that waits, so a rollout in a full cluster would lose its
nodes pod by pod. Therefore the place of a pod that goes is *inherited*: a waiting pod of the same line and of exactly the same request
takes it over, and where none is there yet but the owner is short of pods, the place is kept for half a minute.

A line is the topmost owner that can be told from the pod alone: the Deployment, whose name is that of the ReplicaSet without the hash of
the template; else the ReplicaSet or the StatefulSet. Whether another pod will come only the owner knows: one that is being scaled down, or
is gone, wants none, and then nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.objects import Pod
from fluxqueue.queue.records import Workload

__all__ = ["Line", "Place", "line_of", "next_of", "wants_more"]

_HASH_LABEL = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Line:
    """An owner that keeps up a number of pods: ``kind`` is Deployment, ReplicaSet or StatefulSet."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """What becomes of the place of a pod that is gone: an heir takes it, or it is kept, or (neither) it goes back."""

    heir: Workload | None = None
    keep: bool = False


def line_of(pod: Pod) -> Line | None:
    """The line of a pod, or None where no controller we know replaces it."""
    owner = pod.metadata.controller
    if owner is None or not owner.api_version.startswith("apps/") or owner.kind not in ("ReplicaSet", "StatefulSet"):
        return None
    suffix = f"-{pod.metadata.label(_HASH_LABEL)}"
    if owner.kind == "ReplicaSet" and owner.name.endswith(suffix):
        return Line(pod.metadata.namespace, "Deployment", owner.name.removesuffix(suffix))
    return Line(pod.metadata.namespace, owner.kind, owner.name)


def wants_more(owner: ScaledWorkload | None, pods: Iterable[Pod]) -> bool:
    """Whether an owner will make another pod.

    Parameters
    ----------
    owner
        As it stands; None once it is gone.
    pods
        All pods of its line.
    """
    if owner is None or owner.metadata.deletion_timestamp:
        return False
    staying = sum(1 for pod in pods if pod.staying)
    return staying < owner.spec.size


def next_of(gone: Workload, waiting: Iterable[Workload], *, wanted: bool, expired: bool) -> Place:
    """Decide about the place of a pod that is gone.

    Parameters
    ----------
    gone
        Its workload.
    waiting
        Pending workloads of pods of the same line.
    wanted
        Whether its owner will make another pod.
    expired
        Whether the place was kept long enough.

    Returns
    -------
    Place
        A waiting pod that asks for something else shows that nobody will come for this place: it goes back at once.
    """
    heirs = sorted((heir for heir in waiting if not heir.blocked), key=lambda heir: heir.id)
    for heir in heirs:
        if (heir.shape, heir.queue) == (gone.shape, gone.queue):
            return Place(heir=heir)
    return Place(keep=wanted and not expired and not heirs)
