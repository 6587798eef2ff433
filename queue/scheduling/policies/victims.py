"""Which running work to preempt for more important work: as little as possible, the least important first, then what loses least.

Only the matcher knows whether work would fit without certain others. So the search is a generator: it yields victims to try, receives
whether the work would fit without them, and returns the victims, or none. It returns victims only if the matcher said that they suffice.

The preemption order is priority (low first), then what waits again before what is lost for good, then lost work (node-seconds since the
start or the last checkpoint, least first), then start (late first), then id. The search first tries each of the first few candidates alone,
in that order. Then it finds by bisection the shortest prefix of the order that suffices, and removes from it every candidate that is not
needed, the most important first. So the victims are minimal: none of them can be left out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.queue.model.records import Workload, WorkloadId

__all__ = ["PreemptionCandidate", "VictimSearch", "choose_victims", "is_below", "preemption_order"]

_SINGLES = 16
_MOST_REMOVALS = 32


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """Running work that may be preempted; ``lost_node_s`` is what it did since its start or its last checkpoint, in node-seconds.

    Without ``returns`` it does not wait again, so all of it is lost.
    """

    workload: WorkloadId
    priority: int
    start: datetime
    lost_node_s: float = 0.0
    returns: bool = True


VictimSearch = Generator[tuple[PreemptionCandidate, ...], bool, tuple[PreemptionCandidate, ...]]
"""Yields victims to try, is sent whether the work would fit without them, returns the victims."""


def is_below(running: Workload, first: Workload) -> bool:
    """True if running work has a lower priority, also in order: work that comes before the other would take its nodes back at once."""
    return running.priority < first.priority and running.order_priority < first.order_priority


def preemption_order(candidates: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Return the candidates in the order in which they are preempted."""
    return sorted(candidates, key=lambda each: (each.priority, not each.returns, each.lost_node_s, -each.start.timestamp(), -each.workload))


def choose_victims(
    candidates: Sequence[PreemptionCandidate], priority: int | None, *, singles: int = _SINGLES, most_removals: int = _MOST_REMOVALS
) -> VictimSearch:
    """Search the victims for work of a priority.

    Parameters
    ----------
    candidates
        Running work. Work that is not of lower priority is never chosen.
    priority
        Of the work that is to start; None: priorities do not matter.
    singles, most_removals
        How many are tried alone, and how many are tried to be left out.
    """
    order = preemption_order([each for each in candidates if priority is None or each.priority < priority])
    if not order or not (yield tuple(order)):
        return ()
    for each in order[:singles]:
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
    for each in list(reversed(victims[:-1]))[:most_removals]:
        rest = [other for other in victims if other is not each]
        if (yield tuple(rest)):
            victims = rest
    return tuple(victims)
