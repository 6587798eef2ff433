"""The check of a foreign answer against what is held, and its booking in the queue's own graph.

The queue's graph has all nodes, all live allocations, foreign pods and reservations. An answer that takes
what is not free there, or a node that the work may not have, is refused. So no mistake of a foreign matcher,
and no graph of it that is out of date, books anything twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fluxqueue.api.graphnames import display_name
from fluxqueue.fluxion.foreign.free_graphs import free_amounts
from fluxqueue.fluxion.foreign.parts import Part
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.jobspec import Jobspec
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.windows import Window
from fluxqueue.fluxion.messages import JobMatchRequest, NodeShare

__all__ = ["accepting_nodes", "never_fits", "problem_of", "shares_of", "slots_on"]

Taken = Mapping[str, Mapping[str, int]]
"""Node -> foreign type -> number of vertices."""


def accepting_nodes(
    state: GraphState, jobspec: Jobspec, request: JobMatchRequest, part: Part
) -> frozenset[str]:
    """Return the names of the nodes that may hold at least one slot of a part,
    or the one node that it names.
    """
    if part.node:
        return frozenset((part.node,))
    window = _window(state, jobspec, request)
    return frozenset(
        node.name for node in state.graph.nodes if _has(free_amounts(node, window), part.amounts)
    )


def _window(state: GraphState, jobspec: Jobspec, request: JobMatchRequest) -> Window:
    duration_s = jobspec.duration_s if request.duration_s is None else request.duration_s
    by_name = state.graph.by_name
    exclude = frozenset(by_name[name] for name in request.exclude if name in by_name)
    return Window(
        state.now,
        state.end_of(state.now, duration_s),
        state.now,
        constraint=jobspec.constraint,
        exclude=exclude,
    )


def _has(free: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    return all(free.get(kind, 0) >= amount for kind, amount in amounts.items())


def never_fits(state: GraphState, jobspec: Jobspec, parts: Sequence[Part], units: ForeignUnits) -> str:
    """Return in a sentence why a foreign matcher finds no nodes for these parts on the empty graph either;
    empty if it may find some.
    """
    constraint = jobspec.constraint.lasting if jobspec.constraint is not None else None
    window = Window(0, 1, empty=True, constraint=constraint)
    totals = [units.offered(amounts) for node in state.graph.nodes if (amounts := free_amounts(node, window))]
    for part in parts:
        wanted = units.wanted(part.amounts)
        held = [min(total.get(kind, 0) // count for kind, count in wanted.items()) for total in totals]
        if sum(min(number, 1) if part.apart else number for number in held) < max(part.slots, 1):
            return (
                "the foreign matcher counts whole pieces, and nodes that are empty do not have "
                f"{_words(wanted)} for each of its pods"
            )
    return ""


def slots_on(part: Part, taken: Taken, units: ForeignUnits) -> dict[str, int] | str:
    """Return the slots of a part on each node of an answer, or in a sentence what is wrong with it."""
    wanted = units.wanted(part.amounts)
    slots: dict[str, int] = {}
    for node, counts in taken.items():
        number = next(iter(counts.values()), 0) // wanted.get(next(iter(counts), ""), 1)
        if number < 1 or dict(counts) != {kind: count * number for kind, count in wanted.items()}:
            return f"it takes {_words(counts)} of node {node}, which are no whole slots of {_words(wanted)}"
        slots[node] = number
    total, most = sum(slots.values()), max(slots.values(), default=0)
    if total != max(part.slots, 1):
        return f"it has {total} slots, and {max(part.slots, 1)} were asked for"
    if part.apart and most > 1:
        return f"it has {most} slots on one node, and each was to have its own"
    return slots


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"


def shares_of(placed: Sequence[tuple[Part, Mapping[str, int]]]) -> tuple[NodeShare, ...]:
    """Return what parts take together: a share for each node, in the order of the answers."""
    slots: dict[str, Counter[str]] = {}
    amounts: dict[str, Counter[str]] = {}
    for part, numbers in placed:
        for node, number in numbers.items():
            slots.setdefault(node, Counter())[part.label] += number
            amounts.setdefault(node, Counter()).update(
                {kind: amount * number for kind, amount in part.amounts.items()}
            )
    return tuple(NodeShare(node, dict(slots[node]), dict(amounts[node])) for node in slots)


def problem_of(
    state: GraphState, jobspec: Jobspec, request: JobMatchRequest, shares: Sequence[NodeShare]
) -> str:
    """Return in a sentence why these shares cannot be booked now; empty if they can."""
    window = _window(state, jobspec, request)
    for share in shares:
        node: Vertex | None = state.graph.by_name.get(share.node)
        if node is None or node.type != NODE:
            return f"it takes node {share.node!r:.80}, which the cluster has not"
        free = free_amounts(node, window)
        if not free:
            return f"it takes node {share.node}, which this work may not have now"
        for kind, amount in share.amounts.items():
            if free.get(kind, 0) < amount:
                return (
                    f"it takes {amount} {display_name(kind)} of node {share.node}, "
                    f"where {free.get(kind, 0)} are free"
                )
    return ""
