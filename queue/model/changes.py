"""What controllers ask the ledger to change: one record for each kind of change of a workload."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.texts import brief
from fluxqueue.queue.model.prices import Rates
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.model.requeue_records import RequeueState

__all__ = [
    "Ending",
    "Eviction",
    "ReasonChange",
    "Replacement",
    "Requeue",
    "SlotWrites",
    "TakenSlot",
    "Withdrawal",
]


class _Told:
    """What has a message for people, which is shortened if nobody would read all of it."""

    __slots__ = ()
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", brief(self.message))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonChange(_Told):
    """A new reason of a workload that waits, or that holds nodes."""

    workload: WorkloadId
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction(_Told):
    """A live workload that is to free its nodes and wait again, and why.
    Without a `requeue_state` that stays as it is.
    """

    workload: WorkloadId
    reason: Reason
    message: str
    requeue_state: RequeueState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal(_Told):
    """A preempted workload that goes on, before anything of it ended: what it is then
    (`fluxqueue.queue.model.withdrawals`), and why.

    Attributes
    ----------
    jobid, end
        Its allocation, and when that is planned to end again.
    """

    workload: WorkloadId
    state: State
    requeue_state: RequeueState
    jobid: FluxionJobId
    end: datetime | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue(_Told):
    """A live workload of which nothing runs any more, except for pods in the slots (job id, rank) that are
    kept.
    """

    workload: WorkloadId
    reason: Reason
    message: str
    kept: tuple[tuple[FluxionJobId, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement(_Told):
    """A live workload whose pod is gone, with how it ends, and the pending one that takes its allocation
    over, with what that costs an hour from then on.
    """

    replaced: WorkloadId
    replacement: WorkloadId
    state: State
    outcome: Outcome
    message: str = ""
    rates: Rates = ()


@dataclass(frozen=True, slots=True)
class Ending(_Told):
    """How a workload ends, and if it ended before it was seen to run, when its first pod got its node."""

    workload: WorkloadId
    state: State
    outcome: Outcome
    message: str = ""
    began_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TakenSlot:
    """A slot, and the pod that it holds from now on."""

    jobid: FluxionJobId
    rank: int
    pod_uid: str
    pod_name: str


@dataclass(slots=True)
class SlotWrites:
    """What the tracker writes about slots and their workloads, together.

    Attributes
    ----------
    released
        Allocations whose objects were released.
    vacated
        (job id, rank, pod uid) of slots whose pod is gone.
    taken
        Slots that get a pod.
    ended
        (job id, rank) of slots that end; those of allocations that `finished` names end with them.
    started, draining
        Workloads that reach this state.
    endings
        Workloads that end. That ends their slots too, so these are not written one by one.
    finished
        The allocations of these workloads.
    """

    released: list[FluxionJobId] = field(default_factory=list)
    vacated: list[tuple[FluxionJobId, int, str]] = field(default_factory=list)
    taken: list[TakenSlot] = field(default_factory=list)
    ended: list[tuple[FluxionJobId, int]] = field(default_factory=list)
    started: list[WorkloadId] = field(default_factory=list)
    draining: list[WorkloadId] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    finished: set[FluxionJobId] = field(default_factory=set)

    @property
    def any(self) -> bool:
        """True if there is anything to write."""
        return bool(
            self.released
            or self.vacated
            or self.taken
            or self.ended
            or self.started
            or self.draining
            or self.endings
        )
