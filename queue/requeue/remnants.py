"""Ends remnants: slots of requeued work that stay booked,
because pods in them may still run on nodes that are missing or NotReady.
"""

from __future__ import annotations

import structlog

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import FluxionJobId, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["end_remnants"]

log = structlog.get_logger()


async def end_remnants(ledger: Ledger, caches: Caches, workload_id: WorkloadId) -> bool:
    """End the slots of a workload's remnants whose pods are gone or terminal;
    return True if there were some.
    """
    ended: list[tuple[FluxionJobId, int]] = []
    for remnant in ledger.remnants():
        if remnant.workload == workload_id:
            ended += [
                (slot.jobid, slot.rank) for slot in remnant.open_slots if _is_over(caches, slot.pod_uid)
            ]
    if ended:
        await ledger.end_slots(ended)
        log.info("remnant.slots_ended", workload=workload_id, slots=len(ended))
    return bool(ended)


def _is_over(caches: Caches, pod_uid: str | None) -> bool:
    pod = caches.pods.get_by_uid(pod_uid) if pod_uid is not None else None
    return pod is None or pod.terminal
