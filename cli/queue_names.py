"""Names of queues that a person types, checked before anything is done with them
(`fluxqueue.api.typedvalues.queue_problem`).
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.typedvalues import queue_problem
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
    if (
        problem := queue_problem(queue, _known(client) if queue not in ("", names.DEFAULT_QUEUE) else None)
    ) is not None:
        raise ClusterError(f"error: {problem}")


def _known(client: ApiClient) -> set[str] | None:
    try:
        return {each.metadata.name for each in list_queues(client)}
    except ApiRefused as refused:
        if refused.status == _FORBIDDEN:
            return None
        raise
