"""Creates and deletes the services pod of a MiniCluster: gated while its brokers wait, deleted when they have
ended.

A requeue, a preemption or a user evicts the Job by suspending it, which deletes its pods. The services pod is
not one of them, so it is deleted here.
"""

from __future__ import annotations

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import PODS
from fluxqueue.minicluster.injection_settings import identity_of
from fluxqueue.minicluster.pods import services_pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.miniclusters.minicluster_status import MiniClusterContext
from fluxqueue.queue.miniclusters.owned_objects import OwnedObjects
from fluxqueue.queue.model.minicluster_jobs import job_served_by

__all__ = ["ServicesPods"]

log = structlog.get_logger()


class ServicesPods:
    """Creates and deletes services pods."""

    def __init__(self, owned: OwnedObjects, caches: Caches) -> None:
        self._owned = owned
        self._caches = caches

    async def reconcile(self, context: MiniClusterContext) -> None:
        """Create the services pod while its Job is in the queue, gated while the Job waits, and delete it
        when the Job has ended.

        Raises
        ------
        NameConflict, Invalid, Forbidden
            It cannot be created.
        """
        minicluster, job, workload = context.minicluster, context.job, context.workload
        meta, lost = minicluster.metadata, self._caches.lost
        served = None
        queued = workload is not None and not workload.evicting
        if job is not None and queued and not (job.finished or job.metadata.deletion_timestamp):
            served = job.metadata.uid
        waits = workload is None or workload.state is State.PENDING
        leaving: list[Pod] = []
        for pod in self._caches.services_pods(meta.uid):
            if pod.metadata.deletion_timestamp:
                leaving.append(pod)
            elif job_served_by(pod) == served and (pod.held or not waits):
                return
            elif not (pod.terminal and (job is None or job.finished)):  # an ended one may still be read
                await self._delete(pod)
                leaving.append(pod)
        if served is None or any(not pod.spec.node_name or not lost(pod.spec.node_name) for pod in leaving):
            return  # the watch reports when they are deleted
        body = services_pod(identity_of(minicluster), minicluster.spec, served)
        if body is None:
            return
        taken, name, number = {pod.metadata.name for pod in leaving}, body["metadata"]["name"], 1
        # by one that cannot be deleted, because its node is missing or NotReady
        while body["metadata"]["name"] in taken:
            number += 1
            body["metadata"]["name"] = f"{name}-{number}"
        await self._owned.apply(body)

    async def _delete(self, pod: Pod) -> None:
        log.info(
            "services_pod.deleted", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", uid=pod.metadata.uid
        )
        await self._owned.delete(PODS, pod.metadata)
