"""The protocol of scheduling policies: a pass over one queue proposes steps and receives the matcher's
answers.

A pass proposes a step (`MatchStep`, `ImproveStep`, `CancelStep`), receives its answers, and proposes the next
one until nothing is left. The driver, which is the scheduling cycle or the simulator, sends each step to the
matcher unchanged. So a pass has no clock and does no I/O. Time comes in as Unix seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, NodeShare
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog, Key
from fluxqueue.queue.scheduling.policies.growing_rows import GrowingRows
from fluxqueue.queue.scheduling.policies.namespace_turns import NamespaceTurns

__all__ = [
    "Bound",
    "CancelStep",
    "CycleContext",
    "HeldReservation",
    "ImproveStep",
    "MatchStep",
    "Pass",
    "PassResult",
    "PendingQueue",
    "RefusalCache",
    "SharedRefusal",
    "SharedRefusals",
    "Step",
    "waiting_reason",
]

Bound = tuple[int, int, int, int]
"""The smallest request that was refused: family, count, duration, and the priority it had."""
_BOUND_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class HeldReservation:
    """A reservation as the graph holds it: nodes for one workload from ``start`` to ``end`` (Unix seconds),
    at a priority.
    """

    workload: WorkloadId
    jobid: FluxionJobId
    start: int
    end: int
    shares: tuple[NodeShare, ...] = ()
    priority: int = 0

    @property
    def nodes(self) -> list[str]:
        """The reserved nodes, one for each share."""
        return [share.node for share in self.shares]


@dataclass(frozen=True, slots=True)
class MatchStep:
    """Match these workloads in order.

    Attributes
    ----------
    reserve
        Reserve nodes for what cannot start now.
    stop
        Stop after the first workload that is not granted.
    predicted
        Match for the predicted durations of those workloads that have one.
    """

    workloads: tuple[Workload, ...]
    reserve: bool = False
    stop: bool = False
    predicted: bool = False

    def duration_s(self, workload: Workload) -> int | None:
        """Return the duration for which a workload of this step is matched; None if it has no end."""
        return workload.tried_s if self.predicted else workload.duration_s


@dataclass(frozen=True, slots=True)
class ImproveStep:
    """Move the reservations of these workloads, in order, to an earlier start where there is one.
    A reservation never gets later.
    """

    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True)
class CancelStep:
    """Cancel reservations."""

    reservations: tuple[HeldReservation, ...]
    cause: str


Step = MatchStep | ImproveStep | CancelStep


@dataclass(frozen=True, slots=True)
class SharedRefusal:
    """A request of one queue that did not fit now, for other queues with the same match policy:
    the smallest, with its priority.
    """

    queue: str
    policy: str
    family: str
    count: int
    duration_s: int
    priority: int


class SharedRefusals:
    """What was refused to one queue in a round, and therefore to the others, so that queues for the same
    nodes are not asked one by one.

    Each refusal holds until any reservation moves or goes: then all are forgotten.
    """

    def __init__(self) -> None:
        self.known: list[SharedRefusal] = []

    def add(self, refusal: SharedRefusal) -> None:
        """Share a refusal."""
        self.known.append(refusal)

    def clear(self) -> None:
        """Forget all, because a reservation no longer holds its nodes at the time at which it did."""
        self.known = []


@dataclass(slots=True)
class CycleContext:
    """What all passes of a round share.

    Attributes
    ----------
    now
        Unix seconds.
    capacity_changed
        Something was freed or changed since reservations were last improved, so an earlier start may exist.
    unsatisfiable
        Answers for the shapes that do not fit even the empty graph. Their workloads are not matched.
    starts
        Start of each reservation, of all queues. Passes add and remove entries as they make and lose
        reservations.
    quotas
        Use of each queue against its limits. Whoever stores grants and reservations updates it, the passes
        read it.
    individual
        Workloads that are matched without some of the nodes. Their refusals hold for no other workload.
        Filled during the round.
    reserved_starts
        Starts of what is set aside for people.
    first_starts
        First reserved start of workloads that have, or had, a reservation, where queues backfill by
        predictions.
    match_policies
        Match policy of each queue that has one of its own.
    shared
        Refusals that hold for several queues.
    turns
        How much of the round the refused work of each namespace took.
    preempting
        Work for which other work stops: it gets a reservation wherever it is in its queue, so that nothing
        takes the nodes that it needs beside those of its victims.
    """

    now: int
    capacity_changed: bool = True
    unsatisfiable: Mapping[str, MatchResult] = field(default_factory=dict)
    starts: dict[WorkloadId, int] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=lambda: Quotas({}, ()))
    individual: Sequence[Container[WorkloadId]] = ()
    reserved_starts: Sequence[int] = ()
    first_starts: Mapping[WorkloadId, int] = field(default_factory=dict)
    match_policies: Mapping[str, str] = field(default_factory=dict)
    shared: SharedRefusals = field(default_factory=SharedRefusals)
    turns: NamespaceTurns = field(default_factory=NamespaceTurns)
    preempting: frozenset[WorkloadId] = frozenset()


@dataclass(slots=True)
class RefusalCache:
    """Refusals of former rounds, which hold until capacity is freed.

    Each row (`Bound`) is the smallest request of a family that did not fit, with its priority. It does not
    hold for a higher priority, which more reservations yield to.

    Attributes
    ----------
    now
        Requests that did not fit at that time.
    ever
        Requests that fit at no time that could be planned.
    """

    now: GrowingRows = field(default_factory=partial(GrowingRows, _BOUND_COLUMNS))
    ever: GrowingRows = field(default_factory=partial(GrowingRows, _BOUND_COLUMNS))

    def clear(self) -> None:
        """Forget all refusals, because capacity was freed or the graph changed."""
        self.now.clear()
        self.ever.clear()


@dataclass(slots=True)
class PendingQueue:
    """A queue as a pass sees it: its pending workloads, their reservations, and former refusals."""

    name: str
    backlog: Backlog
    reservations: Mapping[WorkloadId, HeldReservation] = field(default_factory=dict)
    refusal_cache: RefusalCache = field(default_factory=RefusalCache)


@dataclass(slots=True)
class PassResult:
    """What a pass did.

    Attributes
    ----------
    granted
        Workloads that start now, in the order of their grants.
    reserved
        Reservations made or moved, with the last answer for each.
    dropped
        Cause of each reservation that was lost or cancelled, by workload.
    reasons
        Why the other matched workloads wait.
    """

    granted: list[tuple[Workload, MatchResult]] = field(default_factory=list)
    reserved: dict[WorkloadId, tuple[Workload, MatchResult]] = field(default_factory=dict)
    dropped: dict[WorkloadId, str] = field(default_factory=dict)
    reasons: list[ReasonChange] = field(default_factory=list)

    def add_reason(self, workload: Workload, reason: Reason, message: str) -> None:
        """Record why a workload waits."""
        self.reasons.append(ReasonChange(workload=workload.id, reason=reason, message=message))


def waiting_reason(answer: MatchResult) -> Reason:
    """Return the reason of work that the matcher did not grant:
    for nodes, or for what is set aside for people.
    """
    return Reason.RESERVATION if answer.blocked_by else Reason.WAITING_FOR_NODES


class Pass(Protocol):
    """One pass over one queue."""

    @property
    def result(self) -> PassResult:
        """What the pass has done so far."""
        ...

    def head(self) -> Key | None:
        """Return the policy order of the workload that the next step begins with;
        None if nothing is left to do.
        """
        ...

    def head_behind(self) -> Key | None:
        """Return the first that `head` may return once the last step, an `ImproveStep`, has its answers."""
        ...

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """Return the next step: at most ``limit`` workloads, all ordered before ``before``.
        Call it only if `head` returned a key.
        """
        ...

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """Take the answers of a step: one for each workload, fewer if the step stopped early,
        none for a `CancelStep`.
        """
        ...

    @property
    def reservations(self) -> Collection[HeldReservation]:
        """The present reservations of the queue."""
        ...

    @property
    def reservations_beyond(self) -> Collection[HeldReservation]:
        """Those of them beyond the depth of the policy, which yield to higher priorities of the queue too."""
        ...

    def lose(self, causes: Mapping[WorkloadId, str]) -> None:
        """Drop reservations (of any queue) that work of higher priority displaced.
        What was refused before may fit now.
        """
        ...
