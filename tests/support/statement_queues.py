"""What the FluxJobs of a queue claim together, by their positions and estimates,
and allocations by the nodes that they share.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from support.statement_pictures import Picture, ShownWork

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import Allocation

__all__ = ["POSITION_S", "overtaking", "positions", "shared_nodes"]

POSITION_S = 45.0
"""While many change, each is shown at most twice a minute, and twenty of them every two seconds."""


def positions(picture: Picture) -> Mapping[str, str]:
    """Return which queues do not count 1, 2, 3 and so on, or not in the order of priority."""
    by_queue: dict[str, list[tuple[int, int, str]]] = {}
    for work in picture.work:
        status, row = work.fluxjob.status, work.row
        if status.position is not None and row.state is State.PENDING:
            by_queue.setdefault(row.queue, []).append((status.position, row.priority, work.title))
    found: dict[str, str] = {}
    for queue, shown in by_queue.items():
        shown.sort()
        numbers = [number for number, *_ in shown]
        if numbers != list(range(1, len(shown) + 1)):
            found[queue] = (
                f"its positions are {', '.join(f'{number} ({title})' for number, _, title in shown)}"
            )
        elif not _orders_by_more(picture, queue) and [row for _, row, _ in shown] != sorted(
            (row for _, row, _ in shown), reverse=True
        ):
            found[queue] = f"its positions are not by priority: {shown}"
    return found


def overtaking(picture: Picture) -> Mapping[str, str]:
    """Return which queues that serve first come, first served, expect a start before that of work ahead,
    or after an unknown one.
    """
    by_queue: dict[str, list[tuple[int, ShownWork]]] = {}
    for work in picture.work:
        row, position = work.row, work.fluxjob.status.position
        queue = picture.queues.get(row.queue)
        waits = (
            row.state is State.PENDING
            and row.reason not in LIMIT_REASONS
            and work.fluxjob.status.reserved_at is None
        )
        if waits and position is not None and queue is not None and queue.spec.policy is Policy.FCFS:
            by_queue.setdefault(row.queue, []).append((position, work))
    found: dict[str, str] = {}
    for queue_name, shown in by_queue.items():
        in_order = [work for _, work in sorted(shown, key=lambda each: each[0])]
        for ahead, behind in itertools.pairwise(in_order):
            first, then = ahead.fluxjob.status.eta, behind.fluxjob.status.eta
            if then is not None and (first is None or then < first):
                found[queue_name] = (
                    f"{behind.title} is expected to start at {then}, and {ahead.title} ahead of it at {first}"
                )
    return found


def _orders_by_more(picture: Picture, queue: str) -> bool:
    """True if a queue orders by more than priorities."""
    known = picture.queues.get(queue)
    return known is None or known.spec.priority_weights is not None or bool(picture.accounts)


def shared_nodes(picture: Picture) -> Mapping[str, str]:
    """Return the nodes that one allocation has for itself and another one uses."""
    alone: dict[str, Allocation] = {}
    users: dict[str, list[Allocation]] = {}
    for allocation in picture.ledger.allocations:
        for share in allocation.shares:
            users.setdefault(share.node, []).append(allocation)
            if share.exclusive:
                alone[share.node] = allocation
    return {
        node: (
            f"{holder.jobid} has it for itself, and "
            f"{', '.join(str(each.jobid) for each in users[node] if each is not holder)} too"
        )
        for node, holder in alone.items()
        if len(users[node]) > 1
    }
