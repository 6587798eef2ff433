"""Compares the cluster with the tables: nodes, pods and objects that the queue holds back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.formatting import format_graph_amount
from fluxqueue.api.pods import Pod
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.requests import InvalidRequest, pod_requests, sum_requests
from fluxqueue.queue.model.groups import group_of, group_of_workload
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import SlotState, WorkloadId
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import FRESH, SchedulerState, SystemSnapshot

__all__ = ["compare_cluster"]


def compare_cluster(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Yield the differences."""
    yield from _overbooked_by_allocations(snapshot)
    yield from _overbooked_by_pods(snapshot)
    yield from _bound_pods(snapshot)
    yield from _suspended_jobs(snapshot)
    yield from _gated_pods(snapshot)
    yield from _unbound_pods(snapshot)


def _overbooked_by_allocations(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """The allocations of a node fit into it."""
    booked: dict[str, Counter[str]] = {}
    for allocation in snapshot.allocations:
        open_slots = Counter(slot.node for slot in allocation.open_slots)
        for share in allocation.shares:
            all_slots, slots = sum(share.slots.values()), open_slots[share.node]
            for kind, amount in share.amounts.items():
                booked.setdefault(share.node, Counter())[kind] += (
                    amount * min(slots, all_slots) // max(all_slots, 1)
                )
    for node, amounts in sorted(booked.items()):
        spec = snapshot.specs.get(node)
        if spec is None:
            continue
        offered = {pool.type: -(-pool.total // pool.vertex_size) * pool.vertex_size for pool in spec.pools}
        for kind, amount in sorted(amounts.items()):
            if amount > offered.get(kind, 0):
                sum_text, node_text = (
                    format_graph_amount(kind, amount),
                    format_graph_amount(kind, offered.get(kind, 0)),
                )
                yield Finding(
                    Difference.OVERBOOKED,
                    f"node {node}",
                    f"allocations on node {node} add up to {sum_text} of {node_text}",
                )


def _overbooked_by_pods(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """The requests of our pods on a node fit into it."""
    live = _live_jobids(snapshot)
    ours: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if (
            pod.spec.node_name
            and not pod.terminal
            and pod.metadata.annotation(names.ALLOCATION_ANNOTATION) in live
        ):
            ours.setdefault(pod.spec.node_name, []).append(pod)
    for node in snapshot.nodes:
        name, offers = node.metadata.name, node.status.allocatable or {}
        try:
            requests = sum_requests(pod_requests(pod.spec) for pod in ours.get(name, ()))
            exceeded = [
                kind for kind, amount in requests.items() if amount > parse_quantity(offers.get(kind, 0))
            ]
        except (InvalidQuantity, InvalidRequest):
            continue  # such a node is down, and its Event has the reason
        for kind in exceeded:
            sentence = f"pods on node {name} request {requests[kind]} {kind} of {offers.get(kind, 0)}"
            yield Finding(Difference.OVERBOOKED, f"node {name}", sentence)


def _bound_pods(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Each bound pod that was released has a slot of a stored allocation, on its node."""
    slots = {
        slot.pod_uid: slot
        for allocation in snapshot.allocations
        for slot in allocation.slots
        if slot.pod_uid and slot.state is SlotState.TAKEN
    }
    live = _live_jobids(snapshot)
    for pod in snapshot.pods:
        jobid = pod.metadata.annotation(names.ALLOCATION_ANNOTATION)
        if jobid is None or pod.terminal or not pod.spec.node_name:
            continue
        where = _pod_ref(pod)
        slot = slots.get(pod.metadata.uid)
        if jobid not in live:
            sentence = (
                f"{where} runs on {pod.spec.node_name} for allocation {jobid}, which is not stored as live"
            )
            yield Finding(Difference.STRAY_POD, where, sentence)
        elif slot is None:
            sentence = (
                f"{where} of allocation {jobid} runs on {pod.spec.node_name}, and no node is stored for it"
            )
            yield Finding(Difference.MISPLACED_POD, where, sentence)
        elif slot.node != pod.spec.node_name:
            sentence = (
                f"{where} of allocation {jobid} runs on {pod.spec.node_name}, its stored node is {slot.node}"
            )
            yield Finding(Difference.MISPLACED_POD, where, sentence)


def _suspended_jobs(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Each Job that the webhook suspended is in the queue."""
    known = {workload.uid for workload in snapshot.workloads}
    for job in snapshot.jobs:
        meta = job.metadata
        ours = (
            job.spec.suspend and meta.annotation(names.SUSPENDED_BY_ANNOTATION) == names.SUSPENDED_BY_WEBHOOK
        )
        if (
            ours
            and meta.uid not in known
            and not meta.deletion_timestamp
            and not job.finished
            and snapshot.is_old(meta.creation_timestamp)
        ):
            where = f"Job {meta.namespace}/{meta.name}"
            yield Finding(
                Difference.UNKNOWN_OBJECT, where, f"{where} is suspended by the queue and is not in it"
            )


def _gated_pods(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Each pod with our gate is in the queue: by itself, with its Job or with its group."""
    rows = {workload.uid: workload for workload in snapshot.workloads}
    groups = {key for workload in snapshot.workloads if (key := group_of_workload(workload)) is not None}
    with_composites = {key.namespace for key in groups if key.source == COMPOSITE_POD_GROUPS.name}
    free = _workloads_with_a_free_slot(snapshot)
    live, jobs = _live_jobids(snapshot), {job.metadata.uid for job in snapshot.jobs}
    for pod in snapshot.pods:
        meta = pod.metadata
        if (
            not pod.held
            or meta.deletion_timestamp
            or pod.terminal
            or not snapshot.is_old(meta.creation_timestamp)
        ):
            continue
        owner = owning_job_uid(pod)
        running = rows.get(owner or "")
        if (
            meta.uid not in rows
            and running is not None
            and running.state is State.RUNNING
            and running.id not in free
        ):
            sentence = f"{_pod_ref(pod)} is gated, its Job runs, and no node is kept for it or looked for"
            yield Finding(Difference.UNKNOWN_OBJECT, _pod_ref(pod), sentence)
            continue
        if meta.uid in rows or owner in rows or meta.annotation(names.ALLOCATION_ANNOTATION) in live:
            continue
        if owner is not None and owner not in jobs:
            continue  # its Job is deleted, and garbage collection deletes the pod
        if meta.label(names.POD_GROUP_LABEL) is not None or group_of(pod) in groups:
            continue  # a member is in the queue as part of its group
        if pod.spec.scheduling_group is not None and meta.namespace in with_composites:
            continue  # of which PodGroups a composite consists is not in the snapshot
        yield Finding(
            Difference.UNKNOWN_OBJECT, _pod_ref(pod), f"{_pod_ref(pod)} is gated and is not in the queue"
        )


def _workloads_with_a_free_slot(snapshot: SystemSnapshot) -> set[WorkloadId]:
    """Return the workloads with a slot that no active pod has: a gated pod may be about to get it."""
    active = {pod.metadata.uid for pod in snapshot.pods if pod.active}
    return {
        allocation.workload
        for allocation in snapshot.allocations
        if any(slot.pod_uid not in active for slot in allocation.open_slots)
    }


def _unbound_pods(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Pods that our own scheduler binds have a scheduler."""
    if snapshot.scheduler not in (SchedulerState.ABSENT, SchedulerState.AWAY):
        return
    fresh = {
        str(each.jobid)
        for each in snapshot.allocations
        if each.released_at is None or snapshot.now - each.released_at < FRESH
    }
    for pod in snapshot.pods:
        meta = pod.metadata
        if (
            not pod.fluxion_binds
            or pod.spec.node_name
            or not pod.active
            or not snapshot.is_old(meta.creation_timestamp)
        ):
            continue
        where = _pod_ref(pod)
        if snapshot.scheduler is SchedulerState.ABSENT:
            sentence = (
                f"{where} is to be bound by {names.SCHEDULER_NAME}, which is not installed "
                "(scheduler.enabled of the chart)"
            )
            yield Finding(Difference.UNBOUND_POD, where, sentence)
        elif pod.revocable and meta.annotation(names.ALLOCATION_ANNOTATION) not in fresh:
            nodes = meta.annotation(names.NODES_ANNOTATION)
            sentence = f"{where} was released to {nodes} and is not bound: no replica of the scheduler leads"
            yield Finding(Difference.UNBOUND_POD, where, sentence)


def _live_jobids(snapshot: SystemSnapshot) -> set[str]:
    return {str(allocation.jobid) for allocation in snapshot.allocations}


def _pod_ref(pod: Pod) -> str:
    return f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
