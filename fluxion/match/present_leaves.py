"""Leaves that nodes have free in windows that begin now, exactly, by the end of the window.

The node table is exact for nodes without reservations. On a node with reservations, a window loses the leaves
of each reservation that begins before the window ends. So each such node has a few steps: from the start of
each reservation on, the leaves that are left. The steps are columns, and those of a node are computed again
only after something on it changed. Thus a refusal is explained without a visit to any node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.jobs import GraphJob
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Vertex

if TYPE_CHECKING:
    from fluxqueue.fluxion.match.node_table import NodeTable

__all__ = ["PresentLeaves"]

_NEVER = (1 << 63) - 1
_Counts = npt.NDArray[np.int32]


class PresentLeaves:
    """Free leaves by row, for windows that begin at the present time of the graph."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._touched: set[int] = set()
        self.forget()

    def forget(self) -> None:
        """Compute everything again at the next query."""
        self._starts: npt.NDArray[np.int64] = np.zeros((0, 1), dtype=np.int64)
        self._left: dict[str, _Counts] = {}
        self._valid_until: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._columns: dict[tuple[str, int], _Counts] = {}
        self._all_starts: list[int] | None = None

    def note(self, row: int) -> None:
        """Note that something on a node changed, before or after the fact."""
        self._touched.add(row)

    def free(self, kind: str, end: int, now: int) -> _Counts:
        """Return the leaves of a type that are free on each node from now until ``end``; the caller does not
        change them.

        Leaves that an allocation holds are not free, even if it should have ended. The column says nothing
        about nodes that are down, or held as a whole by an allocation.
        """
        self._update(now)
        assert self._all_starts is not None
        key = kind, bisect_left(self._all_starts, end)
        column = self._columns.get(key)
        if column is None:
            column = self._table.free[kind].copy()
            rows = np.flatnonzero(self._table.reservations > 0)
            if len(rows):
                begun = np.count_nonzero(self._starts[rows] < end, axis=1)
                column[rows] = self._left[kind][rows, begun]
            self._columns[key] = column
        return column

    def _update(self, now: int) -> None:
        """Compute the steps of the rows that changed, and of those on which a reservation is over."""
        table = self._table
        if len(self._starts) != len(table.nodes) or self._left.keys() != table.free.keys():
            self.forget()
            self._make_room(1)
            changed: Iterable[int] = np.flatnonzero(table.reservations > 0).tolist()
        else:
            over = np.flatnonzero(self._valid_until <= now).tolist()
            if not self._touched and not over:
                return
            changed = self._touched.union(over)
        for row in changed:
            if row < len(table.nodes):
                self._measure(row, now)
        self._touched.clear()
        self._columns.clear()
        self._all_starts = np.unique(self._starts[self._starts < _NEVER]).tolist()

    def _make_room(self, steps: int) -> None:
        """Make room for this many reservations on a node."""
        size = len(self._table.nodes)
        wider = max(1, steps)
        starts = np.full((size, wider), _NEVER, dtype=np.int64)
        starts[: len(self._starts), : self._starts.shape[1]] = self._starts
        self._starts = starts
        left = {kind: np.zeros((size, wider + 1), dtype=np.int32) for kind in self._table.free}
        for kind, counts in self._left.items():
            left[kind][:, : counts.shape[1]] = counts
        self._left = left
        if len(self._valid_until) != size:
            self._valid_until = np.full(size, _NEVER, dtype=np.int64)

    def _measure(self, row: int, now: int) -> None:
        """Compute the steps of a node."""
        self._starts[row] = _NEVER
        self._valid_until[row] = _NEVER
        if not self._table.reservations[row]:
            return
        node = self._table.nodes[row]
        reservations = sorted(
            (job for job in (*node.shared, *node.exclusive) if job.reserved and job.end > now),
            key=lambda job: job.start,
        )
        if len(reservations) > self._starts.shape[1]:
            self._make_room(2 * len(reservations))
        for step, job in enumerate(reservations):
            self._starts[row, step] = job.start
            self._valid_until[row] = min(int(self._valid_until[row]), job.end)
        for kind, counts in self._left.items():
            run = node.runs.get(kind)
            counts[row] = 0
            if run is not None:
                left = _leaves_left(node, run, reservations)
                counts[row, : len(left)] = left


def _leaves_left(node: Vertex, run: LeafRun, reservations: list[GraphJob]) -> list[int]:
    """Return the free leaves of a run before the first of these reservations, and after the start of each."""
    free = run.full & ~run.down & ~run.void & ~run.busy
    for job, shared in run.shared.items():
        if not job.reserved:
            free &= ~shared
    left = [free.bit_count()]
    for job in reservations:
        if job in node.exclusive:
            free = 0
        free &= ~(run.reserved.get(job, 0) | run.shared.get(job, 0))
        left.append(free.bit_count())
    return left
