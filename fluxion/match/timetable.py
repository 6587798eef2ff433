"""What every node regains and gives away, and when: an event for each end of a job and each later start, as
columns.

A request that does not fit now needs to know what every node has free at every later time. With twenty
thousand jobs only operations on whole columns are fast enough. So the events are kept as columns between
requests. A booking only notes that a job changed; the next query updates the columns for the changed jobs.
From the columns a layout is built, which has at every event the sum of what the node has regained so far. A
layout is valid for all requests until a job or the graph changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.jobs import GraphJob
from fluxqueue.fluxion.match.node_table import Counts, Mask, NodeTable

__all__ = ["Keys", "Layout", "Timetable", "event_keys"]

Keys = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
_Number = TypeVar("_Number", bound=np.generic)

_ROOM = 256
_MAX_CHANGED = 4_096
_ROW_BITS = 34
_LATEST = (1 << (_ROW_BITS - 1)) - 1


def event_keys(rows: Keys, times: Keys, *, starts: Mask | bool) -> Keys:
    """Return numbers that order events by row, then time, then ends before starts:
    what ends and starts together never overlaps.
    """
    keys: Keys = rows << _ROW_BITS | np.minimum(np.maximum(times, 0), _LATEST) << 1 | starts
    return keys


@dataclass(frozen=True, slots=True)
class Layout:
    """Events in order of their keys; each row begins with an event at time 0 at which nothing happens.

    Attributes
    ----------
    keys, rows, times
        See `event_keys`.
    ends
        True where a job ends.
    starts
        True where a reservation begins.
    places
        Position of each event in this order, in the order in which the events were entered.
    leaves, jobs, held
        What the row has regained by then, this event included: leaves by type, jobs that occupy it, jobs that
        hold it.
    """

    keys: Keys
    rows: Keys
    times: Keys
    ends: Mask
    starts: Mask
    places: Indices
    leaves: Mapping[str, Counts]
    jobs: Counts
    held: Counts


class Timetable:
    """The events of all jobs of a state.

    Parameters
    ----------
    table
        Rows.
    jobs
        Live jobs by id.
    """

    def __init__(self, table: NodeTable, jobs: Mapping[int, GraphJob]) -> None:
        self._table = table
        self._jobs = jobs
        self._changed: dict[GraphJob, None] = {}
        self._generation = -1
        self._layout: Layout | None = None
        self._first_end = _LATEST
        self._clear()

    def note(self, job: GraphJob) -> None:
        """Note that a job is added, removed or changed, before or after the fact."""
        self._layout = None
        self._changed[job] = None
        if len(self._changed) > _MAX_CHANGED:
            self._generation = -1
            self._changed.clear()

    def layout(self) -> Layout:
        """Return the current events."""
        if self._generation != self._table.generation or self._dead * 2 > self._size + _ROOM:
            self._clear()
            self._generation = self._table.generation
            self._enter(self._jobs.values())
        elif self._changed:
            for job in self._changed:
                self._strike(job)
            self._enter(job for job in self._changed if self._jobs.get(job.jobid) is job)
        self._changed.clear()
        if self._layout is None:
            self._layout = self._arrange()
        return self._layout

    def overdue(self, now: int) -> bool:
        """Return True if any allocation holds its resources beyond its end."""
        self.layout()
        return self._first_end <= now

    def without(self, job: GraphJob, rows: Indices | None = None, *, before: int) -> Layout:
        """Return the events before a time, as if a reservation did not exist.

        With ``rows`` (ascending), only the events of those rows; ``places`` remain those of all rows and
        times.
        """
        layout = self.layout()
        first, behind = self._places[job]
        middle = (first + behind) // 2
        starts, ends = layout.places[middle:behind], layout.places[first:middle]
        index = np.flatnonzero(layout.times < before) if rows is None else _stretches(layout, rows, before)
        starts, ends = np.searchsorted(index, starts), np.searchsorted(index, ends)
        touched = np.flatnonzero(starts < ends)
        stretches = list(zip(starts[touched].tolist(), ends[touched].tolist(), strict=True))

        def back(column: Counts, own: Counts) -> Counts:
            """Undo what the job takes from a column between its start and its end."""
            column = column[index]
            for (start, end), amount in zip(stretches, own[first:middle][touched].tolist(), strict=True):
                column[start:end] += amount
            return column

        return Layout(
            layout.keys[index],
            layout.rows[index],
            layout.times[index],
            layout.ends[index],
            layout.starts[index],
            layout.places,
            {kind: back(layout.leaves[kind], own) for kind, own in self._leaves.items()},
            back(layout.jobs, self._present),
            back(layout.held, self._held),
        )

    def _clear(self) -> None:
        rows = len(self._table.nodes)
        self._places: dict[GraphJob, tuple[int, int]] = {}
        self._size, self._dead = rows, 0
        self._keys: Keys = np.arange(rows, dtype=np.int64) << _ROW_BITS
        self._ends: Mask = np.zeros(rows, dtype=np.bool_)
        self._present: Counts = np.zeros(rows, dtype=np.int32)
        self._held: Counts = np.zeros(rows, dtype=np.int32)
        self._leaves: dict[str, Counts] = {kind: np.zeros(rows, dtype=np.int32) for kind in self._table.free}
        self._layout = None

    def _strike(self, job: GraphJob) -> None:
        """Move the events of a job to time 0, where they change nothing."""
        place = self._places.pop(job, None)
        if place is None:
            return
        events = slice(*place)
        self._dead += place[1] - place[0]
        self._keys[events] = 0
        self._ends[events] = False
        for column in (self._present, self._held, *self._leaves.values()):
            column[events] = 0

    def _enter(self, jobs: Iterable[GraphJob]) -> None:
        rows: list[int] = []
        times: list[int] = []
        step: list[int] = []
        held: list[int] = []
        leaves: dict[str, tuple[list[int], list[int]]] = {kind: ([], []) for kind in self._table.free}
        first = self._size
        for job in jobs:
            begin, placement = len(rows), job.placement
            for time, sign in ((job.end, 1), (job.start, -1)) if job.reserved else ((job.end, 1),):
                at: dict[int, int] = {}
                for vertex, exclusive in placement.vertices.items():
                    if (row := vertex.row) >= 0:
                        at[row] = first + len(rows)
                        rows.append(row)
                        times.append(time)
                        step.append(sign)
                        held.append(sign * exclusive)
                for run, mask in placement.leaves.items():
                    if (event := at.get(run.parent.row)) is not None:
                        events, counts = leaves[run.type]
                        events.append(event)
                        counts.append(sign * (mask & run.full).bit_count())
                if not at:
                    # A job without a row (it holds a rack, or a node that was removed) still ends, and that
                    # is a time to check.
                    rows.append(0)
                    times.append(time)
                    step.append(0)
                    held.append(0)
            self._places[job] = first + begin, first + len(rows)
        if rows:
            self._append(rows, times, step, held, leaves)

    def _append(
        self,
        rows: list[int],
        times: list[int],
        step: list[int],
        held: list[int],
        leaves: Mapping[str, tuple[list[int], list[int]]],
    ) -> None:
        new, self._size = slice(self._size, self._size + len(rows)), self._size + len(rows)
        if self._size > len(self._keys):
            self._keys, self._ends = _longer(self._keys, self._size), _longer(self._ends, self._size)
            self._present, self._held = _longer(self._present, self._size), _longer(self._held, self._size)
            self._leaves = {kind: _longer(column, self._size) for kind, column in self._leaves.items()}
        starts = np.array(step) < 0
        self._keys[new] = event_keys(
            np.array(rows, dtype=np.int64), np.array(times, dtype=np.int64), starts=starts
        )
        self._ends[new] = ~starts
        self._present[new], self._held[new] = step, held
        for kind, (events, counts) in leaves.items():
            column = self._leaves[kind]
            column[new] = 0
            column[events] = counts

    def _arrange(self) -> Layout:
        """Sort the events, and sum up what each row has regained by each of them."""
        size = self._size
        order = np.argsort(self._keys[:size])
        keys = self._keys[:size][order]
        places = np.empty(size, dtype=np.intp)
        places[order] = np.arange(size)
        rows = keys >> _ROW_BITS
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        times, ends = keys >> 1 & _LATEST, self._ends[:size][order]
        self._first_end = int(times[ends].min(initial=_LATEST))
        lengths = np.diff(begins, append=size)

        def added(column: Counts) -> Counts:
            """Return running sums of a column within each row; the first event of a row changes nothing."""
            sums = np.cumsum(column[:size][order], dtype=np.int32)
            total: Counts = sums - np.repeat(sums[begins], lengths)
            return total

        return Layout(
            keys,
            rows,
            times,
            ends,
            (keys & 1).astype(np.bool_),
            places,
            {kind: added(column) for kind, column in self._leaves.items()},
            added(self._present),
            added(self._held),
        )


def _stretches(layout: Layout, rows: Indices, before: int) -> Indices:
    """Return the positions of the events of these rows before a time."""
    keys = rows.astype(np.int64) << _ROW_BITS
    first = np.searchsorted(layout.keys, keys)
    lengths = np.searchsorted(layout.keys, keys + (min(before, _LATEST) << 1)) - first
    before = np.cumsum(lengths) - lengths
    index: Indices = np.repeat(first - before, lengths) + np.arange(int(lengths.sum()))
    return index


def _longer(column: npt.NDArray[_Number], size: int) -> npt.NDArray[_Number]:
    longer = np.zeros(max(size, 2 * len(column)), dtype=column.dtype)
    longer[: len(column)] = column
    return longer
