"""Which work need not be asked about, because something smaller was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from fluxqueue.queue.model.moldable import is_moldable
from fluxqueue.queue.scheduling.policies.growing_rows import GrowingRows
from fluxqueue.queue.scheduling.policies.open_rows import Mask, OpenRows
from fluxqueue.queue.scheduling.policies.passes import CycleContext, PendingQueue, SharedRefusal

__all__ = ["EXPLAINED", "Refusals"]

EXPLAINED = 100
"""The first of a queue, of which people are told most: a position and an estimate,
the matcher's own answer (no refusal of another family holds for them), and how far a limit is used."""
_MOST_IN_GROUP = 128
"""Refusals that are compared with their whole group.
Of requests of which none is the larger one, all are asked about anyway."""
_KINDS_EACH = 50
"""To apply a former refusal by itself takes as long as to find of so many kinds whether they are alone."""


class Refusals:
    """Which rows of a backlog may still fit: not refused by the matcher, not larger than a refused one, not
    over a limit of the queue.

    Running work closes a window that begins now, whatever its length. A reservation closes it only if the
    reservation begins before the window ends. So between the starts of two reservations all durations get the
    same answer, and one refusal holds for all of them.

    A refusal holds for its whole group, but the first rows of a queue are asked about unless one of their own
    family was refused: they are shown to people, with the answer of the matcher as their reason.

    Parameters
    ----------
    queue
        The queue, with its former refusals.
    context
        Time, starts of reservations, and limits.

    Attributes
    ----------
    open
        Rows that may fit now.
    possible
        Rows that may fit now or later.
    """

    def __init__(self, queue: PendingQueue, context: CycleContext) -> None:
        backlog = queue.backlog
        self._kinds = backlog.request_kinds()
        self._closed_groups: Counter[int] = Counter()
        self._queue = queue
        self._cache = queue.refusal_cache
        self._context = context
        self.possible = OpenRows(backlog.kinds, len(self._kinds.families))
        numbers = [
            number for shape in context.unsatisfiable if (number := backlog.shape_number(shape)) is not None
        ]
        if numbers:
            never = np.zeros(backlog.shape_total, dtype=np.bool_)
            never[numbers] = True
            self.possible.keep(~never[backlog.shapes])
        if context.turns.asked_before:
            self.possible.keep(self._without_turn())
        self._close_former(self.possible, self._cache.ever)
        self.open = self.possible.copy()
        self._close_former(self.open, self._cache.now)
        self._quotas_version = -1
        self._turns_over = 0
        self._policy = context.match_policies.get(queue.name, "")
        self._shared: list[SharedRefusal] = []
        self._shared_read = 0
        self.apply_limits()

    def apply_limits(self) -> None:
        """Close the rows that are over a limit now. Within a pass the use of a queue only grows."""
        quotas = self._context.quotas
        if not quotas.limited(self._queue.name) or quotas.version == self._quotas_version:
            return
        self._quotas_version = quotas.version
        within = quotas.within(self._queue.name, self._queue.backlog)
        self.possible.keep(within)
        self.open.keep(within)

    def apply_turns(self) -> None:
        """Close the rows of the namespaces whose turn is over."""
        over = self._context.turns.over
        if len(over) == self._turns_over:
            return
        self._turns_over = len(over)
        backlog = self._queue.backlog
        others = np.array([name not in over for name in backlog.namespace_names], dtype=np.bool_)[
            backlog.namespaces
        ]
        self.possible.keep(others)
        self.open.keep(others)

    def _without_turn(self) -> Mask:
        """The rows that had no turn yet, of the namespaces that get theirs in several rounds,
        and all rows of the others.
        """
        backlog = self._queue.backlog
        asked = frozenset(chain(*self._context.turns.asked_before.values()))
        rows: Mask = np.fromiter(
            (each.id not in asked for each in backlog), dtype=np.bool_, count=len(backlog)
        )
        return rows

    def apply_shared(self) -> None:
        """Close the rows that were refused to other queues meanwhile."""
        known = self._context.shared.known
        if known is not self._shared:
            self._shared, self._shared_read = known, 0
        for each in known[self._shared_read :]:
            family = self._queue.backlog.family_number(each.family)
            if family is not None and each.queue != self._queue.name and each.policy == self._policy:
                self._close(
                    self.open,
                    (family, each.count, each.duration_s, each.priority),
                    self._queue.backlog.first_row(each.priority),
                )
        self._shared_read = len(known)

    def refuse(self, row: int, *, ever: bool = False, predicted: bool = False, shared: bool = False) -> None:
        """Record that a row does not fit now, or (``ever``) at no time that can be planned; with its stated
        or its predicted duration.

        If it is ``shared``, it holds for other queues too. It must not be if the queue has a reservation that
        yields to others only.
        """
        workload = self._queue.backlog[row]
        if any(workload.id in apart for apart in self._context.individual):
            self.open.close_row(row)
            if ever:
                self.possible.close_row(row)
            return
        family, count, duration = self._queue.backlog.request_kind(row)
        if not predicted and workload.predicted_s is not None and workload.duration_s is not None:
            duration = workload.duration_s
        # A smaller start of moldable work lasts longer, so other reservations may be in its way.
        least = duration if is_moldable(workload) else self._shortest_equivalent(duration)
        bound = family, count, least, workload.order_priority
        self._cache.now.append(bound)
        self._close(self.open, bound, row)
        if shared:
            text = self._queue.backlog.family_text(row)
            refusal = SharedRefusal(
                self._queue.name, self._policy, text, count, least, workload.order_priority
            )
            self._context.shared.add(refusal)
        if ever:
            bound = family, count, duration, workload.order_priority
            self._cache.ever.append(bound)
            self._close(self.possible, bound, row)

    def _shortest_equivalent(self, duration: int) -> int:
        """The shortest duration that meets the same reservations as this one."""
        end = self._context.now + duration
        starts = chain(self._context.starts.values(), self._context.reserved_starts)
        last = max((start for start in starts if start < end), default=None)
        return 0 if last is None else min(duration, max(0, last - self._context.now + 1))

    def _close_former(self, rows: OpenRows, bounds: GrowingRows) -> None:
        """Close the rows that former refusals close. Of requests that cannot be compared there may be as many
        refusals as rows, so those that hold for one kind alone are applied together.
        """
        if not bounds or not self._kinds.families.size:
            return
        families, counts, durations, priorities = bounds.columns
        levels, level_of = np.unique(priorities, return_inverse=True)
        of_levels = [self._queue.backlog.first_row(priority) for priority in levels.tolist()]
        firsts = np.array(of_levels, dtype=np.int64)[level_of]
        many = len(bounds) * _KINDS_EACH > len(self._kinds.families)
        kinds = self._kinds.alone(families) if many else np.full_like(families, -1)
        larger = (self._kinds.counts[kinds] >= counts) & (self._kinds.durations[kinds] >= durations)
        single = (kinds >= 0) & larger
        rows.close_each(kinds[single], firsts[single])
        others = kinds < 0
        for bound, first in zip(bounds.columns[:, others].T.tolist(), firsts[others].tolist(), strict=True):
            self._close(rows, bound, first)

    def _close(self, rows: OpenRows, bound: Sequence[int], first: int) -> None:
        """Close the rows from ``first`` on that ask for at least as much as a refused request."""
        family, count, duration, _ = bound
        rows.close(self._kinds.of_family(family, count, duration), first)
        group = self._kinds.group_of(family)
        if group is not None and self._closed_groups[group] < _MOST_IN_GROUP:
            self._closed_groups[group] += 1
            rows.close(self._kinds.of_group(family, count, duration), max(first, EXPLAINED))
