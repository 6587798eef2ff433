"""The earliest later time at which a request with a plan may fit.

A window must be free from its start to its end. The timetable has how much is free on a node at every time.
The minimum of that between start and end is an upper bound for the window. A node without reservations only
regains leaves, so there the start alone decides. One pass over whole columns gives, for every time at which a
job ends, how many slots (or nodes) are possible. The first time with enough is tried.

The bound is not always met: two jobs may hold different leaves one after the other, and a window over both
can have neither. If a time was tried without success, the nodes whose bound was too high are counted leaf by
leaf for all times, and the columns are summed up again with the exact numbers.

Its tests are `test_possible_starts.py`, and `test_properties.py` of the engine, which tries all times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph.jobs import GraphJob
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.changed_rows import Indices, Shortfall, Times
from fluxqueue.fluxion.match.node_table import Counts, Mask
from fluxqueue.fluxion.match.plans import NodePlan, Plan, SlotPlan
from fluxqueue.fluxion.match.row_groups import RowGroups
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.timetable import Keys, event_keys

__all__ = ["EarliestStart"]

_MAX_LEAVES = (1 << 31) - 1
_MANY = 1 << 30
_EVER = -(1 << 62)
_FEW_FAILURES = 4
_Holder = tuple[int, int, bool, list[int]]
"""First start of a window that a job blocks, first start after it, whether it blocks the whole node,
and its leaves by need."""


def _steps(rows: Indices, slots: npt.NDArray[Any]) -> Times:
    """Return by how much each number of slots differs from the one before it in its row."""
    steps: Times = slots.astype(np.int64)
    steps[1:] -= np.where(rows[1:] == rows[:-1], steps[:-1].copy(), 0)
    return steps


class EarliestStart:
    """Slots that the nodes have for one request, by the start of its window.

    Parameters
    ----------
    static
        Nodes that would qualify if everything were free: constraint, exclusions, presence.
    whole
        The request takes nodes whole.
    duration_s
        Length of the window; 0 means as far as the graph plans.
    replaced
        A reservation that is out of the graph during the search. Only earlier starts than its own count.
    groups
        How slots must lie below vertices of the topology; None: anywhere.
    """

    def __init__(
        self,
        state: GraphState,
        plan: Plan,
        static: Mask,
        *,
        whole: bool,
        duration_s: int,
        replaced: GraphJob | None = None,
        groups: RowGroups | None = None,
    ) -> None:
        self._state = state
        self._groups = groups
        self._replaced = replaced
        self._until = state.horizon if replaced is None else min(replaced.start, state.horizon)
        self._table = table = state.table
        self._static = static & table.open
        self._whole = whole
        self._duration_s = duration_s or state.horizon
        self._least = plan.count.low
        slots = plan if isinstance(plan, SlotPlan) else plan.slots
        self._most = (plan.per_node or _MANY) if isinstance(plan, SlotPlan) else 1
        times = slots.count.low if isinstance(plan, NodePlan) and slots is not None else 1
        self._needs = [
            (kind, min(_MAX_LEAVES, times * -(-count.low // max(1, table.largest.get(kind, 1)))))
            for kind, count in (slots.needs if slots is not None else ())
        ]
        self._exact: dict[int, tuple[list[int], list[int]]] = {}
        self._rows: Indices = np.zeros(0, dtype=np.intp)
        self._times: Times = np.zeros(0, dtype=np.int64)
        self._slots: Counts = np.zeros(0, dtype=np.int32)

    def start_times(self) -> Iterator[tuple[int, Counts]]:
        """Yield the times at which enough may be free, with the most slots that each node has then.

        Ask for the next time only after the last one was tried without success.
        """
        if not len(self._static):
            return
        self._begin()
        after, failures = self._state.now, 0
        while (time := self._first(after)) is not None:
            slots = self._slots_at(time)
            yield time, slots
            failures += 1
            if self._correct(slots, time, thorough=failures > _FEW_FAILURES):
                self._add_up()
            after = time

    def times_with_enough(self) -> Times:
        """Return the times at which enough may be free, none of them tried."""
        if not len(self._static):
            return self._times
        self._begin()
        times: Times = self._end_times[self._sums >= self._least]
        return times

    def changes(self) -> tuple[Times, Indices, Counts]:
        """Return when the slots of which row become how many, in order of time;
        call `times_with_enough` before.
        """
        order = np.argsort(self._times, kind="stable")
        return self._times[order], self._rows[order], self._slots[order]

    def _begin(self) -> None:
        """Compute the slots of all nodes at all times."""
        timetable = self._state.timetable
        self._layout = (
            timetable.layout()
            if self._replaced is None
            else timetable.without(self._replaced, before=self._until + self._duration_s)
        )
        self._survey()
        self._add_up()

    def shortfall(self, before: int) -> Shortfall:
        """Return what is available to windows that begin earlier than ``before``,
        once `start_times` has reached it or its end.
        """
        return Shortfall.of(before, *self._all_steps())

    def latest(self, start: int, slots: Counts, *, descending: bool) -> Mask:
        """Return as few nodes as suffice at a start that was yielded, with these slots then: those that
        become free last.

        Of a node that has free slots before the start, the idle time of all slots counts, in proportion to
        the slots at the start. Nodes that are alike in this are taken in order of their rows.
        """
        begun = self._times < start
        rows, free = self._rows[begun], self._slots[begun].astype(np.int64)
        begins = np.maximum(self._times[begun], self._state.now)
        ends = np.append(begins[1:], start)
        ends[:-1][rows[1:] != rows[:-1]] = start
        idle = np.zeros(len(slots), dtype=np.int64)
        np.add.at(idle, rows, free * (ends - begins))
        there = np.flatnonzero(slots > 0)[:: -1 if descending else 1]
        order = there[np.argsort(idle[there] / slots[there], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(slots[order], dtype=np.int64), self._least)) + 1
        chosen = np.zeros(len(slots), dtype=np.bool_)
        chosen[order[:enough]] = True
        return chosen

    def shortfall_after(self, changed: Indices, shortfall: Shortfall) -> Shortfall | None:
        """Return what is available now, where only these rows have changed since; None if that may be enough
        for an earlier start.

        Nothing is searched, and no other node is checked.
        """
        assert self._replaced is not None
        rows = changed[self._static[changed]]
        touched = np.zeros(len(self._static), dtype=np.bool_)
        touched[changed] = True
        self._static &= touched
        if len(rows):
            before = self._until + self._duration_s
            self._layout = self._state.timetable.without(self._replaced, rows, before=before)
            self._survey()
        return shortfall.after(touched, self.shortfall(self._until), self._least)

    # ---- by column -----------------------------------------------------------------------------------------

    def _survey(self) -> None:
        """Compute the slots of each node by the start of the window, at the times at which they change."""
        layout, table = self._layout, self._table
        free = self._free()
        disturbed = self._static & (table.reservations > 0)
        there = disturbed[layout.rows]
        quiet = self._static[layout.rows] & ~there & (layout.times < self._until)
        rows, times, slots = layout.rows[quiet], layout.times[quiet], free[quiet]
        if there.any():
            windows = self._windows(there)
            least = self._least_in(free, *windows)
            rows, times = np.concatenate([rows, windows[0]]), np.concatenate([times, windows[1]])
            slots = np.concatenate([slots, least])
        self._rows, self._times, self._slots = rows, times, slots
        self._doubtful = disturbed

    def _free(self) -> Counts:
        """Return the slots that each node has free from each event to the next."""
        layout, table = self._layout, self._table
        rows = layout.rows
        slots = np.full(len(rows), self._most, dtype=np.int32)
        for kind, need in self._needs:
            free = (
                table.free[kind][rows] + layout.leaves[kind] if kind in table.free else np.zeros_like(slots)
            )
            np.minimum(slots, free // need if need > 1 else free, out=slots)
        slots[table.held[rows] != layout.held] = 0
        if self._whole:
            slots[table.jobs[rows] != layout.jobs] = 0
        return slots

    def _windows(self, there: Mask) -> tuple[Keys, Keys]:
        """Return rows and starts of windows to check: where an event begins or leaves the window,
        and where the end meets a reservation.
        """
        layout, now = self._layout, self._state.now
        meets = there & layout.starts
        rows = np.concatenate([layout.rows[there], layout.rows[meets]])
        starts = np.maximum(
            np.concatenate([layout.times[there], layout.times[meets] - self._duration_s + 1]), now
        )
        if self._replaced is not None:
            early = starts < self._until
            rows, starts = rows[early], starts[early]
        order = np.argsort(event_keys(rows, starts, starts=False), kind="stable")
        return rows[order], starts[order]

    def _least_in(self, free: Counts, rows: Keys, starts: Keys) -> Counts:
        """Return the minimum of the slots that are free at any time of these windows."""
        keys = self._layout.keys
        first = np.searchsorted(keys, event_keys(rows, starts, starts=True), side="right") - 1
        behind = np.searchsorted(keys, event_keys(rows, starts + self._duration_s, starts=False), side="left")
        pairs = np.stack([first, np.maximum(behind, first + 1)], axis=1).ravel()
        least: Counts = np.minimum.reduceat(np.append(free, np.int32(0)), pairs)[::2]
        return least

    def _add_up(self) -> None:
        """Sum up the slots of all nodes, by the start of the window."""
        rows, times, steps = self._all_steps()
        if self._groups is not None:
            times, steps = self._groups.steps(rows, times, steps)
            self._least = self._groups.least
        end_times = self._layout.times[self._layout.ends]
        end_times = end_times[end_times < self._until]
        all_times = np.concatenate([times, end_times])
        all_steps = np.concatenate([steps, np.zeros(len(end_times), dtype=np.int64)])
        ends = np.zeros(len(all_times), dtype=np.bool_)
        ends[len(times) :] = True
        # The ends come after all steps of the same time, so that each end has the sum of all.
        order = np.argsort(all_times << 1 | ends)
        at_end = ends[order]
        self._end_times, self._sums = all_times[order][at_end], np.cumsum(all_steps[order])[at_end]

    def _all_steps(self) -> tuple[Indices, Times, Times]:
        """Return rows, times and steps of all nodes, exact ones where they are known."""
        rows, times, slots = self._rows, self._times, self._slots
        if not self._exact:
            return rows, times, _steps(rows, slots)
        kept = np.ones(len(self._static), dtype=np.bool_)
        kept[list(self._exact)] = False
        others = kept[rows]
        rows, times = rows[others], times[others]
        more_rows, more_times, more_steps = self._exact_steps()
        return (
            np.concatenate([rows, more_rows]),
            np.concatenate([times, more_times]),
            np.concatenate([_steps(rows, slots[others]), more_steps]),
        )

    def _first(self, after: int) -> int | None:
        """Return the first end later than this at which there is enough."""
        first = int(np.searchsorted(self._end_times, after, side="right"))
        enough = self._sums[first:] >= self._least
        at = int(np.argmax(enough)) if len(enough) else 0
        return int(self._end_times[first + at]) if len(enough) and enough[at] else None

    def _slots_at(self, time: int) -> npt.NDArray[np.int32]:
        """Return the slots of each node in the window that starts then."""
        slots = np.zeros(len(self._static), dtype=np.int32)
        begun = self._times <= time
        # Events of a row are ordered by time, and the last of several assignments counts.
        slots[self._rows[begun]] = self._slots[begun]
        for row, (times, known) in self._exact.items():
            slots[row] = known[bisect_right(times, time) - 1]
        return slots

    # ---- leaf by leaf --------------------------------------------------------------------------------------

    def _correct(self, slots: Counts, time: int, *, thorough: bool) -> bool:
        """Count leaf by leaf the nodes with slots at a time and with reservations;
        return True if any has fewer slots.
        """
        corrected, now, until = False, self._state.now, self._until
        for row in np.flatnonzero(self._doubtful if thorough else self._doubtful & (slots > 0)).tolist():
            holders, runs = self._holders(row)
            if thorough or self._slots_left(runs, holders, time) < slots[row]:
                times = sorted(
                    {
                        now,
                        *(
                            time
                            for begin, end, _, _ in holders
                            for time in (begin, end)
                            if now < time < until
                        ),
                    }
                )
                self._exact[row] = times, [self._slots_left(runs, holders, time) for time in times]
                self._doubtful[row] = False
                corrected = True
        return corrected

    def _holders(self, row: int) -> tuple[list[_Holder], list[tuple[LeafRun | None, int]]]:
        """Return what each job blocks of a node, and the runs that the request needs there."""
        node: Vertex = self._table.nodes[row]
        runs = [(node.runs.get(kind), need) for kind, need in self._needs]
        jobs = [
            (job, exclusive)
            for exclusive, held in ((False, node.shared), (True, node.exclusive))
            for job in held
        ]
        return [
            self._holder(job, runs, exclusive=exclusive)
            for job, exclusive in jobs
            if job is not self._replaced
        ], runs

    def _holder(
        self, job: GraphJob, runs: Sequence[tuple[LeafRun | None, int]], *, exclusive: bool
    ) -> _Holder:
        begin = job.start - self._duration_s + 1 if job.reserved else _EVER
        masks = []
        for run, _ in runs:
            mask = 0
            if run is not None:
                mask = (run.reserved if job.reserved else run.allocated).get(job, 0)
                if run.shared:
                    mask |= run.shared.get(job, 0)
            masks.append(mask)
        return begin, job.end, self._whole or exclusive, masks

    def _slots_left(
        self, runs: Sequence[tuple[LeafRun | None, int]], holders: Sequence[_Holder], time: int
    ) -> int:
        """Return the slots that a window starting then has on a node in addition to its holders."""
        present = [(whole, masks) for begin, end, whole, masks in holders if begin <= time < end]
        slots = self._most
        if any(whole for whole, _ in present):
            return 0
        for position, (run, need) in enumerate(runs):
            if run is None:
                return 0
            taken = run.down | run.void
            for _, masks in present:
                taken |= masks[position]
            slots = min(slots, (run.full & ~taken).bit_count() // need)
        return slots

    def _exact_steps(self) -> tuple[Keys, Keys, Keys]:
        """Return rows, times and steps of the nodes that were counted leaf by leaf."""
        exact: Mapping[int, tuple[list[int], list[int]]] = self._exact
        rows = [row for row, (row_times, _) in exact.items() for _ in row_times]
        times = [time for row_times, _ in exact.values() for time in row_times]
        steps = [
            now - before
            for _, slots in exact.values()
            for before, now in zip([0, *slots], slots, strict=False)
        ]
        return (
            np.array(rows, dtype=np.int64),
            np.array(times, dtype=np.int64),
            np.array(steps, dtype=np.int64),
        )
