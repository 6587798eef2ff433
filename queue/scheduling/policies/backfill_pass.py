"""Backfilling: later work may start first if it delays no reservation.

The first blocked workloads of a queue get reservations: concrete nodes at the earliest time the graph allows.
One reservation makes the policy EASY (Lifka 1995), a few make it hybrid, many conservative. Work for which
other work stops gets one wherever it is in the queue. Everything else is matched without a reservation and
starts if it fits now.
This module only chooses what to ask. The matcher computes the earliest time
(`fluxqueue.fluxion.match.earliest`). It holds reservations in the graph like running work, so it keeps later
work of every queue out of their way.

A reservation is kept, with these exceptions, which are also the causes that users see:

- It moves to an earlier start (`ImproveStep`). Each reservation is improved alone, in order, while all others
  are in the graph. It stays as it is unless the matcher finds something earlier.
- A workload of higher order arrives in the queue and cannot start without the nodes of the reservations
  behind it. Those are cancelled and planned again after it.
- Work of higher priority in another queue takes its nodes (`fluxqueue.queue.scheduling.policies.rounds`). To
  a reservation beyond the depth that happens in its own queue too.
- An administrator changes the policy of the queue to one without reservations.
- A job overruns, or a node goes or changes.

Its tests are `test_rounds.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, MatchVerdict
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import FIRST, Key
from fluxqueue.queue.scheduling.policies.open_rows import OpenRows
from fluxqueue.queue.scheduling.policies.passes import (
    CancelStep,
    CycleContext,
    HeldReservation,
    ImproveStep,
    MatchStep,
    PassResult,
    PendingQueue,
    Step,
    waiting_reason,
)
from fluxqueue.queue.scheduling.policies.refusals import Refusals

__all__ = ["HIGHER_ORDER", "NOT_WAITING", "BackfillPass"]

HIGHER_ORDER = "work of higher order arrived"
_MOST_APART = 64
"""Reservations within FluxReservations, on nodes that are set aside for them,
which do not count towards the depth."""
NOT_WAITING = "it does not wait for nodes any more"


class BackfillPass:
    """One pass over a queue.

    Parameters
    ----------
    queue
        The queue.
    context
        What all passes of the round share.
    depth
        Most reservations; 1 is EASY. A pass keeps reservations beyond this that were made before.
    """

    def __init__(self, queue: PendingQueue, context: CycleContext, depth: int) -> None:
        self.result = PassResult()
        self._backlog = backlog = queue.backlog
        self._queue = queue
        self._context = context
        self._depth = depth
        self._refusals = Refusals(queue, context)
        self._to_cancel: tuple[HeldReservation, ...] = ()
        self._cancel_cause = NOT_WAITING
        self._reserved: dict[int, HeldReservation] = {}
        gone: list[HeldReservation] = []
        for workload, reservation in queue.reservations.items():
            row = backlog.position(workload)
            if row is None:
                gone.append(reservation)
            else:
                self._reserved[row] = replace(reservation, priority=backlog[row].order_priority)
        self._to_cancel = tuple(gone)
        self._reserved_rows = sorted(self._reserved)
        found = (backlog.position(each) for each in context.preempting)
        self._preempting = sorted(row for row in found if row is not None)
        self._apart = {row for row in self._reserved if reservation_in(backlog[row].jobspec)}
        self._cursor = 0
        self._batch_size = 1
        self._rows_asked: list[int] = []
        self._blocked_row: int | None = None

    # ---- the next step -------------------------------------------------------------------------------------

    def head(self) -> Key | None:
        """As `Pass.head`."""
        if self._to_cancel:
            return FIRST
        self._refusals.apply_limits()
        self._refusals.apply_shared()
        self._refusals.apply_turns()
        row = self._next_row()
        return None if row is None else self._backlog.key(row)

    def head_behind(self) -> Key | None:
        """As `Pass.head_behind`: a workload that starts leaves its reservation to the next one that may get
        one.
        """
        row = self._refusals.possible.next(self._rows_asked[-1] + 1)
        while row is not None and row in self._reserved and not self._due_or_improvable(row):
            row = self._refusals.possible.next(row + 1)
        return None if row is None else self._backlog.key(row)

    def _next_row(self) -> int | None:
        """The next row to ask about: one that may start or be reserved,
        or a reservation that is due or may improve.
        """
        if self._blocked_row is not None:
            return self._blocked_row
        row = self._next_unreserved()
        reserved = next(
            (held for held in self._reserved_rows if held >= self._cursor and self._due_or_improvable(held)),
            None,
        )
        return row if reserved is None or (row is not None and row < reserved) else reserved

    def _next_unreserved(self) -> int | None:
        """The next row that may get a reservation, because it is far enough ahead,
        or else that may fit now.
        """
        row = self._refusals.possible.next(self._cursor)
        while row is not None and row in self._reserved:
            row = self._refusals.possible.next(row + 1)
        if row is None or self._free_depth(row) > 0:
            return row
        row = self._refusals.open.next(row)
        while row is not None and row in self._reserved:
            row = self._refusals.open.next(row + 1)
        preempting = self._next_preempting(self._cursor)
        return row if preempting is None or (row is not None and row < preempting) else preempting

    def _next_preempting(self, row: int) -> int | None:
        """The next row from this one on for which other work stops and that has no reservation yet."""
        rows = (each for each in self._preempting if each >= row and each not in self._reserved)
        return next((each for each in rows if self._refusals.possible[each]), None)

    def _free_depth(self, row: int) -> int:
        """How many rows from this one on may still get a reservation."""
        ahead = [held for held in self._reserved if held < row]
        room = self._depth - len(ahead) + min(len(self._apart.intersection(ahead)), _MOST_APART)
        return max(room, int(row in self._preempting))

    def _due_or_improvable(self, row: int) -> bool:
        if self._reserved[row].start <= self._context.now:
            return True
        return self._context.capacity_changed and not self._context.turns.had_turn(self._backlog[row])

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """As `Pass.next_step`."""
        if self._to_cancel:
            return CancelStep(self._to_cancel, self._cancel_cause)
        row = self._next_row()
        if row is None:
            return None
        self._rows_asked = [row]
        workload = self._backlog[row]
        if (reservation := self._reserved.get(row)) is not None:
            if reservation.start <= self._context.now:
                return MatchStep((workload,), reserve=True)
            self._rows_asked = self._reserved_from(row, limit, before)
            return ImproveStep(tuple(self._backlog[row] for row in self._rows_asked))
        if self._blocked_row is not None:
            return MatchStep((workload,), reserve=True)
        room = self._free_depth(row)
        if room > 0 and any(held > row for held in self._reserved):
            # Also if it is refused already: it may be one that never fits, which costs nobody a reservation.
            return MatchStep((workload,), stop=True)
        if room > 0 and (self._batch_size == 1 or room >= limit or not self._refusals.open[row]):
            self._rows_asked = self._run(self._refusals.possible, row, min(limit, room), before)
            return MatchStep(tuple(self._backlog[row] for row in self._rows_asked), reserve=True)
        most = min(limit, self._batch_size) if room > 0 else limit
        self._rows_asked = self._run(self._refusals.open, row, most, before, of_family=self._batch_size)
        predicted = room <= 0
        workloads = (self._backlog[row] for row in self._rows_asked)
        return MatchStep(
            tuple(map(self._predictable, workloads)) if predicted else tuple(workloads),
            stop=room > 0,
            predicted=predicted,
        )

    def _predictable(self, workload: Workload) -> Workload:
        """Return a workload without its prediction if that must not count.

        It does not where anything that it must not delay begins before it has ended as stated: what is set
        aside for people, and reservations of other queues. Nor where a reservation of this queue is later
        already than it was first.
        """
        if workload.predicted_s is None or workload.duration_s is None:
            return workload
        context = self._context
        own = {reservation.workload: reservation.start for reservation in self._reserved.values()}
        moved = any(
            start > context.first_starts.get(workload_id, start) for workload_id, start in own.items()
        )
        others = (start for workload_id, start in context.starts.items() if workload_id not in own)
        stated_end = context.now + workload.duration_s
        hits = any(context.now < start < stated_end for start in chain(context.reserved_starts, others))
        return replace(workload, predicted_s=None) if moved or hits else workload

    def _reserved_from(self, row: int, limit: int, before: Key | None) -> list[int]:
        """Reserved rows from this one on that are not due, up to the next row that may get a reservation."""
        stop = self._refusals.possible.next(self._cursor)
        while stop is not None and stop in self._reserved:
            stop = self._refusals.possible.next(stop + 1)
        rows = [row]
        for held in self._reserved_rows[bisect_right(self._reserved_rows, row) :]:
            behind = (stop is not None and held > stop) or (
                before is not None and self._backlog.key(held) >= before
            )
            if behind or len(rows) >= limit or self._reserved[held].start <= self._context.now:
                break
            if self._due_or_improvable(held):
                rows.append(held)
        return rows

    def _block(self, row: int) -> None:
        """Make the row the next one to reserve for, and cancel the reservations behind it."""
        self._blocked_row = self._cursor = row
        self._to_cancel = tuple(reservation for held, reservation in self._reserved.items() if held > row)
        self._cancel_cause = HIGHER_ORDER

    def _run(
        self, candidates: OpenRows, row: int, limit: int, before: Key | None, *, of_family: int | None = None
    ) -> list[int]:
        """Rows without a reservation to ask about together, from this one on;
        at most ``of_family`` of a family, which may be refused.
        """
        rows: list[int] = []
        families: Counter[int] = Counter()
        following: int | None = row
        stop = self._next_preempting(row + 1)
        while following is not None and len(rows) < limit and following not in self._reserved:
            if rows and before is not None and self._backlog.key(following) >= before:
                break
            if stop is not None and following >= stop:
                break
            if of_family is not None:
                family, _, _ = self._backlog.request_kind(following)
                families[family] += 1
                if families[family] > of_family:
                    break
            rows.append(following)
            following = candidates.next(following + 1)
        return rows[: self._context.quotas.together([self._backlog[each] for each in rows])]

    # ---- its answers ---------------------------------------------------------------------------------------

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """As `Pass.accept`."""
        match step:
            case CancelStep():
                self._accept_cancelled(step)
            case ImproveStep():
                for row, workload, answer in zip(self._rows_asked, step.workloads, answers, strict=False):
                    self._accept_for_reserved(row, workload, answer)
            case MatchStep():
                self._accept_match(step, answers)

    def _accept_cancelled(self, step: CancelStep) -> None:
        self._forget({reservation.workload: step.cause for reservation in step.reservations})
        self._to_cancel = ()

    @property
    def reservations(self) -> Collection[HeldReservation]:
        """As `Pass.reservations`."""
        return self._reserved.values()

    @property
    def reservations_beyond(self) -> Collection[HeldReservation]:
        """As `Pass.reservations_beyond`: those behind its depth, for which other work stops or did."""
        if len(self._reserved) <= self._depth:
            return ()
        counted = [row for row in sorted(self._reserved) if row not in self._apart]
        return [self._reserved[row] for row in counted[self._depth :]]

    def lose(self, causes: Mapping[WorkloadId, str]) -> None:
        """As `Pass.lose`."""
        self._forget(
            {
                reservation.workload: causes[reservation.workload]
                for reservation in self._reserved.values()
                if reservation.workload in causes
            }
        )
        self._queue.refusal_cache.clear()
        self._refusals = Refusals(self._queue, self._context)

    def _forget(self, causes: Mapping[WorkloadId, str]) -> None:
        """Record that reservations are gone."""
        self._context.shared.clear()
        self.result.dropped.update(causes)
        for workload in causes:
            self.result.reserved.pop(workload, None)
            self._context.starts.pop(workload, None)
            self._context.quotas.remove_usage(workload)
        self._reserved = {
            row: reservation
            for row, reservation in self._reserved.items()
            if reservation.workload not in causes
        }
        self._reserved_rows = [row for row in self._reserved_rows if row in self._reserved]

    def _accept_for_reserved(self, row: int, workload: Workload, answer: MatchResult) -> None:
        self._cursor = row + 1
        self._context.starts.pop(workload.id, None)
        if answer.verdict is MatchVerdict.GRANTED:
            self._context.shared.clear()
            del self._reserved[row]
            self.result.reserved.pop(workload.id, None)
            self.result.granted.append((workload, answer))
        elif answer.verdict is MatchVerdict.RESERVED:
            before = self._reserved[row]
            self._reserved[row] = reservation = _held(workload, answer)
            self._context.quotas.remove_usage(workload.id)
            if self._over_node_limit(workload, reservation):
                return
            if reservation.start != before.start or reservation.shares != before.shares:
                self._context.shared.clear()
                self.result.reserved[workload.id] = (workload, answer)
            self._refusals.refuse(row, shared=self._shares(workload))
            self._context.starts[workload.id] = reservation.start
        else:
            self._context.shared.clear()
            del self._reserved[row]
            self._context.quotas.remove_usage(workload.id)
            self.result.dropped[workload.id] = answer.reason or "it no longer fits"
            self._refuse(row, workload, answer, ever=True)

    def _accept_match(self, step: MatchStep, answers: Sequence[MatchResult]) -> None:
        self._blocked_row = None
        if self._rows_asked[0] in self._reserved:
            self._accept_for_reserved(self._rows_asked[0], step.workloads[0], answers[0])
            return
        refused = False
        for row, workload, answer in zip(self._rows_asked, step.workloads, answers, strict=False):
            self._cursor = row + 1
            if answer.verdict is MatchVerdict.GRANTED:
                self.result.granted.append((workload, answer))
                continue
            refused = True
            if answer.verdict is MatchVerdict.RESERVED:
                self._reserved[row] = reservation = _held(workload, answer)
                if reservation_in(workload.jobspec):
                    self._apart.add(row)
                if self._over_node_limit(workload, reservation):
                    continue
                self._refusals.refuse(row, shared=self._shares(workload))
                self._context.starts[workload.id] = answer.at
                self.result.reserved[workload.id] = (workload, answer)
                continue
            if answer.verdict is MatchVerdict.BUSY and not step.reserve and self._free_depth(row) > 0:
                self._block(row)
                break
            self._refuse(
                row,
                workload,
                answer,
                ever=step.reserve,
                predicted=step.predicted and workload.predicted_s is not None,
            )
        self._batch_size = max(1, self._batch_size // 2) if refused else self._batch_size * 2

    def _shares(self, workload: Workload) -> bool:
        """True if what is refused to a workload is refused to others as well:
        no reservation of this queue would yield to them alone.
        """
        return all(reservation.priority >= workload.order_priority for reservation in self._reserved.values())

    def _over_node_limit(self, workload: Workload, reservation: HeldReservation) -> bool:
        """Count a reservation as use of the queue, or cancel it at once if the queue may not use so many
        nodes.
        """
        quotas, nodes = self._context.quotas, reservation.nodes
        over = quotas.excess(workload, nodes, reservation.shares)
        if over is None:
            quotas.add_usage(workload, nodes, reservation.shares)
            return False
        quotas.set_aside(workload, over)
        self.result.add_reason(workload, over.reason, over.message)
        self._to_cancel, self._cancel_cause = (*self._to_cancel, reservation), over.message
        return True

    def _refuse(
        self, row: int, workload: Workload, answer: MatchResult, *, ever: bool, predicted: bool = False
    ) -> None:
        match answer.verdict:
            case MatchVerdict.UNSATISFIABLE:
                self.result.add_reason(workload, Reason.UNSATISFIABLE, answer.reason)
            case MatchVerdict.INVALID:
                self.result.add_reason(workload, Reason.INVALID_REQUEST, answer.reason)
            case _:
                self._refusals.refuse(row, ever=ever, predicted=predicted, shared=self._shares(workload))
                self.result.add_reason(workload, waiting_reason(answer), answer.reason)


def _held(workload: Workload, answer: MatchResult) -> HeldReservation:
    return HeldReservation(
        workload.id, FluxionJobId(answer.jobid), answer.at, answer.end, answer.shares, workload.order_priority
    )
