"""What the workloads of one client share: the connections to the API server,
and one watch for each namespace.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fluxqueue.api.fluxjobs import FluxJob

if TYPE_CHECKING:
    from fluxqueue.client.flux_connections import FluxConnection
    from fluxqueue.client.object_watches import ObjectWatch
    from fluxqueue.kube.transport import Api

__all__ = ["Connection"]


class Connection:
    """Connections and watches.

    Attributes
    ----------
    api
        The API server.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self._others: list[FluxConnection] = []
        self._watches: dict[str, ObjectWatch[FluxJob]] = {}

    async def watch(self, namespace: str) -> ObjectWatch[FluxJob]:
        """Return the watch of a namespace, filled; the first call starts it.

        Raises
        ------
        FluxQueueError
            It cannot be: no permission, no FluxJobs in this cluster, no answer.
        """
        from fluxqueue.client.object_watches import watch_fluxjobs

        watch = self._watches.setdefault(namespace, watch_fluxjobs(self.api, namespace))
        await watch.open()
        return watch

    def add(self, other: FluxConnection) -> None:
        """Close another connection together with this one."""
        self._others.append(other)

    async def close(self) -> None:
        """End all watches, and close what was added."""
        await asyncio.gather(
            *(watch.close() for watch in self._watches.values()), *(other.close() for other in self._others)
        )
