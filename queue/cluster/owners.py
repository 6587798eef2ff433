"""Reads how many pods Deployments, ReplicaSets and StatefulSets want, and which Jobs of a JobSet are still to
come.

They are read when the answer matters (a pod is gone, a gang begins), and not watched: that is rare, and a
cluster has many of them.
"""

from __future__ import annotations

import structlog

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.jobsets import JobSet
from fluxqueue.kube.errors import Forbidden, NotFound
from fluxqueue.kube.kinds import DEPLOYMENTS, JOB_SETS, REPLICASETS, STATEFULSETS, Kind
from fluxqueue.kube.transport import Api
from fluxqueue.queue.model.replacement_rules import ReplicaOwner

__all__ = ["read_jobset", "read_owner"]

log = structlog.get_logger()

_KINDS: dict[str, Kind[ScaledWorkload]] = {
    "Deployment": DEPLOYMENTS,
    "ReplicaSet": REPLICASETS,
    "StatefulSet": STATEFULSETS,
}


async def read_owner(api: Api, owner: ReplicaOwner) -> ScaledWorkload | None:
    """Return an owner as it is now; None if it does not exist.

    Raises
    ------
    ApiError
        It cannot be read.
    """
    try:
        return await api.get(_KINDS[owner.kind], owner.name, owner.namespace)
    except NotFound:
        return None


async def read_jobset(api: Api, namespace: str, name: str) -> JobSet | None:
    """Return a JobSet as it is now; None if it does not exist, its kind is not served, or the queue may not
    read it.

    Raises
    ------
    ApiError
        It cannot be read.
    """
    try:
        return await api.get(JOB_SETS, name, namespace)
    except NotFound:
        return None
    except Forbidden as error:
        log.warning("jobset.unreadable", jobset=f"{namespace}/{name}", error=str(error))
        return None
