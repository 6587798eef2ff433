"""How long the statuses of FluxJobs wait, so that states that pass quickly are not written.

Work that starts soon costs one write: its FluxJob is created with the status that it has by then. In a burst
of a namespace, starts come first: FluxJobs of its work that has started wait for them, and those of other
namespaces do not. While many workloads start and end, each waits longer for the next state, and fewer
estimates are shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["SETTLED_S", "FluxJobPace"]

SETTLED_S = 0.3
"""How long a status waits, unless something says otherwise."""
_NO_REASON_S = 10.0
"""A FluxJob is pending by default: a status without a reason is written only if it lasts."""
_UNDECIDED_S = 2.0
"""How long work that no scheduling cycle has looked at has no FluxJob."""
_PASSING_S = 5.0
"""How long a state that usually passes by itself may stay unwritten."""
_PASSING_BUSY_S = 10.0
"""The same while more than `_BUSY` FluxJobs wait, or many workloads start and end: then starts take longer,
and more writes would slow them further. Work that runs waits as long then: short work shows its end only."""
_CREATED_BUSY_S = 20.0
"""The same for work that has no FluxJob yet: if it is created once the work runs,
it costs one write instead of two."""
_STARTED_BUSY_S = 60.0
"""How long work that has started has no FluxJob while more than `_STARTING` pods of its namespace start:
starts come first."""
_ASKED_AGAIN_S = 1.0, 5.0
"""Whether they still do is asked after a quarter of the time since the submission, within these bounds."""
_BUSY = 50
_STARTING = 20
_MESSAGE_S = 2.0
"""How long a status may stay unwritten if only the words of its reason are others:
they change with each job that comes or goes."""
_MANY = 45.0
"""Starts and ends, of which those of 2 s ago count half: at about 15 a second, there are many."""
_HALF_LIFE_S = 2.0
_ESTIMATES_AT_ONCE = 20
_FEW_ESTIMATES = 4
_MOST_EARLY = 20
_EARLY_A_SECOND = 1.0
"""Estimates that change sooner than after half a minute:
so many at once, and so many a second in the long run."""


class FluxJobPace:
    """Says how long the FluxJob of a workload waits.

    Parameters
    ----------
    caches, ledger
        What FluxJobs show, and the queue.
    waiting
        Returns how many FluxJobs wait to be written.
    """

    def __init__(self, caches: Caches, ledger: Ledger, waiting: Callable[[], int]) -> None:
        self._caches = caches
        self._ledger = ledger
        self._waiting = waiting
        self._starting: dict[WorkloadId, Workload] = {}
        """Work that has nodes and does not run yet, in the order in which it got them."""
        self._pods_starting: Counter[str] = Counter()
        """Of this work, by namespace."""
        self._running: set[WorkloadId] = set()
        self._counted = 0.0
        self._counted_at: datetime | None = None
        self._early = float(_MOST_EARLY)

    def early_estimates(self, passed_s: float) -> int:
        """Return how many estimates may be written sooner than after half a minute,
        this long after the last question.
        """
        self._early = min(self._early + passed_s * _EARLY_A_SECOND, _MOST_EARLY)
        return 0 if self.hurried else int(self._early)

    def count_early_estimates(self, number: int) -> None:
        """Count estimates that were."""
        self._early -= number

    def count(self, workload_id: WorkloadId, workload: Workload | None) -> None:
        """Count a change of a workload; None if it has ended."""
        if workload is None or workload.state is not State.ALLOCATED:
            self._forget(workload_id)
        elif workload_id not in self._starting and self._starts_soon(workload):
            self._starting[workload_id] = workload
            self._pods_starting[workload.namespace] += workload.pods
        runs = workload is not None and workload.state is State.RUNNING
        if runs != (workload_id in self._running):
            self._running ^= {workload_id}
            self._counted = self._changes() + 1
            self._counted_at = self._ledger.clock()

    @property
    def hurried(self) -> bool:
        """True while many workloads start and end."""
        return self._changes() > _MANY

    @property
    def estimates_at_once(self) -> int:
        """How many estimates may be written together."""
        return _FEW_ESTIMATES if self.hurried else _ESTIMATES_AT_ONCE

    def delay_s(self, workload: Workload | None, *, exists: bool) -> float:
        """Return how long a status may stay unwritten because it is likely to change."""
        if workload is None or workload.state.ended:
            return SETTLED_S
        if workload.state is State.PENDING and workload.reason is Reason.NONE:
            return _NO_REASON_S if exists else _UNDECIDED_S
        if workload.state is State.PENDING and exists:
            present = self._caches.fluxjob_of(workload.uid)
            if present is not None and present.status.reason == workload.reason:
                return _MESSAGE_S
        if workload.state is State.ALLOCATED:
            if self._waiting() <= _BUSY and not self.hurried:
                return _PASSING_S
            return _PASSING_BUSY_S if exists else _CREATED_BUSY_S
        if workload.state is State.RUNNING and not exists:
            return _ASKED_AGAIN_S[0] if self._starts_first(workload.namespace) else SETTLED_S
        return _PASSING_BUSY_S if exists and self.hurried else SETTLED_S

    def too_early_to_create_s(self, workload: Workload) -> float:
        """Return for how long its state is likely to pass, or others are first,
        so that it has no FluxJob yet; 0 if it is time.
        """
        if workload.state is State.RUNNING:
            if not self._starts_first(workload.namespace):
                return 0.0
            left_s = self._left_s(workload.submitted_at, _STARTED_BUSY_S)
            least_s, most_s = _ASKED_AGAIN_S
            return min(left_s, most_s, max(least_s, (_STARTED_BUSY_S - left_s) / 4))
        undecided = workload.state is State.PENDING and workload.reason is Reason.NONE
        if undecided or workload.state is State.ALLOCATED:
            return self._left_s(workload.submitted_at, self.delay_s(workload, exists=False))
        return 0.0

    def too_early_to_write_s(self, workload: Workload) -> float:
        """Return for how long its state is likely to pass, so that its FluxJob does not show it yet;
        0 if it is time.
        """
        since = {State.ALLOCATED: workload.allocated_at, State.RUNNING: workload.started_at}.get(
            workload.state
        )
        return self._left_s(since, _PASSING_BUSY_S) if since is not None and self.hurried else 0.0

    def _left_s(self, since: datetime, patience_s: float) -> float:
        """Return what is left of a time to wait; 0 if it has not begun,
        since then the clock is not to be trusted.
        """
        age_s = (self._ledger.clock() - since).total_seconds()
        return max(patience_s - age_s, 0.0) if age_s >= 0 else 0.0

    def _starts_first(self, namespace: str) -> bool:
        """True while many pods of a namespace start. Work that does not start for long delays no other."""
        while self._starting and not self._starts_soon(oldest := next(iter(self._starting.values()))):
            self._forget(oldest.id)
        return self._pods_starting[namespace] > _STARTING

    def _starts_soon(self, workload: Workload) -> bool:
        return (
            workload.allocated_at is None
            or (self._ledger.clock() - workload.allocated_at).total_seconds() < _CREATED_BUSY_S
        )

    def _forget(self, workload_id: WorkloadId) -> None:
        if (workload := self._starting.pop(workload_id, None)) is not None:
            self._pods_starting[workload.namespace] -= workload.pods
            if not self._pods_starting[workload.namespace]:
                del self._pods_starting[workload.namespace]

    def _changes(self) -> float:
        """Return how many workloads started and ended lately, each counted the less the longer ago it was."""
        if self._counted_at is None:
            return 0.0
        return self._counted * math.pow(
            0.5, (self._ledger.clock() - self._counted_at).total_seconds() / _HALF_LIFE_S
        )
