"""Which planned starts the limits of queues and accounts allow.

A plan of nodes knows no limits. So the planned starts of a queue are gone through in the order of their
times, with what is in use then: what runs or has nodes reserved, up to its planned end, and what was planned
before. Work that would be over a limit at its time waits for others of its queue or account to end, so
nothing is known of its start. Limits on nodes are left out: which nodes work gets is not planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.quotas import Quotas

__all__ = ["starts_within_limits"]


def starts_within_limits(
    first: Sequence[Workload],
    planned: Mapping[WorkloadId, int | None],
    quotas: Quotas,
    ends: Iterable[tuple[int, WorkloadId]],
) -> dict[WorkloadId, int | None]:
    """Return planned starts, without those at which work would be over a limit.

    Parameters
    ----------
    first
        The work of one queue, in order.
    planned
        Its starts in Unix seconds, without those of reservations; None: not known.
    quotas
        What is in use now.
    ends
        When what is in use ends.
    """
    starts, use, running = dict(planned), quotas.without(()), list(ends)
    heapq.heapify(running)
    for at, number in sorted(
        (at, number) for number, each in enumerate(first) if (at := planned.get(each.id)) is not None
    ):
        workload = first[number]
        while running and running[0][0] <= at:
            use.remove_usage(heapq.heappop(running)[1])
        if use.refusal(workload) is not None:
            starts[workload.id] = None
            continue
        use.add_usage(workload, ())
        if workload.duration_s is not None:
            heapq.heappush(running, (at + workload.duration_s, workload.id))
    return starts
