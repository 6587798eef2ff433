"""Jobs and what they occupy.

A `GraphPlacement` is the result of a search: the vertices it marks, the leaves it takes, and the slots that
they form. A `GraphJob` is a placement with an id and a time. Booking writes the job at every vertex and run
that it occupies; releasing removes it there. Only the job itself has its times, so moving its end is one
assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.messages import JobInfo, JobMode, NodeShare

if TYPE_CHECKING:
    from fluxqueue.fluxion.match.changed_rows import Shortfall
    from fluxqueue.fluxion.match.jobspec import Jobspec

__all__ = ["GraphJob", "GraphPlacement", "PlacedSlots", "ReservedTime"]


@dataclass(frozen=True, slots=True)
class PlacedSlots:
    """Slots of a jobspec with one label, as they were placed, and their leaves.

    Attributes
    ----------
    count
        Number of slots that divide these leaves evenly.
    node
        The node on which the slots count: the node that contains them, or the first of the nodes that form
        them.
    """

    label: str
    node: Vertex | None
    leaves: tuple[tuple[LeafRun, int], ...]
    count: int = 1


@dataclass(slots=True)
class GraphPlacement:
    """Vertices and leaves found for a request.

    Attributes
    ----------
    vertices
        Marked inner vertex -> exclusive. Ancestors of chosen vertices and leaves are marked as passed
        through.
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
    slots: list[PlacedSlots] = field(default_factory=list)
    whole: list[Vertex] = field(default_factory=list)
    labels: dict[Vertex | tuple[LeafRun, int], str] = field(default_factory=dict)

    def copy(self) -> GraphPlacement:
        """Return a placement that can be changed without changing this one."""
        return GraphPlacement(
            dict(self.vertices),
            dict(self.leaves),
            dict(self.shared_leaves),
            list(self.slots),
            list(self.whole),
            dict(self.labels),
        )

    def join(self, other: GraphPlacement) -> None:
        """Add all of another placement, which has no leaf in common with this one."""
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
        """Mark a vertex and its ancestors as passed through, unless they are marked already."""
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


class GraphJob:
    """A placement with an id and a time; compared and hashed by identity.

    Attributes
    ----------
    start, end
        On the clock of the graph.
    reserved
        True for a reservation, false for an allocation.
    shares
        What it holds by node, in the order of R.
    shortfall
        Of a reservation: what was available at earlier times when it was last tried; None if that is not
        known.
    jobspec, policy
        Of a reservation: what it was made for, and by which match policy; None and empty if that is not
        known.
    """

    __slots__ = (
        "end",
        "jobid",
        "jobspec",
        "mode",
        "placement",
        "policy",
        "reserved",
        "shares",
        "shortfall",
        "start",
    )

    def __init__(
        self,
        jobid: int,
        start: int,
        end: int,
        placement: GraphPlacement,
        *,
        reserved: bool,
        mode: JobMode | None = None,
    ) -> None:
        self.jobid = jobid
        self.start = start
        self.end = end
        self.placement = placement
        self.reserved = reserved
        self.mode = mode or (JobMode.RESERVED if reserved else JobMode.ALLOCATED)
        self.shares: tuple[NodeShare, ...] = ()
        self.shortfall: Shortfall | None = None
        self.jobspec: Jobspec | None = None
        self.policy = ""

    def overlaps(self, start: int, end: int, now: int) -> bool:
        """Return True if it occupies anything in [start, end); an allocation that nobody has ended does so at
        least until now.
        """
        if self.start >= end:
            return False
        return self.end > start or (not self.reserved and start <= now)

    def book(self) -> None:
        """Record the job at every vertex and run that it occupies."""
        for vertex, exclusive in self.placement.vertices.items():
            (vertex.exclusive if exclusive else vertex.shared)[self] = None
        for run, mask in self.placement.leaves.items():
            run.book(self, mask)
        for run, mask in self.placement.shared_leaves.items():
            run.book(self, mask, shared=True)

    def release(self) -> None:
        """Remove the job from every vertex and run that it occupies."""
        for vertex in self.placement.vertices:
            vertex.exclusive.pop(self, None)
            vertex.shared.pop(self, None)
        for run, mask in self.placement.leaves.items():
            run.free(self, mask)
        for run, mask in self.placement.shared_leaves.items():
            run.free(self, mask)

    def grow(self, leaves: Mapping[LeafRun, int]) -> Callable[[], None]:
        """Take further leaves while the job is out of the graph; return how to undo it."""
        before = dict(self.placement.leaves)
        for run, mask in leaves.items():
            self.placement.take_leaves(run, mask)

        def shrink() -> None:
            self.placement.leaves = before

        return shrink

    def info(self, horizon: int, *, with_shares: bool = True) -> JobInfo:
        """Return the job as clients see it."""
        return JobInfo(
            self.jobid,
            self.mode,
            self.start,
            0 if self.end >= horizon else self.end,
            self.shares if with_shares else (),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ReservedTime:
    """One time of an advance reservation.

    Attributes
    ----------
    name, maintenance
        Of its reservation.
    job
        Holds the nodes as a whole, and no leaves: what runs there is not in its way.
    nodes
        The nodes that it sets aside.
    """

    name: str
    maintenance: bool
    job: GraphJob
    nodes: frozenset[Vertex]

    def covers(self, start: int, end: int) -> bool:
        """Return True if [start, end) is within this time."""
        return self.job.start <= start and end <= self.job.end

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Leave it out of the graph meanwhile, for a job that names its reservation;
        derived structures do not change.
        """
        self.job.release()
        try:
            yield
        finally:
            self.job.book()
