"""How much work each queue or account has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import Allocation, Workload

__all__ = ["WorkUsage", "usage_by"]


@dataclass(frozen=True, slots=True)
class WorkUsage:
    """The workloads of a queue or an account: how many are pending, how many hold nodes,
    and on how many nodes.
    """

    pending: int = 0
    running: int = 0
    nodes: int = 0


def usage_by(
    names_of: Callable[[Workload], Iterable[str]],
    workloads: Iterable[Workload],
    live: Iterable[tuple[Workload, Allocation]],
) -> dict[str, WorkUsage]:
    """Count by name; a workload counts for each of its names, and a node once for each name with an open slot
    on it.
    """
    pending: dict[str, int] = {}
    running: dict[str, int] = {}
    nodes: dict[str, set[str]] = {}
    for workload in workloads:
        counts = pending if workload.state is State.PENDING else running
        for name in names_of(workload):
            counts[name] = counts.get(name, 0) + 1
    for workload, allocation in live:
        for name in names_of(workload):
            nodes.setdefault(name, set()).update(slot.node for slot in allocation.open_slots)
    return {
        name: WorkUsage(pending.get(name, 0), running.get(name, 0), len(nodes.get(name, ())))
        for name in {*pending, *running, *nodes}
    }
