"""Strict first come, first served.

Within a queue nothing overtakes: the first workload that cannot start now closes its queue for this pass. Queues do not wait for each
other. What could never start stands aside (Unsatisfiable) instead of closing the queue.

A pass is a conversation with the matcher: it offers the longest run of workloads that may all start if all fit, hears the answers up to
the first refusal, and goes on from there. It holds no clock and does no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.fluxion.messages import MatchResult, Verdict
from fluxqueue.queue.records import ReasonChange, Workload

__all__ = ["FcfsPass"]


class FcfsPass:
    """One pass over the pending workloads.

    Parameters
    ----------
    pending
        In policy order; blocked ones are the caller's to leave out.
    known
        Verdicts for shapes that are known to be impossible on this graph: those workloads are not offered.

    Attributes
    ----------
    granted
        (workload, answer) in the order granted.
    reasons
        Why the others wait, as far as this pass found out.
    """

    def __init__(self, pending: Iterable[Workload], known: dict[str, MatchResult] | None = None) -> None:
        self.granted: list[tuple[Workload, MatchResult]] = []
        self.reasons: list[ReasonChange] = []
        self._known = known or {}
        self._waiting = deque(pending)
        self._closed: dict[str, Workload] = {}

    def next_batch(self, limit: int) -> list[Workload]:
        """The workloads to offer next, at most ``limit``, to be answered up to and including the first refusal; empty ends the pass."""
        batch: list[Workload] = []
        while self._waiting and len(batch) < limit:
            workload = self._waiting.popleft()
            if impossible := self._known.get(workload.shape):
                self._say(workload, Reason.UNSATISFIABLE, impossible.reason)
            elif head := self._closed.get(workload.queue):
                behind = f"waits its turn behind {head.kind} {head.namespace}/{head.name}"
                self._say(
                    workload, Reason.WAITING_FOR_NODES, f"{behind}: the queue {workload.queue!r} is strictly first come, first served"
                )
            else:
                batch.append(workload)
        return batch

    def accept(self, batch: Sequence[Workload], answers: Sequence[MatchResult]) -> None:
        """Take the matcher's answers to a batch: one each, fewer after a refusal; what was not answered is offered again."""
        for workload, answer in zip(batch, answers, strict=False):
            match answer.verdict:
                case Verdict.GRANTED:
                    self.granted.append((workload, answer))
                case Verdict.UNSATISFIABLE:
                    self._known[workload.shape] = answer
                    self._say(workload, Reason.UNSATISFIABLE, answer.reason)
                case Verdict.INVALID:
                    self._say(workload, Reason.INVALID_REQUEST, answer.reason)
                case _:
                    self._closed[workload.queue] = workload
                    self._say(workload, Reason.WAITING_FOR_NODES, answer.reason)
        self._waiting.extendleft(reversed(batch[len(answers) :]))

    def _say(self, workload: Workload, reason: Reason, message: str) -> None:
        self.reasons.append(ReasonChange(workload=workload.id, reason=reason, message=message))
