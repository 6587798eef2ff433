"""What every node gets back and gives away, and when: an event for each end and each later start, as columns.

A request that does not fit now asks what every node will have free at every later moment. Over twenty thousand jobs only whole columns
answer that in time, so the events are kept as columns between requests: a booking merely notes that a job changed, and the next question
brings the columns up to date by as much as has changed. From them a layout is made, in which what the node has got back so far stands at
every event; it holds for all requests until a booking or the graph changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.jobs import Job
from fluxqueue.fluxion.nodetable import Counts, Mask, NodeTable

__all__ = ["Keys", "Layout", "Timetable", "event_keys"]

Keys = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
_Number = TypeVar("_Number", bound=np.generic)

_ROOM = 256
_MAX_CHANGED = 4_096
_ROW_BITS = 34
_LATEST = (1 << (_ROW_BITS - 1)) - 1


def event_keys(rows: Keys, times: Keys, *, starts: Mask | bool) -> Keys:
    """Numbers that order events by row, then time, then ends before starts: what ends and starts together never overlaps."""
    keys: Keys = rows << _ROW_BITS | np.clip(times, 0, _LATEST) << 1 | starts
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
        Where in this order each event stands, in the order in which they were entered.
    leaves, jobs, held
        What the row has got back by then, this event included: leaves by type, jobs that touch it, jobs that hold it.
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
    """Events of all jobs of a state.

    Parameters
    ----------
    table
        Rows.
    jobs
        Live jobs by id.
    """

    def __init__(self, table: NodeTable, jobs: Mapping[int, Job]) -> None:
        self._table = table
        self._jobs = jobs
        self._changed: dict[Job, None] = {}
        self._generation = -1
        self._layout: Layout | None = None
        self._clear()

    def note(self, job: Job) -> None:
        """Take note that a job came, went or changed, before or after it did."""
        self._layout = None
        self._changed[job] = None
        if len(self._changed) > _MAX_CHANGED:
            self._generation = -1
            self._changed.clear()

    def layout(self) -> Layout:
        """The events as they stand now."""
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
        """Whether anything holds what it has beyond its end."""
        layout = self.layout()
        return bool((layout.ends & (layout.times <= now)).any())

    def without(self, job: Job, rows: Indices | None = None) -> Layout:
        """The events as they would stand if a reservation were not there.

        With `rows`, ascending, only the events of those; `places` stay those of all.
        """
        layout = self.layout()
        first, behind = self._places[job]
        middle = (first + behind) // 2
        starts, ends = layout.places[middle:behind], layout.places[first:middle]
        index: Indices | slice = slice(None)
        if rows is not None:
            index = _stretches(layout, rows)
            starts, ends = np.searchsorted(index, starts), np.searchsorted(index, ends)
        touched = np.flatnonzero(starts < ends)
        stretches = list(zip(starts[touched].tolist(), ends[touched].tolist(), strict=True))

        def back(column: Counts, own: Counts) -> Counts:
            """Undo what the job takes of a column from its start to its end."""
            column = column[index].copy()
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
        self._places: dict[Job, tuple[int, int]] = {}
        self._size, self._dead = rows, 0
        self._keys: Keys = np.arange(rows, dtype=np.int64) << _ROW_BITS
        self._ends: Mask = np.zeros(rows, dtype=np.bool_)
        self._present: Counts = np.zeros(rows, dtype=np.int32)
        self._held: Counts = np.zeros(rows, dtype=np.int32)
        self._leaves: dict[str, Counts] = {kind: np.zeros(rows, dtype=np.int32) for kind in self._table.free}
        self._layout = None

    def _strike(self, job: Job) -> None:
        """Let the events of a job happen at time 0 and change nothing."""
        place = self._places.pop(job, None)
        if place is None:
            return
        events = slice(*place)
        self._dead += place[1] - place[0]
        self._keys[events] = 0
        self._ends[events] = False
        for column in (self._present, self._held, *self._leaves.values()):
            column[events] = 0

    def _enter(self, jobs: Iterable[Job]) -> None:
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
                    # What holds no node (a rack, a node that was removed) ends all the same, and that is a moment to look at.
                    rows.append(0)
                    times.append(time)
                    step.append(0)
                    held.append(0)
            self._places[job] = first + begin, first + len(rows)
        if rows:
            self._append(rows, times, step, held, leaves)

    def _append(
        self, rows: list[int], times: list[int], step: list[int], held: list[int], leaves: Mapping[str, tuple[list[int], list[int]]]
    ) -> None:
        new, self._size = slice(self._size, self._size + len(rows)), self._size + len(rows)
        if self._size > len(self._keys):
            self._keys, self._ends = _longer(self._keys, self._size), _longer(self._ends, self._size)
            self._present, self._held = _longer(self._present, self._size), _longer(self._held, self._size)
            self._leaves = {kind: _longer(column, self._size) for kind, column in self._leaves.items()}
        starts = np.array(step) < 0
        self._keys[new] = event_keys(np.array(rows, dtype=np.int64), np.array(times, dtype=np.int64), starts=starts)
        self._ends[new] = ~starts
        self._present[new], self._held[new] = step, held
        for kind, (events, counts) in leaves.items():
            column = self._leaves[kind]
            column[new] = 0
            column[events] = counts

    def _arrange(self) -> Layout:
        """Sort the events and add up what each row has got back by each of them."""
        size = self._size
        order = np.argsort(self._keys[:size])
        keys = self._keys[:size][order]
        places = np.empty(size, dtype=np.intp)
        places[order] = np.arange(size)
        rows = keys >> _ROW_BITS
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        lengths = np.diff(begins, append=size)

        def added(column: Counts) -> Counts:
            """Running sums of a column within each row; the first event of a row changes nothing."""
            sums = np.cumsum(column[:size][order], dtype=np.int32)
            total: Counts = sums - np.repeat(sums[begins], lengths)
            return total

        return Layout(
            keys,
            rows,
            keys >> 1 & _LATEST,
            self._ends[:size][order],
            (keys & 1).astype(np.bool_),
            places,
            {kind: added(column) for kind, column in self._leaves.items()},
            added(self._present),
            added(self._held),
        )


def _stretches(layout: Layout, rows: Indices) -> Indices:
    """Where the events of these rows stand."""
    keys = rows.astype(np.int64) << _ROW_BITS
    first = np.searchsorted(layout.keys, keys)
    lengths = np.searchsorted(layout.keys, keys + (1 << _ROW_BITS)) - first
    before = np.cumsum(lengths) - lengths
    index: Indices = np.repeat(first - before, lengths) + np.arange(int(lengths.sum()))
    return index


def _longer(column: npt.NDArray[_Number], size: int) -> npt.NDArray[_Number]:
    longer = np.zeros(max(size, 2 * len(column)), dtype=column.dtype)
    longer[: len(column)] = column
    return longer
