"""The protocol of scheduling policies: a pass over one queue proposes steps and receives the matcher's answers.

A pass proposes a step (`MatchStep`, `ImproveStep`, `CancelStep`), receives its answers, and proposes the next one until nothing is left.
The driver, which is the scheduling cycle or the simulator, sends each step to the matcher unchanged. So a pass has no clock and does no
I/O. Time comes in as Unix seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, NodeShare
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.moldable import is_moldable
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog, Key
from fluxqueue.queue.scheduling.policies.open_rows import OpenRows

__all__ = [
    "CancelStep",
    "CycleContext",
    "HeldReservation",
    "ImproveStep",
    "MatchStep",
    "Pass",
    "PassResult",
    "PendingQueue",
    "RefusalCache",
    "Refusals",
    "SharedRefusals",
    "Step",
    "waiting_reason",
]

_Bound = tuple[int, int, int, int]
"""The smallest request that was refused: family, count, duration, and the priority it had."""


@dataclass(frozen=True, slots=True)
class HeldReservation:
    """A reservation as the graph holds it: nodes for one workload from ``start`` to ``end`` (Unix seconds), at a priority."""

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
    """Move the reservations of these workloads, in order, to an earlier start where there is one. A reservation never gets later."""

    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True)
class CancelStep:
    """Cancel reservations."""

    reservations: tuple[HeldReservation, ...]
    cause: str


Step = MatchStep | ImproveStep | CancelStep


@dataclass(frozen=True, slots=True)
class SharedRefusal:
    """A request of one queue that did not fit now, for other queues with the same match policy: the smallest, with its priority."""

    queue: str
    policy: str
    family: str
    count: int
    duration_s: int
    priority: int


class SharedRefusals:
    """What was refused to one queue in a round, and therefore to the others, so that queues for the same nodes are not asked one by one.

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
        Start of each reservation, of all queues. Passes add and remove entries as they make and lose reservations.
    quotas
        Use of each queue against its limits. Whoever stores grants and reservations updates it, the passes read it.
    individual
        Workloads that are matched without some of the nodes. Their refusals hold for no other workload. Filled during the round.
    reserved_starts
        Starts of what is set aside for people.
    first_starts
        First reserved start of workloads that have, or had, a reservation, where queues backfill by predictions.
    match_policies
        Match policy of each queue that has one of its own.
    shared
        Refusals that hold for several queues.
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


@dataclass(slots=True)
class RefusalCache:
    """Refusals of former rounds, which hold until capacity is freed.

    Each entry is the smallest request of a family that did not fit, with its priority. It does not hold for a higher priority, which
    more reservations yield to.

    Attributes
    ----------
    now
        Requests that did not fit at that time.
    ever
        Requests that fit at no time that could be planned.
    """

    now: list[_Bound] = field(default_factory=list)
    ever: list[_Bound] = field(default_factory=list)

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
    """Return the reason of work that the matcher did not grant: for nodes, or for what is set aside for people."""
    return Reason.RESERVATION if answer.blocked_by else Reason.WAITING_FOR_NODES


class Pass(Protocol):
    """One pass over one queue."""

    @property
    def result(self) -> PassResult:
        """What the pass has done so far."""
        ...

    def head(self) -> Key | None:
        """Return the policy order of the workload that the next step begins with; None if nothing is left to do."""
        ...

    def head_behind(self) -> Key | None:
        """Return the first that `head` may return once the last step, an `ImproveStep`, has its answers."""
        ...

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """Return the next step: at most ``limit`` workloads, all ordered before ``before``. Call it only if `head` returned a key."""
        ...

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """Take the answers of a step: one for each workload, fewer if the step stopped early, none for a `CancelStep`."""
        ...

    @property
    def reservations(self) -> Collection[HeldReservation]:
        """The present reservations of the queue."""
        ...

    def lose(self, causes: Mapping[WorkloadId, str]) -> None:
        """Drop reservations (of any queue) that work of higher priority displaced. What was refused before may fit now."""
        ...


class Refusals:
    """Which rows of a backlog may still fit: not refused by the matcher, not larger than a refused one, not over a limit of the queue.

    Running work closes a window that begins now, whatever its length. A reservation closes it only if the reservation begins before the
    window ends. So between the starts of two reservations all durations get the same answer, and one refusal holds for all of them.

    Parameters
    ----------
    queue
        The queue, with its former refusals.
    context
        Time, starts of reservations, and limits.

    Attributes
    ----------
    open
        Rows that may fit now.
    possible
        Rows that may fit now or later.
    """

    def __init__(self, queue: PendingQueue, context: CycleContext) -> None:
        backlog = queue.backlog
        self._kinds = backlog.request_kinds()
        self._queue = queue
        self._cache = queue.refusal_cache
        self._context = context
        self.possible = OpenRows(backlog.kinds, len(self._kinds.families))
        numbers = [number for shape in context.unsatisfiable if (number := backlog.shape_number(shape)) is not None]
        if numbers:
            never = np.zeros(backlog.shape_total, dtype=np.bool_)
            never[numbers] = True
            self.possible.keep(~never[backlog.shapes])
        for bound in self._cache.ever:
            self._close(self.possible, bound, backlog.first_row(bound[3]))
        self.open = self.possible.copy()
        for bound in self._cache.now:
            self._close(self.open, bound, backlog.first_row(bound[3]))
        self._quotas_version = -1
        self._policy = context.match_policies.get(queue.name, "")
        self._shared: list[SharedRefusal] = []
        self._shared_read = 0
        self.apply_limits()

    def apply_limits(self) -> None:
        """Close the rows that are over a limit now. Within a pass the use of a queue only grows."""
        quotas = self._context.quotas
        if not quotas.limited(self._queue.name) or quotas.version == self._quotas_version:
            return
        self._quotas_version = quotas.version
        within = quotas.within(self._queue.name, self._queue.backlog)
        self.possible.keep(within)
        self.open.keep(within)

    def apply_shared(self) -> None:
        """Close the rows that were refused to other queues meanwhile."""
        known = self._context.shared.known
        if known is not self._shared:
            self._shared, self._shared_read = known, 0
        for each in known[self._shared_read :]:
            family = self._queue.backlog.family_number(each.family)
            if family is not None and each.queue != self._queue.name and each.policy == self._policy:
                self._close(self.open, (family, each.count, each.duration_s, each.priority), self._queue.backlog.first_row(each.priority))
        self._shared_read = len(known)

    def refuse(self, row: int, *, ever: bool = False, predicted: bool = False, shared: bool = False) -> None:
        """Record that a row does not fit now, or (``ever``) at no time that can be planned; with its stated or its predicted duration.

        If it is ``shared``, it holds for other queues too. It must not be if the queue has a reservation that yields to others only.
        """
        workload = self._queue.backlog[row]
        if any(workload.id in apart for apart in self._context.individual):
            self.open.close_row(row)
            if ever:
                self.possible.close_row(row)
            return
        family, count, duration = self._queue.backlog.request_kind(row)
        if not predicted and workload.predicted_s is not None and workload.duration_s is not None:
            duration = workload.duration_s
        # A smaller start of moldable work lasts longer, so other reservations may be in its way.
        least = duration if is_moldable(workload) else self._shortest_equivalent(duration)
        bound = family, count, least, workload.order_priority
        self._cache.now.append(bound)
        self._close(self.open, bound, row)
        if shared:
            text = self._queue.backlog.family_text(row)
            refusal = SharedRefusal(self._queue.name, self._policy, text, count, least, workload.order_priority)
            self._context.shared.add(refusal)
        if ever:
            bound = family, count, duration, workload.order_priority
            self._cache.ever.append(bound)
            self._close(self.possible, bound, row)

    def _shortest_equivalent(self, duration: int) -> int:
        """The shortest duration that meets the same reservations as this one."""
        end = self._context.now + duration
        starts = chain(self._context.starts.values(), self._context.reserved_starts)
        last = max((start for start in starts if start < end), default=None)
        return 0 if last is None else min(duration, max(0, last - self._context.now + 1))

    def _close(self, rows: OpenRows, bound: _Bound, first: int) -> None:
        """Close the rows of a family from ``first`` on that ask for at least as much as a refused request."""
        family, count, duration, _ = bound
        kinds = self._kinds
        rows.close((kinds.families == family) & (kinds.counts >= count) & (kinds.durations >= duration), first)
