"""What the workloads of one client share: the connections to the API server, and one watch for each namespace."""

from __future__ import annotations

import asyncio

from fluxqueue.client.fluxjob_watch import FluxJobWatch
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
        self._watches: dict[str, FluxJobWatch] = {}

    async def watch(self, namespace: str) -> FluxJobWatch:
        """Return the watch of a namespace, filled; the first call starts it.

        Raises
        ------
        FluxQueueError
            It cannot be: no permission, no FluxJobs in this cluster, no answer.
        """
        watch = self._watches.setdefault(namespace, FluxJobWatch(self.api, namespace))
        await watch.open()
        return watch

    async def close(self) -> None:
        """End all watches."""
        await asyncio.gather(*(watch.close() for watch in self._watches.values()))
