"""The earliest later moment at which a request with a plan may fit.

A sweep over the change points carries the node table forward in time: what ends gives back, what starts takes. Only the rows of jobs
that start or end are touched, and with them the count of nodes (or slots) that would do at that moment. Where the count is enough, the
shortcut looks closely, because a window must be free to its end and the sweep only knows its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph import NODE
from fluxqueue.fluxion.jobs import Job, Placement
from fluxqueue.fluxion.nodetable import Counts, Mask, NodeTable
from fluxqueue.fluxion.plans import NodePlan, Plan, SlotPlan
from fluxqueue.fluxion.state import State

__all__ = ["Sweep"]


_MAX_LEAVES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class _Footprint:
    """Rows a job touches, those it holds, and leaves it takes by type."""

    placement: Placement
    generation: int
    rows: npt.NDArray[np.intp]
    held: npt.NDArray[np.intp]
    leaves: tuple[tuple[str, npt.NDArray[np.intp], Counts], ...]


class Sweep:
    """Carries the table forward for one request.

    Parameters
    ----------
    static
        Nodes that could do if everything were free: constraint, exclusions, presence.
    whole
        The request takes nodes whole.
    """

    def __init__(self, state: State, plan: Plan, static: Mask, *, whole: bool) -> None:
        table: NodeTable = state.table
        self._state = state
        self._whole = whole
        self._static = static & table.open
        self._jobs = table.jobs.copy()
        self._held = table.held.copy()
        slots = plan if isinstance(plan, SlotPlan) else plan.slots
        self._slots_count = isinstance(plan, SlotPlan)
        self._least = plan.count.low
        times = slots.count.low if isinstance(plan, NodePlan) and slots is not None else 1
        self._needs: list[tuple[str, int]] = []
        self._free: dict[str, Counts] = {}
        for kind, count in slots.needs if slots is not None else ():
            self._needs.append((kind, min(_MAX_LEAVES, times * -(-count.low // max(1, table.largest.get(kind, 1))))))
            self._free[kind] = table.free[kind].copy() if kind in table.free else np.zeros(len(static), dtype=np.int32)
        for job in state.jobs.values():
            if job.reserved and job.start <= state.now:
                self._apply(job, 1)
        rows = np.arange(len(static))
        self._capacity = np.zeros(len(static), dtype=np.int64)
        self._total = 0
        self._look(rows)

    def moments(self) -> Iterator[tuple[int, Mask]]:
        """Times at which enough may be free, with the nodes that may do."""
        state = self._state
        touched: list[npt.NDArray[np.intp]] = []
        for time, ending, starting in state.points.after(state.now):
            if time >= state.horizon:
                return
            touched.extend(self._apply(job, -1) for job in ending)
            touched.extend(self._apply(job, 1) for job in starting if job.reserved)
            if ending:
                self._look(np.unique(np.concatenate(touched)) if len(touched) > 1 else touched[0])
                touched.clear()
                if self._total >= self._least:
                    yield time, self._capacity > 0

    def _apply(self, job: Job, step: int) -> npt.NDArray[np.intp]:
        footprint = _footprint(job, self._state.table.generation)
        self._jobs[footprint.rows] += step
        if len(footprint.held):
            self._held[footprint.held] += step
        for kind, rows, counts in footprint.leaves:
            if kind in self._free:
                self._free[kind][rows] -= step * counts
        return footprint.rows

    def _look(self, rows: npt.NDArray[np.intp]) -> None:
        """Work out anew what these rows could give."""
        fit = self._static[rows] & (self._held[rows] == 0)
        if self._whole:
            fit &= self._jobs[rows] == 0
        if self._slots_count:
            capacity = np.full(len(rows), 1 << 40, dtype=np.int64)
            for kind, need in self._needs:
                np.minimum(capacity, self._free[kind][rows] // need, out=capacity)
            capacity[~fit] = 0
        else:
            for kind, need in self._needs:
                fit &= self._free[kind][rows] >= need
            capacity = fit.astype(np.int64)
        self._total += int(capacity.sum()) - int(self._capacity[rows].sum())
        self._capacity[rows] = capacity


def _footprint(job: Job, generation: int) -> _Footprint:
    """Footprint of a job; remembered while placement and table are those it was made from."""
    known = job.footprint
    if isinstance(known, _Footprint) and known.placement is job.placement and known.generation == generation:
        return known
    nodes = [(vertex.row, exclusive) for vertex, exclusive in job.placement.vertices.items() if vertex.type == NODE and vertex.row >= 0]
    per_type: dict[str, tuple[list[int], list[int]]] = {}
    for run, mask in job.placement.leaves.items():
        if run.parent.row >= 0:
            rows, counts = per_type.setdefault(run.type, ([], []))
            rows.append(run.parent.row)
            counts.append((mask & run.full).bit_count())
    job.footprint = footprint = _Footprint(
        job.placement,
        generation,
        np.array([row for row, _ in nodes], dtype=np.intp),
        np.array([row for row, exclusive in nodes if exclusive], dtype=np.intp),
        tuple((kind, np.array(rows, dtype=np.intp), np.array(counts, dtype=np.int32)) for kind, (rows, counts) in per_type.items()),
    )
    return footprint
