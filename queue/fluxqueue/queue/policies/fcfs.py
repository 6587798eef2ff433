"""Strict first come, first served.

Nothing overtakes: the first workload that cannot start now closes its queue for this pass. What could never start stands aside
(Unsatisfiable) instead of closing the queue. Nothing is promised, so an administrator who turns a queue to ``fcfs`` ends its
reservations.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, Verdict
from fluxqueue.queue.policies.backlog import FIRST, Key
from fluxqueue.queue.policies.passes import Drop, Findings, Line, Moment, Offer, Refusals, Step, next_true

__all__ = ["FcfsPass"]


class FcfsPass:
    """One pass over a queue.

    Parameters
    ----------
    line
        The queue.
    moment
        What is known beside it.
    """

    def __init__(self, line: Line, moment: Moment) -> None:
        self.findings = Findings()
        self._backlog = line.backlog
        self._refusals = Refusals(line, moment)
        self._possible = self._refusals.possible
        self._quotas = moment.quotas
        self._starts = moment.starts
        self._promises = tuple(line.promises.values())
        self._cursor = 0
        self._closed = False
        self._asked: list[int] = []

    def head(self) -> Key | None:
        """As `Pass.head`."""
        if self._promises:
            return FIRST
        if self._closed:
            return None
        self._refusals.heed_limits()
        found = next_true(self._possible, self._cursor)
        if found is None:
            return None
        self._cursor = found
        self._closed = not self._refusals.open[found]
        return None if self._closed else self._backlog.key(found)

    def next_step(self, limit: int, before: Key | None) -> Step | None:
        """As `Pass.next_step`."""
        if self._promises:
            return Drop(self._promises, "the queue no longer reserves: it is strictly first come, first served")
        rows: list[int] = []
        row = next_true(self._possible, self._cursor)
        while row is not None and len(rows) < limit and (before is None or self._backlog.key(row) < before):
            rows.append(row)
            row = next_true(self._possible, row + 1)
        workloads = tuple(self._backlog[row] for row in rows)
        workloads = workloads[: self._quotas.together(workloads)]
        self._asked = rows[: len(workloads)]
        return Offer(workloads, stop=True)

    def accept(self, step: Step, answers: Sequence[MatchResult]) -> None:
        """As `Pass.accept`."""
        if isinstance(step, Drop):
            self.findings.dropped.update((promise.workload, step.cause) for promise in step.promises)
            for promise in step.promises:
                self._starts.pop(promise.workload, None)
                self._quotas.drop(promise.workload)
            self._promises = ()
            return
        for row, answer in zip(self._asked, answers, strict=False):
            workload = self._backlog[row]
            self._cursor = row + 1
            match answer.verdict:
                case Verdict.GRANTED:
                    self.findings.granted.append((workload, answer))
                case Verdict.UNSATISFIABLE:
                    self.findings.say(workload, Reason.UNSATISFIABLE, answer.reason)
                case Verdict.INVALID:
                    self.findings.say(workload, Reason.INVALID_REQUEST, answer.reason)
                case _:
                    self._closed = True
                    self._refusals.refuse(row)
                    self.findings.say(workload, Reason.WAITING_FOR_NODES, answer.reason)
