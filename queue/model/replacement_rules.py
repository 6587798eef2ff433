"""Which pod replaces which, if a controller keeps a number of pods running.

A Deployment's pod is replaced by a pod of the next ReplicaSet, a StatefulSet's pod by one of its own name.
Both are other objects with other uids, so each is a workload of its own. It would have to wait behind all
pending work, and a rollout in a full cluster would lose its nodes pod by pod. Therefore a replacement takes
over the slot of the pod that it replaces: a waiting pod of the same owner with exactly the same request gets
the slot. If there is none yet, but the owner is short of pods, the slot is kept for a while
(`fluxqueue.queue.config.QueueConfig.successor_grace_seconds`, 30 s).

The owner is the topmost one that the pod itself shows: the Deployment, whose name is that of the ReplicaSet
without the hash of the template, else the ReplicaSet or the StatefulSet. Only the owner knows if another pod
will come. If it is being scaled down, or is gone, it wants none, and no slot is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import Workload

__all__ = ["ReplicaOwner", "SlotDecision", "plan_replacement", "replica_owner_of", "wants_more_pods"]

_HASH_LABEL = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class ReplicaOwner:
    """Identifies a controller that keeps a number of pods running:
    a Deployment, ReplicaSet or StatefulSet.
    """

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """What becomes of the slot of a pod that is gone:
    a replacement takes it, it is kept, or (neither) it is freed.
    """

    replacement: Workload | None = None
    keep: bool = False


def replica_owner_of(pod: Pod) -> ReplicaOwner | None:
    """Return the owner that replaces a pod; None if no known controller does."""
    owner = pod.metadata.controller
    if (
        owner is None
        or not owner.api_version.startswith("apps/")
        or owner.kind not in ("ReplicaSet", "StatefulSet")
    ):
        return None
    suffix = f"-{pod.metadata.label(_HASH_LABEL)}"
    if owner.kind == "ReplicaSet" and owner.name.endswith(suffix):
        return ReplicaOwner(pod.metadata.namespace, "Deployment", owner.name.removesuffix(suffix))
    return ReplicaOwner(pod.metadata.namespace, owner.kind, owner.name)


def wants_more_pods(owner: ScaledWorkload | None, pods: Iterable[Pod]) -> bool:
    """True if an owner will create another pod.

    Parameters
    ----------
    owner
        As it is now; None if it does not exist any more.
    pods
        All its pods.
    """
    if owner is None or owner.metadata.deletion_timestamp:
        return False
    active = sum(1 for pod in pods if pod.active)
    return active < owner.spec.size


def plan_replacement(
    gone: Workload, waiting: Iterable[Workload], *, wanted: bool, expired: bool
) -> SlotDecision:
    """Decide about the slot of a pod that is gone.

    Parameters
    ----------
    gone
        The workload of that pod.
    waiting
        Pending workloads of pods of the same owner.
    wanted
        True if the owner will create another pod.
    expired
        True if the slot was kept long enough.

    Returns
    -------
    SlotDecision
        A waiting pod with another request shows that no pod will come for this slot: the slot is freed at
        once.
    """
    replacements = sorted(
        (workload for workload in waiting if not workload.blocked), key=lambda workload: workload.id
    )
    for replacement in replacements:
        if (replacement.shape, replacement.queue) == (gone.shape, gone.queue):
            return SlotDecision(replacement=replacement)
    return SlotDecision(keep=wanted and not expired and not replacements)
