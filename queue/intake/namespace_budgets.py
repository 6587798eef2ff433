"""Keeps one namespace from filling the memory of queue and matcher with waiting work.

A request may have many kilobytes, and the queue and the matcher hold each one as long as its work waits. So
each namespace has a budget of workloads and of bytes, one over all queues (chart value
``queue.config.waitingPerNamespace``) and one in each queue that sets it (``limits.perNamespace.waiting`` of
the FluxQueue). Work beyond it gets a row without a request, with the reason ``QueueLimit``, and is outside of
every cycle. It is described again, oldest first, when a request of its namespace does not wait any more.

Whose request is kept follows from the rows alone. So the next leader decides the same, and reads no request
that was left out:

- Who has a request keeps it. One that becomes longer must fit.
- Who has none gets it if it fits, and nobody who was submitted before was left out in that queue.
- A namespace without waiting requests may always have one, however long.

Priority does not count, as it does not for what accounts may submit: a budget that a higher priority could
pass would bound nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import WaitingBudget
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import UNREAD, NewWorkload, Workload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.store.waiting_requests import LeftOut, RequestUse

__all__ = ["NO_BUDGET", "NamespaceBudgets"]

NO_BUDGET = WaitingBudget()
_AT_ONCE = 100
"""So much work that was left out is described at a time; while all of it fits, the next follows."""


@dataclass(slots=True)
class _Batch:
    """What a batch has decided and the ledger does not know yet, by namespace and queue."""

    entered: dict[str, dict[str, RequestUse]] = field(default_factory=dict)
    """Requests that are kept from now on."""
    oldest: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many of those that were left out are not any more: the oldest ones."""
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Where work was left out, so that no other new work enters."""


class NamespaceBudgets:
    """Decides whose request is kept while it waits.

    Parameters
    ----------
    caches
        Knows the budgets of the queues.
    ledger
        The workloads.
    budget
        Of each namespace over all queues.
    enqueue
        Called with the uid of work that was left out, and is to be described again.
    """

    def __init__(
        self, caches: Caches, ledger: Ledger, budget: WaitingBudget, enqueue: Callable[[str], None]
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._budget = budget
        self._enqueue = enqueue

    def assign(self, described: Sequence[NewWorkload]) -> list[NewWorkload]:
        """Return the descriptions of a batch; those beyond a budget without their requests."""
        batch = _Batch()
        return [self._assign(new, batch) for new in described]

    def stays_out(self, row: Workload) -> bool:
        """True if work was left out, and to describe it again would change nothing."""
        if not row.left_out:
            return False
        place = row.submitted_at, row.id
        return place not in self._left_out(row.namespace, row.queue)[:_AT_ONCE] or not self._has_room(
            row.namespace, row.queue
        )

    def _assign(self, new: NewWorkload, batch: _Batch) -> NewWorkload:
        row = self._ledger.by_uid(new.uid)
        if not new.jobspec or (row is not None and row.state is not State.PENDING):
            return new
        held = row if row is not None and row.jobspec else None
        if (held is None and not self._is_next(new, row, batch)) or not self._fits(new, held, batch):
            batch.refused.add((new.namespace, new.queue))
            return replace(
                new,
                jobspec="",
                shape="",
                generation=UNREAD,
                reason=Reason.QUEUE_LIMIT,
                message=self._message(new),
            )
        if row is not None and row.left_out and row.queue == new.queue:
            batch.oldest[new.namespace, new.queue] += 1
        grown = len(new.jobspec) - (len(held.jobspec) if held is not None else 0)
        batch.entered.setdefault(new.namespace, {}).setdefault(new.queue, RequestUse()).add(
            0 if held is not None else 1, grown
        )
        return new

    def _is_next(self, new: NewWorkload, row: Workload | None, batch: _Batch) -> bool:
        """True if nobody who was left out in its queue comes before this workload."""
        scope = new.namespace, new.queue
        first = self._left_out(*scope)[batch.oldest[scope] :][:1]
        return (
            first[0][1] == row.id if first and row is not None else not first and scope not in batch.refused
        )

    def _left_out(self, namespace: str, queue: str) -> LeftOut:
        return self._ledger.requests.left_out(namespace).get(queue, ())

    def _fits(self, new: NewWorkload, held: Workload | None, batch: _Batch) -> bool:
        """True if a request is not longer than the one that it replaces, or exceeds no budget."""
        if held is not None and held.queue == new.queue and len(new.jobspec) <= len(held.jobspec):
            return True
        for budget, use, queue in self._budgets(new.namespace, new.queue, batch):
            before = held if held is not None and queue in ("", held.queue) else None
            others = use.workloads - (before is not None)
            size = use.size - (len(before.jobspec) if before is not None else 0) + len(new.jobspec)
            too_many = budget.workloads is not None and others >= budget.workloads
            if others and (too_many or (budget.size is not None and size > budget.size)):
                return False
        return True

    def _has_room(self, namespace: str, queue: str) -> bool:
        return all(
            (budget.workloads is None or use.workloads < budget.workloads)
            and (budget.size is None or use.size < budget.size)
            for budget, use, _ in self._budgets(namespace, queue, _Batch())
        )

    def _budgets(
        self, namespace: str, queue: str, batch: _Batch
    ) -> Iterator[tuple[WaitingBudget, RequestUse, str]]:
        """Yield each budget for the work of a namespace in a queue, what counts in it,
        and in which queue that is (empty: all).
        """
        held, entered = self._ledger.requests.held(namespace), batch.entered.get(namespace, {})
        yield self._budget, _sum([*held.values(), *entered.values()]), ""
        if (own := self._of_queue(namespace, queue)) is not None:
            yield own, _sum([uses[queue] for uses in (held, entered) if queue in uses]), queue

    def _of_queue(self, namespace: str, queue: str) -> WaitingBudget | None:
        defaults = self._caches.cluster_context(namespace).queues.get(queue)
        return defaults.waiting if defaults is not None else None

    def _message(self, new: NewWorkload) -> str:
        """Return why work was left out.
        It has no present figures: each row would be written again when they change.
        """
        own = self._of_queue(new.namespace, new.queue)
        most = [f"{self._budget.words} over all queues"] if self._budget.words else []
        if own is not None and own.words:
            most.append(f"{own.words} in the queue {new.queue!r}")
        return (
            f"{new.ref} is beyond what may wait of namespace {new.namespace!r} at once ({', '.join(most)}): "
            "it is considered, in the order of submission, when earlier work of the namespace starts, ends "
            "or is deleted; delete what is not needed, submit less at once, or have the budget raised"
        )

    def workload_changed(self, _workload: WorkloadId) -> None:
        """Have work that was left out described again where there is room now."""
        for namespace in self._ledger.requests.take_eased():
            self._wake(namespace)

    def _wake(self, namespace: str) -> None:
        """Have the oldest work described again that was left out, where there is room."""
        for queue, entries in self._ledger.requests.left_out(namespace).items():
            if self._has_room(namespace, queue):
                for _, workload in entries[:_AT_ONCE]:
                    if (row := self._ledger.get(workload)) is not None:
                        self._enqueue(row.uid)


def _sum(uses: Sequence[RequestUse]) -> RequestUse:
    return RequestUse(sum(use.workloads for use in uses), sum(use.size for use in uses))
