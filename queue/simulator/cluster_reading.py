"""Reads from the API server what a forecast for one Job needs, with the rights of who asks."""

from __future__ import annotations

import asyncio
from typing import Final

from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import (
    FLUXACCOUNTS,
    FLUXJOBS,
    FLUXQUEUES,
    FLUXRESERVATIONS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
)
from fluxqueue.kube.transport import Api
from fluxqueue.queue.simulator.cluster_snapshot import SiteObjects
from fluxqueue.queue.simulator.job_forecasts import ClusterObjects

__all__ = ["MOST_PODS", "TooManyPods", "read_cluster"]

MOST_PODS: Final = 200_000
_ON_NODES: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class TooManyPods(Exception):
    """There are more pods than a forecast is to read."""


async def read_cluster(api: Api, job: Job, most_pods: int = MOST_PODS) -> ClusterObjects:
    """Read the cluster for a Job.

    Parameters
    ----------
    api
        A client with the rights of who asks.
    job
        What a dry run returned.
    most_pods
        Pods on nodes that are read at most.

    Raises
    ------
    ApiError
        Something may not be read, or the API server does not answer.
    TooManyPods
        There are more.
    """
    namespace, spec = job.metadata.namespace, job.spec.template.spec
    nodes, fluxjobs, pods = await asyncio.gather(api.list(NODES), api.list(FLUXJOBS), _pods(api, most_pods))
    site = SiteObjects(*await asyncio.gather(api.list(FLUXQUEUES), api.list(FLUXACCOUNTS), api.list(FLUXRESERVATIONS)))
    return ClusterObjects(
        nodes,
        pods,
        fluxjobs,
        site,
        await api.list(PRIORITY_CLASSES) if spec.priority_class_name else (),
        await api.list(RUNTIME_CLASSES) if spec.runtime_class_name else (),
        (await api.get(NAMESPACES, namespace)).metadata.labels or {},
        await api.list(LIMIT_RANGES, namespace),
    )


async def _pods(api: Api, most: int) -> list[Pod]:
    """Return the pods that use nodes."""
    pods: list[Pod] = []
    token: str | None = None
    while token != "":
        page = await api.page(PODS, field_selector=_ON_NODES, continue_token=token or "")
        pods += page.items
        if len(pods) > most:
            raise TooManyPods
        token = page.continue_token
    return pods
