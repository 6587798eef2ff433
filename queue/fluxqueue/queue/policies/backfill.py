"""Backfilling: later work may go ahead where it delays no reservation.

The first blocked workloads of a queue get reservations, on concrete nodes, at the earliest moment the graph allows: one of them makes
the policy EASY (Lifka 1995), many make it conservative. Everything behind is offered without one and starts if it fits now. What is
promised stands in the graph like what runs, so the matcher itself keeps later work out of its way, in this queue and in every other.

A promise is kept:

- it is only given up for an earlier one: each is tried anew by itself, in order, while all others stand, and keeps its place unless
  something earlier was found (`Move`);
- a workload of higher order that arrives later and cannot start beside the promises made ends those behind it: they are planned anew
  after it. That, the end of a queue's reservations by its administrator, a job that overran and a node that went are the stated causes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, Verdict
from fluxqueue.queue.policies.backlog import FIRST, Key
from fluxqueue.queue.policies.passes import Drop, Findings, Line, Mask, Moment, Move, Offer, Promise, Refusals, Step, next_true
from fluxqueue.queue.records import FluxionJobId, Workload

__all__ = ["HIGHER_ORDER", "NOT_WAITING", "BackfillPass"]

HIGHER_ORDER = "work of higher order arrived"
NOT_WAITING = "it does not wait to be matched any more"


class BackfillPass:
    """One pass over a queue.

    Parameters
    ----------
    line
        The queue.
    moment
        What is known beside it.
    depth
        Reservations at most: 1 is EASY. More that were promised before are kept.
    """

    def __init__(self, line: Line, moment: Moment, depth: int) -> None:
        self.findings = Findings()
        self._backlog = backlog = line.backlog
        self._moment = moment
        self._depth = depth
        self._refusals = Refusals(line, moment)
        self._to_drop: tuple[Promise, ...] = ()
        self._drop_cause = NOT_WAITING
        self._promised: dict[int, Promise] = {}
        gone: list[Promise] = []
        for workload, promise in line.promises.items():
            row = backlog.position(workload)
            if row is None:
                gone.append(promise)
            else:
                self._promised[row] = promise
        self._to_drop = tuple(gone)
        self._rows = sorted(self._promised)
        self._cursor = 0
        self._size = 1
        self._asked: list[int] = []
        self._blocked_row: int | None = None

    # ---- what to do next -------------------------------------------------------------------------------------------------------

    def head(self) -> Key | None:
        """As `Pass.head`."""
        if self._to_drop:
            return FIRST
        self._refusals.heed_limits()
        row = self._next_row()
        return None if row is None else self._backlog.key(row)

    def _next_row(self) -> int | None:
        """The next row with something to do about: one that may fit or be promised, or a promise that is due or may be bettered."""
        if self._blocked_row is not None:
            return self._blocked_row
        row = self._next_without_promise()
        promised = next((held for held in self._rows if held >= self._cursor and self._worth_a_look(self._promised[held])), None)
        return row if promised is None or (row is not None and row < promised) else promised

    def _next_without_promise(self) -> int | None:
        """The next row that may be promised a start, because it stands far enough ahead, or else that may fit now."""
        row = next_true(self._refusals.possible, self._cursor)
        while row is not None and row in self._promised:
            row = next_true(self._refusals.possible, row + 1)
        if row is None or self._room_at(row) > 0:
            return row
        row = next_true(self._refusals.open, row)
        while row is not None and row in self._promised:
            row = next_true(self._refusals.open, row + 1)
        return row

    def _room_at(self, row: int) -> int:
        """How many from this row on may be promised a start."""
        return self._depth - sum(1 for held in self._promised if held < row)

    def _worth_a_look(self, promise: Promise) -> bool:
        return promise.start <= self._moment.now or self._moment.roomier

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """As `Pass.next_step`."""
        if self._to_drop:
            return Drop(self._to_drop, self._drop_cause)
        row = self._next_row()
        if row is None:
            return None
        self._asked = [row]
        workload = self._backlog[row]
        if (promise := self._promised.get(row)) is not None:
            if promise.start <= self._moment.now:
                return Offer((workload,), reserve=True)
            self._asked = self._promised_from(row, limit, before)
            return Move(tuple(self._backlog[row] for row in self._asked))
        if self._blocked_row is not None:
            return Offer((workload,), reserve=True)
        room = self._room_at(row)
        if room > 0 and any(held > row for held in self._promised):
            if self._refusals.open[row]:
                return Offer((workload,), stop=True)
            self._block(row)
            return Drop(self._to_drop, self._drop_cause)
        if room > 0 and (self._size == 1 or room >= limit or not self._refusals.open[row]):
            self._asked = self._run(self._refusals.possible, row, min(limit, room), before)
            return Offer(tuple(self._backlog[row] for row in self._asked), reserve=True)
        self._asked = self._run(self._refusals.open, row, min(limit, self._size), before)
        return Offer(tuple(self._backlog[row] for row in self._asked), stop=room > 0)

    def _promised_from(self, row: int, limit: int, before: Key | None) -> list[int]:
        """Promised rows from this one on that are not due: up to the next row that may be promised a start."""
        stop = next_true(self._refusals.possible, self._cursor)
        while stop is not None and stop in self._promised:
            stop = next_true(self._refusals.possible, stop + 1)
        rows = [row]
        for held in self._rows[bisect_right(self._rows, row) :]:
            behind = (stop is not None and held > stop) or (before is not None and self._backlog.key(held) >= before)
            if behind or len(rows) >= limit or self._promised[held].start <= self._moment.now:
                break
            rows.append(held)
        return rows

    def _block(self, row: int) -> None:
        """The row is next in line for a reservation: those behind it that were promised one stand back."""
        self._blocked_row = self._cursor = row
        self._to_drop, self._drop_cause = tuple(promise for held, promise in self._promised.items() if held > row), HIGHER_ORDER

    def _run(self, candidates: Mask, row: int, limit: int, before: Key | None) -> list[int]:
        """Rows to ask about together, from this one on: none with a promise among them."""
        rows: list[int] = []
        found: int | None = row
        while found is not None and len(rows) < limit and found not in self._promised:
            if rows and before is not None and self._backlog.key(found) >= before:
                break
            rows.append(found)
            found = next_true(candidates, found + 1)
        return rows[: self._moment.quotas.together([self._backlog[each] for each in rows])]

    # ---- what came of it -------------------------------------------------------------------------------------------------------

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """As `Pass.accept`."""
        match step:
            case Drop():
                self._accept_drop(step)
            case Move():
                for row, workload, answer in zip(self._asked, step.workloads, answers, strict=True):
                    self._accept_promised(row, workload, answer)
            case Offer():
                self._accept_offer(step, answers)

    def _accept_drop(self, step: Drop) -> None:
        gone = {promise.workload for promise in step.promises}
        self.findings.dropped.update(dict.fromkeys(gone, step.cause))
        for workload in gone:
            self.findings.promised.pop(workload, None)
            self._moment.starts.pop(workload, None)
            self._moment.quotas.drop(workload)
        self._promised = {row: promise for row, promise in self._promised.items() if promise.workload not in gone}
        self._rows = [row for row in self._rows if row in self._promised]
        self._to_drop = ()

    def _accept_promised(self, row: int, workload: Workload, answer: MatchResult) -> None:
        self._cursor = row + 1
        self._moment.starts.pop(workload.id, None)
        if answer.verdict is Verdict.GRANTED:
            del self._promised[row]
            self.findings.promised.pop(workload.id, None)
            self.findings.granted.append((workload, answer))
        elif answer.verdict is Verdict.RESERVED:
            before = self._promised[row]
            self._promised[row] = promise = _promise(workload, answer)
            self._moment.quotas.drop(workload.id)
            if self._too_many_nodes(workload, promise):
                return
            self._refusals.refuse(row)
            self._moment.starts[workload.id] = promise.start
            if promise.start != before.start or promise.shares != before.shares:
                self.findings.promised[workload.id] = (workload, answer)
        else:
            del self._promised[row]
            self._moment.quotas.drop(workload.id)
            self.findings.dropped[workload.id] = answer.reason or "it no longer fits"
            self._refuse(row, workload, answer, ever=True)

    def _accept_offer(self, step: Offer, answers: Sequence[MatchResult]) -> None:
        self._blocked_row = None
        if self._asked[0] in self._promised:
            self._accept_promised(self._asked[0], step.workloads[0], answers[0])
            return
        refused = False
        for row, workload, answer in zip(self._asked, step.workloads, answers, strict=False):
            self._cursor = row + 1
            if answer.verdict is Verdict.GRANTED:
                self.findings.granted.append((workload, answer))
                continue
            refused = True
            if answer.verdict is Verdict.RESERVED:
                self._promised[row] = promise = _promise(workload, answer)
                if self._too_many_nodes(workload, promise):
                    continue
                self._refusals.refuse(row)
                self._moment.starts[workload.id] = answer.at
                self.findings.promised[workload.id] = (workload, answer)
                continue
            if answer.verdict is Verdict.BUSY and not step.reserve and self._room_at(row) > 0:
                self._block(row)
                break
            self._refuse(row, workload, answer, ever=step.reserve)
        self._size = max(1, self._size // 2) if refused else self._size * 2

    def _too_many_nodes(self, workload: Workload, promise: Promise) -> bool:
        """Count a promise, or give it up at once: its nodes would be more than the queue may use."""
        quotas, nodes = self._moment.quotas, [share.node for share in promise.shares]
        excess = quotas.excess(workload, nodes)
        if not excess:
            quotas.take(workload, nodes)
            return False
        quotas.stand_aside(workload)
        self.findings.say(workload, Reason.QUEUE_LIMIT, excess)
        self._to_drop, self._drop_cause = (*self._to_drop, promise), excess
        return True

    def _refuse(self, row: int, workload: Workload, answer: MatchResult, *, ever: bool) -> None:
        match answer.verdict:
            case Verdict.UNSATISFIABLE:
                self.findings.say(workload, Reason.UNSATISFIABLE, answer.reason)
            case Verdict.INVALID:
                self.findings.say(workload, Reason.INVALID_REQUEST, answer.reason)
            case _:
                self._refusals.refuse(row, ever=ever)
                self.findings.say(workload, Reason.WAITING_FOR_NODES, answer.reason)


def _promise(workload: Workload, answer: MatchResult) -> Promise:
    return Promise(workload.id, FluxionJobId(answer.jobid), answer.at, answer.end, answer.shares)
