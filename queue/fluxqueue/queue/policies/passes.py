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
from fluxqueue.queue.policies.backlog import Backlog, Key
from fluxqueue.queue.records import FluxionJobId, ReasonChange, Workload, WorkloadId

__all__ = ["Drop", "Findings", "Line", "Moment", "Move", "Offer", "Pass", "Promise", "Refusals", "Step", "next_true"]

Mask = npt.NDArray[np.bool_]


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
    """Try to better a reservation: give it up, match anew, and take the old one back if that brought nothing earlier."""

    workload: Workload
    promise: Promise


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
    """

    now: int
    roomier: bool = True
    impossible: Mapping[str, MatchResult] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """A queue as a pass finds it: who waits, and what has been promised to whom."""

    name: str
    backlog: Backlog
    promises: Mapping[WorkloadId, Promise] = field(default_factory=dict)


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
        """Hear what came of a step: one answer each for those offered, fewer after a stop; one for a move; none for a drop."""
        ...


class Refusals:
    """Which rows of a backlog are known not to fit at this moment, because something smaller did not.

    Attributes
    ----------
    open
        Rows that may fit now.
    possible
        Rows that may fit now or later.
    """

    def __init__(self, backlog: Backlog, impossible: Mapping[str, MatchResult]) -> None:
        self._families, self._counts, self._durations = backlog.families, backlog.counts, backlog.durations
        self.open: Mask = np.ones(len(backlog), dtype=np.bool_)
        numbers = [number for shape in impossible if (number := backlog.shape_number(shape)) is not None]
        if numbers:
            never = np.zeros(backlog.shape_total, dtype=np.bool_)
            never[numbers] = True
            self.open &= ~never[backlog.shapes]
        self.possible: Mask = self.open.copy()

    def refuse(self, position: int, *, ever: bool = False) -> None:
        """The row did not fit now (``ever``: at no time known); nor does any behind it of its family that wants as much for as long."""
        behind = slice(position, None)
        lesser = (
            (self._families[behind] != self._families[position])
            | (self._counts[behind] < self._counts[position])
            | (self._durations[behind] < self._durations[position])
        )
        self.open[behind] &= lesser
        if ever:
            self.possible[behind] &= lesser


def next_true(mask: Mask, position: int) -> int | None:
    """The first true row from a position on."""
    if position >= len(mask):
        return None
    ahead = position + int(np.argmax(mask[position:]))
    return ahead if mask[ahead] else None
