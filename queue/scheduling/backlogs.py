"""The backlog of each queue, kept equal to the pending workloads of the ledger that may be matched."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.records import UNREAD, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import PART, Backlog
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Backlogs"]


Predict = Callable[[Workload], int | None]


def _no_prediction(_workload: Workload) -> int | None:
    return None


def _none_closed(_workload: Workload) -> int:
    return 0


class Backlogs:
    """Matchable workloads by queue.

    Parameters
    ----------
    ledger
        Source of the workloads. Each change of one is applied by the next `refreshing`.
    predicted
        Returns the predicted duration of a workload; None: there is none.
    closed
        Returns how many flavors a workload may not use yet.

    Attributes
    ----------
    by_queue
        The backlog of each queue that ever had work.
    changed
        Workloads to check next time.
    """

    def __init__(
        self,
        ledger: Ledger,
        predicted: Predict = _no_prediction,
        closed: Callable[[Workload], int] = _none_closed,
    ) -> None:
        self.by_queue: dict[str, Backlog] = {}
        self.changed: set[WorkloadId] = {workload.id for workload in ledger.all()}
        self._ledger = ledger
        self._predicted = predicted
        self._closed = closed
        self._queue_of: dict[WorkloadId, str] = {}

    def __contains__(self, workload: WorkloadId) -> bool:
        return workload in self._queue_of

    def workload_changed(self, workload: WorkloadId) -> None:
        """Check a workload at the next refresh."""
        self.changed.add(workload)

    def queue_of(self, workload: WorkloadId) -> str | None:
        """Return the queue in whose backlog a workload is; None if it is in none."""
        return self._queue_of.get(workload)

    def refreshing(self) -> Generator[Sequence[WorkloadId], None, None]:
        """Apply all changes; yield the ids of changed workloads.

        Yields an empty sequence after each part of the work if there is much of it: others may have a turn
        then, and what they change is applied too. If this is not iterated to its end, all changes are applied
        by the next call.
        """
        gave_turns = True
        while gave_turns:
            changed = [*self.changed]
            self.changed.clear()
            gave_turns = len(changed) > PART
            try:
                for _ in self._apply(changed):
                    gave_turns = True
                    yield ()
                for first in range(0, len(changed), PART):
                    yield changed[first : first + PART]
                    if len(changed) > PART:
                        yield ()
            except BaseException:
                self.changed.update(changed)
                raise

    def _apply(self, changed: Sequence[WorkloadId]) -> Iterator[None]:
        """Apply changes; yield after each part of the work."""
        now = self._ledger.clock()
        leaving, arriving = dict[str, list[WorkloadId]](), dict[str, list[Workload]]()
        for number, workload_id in enumerate(changed):
            if number % PART == PART - 1:
                yield
            workload = self._ledger.get(workload_id)
            matchable = (
                workload is not None
                and workload.state is State.PENDING
                and (
                    not workload.blocked
                    or (workload.reason is Reason.UNSATISFIABLE and workload.generation != UNREAD)
                )
                and not workload.backs_off(now)
            )
            former_queue = self._queue_of.get(workload_id)
            if former_queue is not None and (
                workload is None or not matchable or workload.queue != former_queue
            ):
                leaving.setdefault(former_queue, []).append(workload_id)
            if workload is not None and matchable:
                predicted_s, closed = self._predicted(workload), self._closed(workload)
                arriving.setdefault(workload.queue, []).append(
                    replace(workload, predicted_s=predicted_s, closed_flavors=closed)
                    if predicted_s or closed
                    else workload
                )
        for queue, gone in leaving.items():
            self.by_queue[queue].remove_all(gone)
            for workload_id in gone:
                del self._queue_of[workload_id]
        for queue, workloads in arriving.items():
            backlog = self.by_queue.setdefault(queue, Backlog())
            self._queue_of.update((workload.id, queue) for workload in workloads)
            yield from backlog.updating(workloads)
