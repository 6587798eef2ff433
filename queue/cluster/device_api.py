"""Finds out whether the claims of devices can be read."""

from __future__ import annotations

import asyncio

import structlog

from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import DEVICE_CLASSES
from fluxqueue.kube.transport import Api

__all__ = ["devices_are_served"]

log = structlog.get_logger()

_RETRY_S = 1.0


async def devices_are_served(api: Api) -> bool:
    """True if the cluster has ``resource.k8s.io/v1`` and the queue may read it; waits until the API server has answered.

    A watch of a kind that does not exist would keep the queue from ever being ready. Where the API is missing (before Kubernetes
    1.34), or the right is, claims are left to the scheduler of the cluster alone, and that is logged. A refusal counts the second time: an
    API server that has just started refuses all but its administrators for a moment.
    """
    refused = False
    while True:
        try:
            await api.page(DEVICE_CLASSES, limit=1)
        except NotFound:
            log.info("devices.not_served", effect="claims of devices are not counted", remedy="use Kubernetes 1.34 or newer")
            return False
        except Forbidden as error:
            if not refused:
                refused = True
                await asyncio.sleep(_RETRY_S)
                continue
            log.error(
                "devices.forbidden", error=str(error), effect="claims of devices are not counted", remedy="install the chart's rights"
            )
            return False
        except ApiError as error:
            log.warning("devices.unknown", error=str(error), retry_s=_RETRY_S)
            await asyncio.sleep(_RETRY_S)
            continue
        return True
