"""Which vertices of the topology a request gets, from how much each node can hold.

The choice is best fit. All goes below the vertex of the lowest level that holds it; among several the one
that holds least is taken, so that large domains stay whole. What no single vertex holds is divided: the
largest are filled, and the rest goes to the smallest that holds it. The same is done again among the vertices
below the chosen ones, down to the lowest level. So few vertices of every level are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.match.topology_columns import Ids

__all__ = ["DomainPart", "Ladder", "choose_domains"]

Amounts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DomainPart:
    """Rows of one domain, and how many slots (or nodes) they get."""

    rows: Ids
    units: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """The levels of a request, by row.

    Attributes
    ----------
    columns
        Number of the vertex of each row (-1: none), the lowest level first.
    lowest
        The first level that is tried for one vertex with everything.
    highest
        The level at which one vertex must hold everything; None if nothing must.
    cells
        The level whose vertices hold whole groups; None if there are no groups.
    size
        Units of a group.
    """

    columns: Sequence[Ids]
    lowest: int
    highest: int | None
    cells: int | None = None
    size: int = 1

    def amounts(self, units: Amounts) -> tuple[Amounts, list[Ids], list[Ids]]:
        """Return what each cell holds, the vertex of each cell on each level from that of cells up,
        and the rows of each cell.
        """
        if self.cells is None:
            rows = np.flatnonzero(units > 0)
            return units[rows], [column[rows] for column in self.columns], [rows]
        ids = self.columns[self.cells]
        rows = np.flatnonzero((ids >= 0) & (units > 0))
        if not len(rows):
            return np.zeros(0, dtype=np.int64), [rows for _ in self.columns], []
        _, first, of_row = np.unique(ids[rows], return_index=True, return_inverse=True)
        whole = np.bincount(of_row, weights=units[rows]).astype(np.int64) // self.size
        members = np.split(rows[np.argsort(of_row, kind="stable")], np.cumsum(np.bincount(of_row))[:-1])
        return whole, [column[rows[first]] for column in self.columns[self.cells :]], members


def choose_domains(units: Amounts, wanted: int, ladder: Ladder) -> list[DomainPart] | None:
    """Divide a request among domains.

    Parameters
    ----------
    units
        What each row can hold.
    wanted
        Groups, or units if there are no groups.
    ladder
        The levels.

    Returns
    -------
    list[DomainPart] or None
        In the order of the choice; None if the request does not fit.
    """
    held, columns, members = ladder.amounts(units)
    offset = ladder.cells or 0
    highest = None if ladder.highest is None else ladder.highest - offset
    if highest is not None:
        if highest < 0:
            return None  # no vertex of the level of groups is below one of the required level
        held = np.where(columns[highest] >= 0, held, 0)
    cells = np.arange(len(held))
    parts: list[tuple[Ids, int]] | None = None
    for level in range(max(ladder.lowest - offset, 0), len(columns) if highest is None else highest + 1):
        sums = _sums(columns[level], held)
        enough = np.flatnonzero(sums >= wanted)
        if len(enough):
            best = int(enough[np.argmin(sums[enough])])
            parts = _divide(cells[columns[level] == best], wanted, level - 1, held, columns)
            break
    if parts is None:
        if highest is not None or int(held.sum()) < wanted:
            return None
        parts = _divide(cells, wanted, len(columns) - 1, held, columns)
    if ladder.cells is None:
        return [DomainPart(members[0][chosen], amount) for chosen, amount in parts]
    return [
        DomainPart(members[int(cell)], amount * ladder.size) for chosen, amount in parts for cell in chosen
    ]


def _sums(ids: Ids, held: Amounts) -> Amounts:
    inside = ids >= 0
    return np.bincount(ids[inside], weights=held[inside]).astype(np.int64)


def _divide(
    cells: Ids, wanted: int, level: int, held: Amounts, columns: Sequence[Ids]
) -> list[tuple[Ids, int]]:
    """Divide an amount that these cells hold among the vertices of a level,
    then among those below the chosen ones, and so on.
    """
    parts = [(cells, wanted)]
    for at in range(level, -1, -1):
        parts = _fill(np.concatenate([chosen for chosen, _ in parts]), wanted, columns[at], held)
    return parts


def _fill(cells: Ids, wanted: int, column: Ids, held: Amounts) -> list[tuple[Ids, int]]:
    """Take the vertices that hold most until the rest fits one, and of those the one that holds least;
    cells of no vertex come last.
    """
    ids = column[cells]
    sums = _sums(ids, held[cells])
    by_size = np.argsort(-sums, kind="stable")[: int(np.count_nonzero(sums))]
    left = wanted - (np.cumsum(sums[by_size]) - sums[by_size])
    enough = np.flatnonzero(sums[by_size] >= left)
    filled = by_size[: enough[0]] if len(enough) else by_size
    amounts = sums[filled].tolist()
    chosen, rest = filled.tolist(), wanted - sum(amounts)
    if len(enough):
        others = by_size[enough[0] :]
        best = np.flatnonzero(sums[others] == sums[others][sums[others] >= rest].min())[0]
        chosen, amounts, rest = [*chosen, int(others[best])], [*amounts, rest], 0
    order = np.argsort(ids, kind="stable")
    first, last = np.searchsorted(ids[order], chosen), np.searchsorted(ids[order], chosen, side="right")
    parts = [
        (cells[order[start:end]], amount)
        for start, end, amount in zip(first.tolist(), last.tolist(), amounts, strict=True)
    ]
    return [*parts, (cells[ids < 0], rest)] if rest else parts
