"""Predicted durations of the work that waits, for the queues that backfill by them.

What ended before this leader began is read from the tables once, when the first queue asks for predictions.
The end of each workload adds to it, and what waits of the same people is predicted anew
(`fluxqueue.queue.scheduling.policies.predictions`): in each cycle a part of it, since people may have very
much work that waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from datetime import datetime
from itertools import islice
from typing import Final

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.moldable import started_pods
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.users import programs_of
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.predictions import DurationHistory, PredictionKey
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["PredictedDurations", "key_of"]

_MOST_AT_ONCE: Final = 1_000


def key_of(workload: Workload) -> PredictionKey:
    """Return whose run times predict those of a workload:
    the user's, or where none is known the namespace's.
    """
    return workload.submitted_by or programs_of(workload.namespace), workload.account, workload.queue


class PredictedDurations:
    """Keeps the history, and predicts."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._history = DurationHistory()
        self._queues: frozenset[str] = frozenset()
        self._read = False
        self._running: dict[WorkloadId, tuple[PredictionKey, datetime]] = {}
        self._ended: set[PredictionKey] = set()
        self._waiting: defaultdict[PredictionKey, dict[WorkloadId, None]] = defaultdict(dict)
        """Pending work of the queues that ask for predictions."""
        self._key_of: dict[WorkloadId, PredictionKey] = {}
        self._outdated: dict[WorkloadId, None] = {}
        """What of it is to be predicted anew; what has waited longest for that comes first."""
        for workload in ledger.all():
            self.workload_changed(workload.id)

    @property
    def any(self) -> bool:
        """True if a queue backfills by predictions."""
        return bool(self._queues)

    @property
    def more(self) -> bool:
        """True if some are left for the next cycle."""
        return bool(self._outdated)

    async def begin_cycle(self, disciplines: Mapping[str, Discipline]) -> set[WorkloadId]:
        """Take the disciplines of a cycle; return the pending workloads whose predictions may be others
        now.
        """
        queues = frozenset(name for name, each in disciplines.items() if each.predicts)
        if queues and not self._read:
            # an end is stored before it is noted, so this has all that was noted until now
            stored = DurationHistory()
            for key, ran_s in await self._ledger.run_times.last_run_times():
                stored.add(key, ran_s)
            self._history, self._read = stored, True
        toggled, ended = queues ^ self._queues, self._ended
        self._queues, self._ended = queues, set()
        for key in ended & self._waiting.keys():
            self._outdated |= self._waiting[key]
        changed = set(islice(self._outdated, _MOST_AT_ONCE))
        for workload_id in changed:
            del self._outdated[workload_id]
        return changed | self._begin_again(toggled) if toggled else changed

    def _begin_again(self, toggled: Container[str]) -> set[WorkloadId]:
        """Return what waits in queues that begin or cease to ask for predictions."""
        pending = [workload for workload in self._ledger.all() if workload.state is State.PENDING]
        for workload in pending:
            self._note_waiting(workload.id, workload)
        return {workload.id for workload in pending if workload.queue in toggled}

    def of(self, workload: Workload) -> int | None:
        """Return the predicted duration of a workload; None if there is none,
        or if its queue does not ask for it.
        """
        return (
            self._history.predicted(key_of(workload), workload.duration_s)
            if workload.queue in self._queues
            else None
        )

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Record the start or the end of a workload."""
        workload = self._ledger.get(workload_id)
        self._note_waiting(workload_id, workload)
        if workload is None:
            if (ran := self._running.pop(workload_id, None)) is not None:
                key, started_at = ran
                self._history.add(key, (self._ledger.clock() - started_at).total_seconds())
                self._ended.add(key)
        elif (
            workload.started_at is None
            or workload.state is State.PENDING
            or started_pods(workload) < workload.pods
        ):
            self._running.pop(workload_id, None)
        else:
            self._running[workload_id] = key_of(workload), workload.started_at

    def _note_waiting(self, workload_id: WorkloadId, workload: Workload | None) -> None:
        key: PredictionKey | None = None
        former = self._key_of.get(workload_id)
        if workload is not None and workload.state is State.PENDING and workload.queue in self._queues:
            key = key_of(workload)
        if key == former:
            return
        if former is not None:
            del self._key_of[workload_id], self._waiting[former][workload_id]
            self._outdated.pop(workload_id, None)
            if not self._waiting[former]:
                del self._waiting[former]
        if key is not None:
            self._key_of[workload_id] = key
            self._waiting[key][workload_id] = None
