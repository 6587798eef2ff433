"""Names of queues that a person types: one that does not exist is refused with those that do.

Without the check, work in a misspelled queue waits for ever, and a list of it is empty as if nothing waited. A person who may not read
queues is not checked: the work's reason then says it.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.typedvalues import no_such_queue
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.listing import list_queues

__all__ = ["require_queue"]

_FORBIDDEN = 403


def require_queue(client: ApiClient, queue: str) -> None:
    """Return if there is a queue of this name; ``default`` is there without a FluxQueue.

    Raises
    ------
    ClusterError
        There is none; the message has the queues that exist.
    """
    if queue == names.DEFAULT_QUEUE:
        return
    if not queue:
        raise ClusterError("error: the name of the queue is empty: kubectl fluxqueue queues lists the queues")
    try:
        known = {names.DEFAULT_QUEUE, *(each.metadata.name for each in list_queues(client))}
    except ApiRefused as refused:
        if refused.status == _FORBIDDEN:
            return
        raise
    if queue not in known:
        raise ClusterError(f"error: {no_such_queue(queue, known)}")
