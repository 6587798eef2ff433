"""Reads from the API server what a forecast for one Job needs, with the rights of who asks."""

from __future__ import annotations

import asyncio
from typing import Final

from fluxqueue.api.jobs import Job
from fluxqueue.api.poddefaults import RuntimeClass
from fluxqueue.api.pods import Pod
from fluxqueue.api.termination import leaf_errors
from fluxqueue.kube.errors import ApiError
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
    namespace = job.metadata.namespace
    try:
        async with asyncio.TaskGroup() as group:  # which ends the others if one is refused
            nodes, fluxjobs = group.create_task(api.list(NODES)), group.create_task(api.list(FLUXJOBS))
            pods = group.create_task(_pods(api, most_pods))
            queues, accounts = (
                group.create_task(api.list(FLUXQUEUES)),
                group.create_task(api.list(FLUXACCOUNTS)),
            )
            reservations, classes = (
                group.create_task(api.list(FLUXRESERVATIONS)),
                group.create_task(api.list(PRIORITY_CLASSES)),
            )
            namespace_read, limit_ranges = (
                group.create_task(api.get(NAMESPACES, namespace)),
                group.create_task(api.list(LIMIT_RANGES, namespace)),
            )
            runtime_classes = group.create_task(_runtime_classes(api, job))
    except* (ApiError, TooManyPods) as failed:
        raise leaf_errors(failed)[0] from None
    return ClusterObjects(
        nodes.result(),
        pods.result(),
        fluxjobs.result(),
        SiteObjects(queues.result(), accounts.result(), reservations.result()),
        classes.result(),
        runtime_classes.result(),
        namespace_read.result().metadata.labels or {},
        limit_ranges.result(),
    )


async def _runtime_classes(api: Api, job: Job) -> list[RuntimeClass]:
    return await api.list(RUNTIME_CLASSES) if job.spec.template.spec.runtime_class_name else []


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
