"""One workload in words: what was asked for, where it stands, why, what would help, and which pod is on which node.

The reasons are a closed set, so there is one sentence for each that a person can act upon; where the queue gave a message of its own
that one is the better answer to *why*, ours stays the answer to *what helps*. Everything here is a pure function of what was read
from the API server and a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.objects import Pod, PodSpec
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.cli.jobs import object_name, state_of, times
from fluxqueue.cli.tables import age, clock, columns, instant, paint

__all__ = ["Observed", "explain", "has_services", "placement", "pod_state"]

_MANY_PODS = 24

_WHY = {
    Reason.NONE: "the queue has not looked at it yet",
    Reason.HELD: "somebody holds it",
    Reason.USER_SUSPENDED: "the Job was applied with suspend: true, and only who suspended it may resume it",
    Reason.QUEUE_HELD: "its queue is held or drained",
    Reason.UNKNOWN_QUEUE: "there is no queue of that name",
    Reason.QUEUE_LIMIT: "its queue is at a limit",
    Reason.WAITING_FOR_NODES: "there is not enough free at once",
    Reason.BLOCKED_BY_RESERVATION: "what is free is reserved for a workload ahead of it",
    Reason.UNSATISFIABLE: "no set of nodes of this cluster could hold it, even if all were empty",
    Reason.WAITING_FOR_GROUP: "members of its pod group are missing",
    Reason.NODES_UNAVAILABLE: "nodes that could hold it are cordoned, not ready or gone",
    Reason.RELEASE_FAILED: "the API server refused its release",
    Reason.BIND_FAILED: "a pod could not be bound to its node",
    Reason.START_TIMEOUT: "its pods did not start in time and it was matched again",
    Reason.PREEMPTED: "a workload of higher priority took its place",
    Reason.INVALID_REQUEST: "its request cannot be read",
    Reason.QUEUE_NOT_ALLOWED: "its namespace may not use that queue, or the queue is drained",
    Reason.PROVISIONING: "only nodes that are not there yet could hold it: the autoscaler is asked for them",
}

_HELPS = {
    Reason.NONE: "nothing is needed; if this lasts, see whether the queue is running",
    Reason.HELD: "kubectl fluxqueue release lets it go",
    Reason.USER_SUSPENDED: "set spec.suspend of the Job to false",
    Reason.QUEUE_HELD: "open the queue, or move the workload to another one (kubectl fluxqueue move)",
    Reason.UNKNOWN_QUEUE: f"make that FluxQueue, or correct the label {names.QUEUE_LABEL}",
    Reason.QUEUE_LIMIT: "wait until others of the queue end, or raise its limit",
    Reason.WAITING_FOR_NODES: "it starts when enough of what runs has ended; asking for less, or for less time, may start it sooner",
    Reason.BLOCKED_BY_RESERVATION: "a shorter duration may let it fit in before the reservation begins",
    Reason.UNSATISFIABLE: "ask for less per pod or for other nodes, or add nodes that fit; it is tried again when nodes change",
    Reason.WAITING_FOR_GROUP: f"create the missing pods, or correct the annotation {names.POD_GROUP_SIZE_ANNOTATION}",
    Reason.NODES_UNAVAILABLE: "bring the nodes back (kubectl get nodes)",
    Reason.RELEASE_FAILED: "see the Events of the object; it is tried again by itself",
    Reason.BIND_FAILED: "see what the pod's Events say of its node; a bare Pod keeps its place until it is deleted",
    Reason.START_TIMEOUT: "see the Events of its pods (quota, LimitRange, image, volume); it is tried again by itself",
    Reason.PREEMPTED: "nothing is needed: it keeps its submit time and starts again when there is room",
    Reason.INVALID_REQUEST: "correct the field that the message names and apply the object again",
    Reason.QUEUE_NOT_ALLOWED: "move it to another queue (kubectl fluxqueue move), or have the queue opened for it",
    Reason.PROVISIONING: "nothing: it starts when they are ready; kubectl get provisioningrequests says how far the autoscaler is",
}


_BESIDE = '"label":"services"'
"""In a jobspec, which is canonical JSON: a place for the services pod of a MiniCluster."""


@dataclass(frozen=True)
class Observed:
    """What was read of one workload.

    ``template`` is the spec of the pods asked for, None if the object is gone; ``duration_stated`` whether the object itself says
    how long it runs.
    """

    job: FluxJob
    template: PodSpec | None = None
    duration_stated: bool = True
    pods: Sequence[Pod] = ()


def has_services(job: FluxJob) -> bool:
    """Whether a services pod is matched beside the others."""
    return _BESIDE in job.spec.jobspec


def explain(seen: Observed, now: datetime, *, every_pod: bool = False, colour: bool = False) -> str:
    """The whole answer.

    Parameters
    ----------
    seen
        The FluxJob and what belongs to it.
    now
        Timezone-aware; moments are shown in its zone.
    every_pod
        Show more than the first pods of a big workload.
    colour
        For a terminal.

    Returns
    -------
    str
        Lines.
    """
    facts = [("Asked for", _asked(seen)), *_waiting(seen.job, now), *_history(seen.job, now)]
    if seen.job.status.nodes:
        facts.append(("Nodes", f"{seen.job.status.nodes} (entry i is rank i)"))
    width = max(len(name) for name, _ in facts)
    lines = [paint(_headline(seen.job, now), "bold" if colour else ""), ""]
    lines += [f"  {name.ljust(width)}   {text}" for name, text in facts]
    return "\n".join(lines) + "\n" + _pods(seen, every_pod=every_pod)


def _headline(job: FluxJob, now: datetime) -> str:
    who = f"{object_name(job) or job.metadata.name} in namespace {job.metadata.namespace}"
    status, (waited, ran) = job.status, times(job, now)
    queue = f"queue {job.spec.queue}"
    match state_of(job):
        case State.PENDING if status.reason == Reason.UNSATISFIABLE:
            return f"{who} can never start on this cluster as it is; it stays in {queue}."
        case State.PENDING:
            place = f" at position {status.position}" if status.position is not None else ""
            return f"{who} waits in {queue}{place}, for {waited or '0s'} so far."
        case State.ALLOCATED:
            return f"{who} has its nodes and is being started, after waiting {waited}."
        case State.RUNNING:
            return f"{who} runs, for {ran or '0s'} so far, after waiting {waited} in {queue}."
        case State.DRAINING:
            return f"{who} has stopped; its nodes are free when its last pods are gone."
        case State.COMPLETED:
            return f"{who} completed: it waited {waited} in {queue} and ran {ran or '0s'}."
        case State.FAILED:
            return f"{who} failed{f' after {ran}' if ran else ''}: {status.message or status.reason or 'see its pods'}."
        case State.CANCELLED:
            return f"{who} was cancelled after {waited or '0s'}."
        case other:
            return f"{who} is {other} in {queue}."


def _asked(seen: Observed) -> str:
    job = seen.job
    beside = has_services(job)
    alike = job.spec.pods - beside
    pods = "1 pod" if alike == 1 else f"{alike} pods"
    if seen.template is not None:
        try:
            amounts = [f"{_amount(name, value)} {name}" for name, value in sorted(pod_requests(seen.template).items())]
        except InvalidRequest as error:
            amounts = [f"something unreadable ({error})"]
        each = "each with" if alike != 1 else "with"
        pods = f"{pods}, {each} {' and '.join(amounts)}" if amounts else f"{pods} without requests"
    if beside:
        pods += ", and a services pod"
    text = f"{pods}, together" if job.spec.pods > 1 else pods
    if job.spec.duration_seconds:
        text += f", for {age(job.spec.duration_seconds)}{'' if seen.duration_stated else ' (assumed: the object does not say)'}"
    return f"{text}; priority {job.spec.priority}" if job.spec.priority else text


def _amount(name: str, value: object) -> str:
    number = float(str(value))
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        for unit, size in (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if number >= size:
                return f"{number / size:.4g}{unit}"
    return f"{number * 1000:.4g}m" if 0 < number < 1 else f"{number:.6g}"


def _waiting(job: FluxJob, now: datetime) -> list[tuple[str, str]]:
    status = job.status
    if state_of(job) in (State.COMPLETED, State.CANCELLED, State.FAILED):
        return []
    reason = status.reason or (Reason.HELD if job.spec.hold else "")
    if state_of(job) != State.PENDING and not reason:
        return []
    known = Reason(reason) if reason in list(Reason) else None
    why = status.message or (_WHY[known] if known is not None else "")
    facts = [("Why", f"{reason}: {why}" if reason and why else reason or why)]
    if known is not None:
        facts.append(("What helps", _HELPS[known]))
    expected = instant(status.reserved_at or status.eta)
    if expected is not None:
        left = (expected - now).total_seconds()
        when = f"{clock(expected, now)}{f', in {age(left)}' if left >= 1 else ''}"
        facts.append(("Start", f"{'reserved' if status.reserved_at else 'estimated'} for {when}{_or_sooner(job, expected, now)}"))
        first = instant(status.eta_first)
        if first is not None and first != expected:
            moved = age(abs((expected - first).total_seconds()))
            facts.append(("First told", f"{clock(first, now)}; that is {moved} {'later' if expected > first else 'sooner'} by now"))
    if job.spec.cancel:
        facts.append(("Cancelled", "its cancellation is under way"))
    return facts


def _or_sooner(job: FluxJob, expected: datetime, now: datetime) -> str:
    soonest = instant(job.status.eta_soonest)
    return f", or from {clock(soonest, now)} on if others end early" if soonest is not None and soonest < expected else ""


def _history(job: FluxJob, now: datetime) -> list[tuple[str, str]]:
    status = job.status
    steps = [
        ("Submitted", status.submitted_at or job.metadata.creation_timestamp),
        ("Allocated", status.allocated_at),
        ("Started", status.started_at),
        ("Finished", status.finished_at),
    ]
    facts: list[tuple[str, str]] = []
    before: datetime | None = None
    for name, text in steps:
        moment = instant(text)
        if moment is None:
            continue
        later = f", {age((moment - before).total_seconds())} later" if before is not None else ""
        facts.append((name, f"{clock(moment, now)}{later}"))
        before = moment
    started = instant(status.started_at)
    if state_of(job) == State.RUNNING and started is not None and job.spec.duration_seconds:
        end = started + timedelta(seconds=job.spec.duration_seconds)
        facts.append(("Ends by", clock(end, now) if end > now else f"{clock(end, now)}: it runs longer than it said"))
    if status.outcome:
        facts.append(("Outcome", f"{status.outcome}{f': {status.message}' if status.message else ''}"))
    if status.requeues:
        facts.append(("Requeued", "once" if status.requeues == 1 else f"{status.requeues} times"))
    return facts


@dataclass(frozen=True)
class _Place:
    rank: int | None
    node: str
    pod: Pod | None


def placement(nodes: str, pods: Sequence[Pod]) -> list[_Place]:
    """Which pod stands for which rank.

    An indexed pod says it itself. Any other takes a rank of the node it is on, so that a row where node and pod disagree is a pod
    that is not where it should be.

    Parameters
    ----------
    nodes
        RFC 29 hostlist, entry i = rank i; one that cannot be read counts as empty.
    pods
        The workload's pods; of several for one index the newest counts.

    Returns
    -------
    list
        Rank, its node and its pod; ranks without a pod, and pods without a rank, are there too.
    """
    try:
        hosts = hostlists.decode(nodes)
    except hostlists.InvalidHostlist:
        hosts = []
    taken: dict[int, Pod] = {}
    others: list[Pod] = []
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name), reverse=True):
        index = pod.completion_index
        if index is not None and index < len(hosts):
            if index in taken:
                continue
            taken[index] = pod
        else:
            others.append(pod)
    free: dict[str, list[int]] = {}
    for rank in reversed(range(len(hosts))):
        if rank not in taken:
            free.setdefault(hosts[rank], []).append(rank)
    unplaced: list[Pod] = []
    for pod in reversed(others):
        ranks = free.get(pod.spec.node_name or "")
        if ranks:
            taken[ranks.pop()] = pod
        else:
            unplaced.append(pod)
    placed = [_Place(rank, host, taken.get(rank)) for rank, host in enumerate(hosts)]
    return placed + [_Place(pod.completion_index, "", pod) for pod in unplaced]


def pod_state(pod: Pod) -> str:
    """A pod's phase, or what keeps it: a gate (ours or another's), the scheduler, its deletion."""
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    if pod.spec.scheduling_gates:
        return f"Gated by {', '.join(gate.name for gate in pod.spec.scheduling_gates)}"
    scheduled = pod.status.condition("PodScheduled")
    if pod.status.phase == "Pending" and scheduled is not None and scheduled.status == "False":
        return f"{scheduled.reason}: {scheduled.message}" if scheduled.message else scheduled.reason
    return pod.status.phase


def _pods(seen: Observed, *, every_pod: bool) -> str:
    places = placement(seen.job.status.nodes, seen.pods)
    if not places:
        return ""
    shown = places if every_pod else places[:_MANY_PODS]
    rows = []
    for place in shown:
        on = place.pod.spec.node_name or "" if place.pod else ""
        if on and place.node and on != place.node:
            on += " (not its node)"
        rank = "" if place.rank is None else str(place.rank)
        rows.append([rank, place.node, place.pod.metadata.name if place.pod else "", on, pod_state(place.pod) if place.pod else ""])
    text = columns(["RANK", "NODE", "POD", "RUNS ON", "POD STATE"], rows)
    hidden = len(places) - len(shown)
    more = f"  ... and {hidden} more (-o wide shows all)\n" if hidden else ""
    return "\n" + "".join(f"  {line}\n" for line in text.splitlines()) + more
