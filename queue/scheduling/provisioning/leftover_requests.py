"""Deletes what an earlier leader requested of an autoscaler, when the cluster may not grow any more.

Without node shapes nobody requests nodes, and nobody compares what was requested. Room pods and pods that
keep nodes have no owner, so autoscalers would add and keep nodes for them for ever. ProvisioningRequests
would stay as long as their work. One list of each kind is enough, because no more are created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from fluxqueue.api import names
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.scheduling.provisioning.provisioning_requests import ProvisioningRequests
from fluxqueue.queue.scheduling.provisioning.room_pods import delete_pod, in_parallel

__all__ = ["LeftoverRequests"]

log = structlog.get_logger()

_PAUSE_S: Final = 10.0


class LeftoverRequests:
    """Deletes all requests for nodes once.

    Parameters
    ----------
    api
        The API server.
    namespace
        Of the queue.
    pause_s
        Until it tries again what failed, in seconds.
    """

    def __init__(self, api: Api, namespace: str, pause_s: float = _PAUSE_S) -> None:
        self._api = api
        self._namespace = namespace
        self._pause_s = pause_s

    def resync(self) -> None:
        """Do nothing: nobody makes requests."""

    async def run(self) -> None:
        """Delete them, and end."""
        await self._retried(self._delete_pods)
        await self._retried(self._delete_provisioning_requests)

    async def _retried(self, delete: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await delete()
                return
            except (NotFound, Forbidden) as error:
                log.debug("leftover_requests.not_listed", error=str(error))
                return
            except ApiError as error:
                log.warning("leftover_requests.failed", error=str(error))
            await asyncio.sleep(self._pause_s)

    async def _delete_pods(self) -> None:
        for label in (names.ROOM_LABEL, names.KEEPS_LABEL):
            pods = await self._api.list(PODS, self._namespace, label_selector=label)
            await in_parallel(delete_pod(self._api, self._namespace, pod.metadata.name) for pod in pods)

    async def _delete_provisioning_requests(self) -> None:
        requests = ProvisioningRequests(self._api)
        await in_parallel(requests.delete(each.key) for each in await requests.present())
