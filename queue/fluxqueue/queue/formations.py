"""How far a MiniCluster has come: from its pods, its row in the queue and its Job to the status people see.

Brokers are counted by what they say themselves: a pod is ready once its broker has joined the instance. For each one that has not, its pod
tells why as far as it knows (it waits for a node, an image cannot be pulled, a container ends again and again), so the status says "7/8
brokers online, waiting for lammps-5: the image cannot be pulled" and not only that something is missing. A certificate that does not fit
makes no broker say anything: that is what the time-out of forming is for.

All pure: the same objects give the same status, so it may be worked out at any time and by any leader. What a later look could not tell any
more (when the brokers had formed, how the application ended after its pod is gone) is taken over from the status before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterState, MiniClusterStatus, MissingBroker
from fluxqueue.api.objects import ContainerStatus, Job, ObjectCondition, Pod
from fluxqueue.queue.jobspecs import BESIDE
from fluxqueue.queue.records import Allocation, SlotState, Workload

__all__ = ["Formation", "Standing", "exit_code_of", "formation_of", "quorum_of", "status_of", "time_left_s"]

SELECTOR_LABEL = "hpa-selector"
_SHOWN = 10
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Formation:
    """The brokers of a MiniCluster at one moment.

    Attributes
    ----------
    wanted, online
        Brokers there are to be, and those that have joined.
    missing
        The others, by rank.
    """

    wanted: int
    online: int
    missing: tuple[MissingBroker, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything a status is made of.

    Attributes
    ----------
    minicluster
        As the watch shows it, with the status it has.
    problems
        Why it cannot be made, or edits that cannot be applied.
    job, pods
        Its Job and the brokers' pods, None and empty before they are made.
    services
        The pod beside them.
    workload, allocation
        Its row in the queue, None before it was taken in and after it ended.
    cancelled
        Whether a person ended it through its FluxJob.
    """

    minicluster: MiniCluster
    problems: tuple[str, ...] = ()
    job: Job | None = None
    pods: tuple[Pod, ...] = ()
    workload: Workload | None = None
    allocation: Allocation | None = None
    cancelled: bool = False
    services: Pod | None = None


def formation_of(name: str, size: int, pods: Sequence[Pod]) -> Formation:
    """Count the brokers.

    Parameters
    ----------
    name
        Of the Job: its pods' hosts are the name and an index.
    size
        Brokers wanted.
    pods
        Of the Job; of an index with several the youngest counts.
    """
    youngest: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        if pod.completion_index is not None and not pod.metadata.deletion_timestamp:
            youngest[pod.completion_index] = pod
    missing = []
    for rank in range(size):
        found = youngest.get(rank)
        if found is None or not _ready(found):
            reason = _why_missing(found)[:_LONGEST]
            missing.append(MissingBroker(rank=rank, pod=found.metadata.name if found else f"{name}-{rank}", reason=reason))
    return Formation(size, size - len(missing), tuple(missing))


def quorum_of(minicluster: MiniCluster) -> int:
    """How many brokers must be online for it to run: ``minSize``, or all."""
    return minicluster.spec.min_size or minicluster.spec.size


def exit_code_of(pods: Sequence[Pod], container: str) -> int | None:
    """The application's exit code: that of the leader's container that runs Flux; None while it has not ended.

    Where the container was started again, the last end counts.
    """
    leaders = [pod for pod in pods if pod.completion_index == 0]
    for pod in sorted(leaders, key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True):
        for status in pod.status.container_statuses or ():
            ended = status.state.terminated
            if status.name == container and ended is not None and pod.terminal:
                return ended.exit_code
    return None


def time_left_s(standing: Standing, now: datetime) -> float | None:
    """Seconds until the brokers should have formed, negative when they are late; None where that is not being waited for."""
    minicluster, workload, allocation = standing.minicluster, standing.workload, standing.allocation
    if workload is None or allocation is None or allocation.released_at is None or workload.state not in (State.ALLOCATED, State.RUNNING):
        return None
    if standing.job is None or standing.job.finished or _has_formed(minicluster, allocation):
        return None
    if _brokers(standing).online >= quorum_of(minicluster):
        return None
    return minicluster.spec.form_timeout_seconds - (now - allocation.released_at).total_seconds()


def status_of(standing: Standing, now: datetime) -> MiniClusterStatus:
    """The status a MiniCluster should show.

    Parameters
    ----------
    standing
        What there is of it.
    now
        For what has just changed.
    """
    minicluster, workload, allocation = standing.minicluster, standing.workload, standing.allocation
    before = minicluster.status
    brokers = _brokers(standing)
    state, message = _state(standing, brokers)
    placed = allocation is not None and state in (MiniClusterState.STARTING, MiniClusterState.RUNNING, MiniClusterState.STOPPED)
    ended = state in (MiniClusterState.SUCCEEDED, MiniClusterState.FAILED, MiniClusterState.CANCELLED)
    jobid = str(allocation.jobid) if allocation is not None else (before.jobid if ended else "")
    formed_at = before.formed_at if before.jobid == jobid else None
    if formed_at is None and state is MiniClusterState.RUNNING:
        formed_at = _written(now)
    status = MiniClusterStatus(
        observed_generation=minicluster.metadata.generation,
        state=state,
        message=message[:4096],
        size=sum(1 for pod in standing.pods if not pod.terminal and not pod.spec.gated_by(names.GATE)),
        maximum_size=before.maximum_size or (minicluster.spec.maximum if standing.job is not None else 0),
        selector=f"{SELECTOR_LABEL}={minicluster.metadata.name}",
        jobid=jobid,
        brokers=f"{brokers.online}/{brokers.wanted}" if placed else (before.brokers if ended else ""),
        brokers_online=brokers.online if placed else 0,
        missing=list(brokers.missing[:_SHOWN]) or None if placed else None,
        queue=workload.queue if workload is not None else before.queue or minicluster.spec.queue,
        nodes=_nodes(standing) if workload is not None else (before.nodes if ended else ""),
        exit_code=_exit_code(standing),
        started_at=_written(workload.started_at) if workload is not None and workload.started_at is not None else before.started_at,
        formed_at=formed_at,
        finished_at=(before.finished_at or _written(now)) if ended else None,
    )
    said = {condition.type: condition for condition in before.conditions or ()}
    wanted = _conditions(standing, status, brokers)
    return msgspec.structs.replace(status, conditions=[_dated(condition, said.get(condition.type), now) for condition in wanted])


def _nodes(standing: Standing) -> str:
    """The node of each rank: its place in the allocation, or that of the pod by which it grew; the list ends before a rank without one."""
    allocation, size = standing.allocation, standing.minicluster.spec.size
    if allocation is None:
        return ""
    places = {slot.rank: slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED and slot.label != BESIDE}
    grown = {pod.completion_index: pod.spec.node_name for pod in standing.pods if pod.spec.node_name and not pod.terminal}
    nodes = [places.get(rank) or grown.get(rank) for rank in range(size)]
    known = itertools.takewhile(lambda node: node is not None, nodes)
    return hostlists.encode([node for node in known if node is not None])


def _brokers(standing: Standing) -> Formation:
    return formation_of(standing.minicluster.metadata.name, standing.minicluster.spec.size, standing.pods)


def _has_formed(minicluster: MiniCluster, allocation: Allocation) -> bool:
    status = minicluster.status
    return status.formed_at is not None and status.jobid == str(allocation.jobid)


def _state(standing: Standing, brokers: Formation) -> tuple[MiniClusterState, str]:
    minicluster, job, workload = standing.minicluster, standing.job, standing.workload
    problem = "; ".join(standing.problems)
    if job is None:
        return (MiniClusterState.INVALID, problem) if problem else (MiniClusterState.QUEUED, "its objects are being made")
    if job.status.holds("Complete"):
        return MiniClusterState.SUCCEEDED, ""
    if job.status.holds("Failed"):
        failed = next(condition for condition in job.status.conditions or () if condition.type == "Failed")
        return MiniClusterState.FAILED, failed.message or failed.reason
    if workload is None:
        if standing.cancelled:
            return MiniClusterState.CANCELLED, "it was cancelled through its FluxJob"
        return MiniClusterState.QUEUED, problem or "the queue has not taken it in yet"
    if workload.state is State.PENDING:
        return MiniClusterState.QUEUED, problem or workload.message
    if workload.taken_back:
        return MiniClusterState.STOPPED, workload.message
    allocation = standing.allocation
    if (allocation is not None and _has_formed(minicluster, allocation)) or brokers.online >= quorum_of(minicluster):
        if workload.state is State.DRAINING:
            return MiniClusterState.RUNNING, problem
        return MiniClusterState.RUNNING, problem or (_waiting_for(brokers) if brokers.missing else _without_services(standing.services))
    if workload.state is State.DRAINING:
        return MiniClusterState.STARTING, "its Job ends"
    return MiniClusterState.STARTING, problem or _waiting_for(brokers)


def _waiting_for(brokers: Formation) -> str:
    first = brokers.missing[0]
    more = f" and {len(brokers.missing) - 1} more" if len(brokers.missing) > 1 else ""
    return f"{brokers.online}/{brokers.wanted} brokers online, waiting for {first.pod}{more}: {first.reason}"


def _without_services(pod: Pod | None) -> str:
    """Why the services beside the brokers are not there; empty if they are, or there are to be none."""
    if pod is None or _ready(pod):
        return ""
    return f"its services do not run, {pod.metadata.name}: {_why_missing(pod, 'it is not ready yet')}"


def _exit_code(standing: Standing) -> int | None:
    if standing.job is None or not standing.job.finished:
        return None  # a broker that was stopped has a code of its own, which is not the application's
    found = exit_code_of(standing.pods, standing.minicluster.metadata.name)
    return found if found is not None else standing.minicluster.status.exit_code


def _conditions(standing: Standing, status: MiniClusterStatus, brokers: Formation) -> list[ObjectCondition]:
    state, message = status.state, status.message
    problem = "; ".join(standing.problems)
    ended = status.finished_at is not None
    formed = state == MiniClusterState.RUNNING or (ended and status.formed_at is not None)
    counted = f"{brokers.online} of {brokers.wanted} brokers are online"
    return [
        _condition("Valid", not problem, "Valid" if not problem else "Refused", problem or "it can be run as it is written"),
        _condition("Queued", standing.job is not None, "Made" if standing.job else "NotMade", message if state == "Queued" else ""),
        _condition(
            "Scheduled", bool(status.nodes), "Allocated" if status.nodes else "Waiting", f"nodes {status.nodes}" if status.nodes else ""
        ),
        _condition("BrokersOnline", formed and not ended, "Formed" if formed else "Waiting", counted if status.brokers else ""),
        _condition("Running", state == MiniClusterState.RUNNING, state or "Unknown", message),
        _condition("Finished", ended, state if ended else "Unfinished", message if ended else ""),
    ]


def _condition(kind: str, holds: bool, reason: str, message: str) -> ObjectCondition:
    return ObjectCondition(type=kind, status="True" if holds else "False", reason=reason, message=message)


def _dated(condition: ObjectCondition, said: ObjectCondition | None, now: datetime) -> ObjectCondition:
    since = said.last_transition_time if said is not None and said.status == condition.status else _written(now)
    return msgspec.structs.replace(condition, last_transition_time=since)


def _ready(pod: Pod) -> bool:
    ready = pod.status.condition("Ready")
    return ready is not None and ready.status == "True" and not pod.terminal


def _why_missing(pod: Pod | None, otherwise: str = "its broker has not joined yet") -> str:
    if pod is None:
        return "its pod has not been made yet"
    if pod.spec.gated_by(names.GATE):
        return "its pod waits to be let go"
    if pod.terminal:
        code = next(
            (f" with code {end.exit_code}" for status in _containers(pod) if (end := status.state.terminated) and end.exit_code), ""
        )
        return f"its pod has ended{code}"
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
            return f"container {status.name}: {waiting.reason}{f', {waiting.message}' if waiting.message else ''}"
    for status in _containers(pod):
        ended = status.last_state.terminated
        if ended is not None and status.restart_count:
            return f"container {status.name} was started again {status.restart_count} times, last after code {ended.exit_code}"
    if not pod.status.container_statuses:
        return "its containers are being made"
    return otherwise


def _containers(pod: Pod) -> list[ContainerStatus]:
    return [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
