"""What every policy speaks: a pass over one queue is a conversation with the matcher, without a clock and without I/O.

A pass says what it wants done (`Offer`, `Move`, `Drop`), hears what came of it, and says the next thing, until it has nothing left to
say. Whoever drives it (the scheduling cycle, or the simulator) puts each step to the matcher exactly as it is. Time comes in as Unix
seconds; the pass compares it and never asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, NodeShare
from fluxqueue.queue.limits import Quotas
from fluxqueue.queue.policies.backlog import Backlog, Column, Key
from fluxqueue.queue.records import FluxionJobId, ReasonChange, Workload, WorkloadId

__all__ = ["Drop", "Findings", "Line", "Mask", "Memory", "Moment", "Move", "Offer", "Pass", "Promise", "Refusals", "Step", "next_true"]

Mask = npt.NDArray[np.bool_]
Corner = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Promise:
    """A reservation as the graph holds it: these places, from ``start`` to ``end`` (Unix seconds)."""

    workload: WorkloadId
    jobid: FluxionJobId
    start: int
    end: int
    shares: tuple[NodeShare, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """Match these in order.

    Attributes
    ----------
    reserve
        Reserve what cannot start now.
    stop
        Leave off after the first that is not granted.
    """

    workloads: tuple[Workload, ...]
    reserve: bool = False
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Better the reservations of these, in order: each is given up for an earlier start if there is one, and else kept."""

    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Give up reservations."""

    promises: tuple[Promise, ...]
    cause: str


Step = Offer | Move | Drop


@dataclass(frozen=True, slots=True)
class Moment:
    """What a pass knows beside its queue.

    Attributes
    ----------
    now
        Unix seconds.
    roomier
        Something became free, or changed, since reservations were last looked at: they may be bettered.
    impossible
        Verdicts for shapes that fit no emptied graph: these are not offered.
    starts
        When reservations of all queues begin; passes enter and remove what they bring about.
    quotas
        What may be used at once: kept up to date by whoever stores grants and promises, heeded by the passes.
    """

    now: int
    roomier: bool = True
    impossible: Mapping[str, MatchResult] = field(default_factory=dict)
    starts: dict[WorkloadId, int] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=lambda: Quotas({}, ()))


@dataclass(slots=True)
class Memory:
    """Refusals that hold until something is released: (family, count, duration) of the least that did not fit.

    Attributes
    ----------
    now
        Did not fit at the time, and so do not now.
    ever
        Fitted at no time that could be planned.
    """

    now: list[Corner] = field(default_factory=list)
    ever: list[Corner] = field(default_factory=list)

    def clear(self) -> None:
        """Something was released, or the graph changed."""
        self.now.clear()
        self.ever.clear()


@dataclass(slots=True)
class Line:
    """A queue as a pass finds it: who waits, and what has been promised to whom."""

    name: str
    backlog: Backlog
    promises: Mapping[WorkloadId, Promise] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Findings:
    """What a pass came to.

    Attributes
    ----------
    granted
        In the order granted.
    promised
        Reservations made or moved, with the last answer for each.
    dropped
        Reservations given up, by workload, with the cause.
    reasons
        Why those wait that were asked about.
    """

    granted: list[tuple[Workload, MatchResult]] = field(default_factory=list)
    promised: dict[WorkloadId, tuple[Workload, MatchResult]] = field(default_factory=dict)
    dropped: dict[WorkloadId, str] = field(default_factory=dict)
    reasons: list[ReasonChange] = field(default_factory=list)

    def say(self, workload: Workload, reason: Reason, message: str) -> None:
        """Note why a workload waits."""
        self.reasons.append(ReasonChange(workload=workload.id, reason=reason, message=message))


class Pass(Protocol):
    """One pass over one queue."""

    @property
    def findings(self) -> Findings:
        """What has come of it so far."""
        ...

    def head(self) -> Key | None:
        """Order of the workload the next step is about; None if there is nothing left to say."""
        ...

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """What to do next: about at most ``limit`` workloads, all of them ordered before ``before``. Only after `head` said so."""
        ...

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """Hear what came of a step: one answer each for those offered or moved, fewer after a stop; none for a drop."""
        ...


class Refusals:
    """Which rows of a backlog are known not to fit, because something smaller did not, or are over a limit of their queue.

    A window that begins now is closed by what runs, whatever its length, and by reservations that begin before its end. So durations
    between two beginnings of reservations are all the same, and one refusal answers for the whole stretch.

    Parameters
    ----------
    line
        The queue, with what it remembers.
    moment
        Time, and when reservations of any queue begin.

    Attributes
    ----------
    open
        Rows that may fit now.
    possible
        Rows that may fit now or later.
    """

    def __init__(self, line: Line, moment: Moment) -> None:
        backlog = line.backlog
        self._families, self._counts, self._durations = backlog.families, backlog.counts, backlog.durations
        self._by_family: dict[int, tuple[npt.NDArray[np.intp], Column, Column]] = {}
        self._memory = line.memory
        self._moment = moment
        self.possible: Mask = np.ones(len(backlog), dtype=np.bool_)
        numbers = [number for shape in moment.impossible if (number := backlog.shape_number(shape)) is not None]
        if numbers:
            never = np.zeros(backlog.shape_total, dtype=np.bool_)
            never[numbers] = True
            self.possible &= ~never[backlog.shapes]
        for corner in self._memory.ever:
            self._close(self.possible, corner)
        self.open: Mask = self.possible.copy()
        for corner in self._memory.now:
            self._close(self.open, corner)
        self._line = line
        self._heeded = -1
        self.heed_limits()

    def heed_limits(self) -> None:
        """Close what is over a limit by now: in a pass the use of a queue only grows."""
        quotas = self._moment.quotas
        if not quotas.limited(self._line.name) or quotas.version == self._heeded:
            return
        self._heeded = quotas.version
        within = quotas.within(self._line.name, self._line.backlog)
        self.possible &= within
        self.open &= within

    def refuse(self, row: int, *, ever: bool = False) -> None:
        """The row did not fit now (``ever``: at no time that can be planned)."""
        family, count, duration = int(self._families[row]), int(self._counts[row]), int(self._durations[row])
        corner = family, count, self._shortest_alike(duration)
        self._memory.now.append(corner)
        self._close(self.open, corner, row)
        if ever:
            corner = family, count, duration
            self._memory.ever.append(corner)
            self._close(self.possible, corner, row)

    def _shortest_alike(self, duration: int) -> int:
        end = self._moment.now + duration
        last = max((start for start in self._moment.starts.values() if start < end), default=None)
        return 0 if last is None else min(duration, max(0, last - self._moment.now + 1))

    def _close(self, mask: Mask, corner: Corner, first: int = 0) -> None:
        family, count, duration = corner
        rows, counts, durations = self._relatives(family)
        behind = slice(int(np.searchsorted(rows, first)), None)
        mask[rows[behind][(counts[behind] >= count) & (durations[behind] >= duration)]] = False

    def _relatives(self, family: int) -> tuple[npt.NDArray[np.intp], Column, Column]:
        """Rows of a family, with their counts and durations: a pass asks again and again, and they are a small part of the queue."""
        found = self._by_family.get(family)
        if found is None:
            rows = np.flatnonzero(self._families == family)
            found = self._by_family[family] = rows, self._counts[rows], self._durations[rows]
        return found


def next_true(mask: Mask, position: int) -> int | None:
    """The first true row from a position on."""
    if position >= len(mask):
        return None
    ahead = position + int(np.argmax(mask[position:]))
    return ahead if mask[ahead] else None
