"""Evicts a MiniCluster whose brokers do not form an instance in time.

With a wrong certificate no broker reports anything, so only the time shows it. The MiniCluster is requeued,
and held after the third time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec
import structlog

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.miniclusters.minicluster_status import MiniClusterContext, status_of, time_left_s
from fluxqueue.queue.miniclusters.problems import KnownProblems
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.records import WorkloadId

__all__ = ["Evict", "FormationTimeout"]

log = structlog.get_logger()

_STARTS_TRIED = 3

Evict = Callable[[Sequence[Eviction]], Awaitable[list[WorkloadId]]]


class FormationTimeout:
    """Checks the time that brokers take to form an instance."""

    def __init__(self, evict: Evict, problems: KnownProblems, clock: Callable[[], datetime]) -> None:
        self._evict = evict
        self._problems = problems
        self._clock = clock

    async def check(self, context: MiniClusterContext) -> float | None:
        """Evict it if its time is over; return the seconds that it still has,
        None if nothing waits for its brokers.
        """
        now, workload = self._clock(), context.workload
        left_s = time_left_s(context, now)
        if left_s is None or left_s > 0 or workload is None:
            return left_s
        limit_s = context.minicluster.spec.form_timeout_seconds
        starts = workload.requeue_state.starts + 1
        message = (
            f"MiniCluster {workload.namespace}/{workload.name} did not form within {limit_s} s: "
            f"{status_of(context, now).message}"
        )
        reason = Reason.START_TIMEOUT
        if starts >= _STARTS_TRIED:
            reason = Reason.HELD
            message += (
                f"; it is held after {starts} tries: see the logs of its pods, "
                "then set spec.hold of its FluxJob to false"
            )
        log.warning("minicluster.not_formed", workload=workload.id, starts=starts, message=message)
        self._problems.warn(context.minicluster, "NotFormed", message)
        requeue_state = msgspec.structs.replace(workload.requeue_state, starts=starts)
        await self._evict(
            [Eviction(workload=workload.id, reason=reason, message=message, requeue_state=requeue_state)]
        )
        return None
