"""What a foreign matcher takes away from a workload, for ``kubectl fluxqueue explain``.

The queue says it in a condition of each FluxQueue. A queue without an object shares the matcher of the
others.
"""

from __future__ import annotations

from collections.abc import Callable

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FOREIGN_MATCHER_LOSES, POLICY_IN_FORCE
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.listing import list_queues

__all__ = ["matcher_notes_of"]


def matcher_notes_of(client: ApiClient) -> Callable[[FluxJob], str]:
    """Return a function that says what the matcher cannot do for a FluxJob;
    nothing for our own, or if FluxQueues may not be read.
    """
    try:
        queues = list_queues(client)
    except ClusterError:
        queues = []
    notes = {
        queue.metadata.name: condition.message
        for queue in queues
        for condition in queue.status.conditions or ()
        if condition.type == POLICY_IN_FORCE
    }

    def of(job: FluxJob) -> str:
        return notes.get(job.spec.queue, FOREIGN_MATCHER_LOSES) if notes else ""

    return of
