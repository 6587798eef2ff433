"""Which running work to preempt for more important work: as little as possible, the least important first,
then what loses least.

Only the matcher knows whether work would fit without certain others. So a search is a generator: it yields
victims to try, receives the nodes that are taken then (none if the work would not start), and returns the
victims, or none. It returns victims only if the matcher said that they suffice.

Each search finds by bisection the shortest prefix of an order that suffices. Of many, only those are needed
that hold something on the nodes which the matcher took, so one more trial leaves out all others. Then each of
the rest is tried to be left out, the most important first; if they are too many for that, in groups with one
of each node. So none of a few victims can be left out, and a search has a bounded number of trials. Of up to
eight that may be needed, all sets are searched that may lose less, in up to 64 trials.

The preemption order is priority (low first), then what waits again before what is lost for good or what its
owner needs, then lost work (node-seconds since the start or the last checkpoint, least first), then start
(late first), then id. The first few of whole work are tried alone before. One that suffices is taken, unless
several of no higher priority lose less together. One that is lost for good or needed is not taken alone if
all that comes before those of its priority suffices.

Elastic work gives pods back before anything is evicted (`choose_parts`). If they do not suffice, they count
as given while the fewest other victims are searched, and at last those of them are left out that are not
needed beside these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from operator import neg

from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.victim_views import Floor

__all__ = [
    "Owner",
    "PreemptionCandidate",
    "VictimSearch",
    "Victims",
    "carry_out",
    "choose_moves",
    "choose_parts",
    "choose_victims",
    "is_below",
    "preemption_order",
    "price",
]

Owner = WorkloadId | tuple[ReplicaOwner, str]
"""Whole work, the Job that goes on without a pod, or the owner that does, with the role of its pod."""

_SINGLES = 16
_MOST_REMOVALS = 32
_BELOW_ALL = -(1 << 62)
_FEW = 8
"""Of so few, all sets are searched that may lose less."""


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """Running work that may be preempted; ``lost_node_s`` is what it did since its start or its last
    checkpoint, in node-seconds.

    Without ``returns`` it does not wait again, so all of it is lost. If it is a part of a Job that goes on,
    ``of`` is the Job, and the part is some slots of it (``ranks``), or a pod of it that was matched alone
    (``workload``). ``nodes`` are those where it holds something. ``floor`` is that of the owner of a pod,
    which ``needed`` says has no other pod to spare.

    Of some owners only the last pods can go. Then ``place`` is where a part stands among them, and ``behind``
    is the most that one of those after it loses, which all go before it.
    """

    workload: WorkloadId
    priority: int
    start: datetime
    lost_node_s: float = 0.0
    returns: bool = True
    ranks: tuple[int, ...] = ()
    of: WorkloadId | None = None
    nodes: frozenset[str] = frozenset()
    floor: Floor | None = None
    needed: bool = False
    place: int | None = None
    behind: float = 0.0

    @property
    def loss(self) -> tuple[float, int]:
        """Least first, and of an owner of which only the last pods can go the last one first."""
        return max(self.lost_node_s, self.behind), -(self.place or 0)

    @property
    def owner(self) -> Owner:
        """What goes on without it, or the work itself."""
        return self.floor.key if self.floor is not None else self.of or self.workload

    def takes_along(self, other: PreemptionCandidate) -> bool:
        """True if another pod ends with this one, since only the last ones of their owner can go."""
        in_order = self.place is not None and other.place is not None and self.owner == other.owner
        return in_order and (self.place or 0) < (other.place or 0)

    @property
    def turn(self) -> tuple[int, bool]:
        """Least first, and nothing of a turn while those before suffice: by priority, and what is lost for
        good or needed last.
        """
        return self.priority, not self.returns or self.needed


Victims = tuple[PreemptionCandidate, ...]
VictimSearch = Generator[Victims, Collection[str], Victims]
"""Yields victims to try, is sent the nodes that are taken without them, empty if the work would not start;
returns the victims."""


async def carry_out(
    search: VictimSearch, nodes_without: Callable[[Victims], Awaitable[Collection[str]]]
) -> Victims:
    """Carry a search out, and return what it chooses;
    ``nodes_without`` returns the nodes that are taken without some victims.
    """
    try:
        victims = next(search)
        while True:
            victims = search.send(await nodes_without(victims))
    except StopIteration as end:
        chosen: Victims = end.value
        return chosen


def is_below(running: Workload, first: Workload) -> bool:
    """True if running work has a lower priority, also in order:
    work that comes before the other would take its nodes back at once.
    """
    return running.priority < first.priority and running.order_priority < first.order_priority


def preemption_order(candidates: Iterable[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Return the candidates in the order in which they are preempted."""
    return sorted(
        candidates,
        key=lambda each: (
            each.turn,
            each.loss,
            -each.start.timestamp(),
            -each.workload,
            tuple(map(neg, each.ranks)),
        ),
    )


def price(victims: Sequence[PreemptionCandidate]) -> tuple[int, float, int]:
    """Return what victims cost: their highest priority, then what is lost, then how many they are.
    None cost less than any, whatever its priority.
    """
    return (
        max((each.priority for each in victims), default=_BELOW_ALL),
        sum(each.lost_node_s for each in victims),
        len(victims),
    )


def choose_victims(
    candidates: Sequence[PreemptionCandidate],
    priority: int | None,
    *,
    parts: Sequence[PreemptionCandidate] = (),
    singles: int = _SINGLES,
    most_removals: int = _MOST_REMOVALS,
) -> VictimSearch:
    """Search the victims for work of a priority.

    Parameters
    ----------
    candidates
        Running work. Work that is not of lower priority is never chosen.
    priority
        Of the work that is to start; None: priorities do not matter.
    parts
        Pods without which their work goes on. They do not suffice.
    singles, most_removals
        How many are tried alone, and how many are tried to be left out; of few, twice as many sets are tried.
    """
    order = preemption_order(each for each in candidates if priority is None or each.priority < priority)
    if not order or not (taken := (yield (*parts, *order))):
        return ()
    alone: Victims = ()
    for each in order[:singles]:
        if not (yield (each,)):
            continue
        before = [other for other in order if _is_before(other, each)]
        if not before or not (taken := (yield (*parts, *before))):
            return (each,)
        alone, order = (each,), before
        break
    several = yield from _choose_several(order, parts, taken, most_removals)
    if alone and (not several or not (alone[0].turn[1] or _loses_less(several, alone))):
        return alone
    return several


def _loses_less(several: Victims, alone: Victims) -> bool:
    """True if several lose less than one, and none has a higher priority, nor a pod that ends beside them."""
    (highest, lost_node_s, _), (its, its_lost_node_s, _) = price(several), price(alone)
    return highest <= its and lost_node_s < its_lost_node_s


def _is_before(other: PreemptionCandidate, alone: PreemptionCandidate) -> bool:
    """True if several such victims may be better than one that suffices alone."""
    if alone.turn[1]:
        return other.turn < alone.turn
    return other.turn <= alone.turn and other.lost_node_s < alone.lost_node_s


def _choose_several(
    order: Sequence[PreemptionCandidate],
    parts: Sequence[PreemptionCandidate],
    taken: Collection[str],
    most_removals: int,
) -> VictimSearch:
    """Search several victims of an order that suffice beside the parts that are needed."""
    chosen = yield from _first_enough(parts, [(each,) for each in order], taken, most_removals + 1)
    few = tuple(each for each in order if each.turn <= chosen[-1].turn)
    if len(few) <= _FEW:
        chosen = yield from _cheapest(parts, few, chosen, 2 * most_removals)
    else:
        chosen = (*(yield from _left_out((*parts, chosen[-1]), chosen[:-1], most_removals)), chosen[-1])
    evicted = {each.workload for each in chosen}
    spared = tuple(each for each in parts if each.of not in evicted)
    if not spared or (yield chosen):
        return chosen
    # what the last whole victim alone does not suffice for, pods of others give
    needed = spared
    if len(spared) > _FEW:
        needed = yield from _on_nodes_taken(chosen, spared, (yield (*spared, *chosen)))
    if len(needed) <= _FEW:
        return (*(yield from _cheapest(chosen, needed, needed, 2 * most_removals)), *chosen)
    return (*(yield from _left_out(chosen, needed, most_removals)), *chosen)


def choose_parts(orders: Iterable[Sequence[Victims]], *, most_removals: int = _MOST_REMOVALS) -> VictimSearch:
    """Search pods without which their work goes on, and of which the price is lowest.

    Parameters
    ----------
    orders
        In each of them so many units as may end altogether, what costs least first. A unit is a pod, or all
        pods of a node that may end.
    most_removals
        How many are tried to be left out; of few, twice as many sets are tried.
    """
    found: list[Victims] = []
    for units in orders:
        victims = tuple(chain.from_iterable(units))
        if units and (taken := (yield victims)):
            if len(victims) > _FEW:
                victims = yield from _first_enough((), units, taken)
            if len(victims) <= _FEW:
                victims = yield from _cheapest((), victims, victims, 2 * most_removals)
            found.append(victims)
    best = min(found, key=price, default=())
    return best if len(best) <= _FEW else (yield from _left_out((), best, most_removals))


def choose_moves(units: Sequence[Victims], *, most_removals: int) -> VictimSearch:
    """Search work that has to start elsewhere: what is moved needs room too, so more of it may not help.

    Parameters
    ----------
    units
        All work of a node that may be moved, for each node: what costs least first.
    most_removals
        How many are tried to be left out.
    """
    enough = 1
    while not (taken := (yield tuple(dict.fromkeys(chain.from_iterable(units[:enough]))))):
        if enough >= len(units):
            return ()
        enough *= 2
    victims = yield from _first_enough((), units[:enough], taken)
    return (yield from _left_out((), tuple(dict.fromkeys(victims)), most_removals))


def _first_enough(
    given: Sequence[PreemptionCandidate], units: Sequence[Victims], taken: Collection[str], few: int = 0
) -> VictimSearch:
    """Search the shortest prefix that suffices beside what is given, as all units do; return what of it is on
    the nodes taken then.

    A prefix of ``few`` victims is returned whole: each of them is tried to be left out, and the nodes taken
    may not be the cheapest.
    """
    too_few, enough = 0, len(units)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if nodes := (yield (*given, *chain.from_iterable(units[:middle]))):
            enough, taken = middle, nodes
        else:
            too_few = middle
    victims = tuple(chain.from_iterable(units[:enough]))
    if len(victims) <= few:
        return victims
    return (yield from _on_nodes_taken(given, victims, taken, units[enough - 1]))


def _on_nodes_taken(
    given: Sequence[PreemptionCandidate],
    victims: Victims,
    taken: Collection[str],
    last: Collection[PreemptionCandidate] = (),
) -> VictimSearch:
    """Leave out at once what holds nothing on the nodes that the matcher took, if that suffices;
    ``last`` is needed anyway.
    """
    there = tuple(each for each in victims if each in last or not each.nodes.isdisjoint(taken))
    if len(there) == len(victims) or not (yield (*given, *there)):
        return victims
    return there


def _left_out(given: Sequence[PreemptionCandidate], victims: Victims, tries: int) -> VictimSearch:
    """Leave out what is not needed beside what is given, the most important first;
    of more than there are tries, in groups.
    """
    size = 1 if len(victims) <= tries else -(-2 * len(victims) // tries)
    while size and tries > 0:
        for group in _groups(victims, size)[:tries]:
            tries -= 1
            rest = tuple(each for each in victims if each not in group)
            if (yield (*given, *rest)):
                victims = rest
        size //= 2
    return victims


def _cheapest(
    given: Sequence[PreemptionCandidate], few: Victims, enough: Victims, tries: int
) -> VictimSearch:
    """Search, of all sets of a few victims that suffice beside what is given, the one with the lowest price;
    ``enough`` is one that suffices.

    The dearest is left out first, so soon none of the best can be left out. Then the other sets are tried
    that may cost less, as long as there are tries: of eight that are alike, more than a hundred may.
    """
    best = enough
    branches: list[tuple[Victims, Victims]] = [((), tuple(reversed(preemption_order(few))))]
    while branches:
        kept, rest = branches.pop()
        if price(kept) >= price(best):
            continue
        if not rest:
            best = kept
            continue
        dearest, *others = rest
        branches.append(((*kept, dearest), tuple(others)))
        if tries <= 0 or any(each.takes_along(dearest) for each in kept):
            continue
        tries -= 1
        if (yield (*given, *kept, *others)):
            branches.append((kept, tuple(others)))
    return tuple(each for each in few if each in best)


def _groups(victims: Victims, size: int) -> list[frozenset[PreemptionCandidate]]:
    """Return victims in groups of at most a size, the most important first.

    A group of several is of different nodes, and of each node those go last that come first in order. The
    pods of a gang are alike. So if some pods are needed on each node, all groups beyond so many are left out.
    """
    if size == 1:
        return [frozenset((each,)) for each in reversed(victims)]
    layers: dict[int, list[PreemptionCandidate]] = {}
    below: dict[str, int] = {}
    for each in victims:
        layer = max((below.get(node, 0) for node in each.nodes), default=0)
        below |= dict.fromkeys(each.nodes, layer + 1)
        layers.setdefault(layer, []).insert(0, each)
    ordered = (layers[layer] for layer in sorted(layers, reverse=True))
    return [
        frozenset(layer[begin : begin + size]) for layer in ordered for begin in range(0, len(layer), size)
    ]
