"""What the requests of waiting work come to in each namespace and queue, and which work waits without its
request.

The intake decides by these figures whose request is kept (`fluxqueue.queue.intake.namespace_budgets`). They
change with each row, so that nobody counts a hundred thousand rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import Workload, WorkloadId

__all__ = ["LeftOut", "RequestUse", "WaitingRequests"]

LeftOut = Sequence[tuple[datetime, WorkloadId]]
"""Submit times and ids of work that waits without its request, in this order."""


@dataclass(slots=True)
class RequestUse:
    """How many workloads wait with their requests, and how many bytes these have."""

    workloads: int = 0
    size: int = 0

    def add(self, workloads: int, size: int) -> None:
        """Count more, or less."""
        self.workloads += workloads
        self.size += size


class WaitingRequests:
    """The requests of pending workloads, by namespace and queue."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, RequestUse]] = {}
        self._left_out: dict[str, dict[str, list[tuple[datetime, WorkloadId]]]] = {}
        self._eased: set[str] = set()

    def held(self, namespace: str) -> Mapping[str, RequestUse]:
        """Return what a namespace has in each queue."""
        return self._held.get(namespace, {})

    def left_out(self, namespace: str) -> Mapping[str, LeftOut]:
        """Return the work of a namespace that waits without its request, by queue;
        only queues that have some.
        """
        return self._left_out.get(namespace, {})

    def take_eased(self) -> set[str]:
        """Return the namespaces in which a request or a wait for one has ended since the last call."""
        eased, self._eased = self._eased, set()
        return eased

    def change(self, before: Workload | None, after: Workload | None) -> None:
        """Count a row as it is now; None: there was none, or is none any more."""
        if _place(before) == _place(after):
            return
        if before is not None and before.state is State.PENDING:
            self._remove(before)
        if after is not None and after.state is State.PENDING:
            self._add(after)

    def _add(self, row: Workload) -> None:
        if row.jobspec:
            self._held.setdefault(row.namespace, {}).setdefault(row.queue, RequestUse()).add(
                1, len(row.jobspec)
            )
        elif row.left_out:
            insort(
                self._left_out.setdefault(row.namespace, {}).setdefault(row.queue, []),
                (row.submitted_at, row.id),
            )

    def _remove(self, row: Workload) -> None:
        if row.jobspec:
            use = self._held[row.namespace][row.queue]
            use.add(-1, -len(row.jobspec))
            if not use.workloads:
                _drop(self._held, row)
        elif row.left_out:
            entries = self._left_out[row.namespace][row.queue]
            del entries[bisect_left(entries, (row.submitted_at, row.id))]
            if not entries:
                _drop(self._left_out, row)
        self._eased.add(row.namespace)


def _place(row: Workload | None) -> tuple[object, ...]:
    """Return what is counted of a row."""
    if row is None or row.state is not State.PENDING:
        return ()
    return row.namespace, row.queue, len(row.jobspec), row.left_out, row.submitted_at


def _drop(
    found: dict[str, dict[str, RequestUse]] | dict[str, dict[str, list[tuple[datetime, WorkloadId]]]],
    row: Workload,
) -> None:
    """Forget a queue of a namespace in which nothing is counted any more,
    and the namespace with its last one.
    """
    del found[row.namespace][row.queue]
    if not found[row.namespace]:
        del found[row.namespace]
