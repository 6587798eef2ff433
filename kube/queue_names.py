"""The names of the FluxQueues, for whoever checks a name that a person typed
(`fluxqueue.api.typedvalues.queue_problem`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluxqueue.kube.errors import Forbidden, NotFound
from fluxqueue.kube.kinds import FLUXQUEUES

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["known_queues"]


async def known_queues(api: Api) -> frozenset[str] | None:
    """Return the names of all FluxQueues; None where the person may not read them, or where there are none to
    read.

    Raises
    ------
    ApiError
        The API server does not answer.
    """
    try:
        return frozenset(each.metadata.name for each in await api.list(FLUXQUEUES))
    except (Forbidden, NotFound):
        return None
