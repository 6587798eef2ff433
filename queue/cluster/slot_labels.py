"""Which slots of a group have the size of a pod.

Requests and host ports are in the spec of a pod. What its claims take, of devices and of volumes that a
driver limits, depends on objects of the cluster, which change after the group was matched: claims get their
devices, and drivers other limits. So claims decide only between slots that are alike in all else, and a pod
may claim less than its slot has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fluxqueue.api.graphnames import resource_type
from fluxqueue.api.hostports import pod_needs
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.model.constraints import InexpressibleConstraint
from fluxqueue.queue.model.jobspecs import slots_for, taken_once_in
from fluxqueue.queue.noderules.device_requests import device_needs
from fluxqueue.queue.noderules.volumes import volume_needs

__all__ = ["label_for_pod"]


def label_for_pod(jobspec: str, namespace: str, spec: PodSpec, cluster: ClusterContext) -> str | None:
    """Return the label of the slots that are for pods like this one; None if no slot is, or if the pod cannot
    be read.
    """
    try:
        slots = slots_for(jobspec, pod_needs(spec))
        claimed = _claimed(jobspec, namespace, spec, cluster) if any(slots.values()) else {}
    except (InvalidRequest, InexpressibleConstraint):
        return None
    kinds = {kind for counted in slots.values() for kind in counted}
    fitting = [
        label
        for label, counted in slots.items()
        if all(claimed.get(kind, 0) <= counted.get(kind, 0) for kind in kinds)
    ]
    return min(fitting, key=lambda label: sum(slots[label].values()), default=None)


def _claimed(jobspec: str, namespace: str, spec: PodSpec, cluster: ClusterContext) -> Mapping[str, int]:
    """Return what the claims of a pod take now, by resource type of the graph,
    without what the pods of its group share.
    """
    once = taken_once_in(jobspec).keys()
    volumes = volume_needs(spec, namespace, cluster.storage)
    devices = device_needs(spec, namespace, cluster.devices, cluster.claims_of_group(namespace, spec))
    shared_volumes = [claim for claim, name in volumes.of_claims.items() if resource_type(name) in once]
    shared_devices = [
        claim for claim, counts in devices.shared.items() if {*map(resource_type, counts)} <= once
    ]
    claimed: Counter[str] = Counter()
    for needs in (volumes.without(shared_volumes), devices.without(shared_devices)):
        claimed.update({resource_type(name): int(amount) for name, amount in needs.items()})
    return claimed
