"""When and where a request is tried, and what may be used there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fluxqueue.fluxion.constraints import CONSTRAINED_TYPES, Constraint
from fluxqueue.fluxion.graph import NODE, Vertex
from fluxqueue.fluxion.runs import LeafRun

__all__ = ["Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """When and where a request is tried.

    Attributes
    ----------
    start, end
        The time that must be free.
    now
        Where the clock stands; allocations hold what they have until then at least.
    empty
        Pretend there are no jobs and everything is up.
    constraint, exclude, only
        Nodes that may be used: all of them must agree. ``only`` None means any.
    besides
        Leaves that another part of the same request has chosen already, by run.
    """

    start: int
    end: int
    now: int = 0
    empty: bool = False
    constraint: Constraint | None = None
    exclude: Collection[Vertex] = ()
    only: Collection[Vertex] | None = None
    besides: Mapping[LeafRun, int] = field(default_factory=dict)

    def admits(self, vertex: Vertex, exclusive: bool) -> bool:
        """Whether a vertex may be used at all in this window."""
        kind = vertex.type
        if kind in CONSTRAINED_TYPES:
            if self.constraint is not None and not self.constraint.accepts(vertex):
                return False
            if vertex in self.exclude or (self.only is not None and kind == NODE and vertex not in self.only):
                return False
        if vertex.size == 0:
            return False
        if self.empty:
            return True
        if not vertex.up or vertex.closed or vertex.held(self.start, self.end, self.now):
            return False
        return not (exclusive and vertex.passed(self.start, self.end, self.now))

    def free(self, run: LeafRun, *, exclusive: bool) -> int:
        """Leaves of a run that may be used."""
        chosen = self.besides.get(run, 0)
        if self.empty:
            return run.full & ~run.void & ~chosen
        mask = run.full & ~run.down & ~run.void & ~chosen & ~run.taken(self.start, self.end, self.now)
        if exclusive and run.shared:
            mask &= ~run.visited(self.start, self.end, self.now)
        return mask
