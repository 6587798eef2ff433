"""What goes on with fewer pods: which kinds, with how few, and which of their pods can go.

| kind | with how few | which go |
|---|---|---|
| moldable Job | ``fluxqueue/min-pods``, or the default of its queue | any |
| MiniCluster | ``minSize`` | the highest ranks |
| Deployment, ReplicaSet | ``fluxqueue/min-pods`` on the pod template | any |
| StatefulSet | the same | the highest ordinals |
| worker group of a RayCluster | its ``minReplicas`` | any |
| workers of an elastic PyTorchJob | its ``minReplicas`` | any but the first |

The pods of Jobs end without being counted as failed, all others by the Eviction API. Their owners create as
many again, which wait for room: so nothing is written to an owner, and all of them grow again by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.queue.model.moldable import min_pods_in
from fluxqueue.queue.model.records import Workload

__all__ = ["Shrinking", "shrinking_of_job"]


@dataclass(frozen=True, slots=True)
class Shrinking:
    """With how few pods work goes on, 0 if only with all; and whether only its last pods can go."""

    least: int = 0
    last_first: bool = False


def shrinking_of_job(workload: Workload, minicluster: MiniCluster | None) -> Shrinking:
    """Return how a Job, or the MiniCluster that it consists of, goes on with fewer pods."""
    if minicluster is not None:
        return Shrinking(minicluster.spec.min_size, last_first=True)
    return Shrinking(min_pods_in(workload.jobspec))
