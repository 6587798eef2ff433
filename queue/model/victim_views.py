"""What the cluster shows of running work that may be preempted:
whether it may be stopped, whether it comes back, and what it saved.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fluxqueue.api import names
from fluxqueue.api.moldable import floor_problem
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.replacement_rules import ReplicaOwner, replica_owner_of
from fluxqueue.queue.model.sources.registry import recreates_pods

__all__ = [
    "NO_VICTIM",
    "STARTING",
    "BudgetShare",
    "Floor",
    "Return",
    "VictimView",
    "floor_of",
    "place_of",
    "return_of",
]


class Return(enum.Enum):
    """What becomes of work once it was preempted."""

    WAITS = "it is requeued and keeps its submit time"
    REPLACED = "it is evicted, and the pod that its owner creates instead keeps its submit time"
    UNSURE = "it is evicted, and waits again only if its owner creates it again"
    LOST = "it is evicted and nobody creates it again, so submit it again"

    @property
    def sure(self) -> bool:
        """True if it waits again, so that what it did is all that is lost."""
        return self in (Return.WAITS, Return.REPLACED)


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """How many pods of a workload a PodDisruptionBudget selects,
    and how many pods it allows to be disrupted now.
    """

    namespace: str
    name: str
    pods: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Floor:
    """Of which owner a pod is that goes on with fewer pods, and with how few; of one with pods in several
    roles with how few in the role of this pod.

    With ``stays`` the pod is one of these, and never ends without the others. With ``as_whole`` the owner is
    stopped as a whole where a pod would have to end that is needed.
    """

    owner: ReplicaOwner
    least: int
    role: str = ""
    stays: bool = False
    as_whole: bool = False

    @property
    def key(self) -> tuple[ReplicaOwner, str]:
        """Equal for pods of which some are spare while enough others run."""
        return self.owner, self.role


@dataclass(frozen=True, slots=True)
class VictimView:
    """What the cluster shows of a workload.

    Attributes
    ----------
    obstacle
        Why it may not be preempted, in words that follow its name: it is a part of something, or cannot be
        stopped without harm.
    returns
        What becomes of it.
    checkpoint
        When it last saved what it has; None if it told of nothing.
    again_s
        In how many seconds the obstacle is gone; None if that is not known.
    job
        Uid of the Job of which it is a pod that was matched alone: it ends with that. Empty if of none.
    floor
        The owner that goes on without it, as long as enough others run; None if of none.
    least
        With how few pods it goes on as a whole, if some of its slots may be given back; 0 if none may.
    place
        Where it stands among the pods of its owner, if only the last of them can go; None if any can.
    """

    obstacle: str = ""
    returns: Return = Return.WAITS
    checkpoint: datetime | None = None
    again_s: float | None = None
    job: str = ""
    floor: Floor | None = None
    least: int = 0
    place: int | None = None

    @property
    def may_be(self) -> bool:
        """True if it may be preempted."""
        return not self.obstacle


STARTING: Final = "only just starting"
NO_VICTIM = VictimView("of a kind that is not preempted")


def return_of(pod: Pod) -> Return:
    """Return what becomes of a pod that is evicted."""
    if pod.metadata.controller is None:
        return Return.LOST
    known = replica_owner_of(pod) is not None or recreates_pods(pod.metadata.controller)
    return Return.REPLACED if known else Return.UNSURE


def floor_of(pod: Pod) -> Floor | None:
    """Return the floor that a pod of a Deployment, ReplicaSet or StatefulSet states; None if none."""
    owner, text = replica_owner_of(pod), pod.metadata.annotation(names.MIN_PODS_ANNOTATION)
    if owner is None or text is None or floor_problem(pod.metadata):
        return None
    return Floor(owner, int(text))


def place_of(pod: Pod) -> int | None:
    """Return where a pod stands among those of its owner: its ordinal, or its index; None if it has none."""
    owner = replica_owner_of(pod)
    if owner is None or owner.kind != "StatefulSet":
        return pod.completion_index
    ordinal = pod.metadata.name.removeprefix(f"{owner.name}-")
    return int(ordinal) if ordinal.isdecimal() else 0
