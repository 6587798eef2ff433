"""Finds out whether this installation serves MiniClusters."""

from __future__ import annotations

import asyncio

import structlog

from fluxqueue.api import names
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import CUSTOM_RESOURCES
from fluxqueue.kube.transport import Api

__all__ = ["miniclusters_are_ours"]

log = structlog.get_logger()

_RETRY_S = 1.0


async def miniclusters_are_ours(api: Api) -> bool:
    """True if the CRD of MiniClusters exists and belongs to this chart; waits until the API server has
    answered.

    Two controllers of one kind would undo each other's work for ever. So where the Flux Operator serves
    MiniClusters, or nobody does, the queue starts no controller for them and logs it. The rest of the queue
    runs as usual.
    """
    name = f"{names.MINICLUSTERS}.{names.MINICLUSTER_GROUP}"
    while True:
        try:
            crd = await api.get(CUSTOM_RESOURCES, name)
        except (NotFound, Forbidden):
            log.info("miniclusters.not_served", crd=name)
            return False
        except ApiError as error:
            log.warning("miniclusters.unknown", crd=name, error=str(error), retry_s=_RETRY_S)
            await asyncio.sleep(_RETRY_S)
            continue
        if crd.metadata.label(names.OPERATOR_LABEL) == names.OPERATOR:
            return True
        log.error(
            "miniclusters.served_by_another",
            crd=name,
            effect="the queue's controller of MiniClusters is not started",
            remedy=(
                "remove the Flux Operator and its CRD, then install this chart's, "
                "or set miniclusters.enabled to false"
            ),
        )
        return False
