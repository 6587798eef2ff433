"""The status of a MiniCluster, from its pods, its row in the queue and its Job.

A broker is online if its pod is ready: the pod becomes ready when its broker has joined the instance. The
status gives the reason for each missing broker as far as its pod shows it (it waits for a node, an image
cannot be pulled, a container fails repeatedly): "7/8 brokers online, waiting for lammps-5: the image cannot
be pulled". With a wrong certificate no broker reports anything, which is why there is a time-out.

All functions are pure: the same objects give the same status, at any time and for any leader. What the
objects cannot show later (when the brokers had formed, the exit code after the pod is deleted) is copied from
the status before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectCondition
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterState, MiniClusterStatus, MissingBroker
from fluxqueue.api.pods import ContainerStateTerminated, ContainerStatus, Pod
from fluxqueue.queue.model.conditions import dated
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.records import Allocation, Workload

__all__ = [
    "BrokerCount",
    "MiniClusterContext",
    "count_brokers",
    "exit_code_of",
    "quorum_of",
    "status_of",
    "time_left_s",
]

SELECTOR_LABEL = "hpa-selector"
_ENDED = (MiniClusterState.SUCCEEDED, MiniClusterState.FAILED, MiniClusterState.CANCELLED)
_SHOWN = 10
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class BrokerCount:
    """The brokers of a MiniCluster at one time.

    Attributes
    ----------
    wanted, online
        Brokers that it shall have, and those that have joined.
    missing
        The others, by rank.
    """

    wanted: int
    online: int
    missing: tuple[MissingBroker, ...] = ()


@dataclass(frozen=True, slots=True)
class MiniClusterContext:
    """A MiniCluster and everything that belongs to it.

    Attributes
    ----------
    minicluster
        As the watch shows it, with its present status.
    problems
        Why it cannot be created, or an edit of it cannot be applied.
    job, pods
        Its Job and the brokers' pods; None and empty before they are created.
    services
        The pod of its services.
    workload, allocation
        Its row in the queue; None before the intake and after the end.
    cancelled
        True if a person cancelled it in its FluxJob.
    """

    minicluster: MiniCluster
    problems: tuple[str, ...] = ()
    job: Job | None = None
    pods: tuple[Pod, ...] = ()
    workload: Workload | None = None
    allocation: Allocation | None = None
    cancelled: bool = False
    services: Pod | None = None


def count_brokers(name: str, size: int, pods: Sequence[Pod]) -> BrokerCount:
    """Count the brokers that are online.

    Parameters
    ----------
    name
        Of the Job: the host name of a pod is this name and an index.
    size
        Brokers wanted.
    pods
        Of the Job; the youngest of several pods of an index counts.
    """
    youngest: dict[int, Pod] = {}
    for each in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        if each.completion_index is not None and not each.metadata.deletion_timestamp:
            youngest[each.completion_index] = each
    missing = []
    for rank in range(size):
        pod = youngest.get(rank)
        if pod is None or not _ready(pod):
            pod_name = pod.metadata.name if pod is not None else f"{name}-{rank}"
            missing.append(MissingBroker(rank=rank, pod=pod_name, reason=_why_missing(pod)[:_LONGEST]))
    return BrokerCount(size, size - len(missing), tuple(missing))


def quorum_of(minicluster: MiniCluster) -> int:
    """Return how many brokers must be online for it to run: ``minSize``, or all."""
    return minicluster.spec.min_size or minicluster.spec.size


def exit_code_of(pods: Sequence[Pod], container: str) -> int | None:
    """Return the exit code of the application, which is that of the leading broker's container; None while it
    has not ended.

    If the container was restarted, its last end counts.
    """
    leaders = [pod for pod in pods if pod.completion_index == 0]
    for pod in sorted(leaders, key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True):
        for status in pod.status.container_statuses or ():
            ended = status.state.terminated
            if status.name == container and ended is not None and pod.terminal:
                return ended.exit_code
    return None


def time_left_s(context: MiniClusterContext, now: datetime) -> float | None:
    """Return the seconds that the brokers still have to form, negative if they are late;
    None if nothing waits for them.
    """
    minicluster, workload, allocation = context.minicluster, context.workload, context.allocation
    if workload is None or allocation is None or allocation.released_at is None or not workload.state.placed:
        return None
    if context.job is None or context.job.finished or _has_formed(minicluster, allocation):
        return None
    if _brokers(context).online >= quorum_of(minicluster):
        return None
    return minicluster.spec.form_timeout_seconds - (now - allocation.released_at).total_seconds()


def status_of(context: MiniClusterContext, now: datetime) -> MiniClusterStatus:
    """Return the status that a MiniCluster should show."""
    minicluster, workload, allocation = context.minicluster, context.workload, context.allocation
    before = minicluster.status
    brokers = _brokers(context)
    state, message = _state(context, brokers)
    placed = allocation is not None and state in (
        MiniClusterState.STARTING,
        MiniClusterState.RUNNING,
        MiniClusterState.STOPPED,
    )
    ended = state in _ENDED
    jobid = str(allocation.jobid) if allocation is not None else (before.jobid if ended else "")
    formed_at = before.formed_at if before.jobid == jobid else None
    if formed_at is None and state is MiniClusterState.RUNNING:
        formed_at = _timestamp(now)
    status = MiniClusterStatus(
        observed_generation=minicluster.metadata.generation,
        state=state,
        message=message[:4096],
        size=sum(1 for pod in context.pods if not pod.terminal and not pod.held),
        maximum_size=before.maximum_size or (minicluster.spec.maximum if context.job is not None else 0),
        selector=f"{SELECTOR_LABEL}={minicluster.metadata.name}",
        jobid=jobid,
        brokers=f"{brokers.online}/{brokers.wanted}" if placed else (before.brokers if ended else ""),
        brokers_online=brokers.online if placed else 0,
        missing=list(brokers.missing[:_SHOWN]) or None if placed else None,
        queue=workload.queue if workload is not None else before.queue or minicluster.spec.queue,
        nodes=_nodes(context) if workload is not None else (before.nodes if ended else ""),
        exit_code=_exit_code(context),
        started_at=_timestamp(workload.started_at)
        if workload is not None and workload.started_at is not None
        else before.started_at,
        formed_at=formed_at,
        finished_at=(before.finished_at or _timestamp(now)) if ended else None,
    )
    return msgspec.structs.replace(
        status, conditions=dated(_conditions(context, status, brokers), before.conditions, now)
    )


def _nodes(context: MiniClusterContext) -> str:
    """Return the node of each rank: of its slot, or of the pod by which it grew.
    The list ends before the first rank without a node.
    """
    allocation, size = context.allocation, context.minicluster.spec.size
    if allocation is None:
        return ""
    slots = {slot.rank: slot.node for slot in allocation.open_slots if slot.label != SERVICES_SLOT}
    grown = {
        pod.completion_index: pod.spec.node_name
        for pod in context.pods
        if pod.spec.node_name and not pod.terminal
    }
    nodes = [slots.get(rank) or grown.get(rank) for rank in range(size)]
    known = itertools.takewhile(lambda node: node is not None, nodes)
    return hostlists.encode([node for node in known if node is not None])


def _brokers(context: MiniClusterContext) -> BrokerCount:
    return count_brokers(context.minicluster.metadata.name, context.minicluster.spec.size, context.pods)


def _has_formed(minicluster: MiniCluster, allocation: Allocation) -> bool:
    status = minicluster.status
    return status.formed_at is not None and status.jobid == str(allocation.jobid)


def _state(context: MiniClusterContext, brokers: BrokerCount) -> tuple[MiniClusterState, str]:
    minicluster, job, workload = context.minicluster, context.job, context.workload
    problem = "; ".join(context.problems)
    if job is None and minicluster.status.finished_at is not None and minicluster.status.state in _ENDED:
        # its Job was deleted after it had ended
        return MiniClusterState(minicluster.status.state), minicluster.status.message
    if job is None:
        return (
            (MiniClusterState.INVALID, problem)
            if problem
            else (MiniClusterState.QUEUED, "its objects are being created")
        )
    if job.status.has_condition("Complete"):
        return MiniClusterState.SUCCEEDED, ""
    if job.status.has_condition("Failed"):
        failed = next(condition for condition in job.status.conditions or () if condition.type == "Failed")
        return MiniClusterState.FAILED, f"{failed.message or failed.reason}{_said_by_leader(context.pods)}"
    if workload is None:
        if context.cancelled:
            return MiniClusterState.CANCELLED, "it was cancelled through its FluxJob"
        return MiniClusterState.QUEUED, problem or "the queue has not read it yet"
    if workload.state is State.PENDING:
        return MiniClusterState.QUEUED, problem or workload.message
    if workload.evicting:
        return MiniClusterState.STOPPED, workload.message
    allocation = context.allocation
    if (allocation is not None and _has_formed(minicluster, allocation)) or brokers.online >= quorum_of(
        minicluster
    ):
        if workload.state is State.DRAINING:
            return MiniClusterState.RUNNING, problem
        return MiniClusterState.RUNNING, problem or (
            _waiting_for(brokers) if brokers.missing else _without_services(context.services)
        )
    if workload.state is State.DRAINING:
        return MiniClusterState.STARTING, "its Job ends"
    return MiniClusterState.STARTING, problem or _waiting_for(brokers)


def _waiting_for(brokers: BrokerCount) -> str:
    first = brokers.missing[0]
    more = f" and {len(brokers.missing) - 1} more" if len(brokers.missing) > 1 else ""
    return f"{brokers.online}/{brokers.wanted} brokers online, waiting for {first.pod}{more}: {first.reason}"


def _without_services(pod: Pod | None) -> str:
    """Return why the services do not run; empty if they run, or there shall be none."""
    if pod is None or _ready(pod):
        return ""
    return f"its services do not run, {pod.metadata.name}: {_why_missing(pod, 'it is not ready yet')}"


def _exit_code(context: MiniClusterContext) -> int | None:
    if context.job is None:
        return context.minicluster.status.exit_code
    if not context.job.finished:
        return None  # a broker that is stopped has its own exit code
    exit_code = exit_code_of(context.pods, context.minicluster.metadata.name)
    return exit_code if exit_code is not None else context.minicluster.status.exit_code


def _conditions(
    context: MiniClusterContext, status: MiniClusterStatus, brokers: BrokerCount
) -> list[ObjectCondition]:
    state, message = status.state, status.message
    problem = "; ".join(context.problems)
    ended = status.finished_at is not None
    formed = state == MiniClusterState.RUNNING or (ended and status.formed_at is not None)
    counted = f"{brokers.online} of {brokers.wanted} brokers are online"
    return [
        _condition(
            "Valid",
            not problem,
            "Valid" if not problem else "Refused",
            problem or "it can be run as it is written",
        ),
        _condition(
            "Queued",
            context.job is not None,
            "Made" if context.job else "NotMade",
            message if state == "Queued" else "",
        ),
        _condition(
            "Scheduled",
            bool(status.nodes),
            "Allocated" if status.nodes else "Waiting",
            f"nodes {status.nodes}" if status.nodes else "",
        ),
        _condition(
            "BrokersOnline",
            formed and not ended,
            "Formed" if formed else "Waiting",
            counted if status.brokers else "",
        ),
        _condition("Running", state == MiniClusterState.RUNNING, state or "Unknown", message),
        _condition("Finished", ended, state if ended else "Unfinished", message if ended else ""),
    ]


def _condition(kind: str, holds: bool, reason: str, message: str) -> ObjectCondition:
    return ObjectCondition(type=kind, status="True" if holds else "False", reason=reason, message=message)


def _ready(pod: Pod) -> bool:
    ready = pod.status.condition("Ready")
    return ready is not None and ready.status == "True" and not pod.terminal


def _why_missing(pod: Pod | None, otherwise: str = "its broker has not joined yet") -> str:
    if pod is None:
        return "its pod is not created yet"
    if pod.held:
        return "its pod waits to be released"
    if pod.terminal:
        failed = _failed_container(pod)
        return (
            "its pod has ended"
            if failed is None
            else f"its pod has ended with code {failed.exit_code}{_said(failed)}"
        )
    scheduled = pod.status.condition("PodScheduled")
    if not pod.spec.node_name:
        return (
            f"its pod is not on a node: {scheduled.message}"
            if scheduled is not None and scheduled.message
            else "its pod is not on a node yet"
        )
    for status in _containers(pod):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return (
                f"container {status.name}: "
                f"{waiting.reason}{f', {waiting.message}' if waiting.message else ''}"
            )
    for status in _containers(pod):
        ended = status.last_state.terminated
        if ended is not None and status.restart_count:
            return (
                f"container {status.name} was restarted {status.restart_count} times, last after code "
                f"{ended.exit_code}{_said(ended)}"
            )
    if not pod.status.container_statuses:
        return "its containers are being created"
    return otherwise


def _failed_container(pod: Pod) -> ContainerStateTerminated | None:
    return next(
        (end for status in _containers(pod) if (end := status.state.terminated) and end.exit_code), None
    )


def _said_by_leader(pods: Sequence[Pod]) -> str:
    """Return what the scripts wrote in the pod of the leader that failed last, to be appended;
    empty if they wrote nothing.
    """
    leaders = sorted(
        (pod for pod in pods if pod.completion_index == 0),
        key=lambda pod: pod.metadata.creation_timestamp or "",
    )
    failed = _failed_container(leaders[-1]) if leaders else None
    return "" if failed is None else _said(failed)


def _said(end: ContainerStateTerminated) -> str:
    return f": {end.message.strip()[:_LONGEST]}" if end.message.strip() else ""


def _containers(pod: Pod) -> list[ContainerStatus]:
    return [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]


def _timestamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
