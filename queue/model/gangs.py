"""How many pods are bound together, by our scheduler or by the stock scheduler with our extender.

The pods of a first start belong together. One of them on a node without the others would hold resources for
nothing. So each pod carries, next to its allocation, the number of pods, and the scheduler waits for all of
them. Once one of them is bound, the gang has started. A pod that comes later (a replacement, a late index) is
bound alone.

A number that can never be reached would keep every pod waiting. So only slots count whose pods are certain to
come without another pod having to run first: all slots of a Job, and the slots of a group if each has its pod
already, because a StatefulSet may create its pods one by one. The services pod of a MiniCluster is created by
the queue at another time, and is bound alone.
"""

from __future__ import annotations

from collections.abc import Callable

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.records import Allocation, ReleaseMode, SlotState, Workload

__all__ = ["gang_size"]


def gang_size(workload: Workload, allocation: Allocation, pod_of: Callable[[str], Pod | None]) -> int:
    """Return how many pods of an allocation are bound together.

    Returns
    -------
    int
        1 if each pod is bound alone.
    """
    slots = [slot for slot in allocation.slots if slot.label != SERVICES_SLOT]
    if workload.state is not State.ALLOCATED or any(
        slot.state is SlotState.ENDED and slot.pod_uid for slot in slots
    ):
        return 1
    pods = [
        pod_of(slot.pod_uid) if slot.pod_uid else None for slot in slots if slot.state is not SlotState.ENDED
    ]
    if workload.release_mode is ReleaseMode.GROUP and None in pods:
        return 1
    known = [pod for pod in pods if pod is not None]
    if (
        any(pod.spec.node_name for pod in known)
        or len({pod.spec.scheduler_name == names.SCHEDULER_NAME for pod in known}) > 1
    ):
        return 1
    return max(len(pods), 1)
