"""Asks Deployments, ReplicaSets and StatefulSets how many pods they want.

They are read when the answer matters (a pod went, a gang begins) and not watched: that is seldom, and a cluster has many of them.
"""

from __future__ import annotations

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.kube.errors import NotFound
from fluxqueue.kube.kinds import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Kind
from fluxqueue.kube.transport import Api
from fluxqueue.queue.successors import Line

__all__ = ["read_owner"]

_KINDS: dict[str, Kind[ScaledWorkload]] = {"Deployment": DEPLOYMENTS, "ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS}


async def read_owner(api: Api, line: Line) -> ScaledWorkload | None:
    """The owner of a line as it stands; None if it is gone.

    Raises
    ------
    ApiError
        It cannot be asked.
    """
    try:
        return await api.get(_KINDS[line.kind], line.name, line.namespace)
    except NotFound:
        return None
