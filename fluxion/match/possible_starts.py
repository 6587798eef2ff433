"""The later times at which a request without a plan of its own may fit.

Several different slots, or slots under rules of domains, are placed by trial. A trial takes milliseconds, and
each end of a job is a time to try. So the times at which there is certainly too little are left out. How many
slots each node has at each time is known for requests with a plan (`fluxqueue.fluxion.match.earliest`). So a
request is bounded by plans that ask for no more than it does: for the largest of its slots, for more and more
of them down to the smallest, and for all its leaves of a type. Rules of domains are bounded by the slots that
their domains have together.

Every bound is an upper one. A time that is left out would have been tried without success.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.domain_placement import domain_of
from fluxqueue.fluxion.match.domains import AtMost, DomainRule, Skew, Together, WholeNodes
from fluxqueue.fluxion.match.earliest import EarliestStart
from fluxqueue.fluxion.match.jobspec import Count
from fluxqueue.fluxion.match.node_table import Counts
from fluxqueue.fluxion.match.plans import NodePlan, Plan, SlotPlan

__all__ = ["PossibleStarts", "bounding_plans"]

_MOST_BOUNDS = 8
"""Slots of more sizes are bounded by some of them."""
_MANY = 1 << 40
_ONE = Count(1, 1)

_Check = Callable[[Counts], bool]
"""Returns True if a rule may be kept with these slots of the nodes."""


def bounding_plans(
    plans: Sequence[Plan], rules: Sequence[DomainRule], largest: Mapping[str, int]
) -> list[Plan]:
    """Return plans that fit whenever a request does; under rules, the first is for all its slots, or nodes,
    alike.

    Parameters
    ----------
    plans
        Of the parts of the request, each alone, the largest first.
    rules
        For all parts together.
    largest
        Size of the largest leaf of each type.

    Returns
    -------
    list[Plan]
        Empty if the request is of no shape that is bounded here.
    """
    whole = any(isinstance(rule, WholeNodes) for rule in rules)
    needs, counts = [], []
    for plan in plans:
        slots = plan if isinstance(plan, SlotPlan) else plan.slots
        if slots is None or slots.plain or (rules and isinstance(plan, NodePlan) and slots.count != _ONE):
            return []
        needs.append({kind: count.low for kind, count in slots.needs})
        times = slots.count.low if isinstance(plan, NodePlan) else 1
        counts.append((plan.count.low, plan.count.low * times))
    if len(plans) == 1:
        (plan,) = plans
        return [replace(plan, whole=whole) if isinstance(plan, SlotPlan) else plan]
    nodes = all(isinstance(plan, NodePlan) for plan in plans)
    bounds: dict[tuple[tuple[str, int], ...], Plan] = {}
    for number, least in enumerate(accumulate(needs, _least_of_both)):
        if not least:
            break
        alike = SlotPlan(_ONE, "", tuple((kind, Count(low, low)) for kind, low in least.items()), whole=whole)
        units, slots_in_all = (sum(each) for each in zip(*counts[: number + 1], strict=True))
        bounds[tuple(least.items())] = (
            NodePlan(Count(units, units), "", alike, exclusive=whole)
            if nodes
            else replace(alike, count=Count(slots_in_all, slots_in_all))
        )
    if rules and not least:
        return []
    by_size = list(bounds.values())[::-1]
    return [*by_size[:: -(-len(by_size) // _MOST_BOUNDS) or 1], *_leaves_in_all(needs, counts, largest)]


def _least_of_both(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {kind: min(low, second[kind]) for kind, low in first.items() if kind in second}


def _leaves_in_all(
    needs: Sequence[Mapping[str, int]], counts: Sequence[tuple[int, int]], largest: Mapping[str, int]
) -> list[Plan]:
    """Return a plan for each type: as many leaves of it as all slots together take at least."""
    leaves: dict[str, int] = {}
    for each, (_, slots) in zip(needs, counts, strict=True):
        for kind, low in each.items():
            leaves[kind] = leaves.get(kind, 0) + slots * -(-low // max(1, largest.get(kind, 1)))
    return [
        SlotPlan(Count(total, total), "", ((kind, _ONE),))
        for kind, most in leaves.items()
        if (total := min(most, _MANY))
    ]


class PossibleStarts:
    """Tells of ascending times whether a request may fit then.

    Parameters
    ----------
    bounds
        For each of the plans of `bounding_plans`, in this order.
    rules
        For all slots together.
    wanted
        Number of slots, or of nodes with one each.
    nodes
        Node of each row.
    """

    def __init__(
        self,
        bounds: Sequence[EarliestStart],
        rules: Sequence[DomainRule],
        wanted: int,
        nodes: Sequence[Vertex],
    ) -> None:
        self._times = set[int].intersection(*(set(bound.times_with_enough().tolist()) for bound in bounds))
        self._checks = [*_checks(rules, wanted, nodes)] if self._times else []
        self._slots: Counts = np.zeros(len(nodes), dtype=np.int32)
        self._passed = 0
        if self._checks:
            self._change_times, self._rows, self._changed = bounds[0].changes()

    def include(self, time: int) -> bool:
        """Return True if the request may fit at a time, which is later than those asked about before."""
        if time not in self._times:
            return False
        if not self._checks:
            return True
        behind = int(np.searchsorted(self._change_times, time, side="right"))
        new = slice(self._passed, behind)
        # Changes are in order of time, and the last of several assignments to a row counts.
        self._slots[self._rows[new]] = self._changed[new]
        self._passed = behind
        return all(check(self._slots) for check in self._checks)


def _checks(rules: Sequence[DomainRule], wanted: int, nodes: Sequence[Vertex]) -> list[_Check]:
    keys = tuple(dict.fromkeys(key for rule in rules if isinstance(rule, Together) for key in rule.keys))
    checks: list[_Check] = []
    if keys:
        checks.append(_together(keys, wanted, nodes))
    for rule in rules:
        if isinstance(rule, AtMost):
            checks.append(_at_most(rule, wanted, nodes))
        elif isinstance(rule, Skew):
            checks.append(_evenly(rule, wanted, nodes))
    return checks


def _together(keys: Sequence[str], wanted: int, nodes: Sequence[Vertex]) -> _Check:
    values = [tuple(domain_of(node, key) for key in keys) for node in nodes]
    count = _counter([None if None in each else each for each in values], [*dict.fromkeys(values)])

    def check(slots: Counts) -> bool:
        return bool(count(slots)[0].max(initial=0) >= wanted)

    return check


def _at_most(rule: AtMost, wanted: int, nodes: Sequence[Vertex]) -> _Check:
    values = [domain_of(node, rule.key) for node in nodes]
    count = _counter(values, [*dict.fromkeys(value for value in values if value is not None)])

    def check(slots: Counts) -> bool:
        inside, outside = count(slots)
        return bool(np.minimum(inside, rule.most).sum() + outside >= wanted)

    return check


def _evenly(rule: Skew, wanted: int, nodes: Sequence[Vertex]) -> _Check:
    """Check the highest level to which the least filled domain can rise; lower ones allow fewer slots."""
    before = np.array([number for _, number in rule.counts], dtype=np.float64)
    count = _counter([domain_of(node, rule.key) for node in nodes], [name for name, _ in rule.counts])
    filled = accumulate(sorted(number for _, number in rule.counts))
    highest = min(((wanted + sum_) // domains for domains, sum_ in enumerate(filled, 1)), default=0)

    def check(slots: Counts) -> bool:
        inside, _ = count(slots)
        level = 0 if rule.zero else min(highest, (before + inside).min(initial=highest))
        return bool(np.minimum(inside, np.maximum(level + rule.skew - before, 0)).sum() >= wanted)

    return check


def _counter(
    values: Sequence[Hashable], domains: Sequence[Hashable]
) -> Callable[[Counts], tuple[npt.NDArray[np.float64], float]]:
    """Return a function that sums up the slots of the nodes by these domains, and those of all other nodes;
    ``values`` has the domain of each node.
    """
    numbers = {domain: number for number, domain in enumerate(domains)}
    none = len(domains)
    index = np.array([numbers.get(value, none) for value in values], dtype=np.intp)

    def count(slots: Counts) -> tuple[npt.NDArray[np.float64], float]:
        sums = np.bincount(index, weights=slots, minlength=none + 1).astype(np.float64)
        return sums[:none], float(sums[none])

    return count
