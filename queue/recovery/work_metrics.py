"""What the sweep counts for the metrics: work by state, who waits, and what could start although nodes are
free.

Alerts need to know more than how much waits: a queue that works has waiting work. `could_fit` counts what
waits for nodes and has no more pods than nodes are free. While that is above zero, something is released
every few minutes, or there is a reason to look for.

Namespaces are a label, so their number is bounded: the largest have their own value, all others share one.
`OTHERS` is no name of a namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.queue.metrics import COULD_FIT, NODES, PENDING, WORKLOADS
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["OTHERS", "WorkCounts", "WorkMetrics", "count_work"]

OTHERS: Final = "_other"
_NAMED: Final = 20
_WAITS_FOR_NODES: Final = frozenset({Reason.NONE, Reason.WAITING_FOR_NODES})
"""Without a reason, no scheduling cycle has seen it yet."""


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """What is shown.

    Attributes
    ----------
    pending
        Waiting workloads by namespace: the largest, and `OTHERS` if there are more.
    nodes
        ``closed`` (not ready or cordoned), ``used`` (by work of the queue) and ``free``.
    could_fit
        Workloads that wait for nodes and have no more pods than nodes are free.
    """

    pending: Mapping[str, int]
    nodes: Mapping[str, int]
    could_fit: int


def count_work(
    workloads: Iterable[Workload], live: Iterable[tuple[Workload, Allocation]], nodes: Iterable[Node]
) -> WorkCounts:
    """Count in one pass over each."""
    taken = {slot.node for _, allocation in live for slot in allocation.open_slots}
    uses = Counter({"free": 0, "used": 0, "closed": 0})
    for node in nodes:
        closed = node.spec.unschedulable or not node.status.ready
        uses["used" if node.metadata.name in taken else "closed" if closed else "free"] += 1
    waiting = [workload for workload in workloads if workload.state is State.PENDING]
    fitting = sum(
        1 for workload in waiting if workload.reason in _WAITS_FOR_NODES and workload.pods <= uses["free"]
    )
    return WorkCounts(_largest(Counter(workload.namespace for workload in waiting)), dict(uses), fitting)


def _largest(counts: Counter[str]) -> dict[str, int]:
    named = dict(counts.most_common(_NAMED))
    others = counts.total() - sum(named.values())
    return {**named, OTHERS: others} if others else named


class WorkMetrics:
    """Sets the gauges.

    Parameters
    ----------
    ledger
        The queue.
    nodes
        Returns the nodes of the cluster.
    """

    def __init__(self, ledger: Ledger, nodes: Callable[[], Sequence[Node]]) -> None:
        self._ledger = ledger
        self._nodes = nodes

    async def update(self) -> None:
        """Count everything once; the pass over work and nodes is made in a thread."""
        totals = dict.fromkeys(State, 0)
        for row in await self._ledger.counts():
            totals[row.state] += row.workloads
        for state, workloads in totals.items():
            WORKLOADS.labels(str(state)).set(workloads)
        _show(await asyncio.to_thread(count_work, self._ledger.all(), self._ledger.live(), self._nodes()))


def _show(counts: WorkCounts) -> None:
    PENDING.clear()
    for namespace, workloads in counts.pending.items():
        PENDING.labels(namespace).set(workloads)
    for use, nodes in counts.nodes.items():
        NODES.labels(use).set(nodes)
    COULD_FIT.set(counts.could_fit)
