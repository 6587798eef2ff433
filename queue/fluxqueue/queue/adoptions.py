"""Released objects whose allocation the tables do not know, as after Postgres was restored from an older backup.

What was released says so itself: a Job carries the allocation's id and the node of every index in its template, a pod its id and its pin.
From these and from what the object asks for, the allocation is written down again as it was, under its old id, so that its pods keep
their places, nothing else is put there, and the work is followed to its end. Nothing of the object is changed.

Everything here is pure; `fluxqueue.queue.controllers.adopter` looks and stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from fluxqueue.api import hostlists, names
from fluxqueue.api.objects import Job, ObjectMeta, Pod, SchedulingGate
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.fluxclusters import job_served_by
from fluxqueue.queue.jobspecs import BESIDE, SLOT, share_on, sizes_in
from fluxqueue.queue.records import FluxionJobId

__all__ = ["Claim", "claim_of_job", "claim_of_pod", "job_as_it_waited", "jobid_of", "pod_as_it_waited", "shares_of"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a released object says of its allocation: the id, and the node of rank i."""

    jobid: FluxionJobId
    hosts: tuple[str, ...]


def jobid_of(meta: ObjectMeta) -> FluxionJobId | None:
    """The allocation an object's metadata speaks of; None if of none, or not in a form that we write."""
    text = meta.annotation(names.ALLOCATION_ANNOTATION) or meta.label(names.JOBID_LABEL) or ""
    return FluxionJobId(int(text)) if text.isdecimal() and 0 < len(text) < 19 else None


def claim_of_job(job: Job, pods: Iterable[Pod], wanted: int) -> Claim | None:
    """Read a running Job.

    Parameters
    ----------
    job
        Resumed, not finished.
    pods
        All it controls.
    wanted
        Pods that run at once, with the services pod beside them if there is one.

    Returns
    -------
    Claim or None
        None where it was not released, or where not all of its nodes can be told: a Job whose pods are let go one by one says nothing of
        those that were not yet.
    """
    jobid = jobid_of(job.metadata)
    if jobid is None or job.spec.suspend or job.finished or job.metadata.deletion_timestamp:
        return None
    listed = job.spec.template.metadata.annotation(names.NODES_ANNOTATION)
    if listed is not None:
        try:
            hosts = tuple(hostlists.decode(listed))
        except hostlists.InvalidHostlist:
            return None
        hosts = hosts[:1] if wanted == 1 else hosts
    else:
        standing = [pod for pod in pods if not pod.terminal and jobid_of(pod.metadata) == jobid]
        hosts = tuple(node for pod in sorted(standing, key=_place) if (node := _node_of(pod)))
    return Claim(jobid, hosts) if len(hosts) >= wanted > 0 else None


def claim_of_pod(pod: Pod) -> Claim | None:
    """Read a pod that is matched on its own; None where it was not released, or has ended."""
    jobid, node = jobid_of(pod.metadata), _node_of(pod)
    if jobid is None or not node or not pod.staying or pod.spec.gated_by(names.GATE):
        return None
    return Claim(jobid, (node,))


def job_as_it_waited(job: Job) -> Job:
    """The Job as it stood before it was released, so that it is read as what waits is read."""
    annotations = {**(job.metadata.annotations or {}), names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK}
    metadata = msgspec.structs.replace(job.metadata, annotations=annotations)
    return msgspec.structs.replace(job, metadata=metadata, spec=msgspec.structs.replace(job.spec, suspend=True))


def pod_as_it_waited(pod: Pod) -> Pod:
    """The pod with our gate, which its release took off."""
    gates = [*(pod.spec.scheduling_gates or ()), SchedulingGate(name=names.GATE)]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates))


def shares_of(jobspec: str, hosts: Iterable[str]) -> tuple[NodeShare, ...]:
    """What the slots of a workload whose pods are all alike take on each of their nodes; where it has one beside them, that is the last."""
    sizes, nodes = sizes_in(jobspec), list(hosts)
    labels = [SLOT] * len(nodes)
    if BESIDE in sizes:
        labels[-1] = BESIDE
    slots: dict[str, Counter[str]] = {}
    for node, label in zip(nodes, labels, strict=True):
        if node != names.NO_NODE:
            slots.setdefault(node, Counter())[label] += 1
    return tuple(share_on(node, counts, sizes) for node, counts in slots.items())


def _place(pod: Pod) -> tuple[bool, int, str]:
    """What pods are ordered by: the one beside the others last, those with an index by that, and the others by name."""
    index = pod.completion_index
    return job_served_by(pod) is not None, -1 if index is None else index, pod.metadata.name


def _node_of(pod: Pod) -> str:
    """The node a pod stands on, or is pinned to."""
    if pod.spec.node_name:
        return pod.spec.node_name
    required = ((pod.spec.affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""
