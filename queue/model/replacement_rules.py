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

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import Workload

__all__ = [
    "ReplicaOwner",
    "SlotDecision",
    "WaitingReplacements",
    "plan_replacement",
    "replica_owner_of",
    "wants_more_pods",
]

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


class WaitingReplacements:
    """The pending workloads of an owner's pods, of which each takes over one slot at most.

    All slots together cost as many steps as there are pods and slots.

    Parameters
    ----------
    workloads
        Pending workloads of pods of the owner.
    """

    def __init__(self, workloads: Iterable[Workload]) -> None:
        self._left: dict[tuple[str, str], deque[Workload]] = {}
        """The oldest first, by what must agree; none is empty."""
        for workload in sorted(workloads, key=lambda workload: workload.id):
            if not workload.blocked:
                self._left.setdefault((workload.shape, workload.queue), deque()).append(workload)

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, gone: Workload) -> Workload | None:
        """Return the oldest with exactly the request of a workload whose pod is gone, and leave it out from
        now on.
        """
        request = gone.shape, gone.queue
        if (alike := self._left.get(request)) is None:
            return None
        replacement = alike.popleft()
        if not alike:
            del self._left[request]
        return replacement


def plan_replacement(
    gone: Workload, waiting: WaitingReplacements, *, wanted: bool, expired: bool
) -> SlotDecision:
    """Decide about the slot of a pod that is gone.

    Parameters
    ----------
    gone
        The workload of that pod.
    waiting
        Of the same owner; the one that takes over the slot is taken from it.
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
    if (replacement := waiting.take(gone)) is not None:
        return SlotDecision(replacement=replacement)
    return SlotDecision(keep=wanted and not expired and not waiting)
