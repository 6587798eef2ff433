"""Sums of slots by domains of the topology, over time.

The search for the earliest start adds up how many slots all nodes have, by the start of the window. With
groups, the slots of a node count only as part of whole groups of its domain, and with a required level only
the sum below one vertex counts. Both are sums over columns too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.match.topology_columns import Ids

__all__ = ["RowGroups"]

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """How slots must lie below vertices.

    Attributes
    ----------
    cells, size
        The vertex that holds whole groups of so many slots, by row; None: there are no groups.
    domains
        The vertex that must hold everything, by row; None: no vertex must.
    wanted
        Groups, or slots if there are no groups.
    """

    cells: Ids | None
    size: int
    domains: Ids | None
    wanted: int

    @property
    def least(self) -> int:
        """What the sum of the `steps` must reach: one domain that holds everything, or the groups."""
        return self.wanted if self.domains is None else 1

    def steps(self, rows: _Numbers, times: _Numbers, steps: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Convert steps of slots by row into steps of whole groups, or of domains that hold everything.

        Returns
        -------
        tuple
            Times, in any order, and steps.
        """
        rows = rows.astype(np.int64)
        ids = rows
        if self.cells is not None:
            ids, times, steps, held = _summed(self.cells[rows], times, steps)
            steps = _differences(ids, held // self.size)
            if self.domains is not None:
                known = self.cells >= 0
                of_cell = np.full(int(self.cells.max(initial=-1)) + 1, -1, dtype=np.int64)
                of_cell[self.cells[known]] = self.domains[known]
                ids = of_cell[ids]
        elif self.domains is not None:
            ids = self.domains[rows]
        if self.domains is not None:
            ids, times, steps, held = _summed(ids, times, steps)
            steps = _differences(ids, (held >= self.wanted).astype(np.int64))
        return times, steps


def _summed(ids: _Numbers, times: _Numbers, steps: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """Return the events of each id in order of time, without those of no id,
    and the sum of the steps of the id up to each.
    """
    inside = ids >= 0
    ids, times, steps = ids[inside], times[inside], steps[inside]
    order = np.lexsort((times, ids))
    ids, times, steps = ids[order], times[order], steps[order]
    sums = np.cumsum(steps)
    first = np.flatnonzero(np.diff(ids, prepend=-1))
    before = np.append(0, sums)[first]
    return ids, times, steps, sums - np.repeat(before, np.diff(np.append(first, len(ids))))


def _differences(ids: _Numbers, values: _Numbers) -> _Numbers:
    """Return by how much each value differs from the one before it of the same id."""
    steps = np.diff(values, prepend=0)
    first = np.diff(ids, prepend=-1) != 0
    steps[first] = values[first]
    return steps
