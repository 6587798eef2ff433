"""Whom to suspend so that more important work can start: as few as possible, the least important first, the youngest first.

Only a matcher can tell whether work would fit if others went. So the choice is a conversation, like a pass over a queue: it names victims
to try, hears whether the work would fit then, and ends with the victims to take, or with none. Nobody is suspended unless that is
certain to let the work start.

The order of sacrifice is priority (low first), then start (late first: least work is lost), then id. Among the first few a single one that
suffices is looked for, in that order. Else the shortest beginning of the order that suffices is found by halving, and then everybody in
it who is not needed after all is spared, the most important first. So the victims are minimal: none of them could be left out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.queue.records import WorkloadId

__all__ = ["Candidate", "Choice", "choose", "sacrifice_order"]

_SINGLES = 16
_SPARED = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """Running work that may be suspended."""

    workload: WorkloadId
    priority: int
    start: datetime


Choice = Generator[tuple[Candidate, ...], bool, tuple[Candidate, ...]]
"""Yields victims to try, is sent whether the work would fit without them, returns the victims."""


def sacrifice_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """In the order in which they are given up."""
    return sorted(candidates, key=lambda each: (each.priority, -each.start.timestamp(), -each.workload))


def choose(candidates: Sequence[Candidate], priority: int) -> Choice:
    """Choose victims for work of a priority.

    Parameters
    ----------
    candidates
        Work that runs. What is not of lower priority is never chosen.
    priority
        Of the work that is to start.
    """
    order = sacrifice_order([each for each in candidates if each.priority < priority])
    if not order or not (yield tuple(order)):
        return ()
    for each in order[:_SINGLES]:
        if (yield (each,)):
            return (each,)
    few, enough = 0, len(order)
    while enough - few > 1:
        middle = (few + enough) // 2
        if (yield tuple(order[:middle])):
            enough = middle
        else:
            few = middle
    victims = order[:enough]
    for each in list(reversed(victims[:-1]))[:_SPARED]:
        rest = [other for other in victims if other is not each]
        if (yield tuple(rest)):
            victims = rest
    return tuple(victims)
