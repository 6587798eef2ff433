"""Reads the allocations of released objects that the tables do not know, as after a restore of Postgres from
an older backup.

A released object carries its allocation. A Job has the allocation's id and the node of every index in its
template, a pod has its id and the node that it is pinned to. From these and from the object's requests the
allocation is stored again under its old id. So its pods keep their slots, nothing else is started in them,
and the work is tracked to its end. The object is not changed.

What an object claims is accepted only if it can be true. Policies keep people from writing these keys, but
policies may have been uninstalled for a while. The pods of a Job must be on the nodes that it claims, each
node must exist and have what is claimed of it, and no two objects may claim one allocation: of two, only the
one whose FluxJob shows the same id is accepted. An object that is not accepted is not in the queue, and its
pods are foreign.

All functions are pure; `fluxqueue.queue.recovery.adoption` reads and stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fluxqueue.api import hostlists, names
from fluxqueue.api.bounds import max_pods
from fluxqueue.api.graphnames import is_countable
from fluxqueue.api.jobs import Job
from fluxqueue.api.pinwindows import MARGIN, pin_until
from fluxqueue.api.pods import Pod, SchedulingGate
from fluxqueue.api.templatepins import without_pin
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.jobids import jobid_of
from fluxqueue.queue.model.jobs import is_elastic
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT, SLOT, share_on, sizes_in
from fluxqueue.queue.model.minicluster_jobs import job_served_by
from fluxqueue.queue.model.pods import age, pinned_node
from fluxqueue.queue.model.records import FluxionJobId, NewWorkload

__all__ = [
    "AdoptionCandidate",
    "AllocationClaim",
    "claim_of_job",
    "claim_of_pod",
    "consistent_candidates",
    "job_before_release",
    "pod_before_release",
    "shares_of",
]


@dataclass(frozen=True, slots=True)
class AllocationClaim:
    """What a released object claims: the id of its allocation, and the node of each rank."""

    jobid: FluxionJobId
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdoptionCandidate:
    """A released object that the tables do not know.

    Attributes
    ----------
    new
        As it was while it waited.
    claim
        Of the object.
    confirmed
        True if its FluxJob, which only the queue writes, shows the same id.
    """

    new: NewWorkload
    claim: AllocationClaim
    confirmed: bool

    @property
    def shares(self) -> tuple[NodeShare, ...]:
        """What it takes of each node."""
        return shares_of(self.new.jobspec, self.claim.hosts)


def claim_of_job(job: Job, pods: Iterable[Pod], wanted: int, now: datetime) -> AllocationClaim | None:
    """Read the claim of a running Job.

    If each index has its own slot, a slot is claimed for each pod that has a node. The list of nodes counts
    for the other indexes only while the pin window is open: later it may name nodes that were freed. Pods
    with an allocation of their own are matched alone.

    Parameters
    ----------
    job
        Resumed, not finished.
    pods
        All that it controls.
    wanted
        Pods that run at once, including the services pod if there is one.
    now
        The time.

    Returns
    -------
    AllocationClaim or None
        None if it was not released, if not all of its nodes are known (a Job whose pods are released one by
        one has no nodes of those that were not yet), or if its template and its other fields contradict each
        other.
    """
    jobid = jobid_of(job.metadata)
    if jobid is None or job.spec.suspend or job.finished or job.metadata.deletion_timestamp:
        return None
    living = [pod for pod in pods if not pod.terminal]
    released = [pod for pod in living if jobid_of(pod.metadata) == jobid]
    elsewhere = sum(1 for pod in living if jobid_of(pod.metadata) not in (None, jobid))
    listed = job.spec.template.metadata.annotation(names.NODES_ANNOTATION)
    if listed is not None:
        if jobid_of(job.spec.template.metadata) != jobid:
            return None
        try:
            hosts = tuple(hostlists.decode(listed))
        except hostlists.InvalidHostlist:
            return None
        if any(node not in hosts for pod in released if (node := _node_of(pod))):
            return None
        if not is_elastic(job):
            hosts = hosts[:1] if wanted == 1 else hosts
        elif now < pin_until(job.spec.template.metadata) + MARGIN:
            hosts = _by_index(released, hosts[: job.spec.completions])
        else:
            hosts = _by_index(released, ())
        return AllocationClaim(jobid, hosts) if set(hosts) - {names.NO_NODE} and wanted > 0 else None
    services = [node for pod in released if job_served_by(pod) is not None and (node := _node_of(pod))]
    own = [pod for pod in released if job_served_by(pod) is None]
    hosts = (
        _by_index(own, ())
        if is_elastic(job)
        else tuple(node for pod in sorted(own, key=age) if (node := _node_of(pod)))
    )
    placed = len(services) + sum(1 for node in hosts if node != names.NO_NODE)
    return (
        AllocationClaim(jobid, (*hosts, *services)) if placed and placed + elsewhere >= wanted > 0 else None
    )


def _by_index(pods: Iterable[Pod], listed: Sequence[str]) -> tuple[str, ...]:
    """Return the node of each index: the node of its pod, else the listed one, else none.

    Users may write an index on a pod: one that no workload can have counts as none.
    """
    nodes = {
        index: node
        for pod in pods
        if (index := pod.completion_index) is not None and index < max_pods() and (node := _node_of(pod))
    }
    size = max(len(listed), *(index + 1 for index in nodes), 0) if nodes else len(listed)
    return tuple(
        nodes.get(index) or (listed[index] if index < len(listed) else names.NO_NODE) for index in range(size)
    )


def claim_of_pod(pod: Pod) -> AllocationClaim | None:
    """Read the claim of a pod that is matched alone; None if it was not released, or has ended."""
    jobid, node = jobid_of(pod.metadata), _node_of(pod)
    if jobid is None or not node or not pod.active or pod.held:
        return None
    return AllocationClaim(jobid, (node,))


def job_before_release(job: Job) -> Job:
    """Return the Job as it was before its release, so that it is read like one that waits."""
    annotations = {
        **(job.metadata.annotations or {}),
        names.SUSPENDED_BY_ANNOTATION: names.SUSPENDED_BY_WEBHOOK,
    }
    metadata = msgspec.structs.replace(job.metadata, annotations=annotations)
    spec = msgspec.structs.replace(job.spec, suspend=True, template=without_pin(job.spec.template))
    return msgspec.structs.replace(job, metadata=metadata, spec=spec)


def pod_before_release(pod: Pod) -> Pod:
    """Return the pod with our gate, which its release removed;
    a pod that our own scheduler binds may have waited without it.
    """
    gates = [*(pod.spec.scheduling_gates or ()), SchedulingGate(name=names.GATE)]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates))


def shares_of(jobspec: str, hosts: Iterable[str]) -> tuple[NodeShare, ...]:
    """Return what a workload whose pods are all of one size takes of each node;
    a services pod is the last of them.
    """
    sizes, nodes = sizes_in(jobspec), list(hosts)
    labels = [SLOT] * len(nodes)
    if SERVICES_SLOT in sizes:
        labels[-1] = SERVICES_SLOT
    slots: dict[str, Counter[str]] = {}
    for node, label in zip(nodes, labels, strict=True):
        if node != names.NO_NODE:
            slots.setdefault(node, Counter())[label] += 1
    return tuple(share_on(node, counts, sizes) for node, counts in slots.items())


def consistent_candidates(
    candidates: Sequence[AdoptionCandidate],
    capacity: Callable[[str], Mapping[str, int] | None],
    held: Iterable[NodeShare],
) -> tuple[list[AdoptionCandidate], list[str]]:
    """Return the candidates whose claims can all be true at once.

    Parameters
    ----------
    candidates
        In any order; confirmed ones are checked first.
    capacity
        Return what a node can hold, in the graph's units; None if it does not exist.
    held
        What live allocations take of nodes.

    Returns
    -------
    tuple
        The accepted candidates, and a sentence for each of the others.
    """
    taken: dict[str, Counter[str]] = {}
    for share in held:
        taken.setdefault(share.node, Counter()).update(share.amounts)
    claimants = Counter((candidate.claim.jobid, candidate.confirmed) for candidate in candidates)
    accepted, refusals, ids = [], [], set()
    for candidate in sorted(candidates, key=lambda each: not each.confirmed):
        new, claim = candidate.new, candidate.claim
        if claim.jobid in ids or claimants[claim.jobid, candidate.confirmed] > 1:
            problem = "which another object claims too"
        else:
            problem = next(
                (
                    excess
                    for share in candidate.shares
                    if (excess := _excess(share, capacity(share.node), taken))
                ),
                "",
            )
        if problem:
            refusals.append(f"{new.ref} claims allocation {claim.jobid}, {problem}")
            continue
        ids.add(claim.jobid)
        accepted.append(candidate)
        for share in candidate.shares:
            taken.setdefault(share.node, Counter()).update(share.amounts)
    return accepted, refusals


def _excess(share: NodeShare, capacity: Mapping[str, int] | None, taken: Mapping[str, Counter[str]]) -> str:
    """Return in words what a node does not have of a share.
    Ports, volumes and devices are not reported: the pods that run have theirs.
    """
    if capacity is None:
        return f"on node {share.node}, which does not exist"
    before = taken.get(share.node, Counter())
    reported = {kind: amount for kind, amount in share.amounts.items() if not is_countable(kind)}
    kind = next(
        (kind for kind, amount in reported.items() if before[kind] + amount > capacity.get(kind, 0)), None
    )
    return f"and with it more {kind} than node {share.node} has" if kind is not None else ""


def _node_of(pod: Pod) -> str:
    """Return the node of a pod, or the one that it is pinned to:
    by annotation for our own scheduler, by affinity for kube-scheduler.
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    if pod.fluxion_binds:
        return pinned_node(pod) or ""
    required = ((pod.spec.affinity or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return ""
