"""Candidates for one level of a request during a traversal.

A candidate has a score, a size, and a function that writes it into a placement once it is chosen. Only that
function depends on what the candidate consists of, so each kind of candidate is a closure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.graph.jobs import GraphPlacement, PlacedSlots
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.jobspec import Resource

__all__ = [
    "CandidatesByType",
    "MatchCandidate",
    "leaf_candidate",
    "leaves_candidate",
    "nothing",
    "pool_slot_candidate",
    "slot_candidate",
    "vertex_candidate",
    "within",
]


@dataclass(frozen=True, slots=True)
class MatchCandidate:
    """A vertex, leaves or a slot that qualifies for one level of the request.

    Attributes
    ----------
    score, size
        Sort key, and the amount that it counts for.
    take
        Writes it into a placement.
    leaf, vertex
        The single leaf or the vertex, if the candidate is one.
    """

    score: int
    size: int
    take: Callable[[GraphPlacement], None]
    leaf: tuple[LeafRun, int] | None = None
    vertex: Vertex | None = None


CandidatesByType = dict[str, list[MatchCandidate]]


def vertex_candidate(
    vertex: Vertex, score: int, exclusive: bool, whole: bool, label: str, chosen: Sequence[MatchCandidate]
) -> MatchCandidate:
    """Return a vertex that matched, with what was chosen below it; ``whole`` takes everything below."""

    def take(placement: GraphPlacement) -> None:
        placement.take_vertex(vertex, exclusive, whole=whole)
        if label:
            placement.labels[vertex] = label
        for candidate in chosen:
            candidate.take(placement)

    return MatchCandidate(score, vertex.size, take, vertex=vertex)


def leaf_candidate(run: LeafRun, index: int, score: int, exclusive: bool, label: str) -> MatchCandidate:
    """Return one leaf."""

    def take(placement: GraphPlacement) -> None:
        placement.take_leaves(run, 1 << index, shared=not exclusive)
        if label:
            placement.labels[run, index] = label

    return MatchCandidate(score, run.size_of(index), take, leaf=(run, index))


def leaves_candidate(run: LeafRun, mask: int, size: int, exclusive: bool) -> MatchCandidate:
    """Return leaves that are chosen already; they count for the requested size."""

    def take(placement: GraphPlacement) -> None:
        placement.take_leaves(run, mask, shared=not exclusive)

    return MatchCandidate(0, size, take)


def pool_slot_candidate(
    vertex: Vertex, slot: Resource, score: int, leaves: tuple[tuple[LeafRun, int], ...]
) -> MatchCandidate:
    """Return a slot of leaves, which are sets of bits."""

    def take(placement: GraphPlacement) -> None:
        for run, mask in leaves:
            placement.take_leaves(run, mask)
        placement.slots.append(PlacedSlots(slot.label, vertex.node, leaves))

    return MatchCandidate(score, 1, take)


def nothing(placement: GraphPlacement) -> None:
    """Take nothing."""


def within(vertex: Vertex, candidate: MatchCandidate) -> MatchCandidate:
    """Return a candidate from below a vertex that is taken whole with it."""

    def take(placement: GraphPlacement) -> None:
        placement.take_vertex(vertex, exclusive=True, whole=True)
        candidate.take(placement)

    return MatchCandidate(candidate.score, candidate.size, take, candidate.leaf, candidate.vertex)


def slot_candidate(vertex: Vertex, slot: Resource, members: Sequence[MatchCandidate]) -> MatchCandidate:
    """Return a slot of any members."""

    def take(placement: GraphPlacement) -> None:
        placement.pass_through(vertex)
        masks: dict[LeafRun, int] = {}
        node = vertex.node
        for candidate in members:
            candidate.take(placement)
            if candidate.leaf is not None:
                run, index = candidate.leaf
                masks[run] = masks.get(run, 0) | 1 << index
            elif node is None and candidate.vertex is not None:
                node = candidate.vertex.node
        placement.slots.append(PlacedSlots(slot.label, node, tuple(masks.items())))

    return MatchCandidate(1 + sum(candidate.score for candidate in members), 1, take)
