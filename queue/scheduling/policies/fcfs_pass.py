"""Strict first come, first served.

No workload overtakes another: the first one that cannot start now closes its queue for this pass. A workload
that could never start gets the reason ``Unsatisfiable`` and does not close the queue. The policy makes no
reservations. If an administrator changes a queue to ``fcfs``, its reservations are cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, MatchVerdict
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import FIRST, Key
from fluxqueue.queue.scheduling.policies.passes import (
    CancelStep,
    CycleContext,
    HeldReservation,
    MatchStep,
    PassResult,
    PendingQueue,
    Step,
    waiting_reason,
)
from fluxqueue.queue.scheduling.policies.refusals import Refusals

__all__ = ["FcfsPass"]


class FcfsPass:
    """One pass over a queue.

    Parameters
    ----------
    queue
        The queue.
    context
        What all passes of the round share.
    """

    def __init__(self, queue: PendingQueue, context: CycleContext) -> None:
        self.result = PassResult()
        self._queue = queue
        self._backlog = queue.backlog
        self._context = context
        self._refusals = Refusals(queue, context)
        self._quotas = context.quotas
        self._starts = context.starts
        self._reservations = tuple(queue.reservations.values())
        self._cursor = 0
        self._closed = False
        self._refused = False
        self._rows_asked: list[int] = []

    def head(self) -> Key | None:
        """As `Pass.head`."""
        if self._reservations:
            return FIRST
        if self._closed:
            return None
        self._refusals.apply_limits()
        row = self._refusals.possible.next(self._cursor)
        while row is not None and not self._refusals.open[row] and self._keeps_nobody(self._backlog[row]):
            row = self._refusals.possible.next(row + 1)
        if row is None:
            return None
        self._cursor = row
        self._closed = not self._refusals.open[row]
        return None if self._closed else self._backlog.key(row)

    def head_behind(self) -> Key | None:
        """As `Pass.head_behind`: it makes no such step."""
        return FIRST

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """As `Pass.next_step`."""
        if self._reservations:
            return CancelStep(
                self._reservations, "the queue no longer reserves: it is strictly first come, first served"
            )
        rows: list[int] = []
        row = self._refusals.possible.next(self._cursor)
        while row is not None and len(rows) < limit and (before is None or self._backlog.key(row) < before):
            rows.append(row)
            row = self._refusals.possible.next(row + 1)
        workloads = tuple(self._backlog[row] for row in rows)
        workloads = workloads[: self._quotas.together(workloads)]
        self._rows_asked = rows[: len(workloads)]
        return MatchStep(workloads, stop=True)

    @staticmethod
    def _keeps_nobody(workload: Workload) -> bool:
        """True if the queue goes on behind a workload that waits:
        it waits for a FluxReservation, on nodes that are set aside for it.
        """
        return bool(reservation_in(workload.jobspec))

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """As `Pass.accept`."""
        if isinstance(step, CancelStep):
            self.result.dropped.update(
                (reservation.workload, step.cause) for reservation in step.reservations
            )
            for reservation in step.reservations:
                self._starts.pop(reservation.workload, None)
                self._quotas.remove_usage(reservation.workload)
            self._reservations = ()
            return
        for row, answer in zip(self._rows_asked, answers, strict=False):
            workload = self._backlog[row]
            self._cursor = row + 1
            match answer.verdict:
                case MatchVerdict.GRANTED:
                    self.result.granted.append((workload, answer))
                case MatchVerdict.UNSATISFIABLE:
                    self.result.add_reason(workload, Reason.UNSATISFIABLE, answer.reason)
                case MatchVerdict.INVALID:
                    self.result.add_reason(workload, Reason.INVALID_REQUEST, answer.reason)
                case _:
                    self._closed = self._refused = not self._keeps_nobody(workload)
                    self._refusals.refuse(row)
                    self.result.add_reason(workload, waiting_reason(answer), answer.reason)

    @property
    def reservations(self) -> Collection[HeldReservation]:
        """As `Pass.reservations`: none, since those it found are cancelled first."""
        return ()

    @property
    def reservations_beyond(self) -> Collection[HeldReservation]:
        """As `Pass.reservations_beyond`: none."""
        return ()

    def lose(self, causes: Mapping[WorkloadId, str]) -> None:
        """As `Pass.lose`. A refusal of this pass stays: the displaced reservations were no obstacle to it."""
        self._queue.refusal_cache.clear()
        self._refusals = Refusals(self._queue, self._context)
        self._closed = self._refused
