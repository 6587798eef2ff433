"""The earliest later moment at which a request with a plan may fit.

A window must be free from its start to its end. How much a node has free at every moment stands in the timetable, and the least of that
between start and end bounds what the window can have there; where no reservation touches a node, it only ever gets leaves back and the
start alone decides. So one pass over whole columns gives, for every moment at which something ends, how many slots (or nodes) there
could be, and the first with enough is tried.

The bound is not always met: leaves that two jobs hold one after the other, but not the same ones, are lost to a window over both. If a
moment was tried in vain, the nodes that promised too much are found and looked at leaf by leaf for all moments, and the columns are added
up again without their promises.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fluxqueue.fluxion.graph import Vertex
from fluxqueue.fluxion.jobs import Job
from fluxqueue.fluxion.nodetable import Counts, Mask
from fluxqueue.fluxion.openings import EVER, Indices, Opened, Shortfall, Times
from fluxqueue.fluxion.plans import NodePlan, Plan, SlotPlan
from fluxqueue.fluxion.runs import LeafRun
from fluxqueue.fluxion.state import State
from fluxqueue.fluxion.timetable import Keys, event_keys

__all__ = ["Outlook"]

_MAX_LEAVES = (1 << 31) - 1
_MANY = 1 << 30
_EVER = -(1 << 62)
_FEW_FAILURES = 4
_Holder = tuple[int, int, bool, list[int]]
"""First start of a window that a job blocks, first start behind it, whether it blocks the whole node, and its leaves by need."""


def _steps(rows: Indices, slots: npt.NDArray[Any]) -> Times:
    """By how much each number of slots differs from the one before it in its row."""
    steps: Times = slots.astype(np.int64)
    steps[1:] -= np.where(rows[1:] == rows[:-1], steps[:-1].copy(), 0)
    return steps


class Outlook:
    """What the nodes can give one request, by the start of its window.

    Parameters
    ----------
    static
        Nodes that could do if everything were free: constraint, exclusions, presence.
    whole
        The request takes nodes whole.
    duration_s
        Length of the window; 0 means as far as the graph plans.
    instead
        A reservation that is out of the graph for the moment: only what is earlier than its start is looked for.
    """

    def __init__(self, state: State, plan: Plan, static: Mask, *, whole: bool, duration_s: int, instead: Job | None = None) -> None:
        self._state = state
        self._instead = instead
        self._until = state.horizon if instead is None else min(instead.start, state.horizon)
        self._table = table = state.table
        self._static = static & table.open
        self._whole = whole
        self._duration_s = duration_s or state.horizon
        self._least = plan.count.low
        slots = plan if isinstance(plan, SlotPlan) else plan.slots
        self._most = _MANY if isinstance(plan, SlotPlan) else 1
        times = slots.count.low if isinstance(plan, NodePlan) and slots is not None else 1
        self._needs = [
            (kind, min(_MAX_LEAVES, times * -(-count.low // max(1, table.largest.get(kind, 1)))))
            for kind, count in (slots.needs if slots is not None else ())
        ]
        self._exact: dict[int, tuple[list[int], list[int]]] = {}
        self._all_times: Times = np.zeros(0, dtype=np.int64)
        self._all_sums: Times = np.zeros(0, dtype=np.int64)

    def moments(self) -> Iterator[tuple[int, Mask]]:
        """Times at which enough could be free, with the nodes that may do: all others certainly do not.

        Ask for the next one only if the last was tried in vain.
        """
        if not len(self._static):
            return
        timetable = self._state.timetable
        self._layout = timetable.layout() if self._instead is None else timetable.without(self._instead)
        self._survey()
        self._add_up()
        after, failures = self._state.now, 0
        while (moment := self._first(after)) is not None:
            slots = self._slots_at(moment)
            yield moment, slots > 0
            failures += 1
            if self._correct(slots, moment, thorough=failures > _FEW_FAILURES):
                self._add_up()
            after = moment

    def shortfall(self, before: int) -> Shortfall:
        """What there was for windows that begin earlier than this, once `moments` has come there or to its end."""
        behind = int(np.searchsorted(self._all_times, before))
        most = np.maximum.accumulate(self._all_sums[:behind])
        rises = np.flatnonzero(np.diff(most, prepend=0))
        return Shortfall(before, self._all_times[rises], most[rises])

    def may_do_with(self, opened: Opened, shortfall: Shortfall) -> bool:
        """Whether what was opened since could make up for what was short before.

        At each moment there is no more than there was then, and all that the opened nodes have now. Where they have nothing, nothing has
        changed. Nothing is searched, and no other node is looked at.
        """
        assert self._instead is not None
        now, table = self._state.now, self._table
        wanted = self._static[opened.rows]
        rows = opened.rows[wanted]
        if not len(rows):
            return False
        # What held on beyond its end was in the way of windows that begin now, which is behind that end.
        until = np.minimum(np.where(opened.until[wanted] <= now, EVER, opened.until[wanted]), self._until)
        self._static = np.zeros_like(self._static)
        self._static[rows] = True
        self._layout = self._state.timetable.without(self._instead, rows)
        self._survey()
        last = np.zeros(len(table.nodes), dtype=np.int64)
        last[rows] = until
        slots = np.append(np.where(self._times < last[self._rows], self._slots, 0), np.zeros_like(rows))
        all_rows, times = np.append(self._rows, rows), np.append(self._times, until)
        by_row = np.lexsort((times, all_rows))
        times = times[by_row]
        steps = _steps(all_rows[by_row], slots[by_row])
        order = np.argsort(times, kind="stable")
        times, gains = times[order], np.cumsum(steps[order])
        following = np.append(times[1:], self._until)
        return bool(((gains > 0) & (gains + shortfall.by(following) >= self._least)).any())

    # ---- by column -------------------------------------------------------------------------------------------------------------

    def _survey(self) -> None:
        """Slots of each node by the start of the window, at the moments at which they change."""
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
        """Slots that each node has free from each event to the next."""
        layout, table = self._layout, self._table
        rows = layout.rows
        slots = np.full(len(rows), self._most, dtype=np.int32)
        for kind, need in self._needs:
            free = table.free[kind][rows] + layout.leaves[kind] if kind in table.free else np.zeros_like(slots)
            np.minimum(slots, free // need if need > 1 else free, out=slots)
        slots[table.held[rows] != layout.held] = 0
        if self._whole:
            slots[table.jobs[rows] != layout.jobs] = 0
        return slots

    def _windows(self, there: Mask) -> tuple[Keys, Keys]:
        """Rows and starts of windows to look at: where an event begins or leaves the window, and where the end meets a reservation."""
        layout, now = self._layout, self._state.now
        meets = there & layout.starts
        rows = np.concatenate([layout.rows[there], layout.rows[meets]])
        starts = np.maximum(np.concatenate([layout.times[there], layout.times[meets] - self._duration_s + 1]), now)
        if self._instead is not None:
            early = starts < self._until
            rows, starts = rows[early], starts[early]
        order = np.argsort(event_keys(rows, starts, starts=False), kind="stable")
        return rows[order], starts[order]

    def _least_in(self, free: Counts, rows: Keys, starts: Keys) -> Counts:
        """Least of the slots that are free at any moment of these windows."""
        keys = self._layout.keys
        first = np.searchsorted(keys, event_keys(rows, starts, starts=True), side="right") - 1
        behind = np.searchsorted(keys, event_keys(rows, starts + self._duration_s, starts=False), side="left")
        pairs = np.stack([first, np.maximum(behind, first + 1)], axis=1).ravel()
        least: Counts = np.minimum.reduceat(np.append(free, np.int32(0)), pairs)[::2]
        return least

    def _add_up(self) -> None:
        """Slots there are in all, by the start of the window."""
        rows, times, slots = self._rows, self._times, self._slots
        if self._exact:
            kept = np.ones(len(self._static), dtype=np.bool_)
            kept[list(self._exact)] = False
            kept_events = kept[rows]
            rows, times, slots = rows[kept_events], times[kept_events], slots[kept_events]
        steps = _steps(rows, slots)
        moments = self._layout.times[self._layout.ends]
        moments = moments[moments < self._until]
        more_times, more_steps = self._exact_steps()
        all_times = np.concatenate([times, more_times, moments])
        all_steps = np.concatenate([steps, more_steps, np.zeros(len(moments), dtype=np.int64)])
        ends = np.zeros(len(all_times), dtype=np.bool_)
        ends[len(times) + len(more_times) :] = True
        # The ends themselves stand behind all steps of the same moment, so that each sees the sum of all.
        order = np.argsort(all_times << 1 | ends)
        at_end = ends[order]
        self._all_times, self._all_sums = all_times[order], np.cumsum(all_steps[order])
        self._moments, self._sums = self._all_times[at_end], self._all_sums[at_end]

    def _first(self, after: int) -> int | None:
        """The first end later than this at which there is enough."""
        first = int(np.searchsorted(self._moments, after, side="right"))
        enough = self._sums[first:] >= self._least
        at = int(np.argmax(enough)) if len(enough) else 0
        return int(self._moments[first + at]) if len(enough) and enough[at] else None

    def _slots_at(self, moment: int) -> npt.NDArray[np.int32]:
        """Slots of each node in the window that starts then."""
        slots = np.zeros(len(self._static), dtype=np.int32)
        begun = self._times <= moment
        # Events of a row stand by their times, and of several assignments the last one holds.
        slots[self._rows[begun]] = self._slots[begun]
        for row, (times, known) in self._exact.items():
            slots[row] = known[bisect_right(times, moment) - 1]
        return slots

    # ---- leaf by leaf ----------------------------------------------------------------------------------------------------------

    def _correct(self, slots: Counts, moment: int, *, thorough: bool) -> bool:
        """Look closely at nodes that promised slots at a moment and have reservations; whether any was found to hold less."""
        found, now, until = False, self._state.now, self._until
        for row in np.flatnonzero(self._doubtful if thorough else self._doubtful & (slots > 0)).tolist():
            holders, runs = self._holders(row)
            if thorough or self._beside(runs, holders, moment) < slots[row]:
                times = sorted({now, *(time for begin, end, _, _ in holders for time in (begin, end) if now < time < until)})
                self._exact[row] = times, [self._beside(runs, holders, time) for time in times]
                self._doubtful[row] = False
                found = True
        return found

    def _holders(self, row: int) -> tuple[list[_Holder], list[tuple[LeafRun | None, int]]]:
        """Who blocks what of a node, and the runs the request needs there."""
        node: Vertex = self._table.nodes[row]
        runs = [(node.runs.get(kind), need) for kind, need in self._needs]
        jobs = [(job, exclusive) for exclusive, held in ((False, node.shared), (True, node.exclusive)) for job in held]
        return [self._holder(job, runs, exclusive=exclusive) for job, exclusive in jobs if job is not self._instead], runs

    def _holder(self, job: Job, runs: Sequence[tuple[LeafRun | None, int]], *, exclusive: bool) -> _Holder:
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

    def _beside(self, runs: Sequence[tuple[LeafRun | None, int]], holders: Sequence[_Holder], moment: int) -> int:
        """Slots that a window starting then has on a node beside those who hold it."""
        present = [(whole, masks) for begin, end, whole, masks in holders if begin <= moment < end]
        slots = self._most
        if any(whole for whole, _ in present):
            return 0
        for place, (run, need) in enumerate(runs):
            if run is None:
                return 0
            taken = run.down | run.void
            for _, masks in present:
                taken |= masks[place]
            slots = min(slots, (run.full & ~taken).bit_count() // need)
        return slots

    def _exact_steps(self) -> tuple[Keys, Keys]:
        """Steps of the nodes that were looked at leaf by leaf."""
        found: Mapping[int, tuple[list[int], list[int]]] = self._exact
        times = [time for moments, _ in found.values() for time in moments]
        steps = [now - before for _, slots in found.values() for before, now in zip([0, *slots], slots, strict=False)]
        return np.array(times, dtype=np.int64), np.array(steps, dtype=np.int64)
