"""Finds out whether the claims of devices can be read."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from fluxqueue.api.devices import DeviceTaintRule
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import DEVICE_CLASSES, DEVICE_TAINT_RULES, Kind
from fluxqueue.kube.transport import Api

__all__ = ["devices_are_served", "served_taint_rules"]

log = structlog.get_logger()

_RETRY_S = 1.0


async def devices_are_served(api: Api) -> bool:
    """True if the cluster has ``resource.k8s.io/v1`` and the queue may read it; waits until the API server
    has answered.

    A watch of a kind that does not exist would keep the queue from ever being ready. Where the API is missing
    (before Kubernetes 1.34), or the right is, claims are left to the scheduler of the cluster alone, and that
    is logged.
    """
    problem = await _problem(api, DEVICE_CLASSES)
    if isinstance(problem, Forbidden):
        log.error(
            "devices.forbidden",
            error=str(problem),
            effect="claims of devices are not counted",
            remedy="install the chart's rights",
        )
    elif problem is not None:
        log.info(
            "devices.not_served",
            effect="claims of devices are not counted",
            remedy="use Kubernetes 1.34 or newer",
        )
    return problem is None


async def served_taint_rules(api: Api) -> Kind[DeviceTaintRule] | None:
    """Return DeviceTaintRules in the version that the cluster serves and the queue may read;
    None if there is none.
    """
    for kind in DEVICE_TAINT_RULES:
        if await _problem(api, kind) is None:
            return kind
    return None


async def _problem(api: Api, kind: Kind[Any]) -> NotFound | Forbidden | None:
    """Return why a kind cannot be listed; None if it can.

    A refusal counts the second time: an API server that has just started refuses all but its administrators
    for a moment.
    """
    refused = False
    while True:
        try:
            await api.page(kind, limit=1)
        except NotFound as error:
            return error
        except Forbidden as error:
            if refused:
                return error
            refused = True
            await asyncio.sleep(_RETRY_S)
        except ApiError as error:
            log.warning("devices.unknown", error=str(error), retry_s=_RETRY_S)
            await asyncio.sleep(_RETRY_S)
        else:
            return None
