"""What qualifies for a level of the request while the walk is under way.

A candidate has a score and a size, and knows how to write itself into a placement once it is chosen. Only then does it matter what it
consists of, so each kind is a closure over just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.graph import Vertex
from fluxqueue.fluxion.jobs import Placement, Slot
from fluxqueue.fluxion.jobspecs import Resource
from fluxqueue.fluxion.runs import LeafRun

__all__ = [
    "Candidate",
    "Found",
    "leaf_candidate",
    "leaves_candidate",
    "nothing",
    "pool_slot_candidate",
    "slot_candidate",
    "vertex_candidate",
    "within",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that qualifies for one level of the request.

    Attributes
    ----------
    score, size
        What it is sorted by, and what it counts for.
    take
        Writes it into a placement.
    leaf, vertex
        What it is, if a single leaf or a vertex.
    """

    score: int
    size: int
    take: Callable[[Placement], None]
    leaf: tuple[LeafRun, int] | None = None
    vertex: Vertex | None = None


Found = dict[str, list[Candidate]]


def vertex_candidate(vertex: Vertex, score: int, exclusive: bool, whole: bool, label: str, chosen: Sequence[Candidate]) -> Candidate:
    """A vertex that matched, with what was chosen below it; ``whole`` takes everything below."""

    def take(placement: Placement) -> None:
        placement.take_vertex(vertex, exclusive, whole=whole)
        if label:
            placement.labels[vertex] = label
        for candidate in chosen:
            candidate.take(placement)

    return Candidate(score, vertex.size, take, vertex=vertex)


def leaf_candidate(run: LeafRun, index: int, score: int, exclusive: bool, label: str) -> Candidate:
    """One leaf."""

    def take(placement: Placement) -> None:
        placement.take_leaves(run, 1 << index, shared=not exclusive)
        if label:
            placement.labels[run, index] = label

    return Candidate(score, run.size_of(index), take, leaf=(run, index))


def leaves_candidate(run: LeafRun, mask: int, size: int, exclusive: bool) -> Candidate:
    """Leaves already chosen, which count for what was asked of them."""

    def take(placement: Placement) -> None:
        placement.take_leaves(run, mask, shared=not exclusive)

    return Candidate(0, size, take)


def pool_slot_candidate(vertex: Vertex, slot: Resource, score: int, leaves: tuple[tuple[LeafRun, int], ...]) -> Candidate:
    """A slot of leaves, as sets of bits."""

    def take(placement: Placement) -> None:
        for run, mask in leaves:
            placement.take_leaves(run, mask)
        placement.slots.append(Slot(slot.label, vertex.node, leaves))

    return Candidate(score, 1, take)


def nothing(placement: Placement) -> None:
    """Take nothing."""


def within(vertex: Vertex, candidate: Candidate) -> Candidate:
    """What was found below a vertex that is taken whole along with it."""

    def take(placement: Placement) -> None:
        placement.take_vertex(vertex, exclusive=True, whole=True)
        candidate.take(placement)

    return Candidate(candidate.score, candidate.size, take, candidate.leaf, candidate.vertex)


def slot_candidate(vertex: Vertex, slot: Resource, bundle: Sequence[Candidate]) -> Candidate:
    """A slot of any members."""

    def take(placement: Placement) -> None:
        placement.pass_through(vertex)
        masks: dict[LeafRun, int] = {}
        node = vertex.node
        for candidate in bundle:
            candidate.take(placement)
            if candidate.leaf is not None:
                run, index = candidate.leaf
                masks[run] = masks.get(run, 0) | 1 << index
            elif node is None and candidate.vertex is not None:
                node = candidate.vertex.node
        placement.slots.append(Slot(slot.label, node, tuple(masks.items())))

    return Candidate(1 + sum(candidate.score for candidate in bundle), 1, take)
