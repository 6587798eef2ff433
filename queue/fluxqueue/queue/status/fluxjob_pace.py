"""How long the statuses of FluxJobs wait, so that states that pass quickly are not written.

Work that starts soon costs one write: its FluxJob is created with the status that it has by then. In a burst, starts come first: FluxJobs
of work that has started wait for them. While many workloads start and end, each waits longer for the next state, and fewer estimates are
shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

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
"""The same while more than `_BUSY` FluxJobs wait, or many workloads start and end: then starts take longer, and more writes would slow them
further. Work that runs waits as long then: short work shows its end only."""
_CREATED_BUSY_S = 20.0
"""The same for work that has no FluxJob yet: if it is created once the work runs, it costs one write instead of two."""
_STARTED_BUSY_S = 1.0
"""How long work that has started waits for its FluxJob, again and again, while more than `_STARTING` pods start: starts come first."""
_BUSY = 50
_STARTING = 20
_MESSAGE_S = 2.0
"""How long a status may stay unwritten if only the words of its reason are others: they change with each job that comes or goes."""
_MANY = 45.0
"""Starts and ends, of which those of 2 s ago count half: at about 15 a second, there are many."""
_HALF_LIFE_S = 2.0
_ESTIMATES_AT_ONCE = 20
_FEW_ESTIMATES = 4


class FluxJobPace:
    """Says how long the FluxJob of a workload waits.

    Parameters
    ----------
    caches, ledger
        What FluxJobs show, and the queue.
    waiting
        Returns how many FluxJobs wait to be written.
    clock
        In seconds, monotonic.
    """

    def __init__(self, caches: Caches, ledger: Ledger, waiting: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._caches = caches
        self._ledger = ledger
        self._waiting = waiting
        self._clock = clock
        self._starting: dict[WorkloadId, Workload] = {}
        """Work that has nodes and does not run yet, in the order in which it got them."""
        self._pods_starting = 0
        self._running: set[WorkloadId] = set()
        self._many = 0.0
        self._counted_at = clock()

    def count(self, workload_id: WorkloadId, workload: Workload | None) -> None:
        """Count a change of a workload; None if it has ended."""
        state = workload.state if workload is not None else State.COMPLETED
        if state is not State.ALLOCATED or workload is None:
            self._forget(workload_id)
        elif workload_id not in self._starting and self._starts_soon(workload):
            self._starting[workload_id] = workload
            self._pods_starting += workload.pods
        if (state is State.RUNNING) != (workload_id in self._running):
            (self._running.add if state is State.RUNNING else self._running.discard)(workload_id)
            self._many = self._changes() + 1
            self._counted_at = self._clock()

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
            return _STARTED_BUSY_S if self._starts_first else SETTLED_S
        return _PASSING_BUSY_S if exists and self.hurried else SETTLED_S

    def too_early_s(self, workload: Workload, *, exists: bool) -> float:
        """Return for how long its state is likely to pass, or others are first, so that it is not written yet; 0 if it is time."""
        now = self._ledger.clock()
        running = workload.state is State.RUNNING
        if exists:
            since = workload.started_at if running else workload.allocated_at if workload.state is State.ALLOCATED else None
            if since is None or not self.hurried:
                return 0.0
            age_s = (now - since).total_seconds()
            return _PASSING_BUSY_S - age_s if 0 <= age_s < _PASSING_BUSY_S else 0.0
        undecided = workload.state is State.PENDING and workload.reason is Reason.NONE
        age_s = (now - workload.submitted_at).total_seconds()
        if running and self._starts_first and 0 <= age_s < _CREATED_BUSY_S:
            return _STARTED_BUSY_S
        if age_s < 0 or not (undecided or workload.state is State.ALLOCATED):
            return 0.0
        return max(self.delay_s(workload, exists=False) - age_s, 0.0)

    @property
    def _starts_first(self) -> bool:
        """True while many pods start. Work that does not start for long delays nothing else."""
        while self._starting and not self._starts_soon(oldest := next(iter(self._starting.values()))):
            self._forget(oldest.id)
        return self._pods_starting > _STARTING

    def _starts_soon(self, workload: Workload) -> bool:
        return workload.allocated_at is None or (self._ledger.clock() - workload.allocated_at).total_seconds() < _CREATED_BUSY_S

    def _forget(self, workload_id: WorkloadId) -> None:
        if (workload := self._starting.pop(workload_id, None)) is not None:
            self._pods_starting -= workload.pods

    def _changes(self) -> float:
        return self._many * math.pow(0.5, (self._clock() - self._counted_at) / _HALF_LIFE_S)
