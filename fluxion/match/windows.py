"""The time window and the nodes in which a request is tried, and what may be used there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.constraints import CONSTRAINED_TYPES, Constraint
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import NODE, Vertex

__all__ = ["Mask", "Window"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """The time window and the nodes in which a request is tried.

    Attributes
    ----------
    start, end
        The time during which resources must be free.
    now
        Time of the clock. Allocations hold their resources at least until then.
    empty
        Ignore all jobs, and treat everything as up.
    constraint, exclude, only
        Nodes that may be used: a node must pass all three. ``only`` None means any.
    already_taken
        Leaves that another part of the same request has chosen already, by run.
    accepted
        What ``constraint`` says of each node, by its row; None if that is not known.
    """

    start: int
    end: int
    now: int = 0
    empty: bool = False
    constraint: Constraint | None = None
    exclude: Collection[Vertex] = ()
    only: Collection[Vertex] | None = None
    already_taken: Mapping[LeafRun, int] = field(default_factory=dict)
    accepted: Mask | None = None

    def meets_constraint(self, vertex: Vertex) -> bool:
        """Return True if the constraint accepts a node."""
        if self.accepted is not None and vertex.row >= 0:
            return bool(self.accepted[vertex.row])
        return self.constraint is None or self.constraint.accepts(vertex)

    def admits(self, vertex: Vertex, exclusive: bool) -> bool:
        """Return True if a vertex may be used in this window."""
        kind = vertex.type
        if kind in CONSTRAINED_TYPES:
            if not self.meets_constraint(vertex):
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
        """Return the leaves of a run that may be used."""
        chosen = self.already_taken.get(run, 0)
        if self.empty:
            return run.full & ~run.void & ~chosen
        mask = run.full & ~run.down & ~run.void & ~chosen & ~run.taken(self.start, self.end, self.now)
        if exclusive and run.shared:
            mask &= ~run.visited(self.start, self.end, self.now)
        return mask
