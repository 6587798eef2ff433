"""Which running work to preempt for more important work: as little as possible, the least important first, then what loses least.

Only the matcher knows whether work would fit without certain others. So the search is a generator: it yields victims to try, receives
whether the work would fit without them, and returns the victims, or none. It returns victims only if the matcher said that they suffice.

Elastic work gives pods back before anything is evicted: if those suffice, nothing else is tried. Else they count as given while the fewest
other victims are searched, and at last those of them are left out that are not needed beside these.

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
_MOST_PASSES = 3
"""If victims are left out in whole parts, each may be looked at more than once."""


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """Running work that may be preempted; ``lost_node_s`` is what it did since its start or its last checkpoint, in node-seconds.

    Without ``returns`` it does not wait again, so all of it is lost. If it is a part of a Job that goes on, ``of`` is the Job, and the part
    is some slots of it (``ranks``), or a pod of it that was matched alone (``workload``).
    """

    workload: WorkloadId
    priority: int
    start: datetime
    lost_node_s: float = 0.0
    returns: bool = True
    ranks: tuple[int, ...] = ()
    of: WorkloadId | None = None


VictimSearch = Generator[tuple[PreemptionCandidate, ...], bool, tuple[PreemptionCandidate, ...]]
"""Yields victims to try, is sent whether the work would fit without them, returns the victims."""


def is_below(running: Workload, first: Workload) -> bool:
    """True if running work has a lower priority, also in order: work that comes before the other would take its nodes back at once."""
    return running.priority < first.priority and running.order_priority < first.order_priority


def preemption_order(candidates: Sequence[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Return the candidates in the order in which they are preempted: first pods without which their work goes on."""
    return sorted(
        candidates,
        key=lambda each: (
            each.of is None,
            each.priority,
            not each.returns,
            each.lost_node_s,
            -each.start.timestamp(),
            -each.workload,
            [-rank for rank in each.ranks],
        ),
    )


def choose_victims(
    candidates: Sequence[PreemptionCandidate], priority: int | None, *, singles: int = _SINGLES, most_removals: int = _MOST_REMOVALS
) -> VictimSearch:
    """Search the victims for work of a priority.

    Parameters
    ----------
    candidates
        Running work, and pods without which it goes on. Work that is not of lower priority is never chosen.
    priority
        Of the work that is to start; None: priorities do not matter.
    singles, most_removals
        How many are tried alone, and how many are tried to be left out.
    """
    order = preemption_order([each for each in candidates if priority is None or each.priority < priority])
    parts, wholes = [each for each in order if each.of is not None], [each for each in order if each.of is None]
    if parts and (yield tuple(parts)):
        return (yield from _fewest([], parts, singles, most_removals))
    if not wholes or not (yield (*parts, *wholes)):
        return ()
    chosen = yield from _fewest(parts, wholes, singles, most_removals)
    evicted = {each.workload for each in chosen}
    parts = [each for each in parts if each.of not in evicted]
    if parts and not (yield chosen):
        # what the last whole victim alone does not suffice for, pods of others give
        return (*(yield from _left_out(list(chosen), parts, most_removals)), *chosen)
    return chosen


def _fewest(
    given: list[PreemptionCandidate], order: list[PreemptionCandidate], singles: int, most_removals: int
) -> Generator[tuple[PreemptionCandidate, ...], bool, tuple[PreemptionCandidate, ...]]:
    """Search the first that suffices alone, else as few as possible of which none can be left out, beside what is given."""
    for each in order[:singles]:
        if (yield (each,)):
            return (each,)
    few, enough = 0, len(order)
    while enough - few > 1:
        middle = (few + enough) // 2
        if (yield (*given, *order[:middle])):
            enough = middle
        else:
            few = middle
    *others, last = order[:enough]
    return (*(yield from _left_out([*given, last], others, most_removals)), last)


def _left_out(
    given: list[PreemptionCandidate], victims: list[PreemptionCandidate], most_removals: int
) -> Generator[tuple[PreemptionCandidate, ...], bool, tuple[PreemptionCandidate, ...]]:
    """Leave out what is not needed beside what is given, the most important first: of many, whole parts of them at first."""
    chunk, tries = 1, _MOST_PASSES * most_removals
    while len(victims) > chunk * most_removals:
        chunk *= 2
    while chunk:
        end = len(victims)
        while end > 0 and tries:
            begin, tries = max(end - chunk, 0), tries - 1
            rest = [*victims[:begin], *victims[end:]]
            if (yield (*given, *rest)):
                victims = rest
            end = begin
        chunk //= 2
    return tuple(victims)
