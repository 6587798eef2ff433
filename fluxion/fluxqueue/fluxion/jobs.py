"""Jobs and what they occupy.

A `Placement` is the outcome of a search: the vertices it marks, the leaves it takes, and which of them make up which slot. A `Job` is a
placement with an id and a time. Booking writes the job at every vertex and run it occupies, freeing takes it out again; the job itself
is the only place where its times stand, so moving its end is one assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fluxqueue.fluxion.graph import Vertex
from fluxqueue.fluxion.messages import JobInfo, Mode, NodeShare
from fluxqueue.fluxion.openings import Shortfall
from fluxqueue.fluxion.runs import LeafRun

__all__ = ["Job", "Placement", "Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Slots of one label as they were placed, and the leaves that are their own.

    Attributes
    ----------
    count
        How many slots share these leaves, evenly.
    node
        The node it counts on: the one it lies in, or the first of those it consists of.
    """

    label: str
    node: Vertex | None
    leaves: tuple[tuple[LeafRun, int], ...]
    count: int = 1


@dataclass(slots=True)
class Placement:
    """Vertices and leaves found for a request.

    Attributes
    ----------
    vertices
        Marked inner vertex -> exclusive. Ancestors of what was chosen are marked as passed through.
    leaves, shared_leaves
        Run -> set of leaves.
    whole
        Vertices taken with everything below them.
    labels
        Vertex or (run, leaf) -> label of the resource it was matched to, for R.
    """

    vertices: dict[Vertex, bool] = field(default_factory=dict)
    leaves: dict[LeafRun, int] = field(default_factory=dict)
    shared_leaves: dict[LeafRun, int] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    whole: list[Vertex] = field(default_factory=list)
    labels: dict[Vertex | tuple[LeafRun, int], str] = field(default_factory=dict)

    def copy(self) -> Placement:
        """A placement that can be changed without changing this one."""
        return Placement(
            dict(self.vertices), dict(self.leaves), dict(self.shared_leaves), list(self.slots), list(self.whole), dict(self.labels)
        )

    def join(self, other: Placement) -> None:
        """Take over all of another placement, which has no leaf in common with this one."""
        for vertex, exclusive in other.vertices.items():
            self.vertices[vertex] = exclusive or self.vertices.get(vertex, False)
        for run, mask in other.leaves.items():
            self.leaves[run] = self.leaves.get(run, 0) | mask
        for run, mask in other.shared_leaves.items():
            self.shared_leaves[run] = self.shared_leaves.get(run, 0) | mask
        self.slots += other.slots
        self.whole += other.whole
        self.labels |= other.labels

    def pass_through(self, vertex: Vertex | None) -> None:
        """Mark a vertex and its ancestors as passed through, where they are not marked already."""
        while vertex is not None and vertex not in self.vertices:
            self.vertices[vertex] = False
            vertex = vertex.parent

    def take_vertex(self, vertex: Vertex, exclusive: bool, *, whole: bool = False) -> None:
        """Mark a vertex; with ``whole``, take everything below it too."""
        self.pass_through(vertex.parent)
        self.vertices[vertex] = exclusive or self.vertices.get(vertex, False)
        if whole:
            self.whole.append(vertex)
            for below in vertex.subtree():
                self.vertices[below] = True
                for run in below.runs.values():
                    self.leaves[run] = run.full

    def take_leaves(self, run: LeafRun, mask: int, *, shared: bool = False) -> None:
        """Take leaves of a run."""
        self.pass_through(run.parent)
        taken = self.shared_leaves if shared else self.leaves
        taken[run] = taken.get(run, 0) | mask


class Job:
    """A placement with an id and a time; compared and hashed by identity.

    Attributes
    ----------
    start, end
        On the clock of the graph.
    reserved
        True while it is a plan, false once it holds what it has.
    shares
        What it has by node, in order of emission.
    shortfall
        What there was for a reservation at earlier moments when it was last tried; None: not known.
    """

    __slots__ = ("end", "jobid", "mode", "placement", "reserved", "shares", "shortfall", "start")

    def __init__(self, jobid: int, start: int, end: int, placement: Placement, *, reserved: bool, mode: Mode | None = None) -> None:
        self.jobid = jobid
        self.start = start
        self.end = end
        self.placement = placement
        self.reserved = reserved
        self.mode = mode or (Mode.RESERVED if reserved else Mode.ALLOCATED)
        self.shares: tuple[NodeShare, ...] = ()
        self.shortfall: Shortfall | None = None

    def overlaps(self, start: int, end: int, now: int) -> bool:
        """Whether it occupies anything in [start, end); an allocation nobody has ended does so until now at least."""
        if self.start >= end:
            return False
        return self.end > start or (not self.reserved and start <= now)

    def book(self) -> None:
        """Write the job wherever it occupies something."""
        for vertex, exclusive in self.placement.vertices.items():
            (vertex.exclusive if exclusive else vertex.shared)[self] = None
        for run, mask in self.placement.leaves.items():
            run.book(self, mask)
        for run, mask in self.placement.shared_leaves.items():
            run.book(self, mask, shared=True)

    def release(self) -> None:
        """Take the job out of the graph."""
        for vertex in self.placement.vertices:
            vertex.exclusive.pop(self, None)
            vertex.shared.pop(self, None)
        for run, mask in self.placement.leaves.items():
            run.free(self, mask)
        for run, mask in self.placement.shared_leaves.items():
            run.free(self, mask)

    def grow(self, leaves: Mapping[LeafRun, int]) -> Callable[[], None]:
        """Take further leaves (while the job is out of the graph); returns how to give them back."""
        before = dict(self.placement.leaves)
        for run, mask in leaves.items():
            self.placement.take_leaves(run, mask)

        def shrink() -> None:
            self.placement.leaves = before

        return shrink

    def info(self, horizon: int, *, with_shares: bool = True) -> JobInfo:
        """The job as clients see it."""
        return JobInfo(self.jobid, self.mode, self.start, 0 if self.end >= horizon else self.end, self.shares if with_shares else ())
