"""The explanation of one workload: its request, its state, the reason and the remedy, and the node of each
pod (`fluxqueue.cli.pod_placement`).

The reasons are a closed set, so there is a sentence for each, with a remedy. If the queue wrote a message,
that explains *why*, and the remedy here explains *what helps*. All functions are pure functions of the
objects and the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import ENDED, IDLE_SINCE, ROOM_MADE, FluxJob, Reason, State
from fluxqueue.api.formatting import format_nodes, format_quantity
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.reasons import REASONS
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.api.texts import time_text
from fluxqueue.cli.jobs import object_name, state_of, times
from fluxqueue.cli.moldable_text import (
    duration_with_started_pods,
    gave_back_text,
    moldable_text,
    was_started_with_fewer,
)
from fluxqueue.cli.node_text import least_pods, node_text
from fluxqueue.cli.pod_placement import placement, pod_table
from fluxqueue.cli.tables import age, in_zone, instant, paint, printable

__all__ = ["Observed", "explain", "facts_about", "has_services", "headline"]


_PAST: Mapping[str, str] = {
    Reason.USER_SUSPENDED: "its user suspended it, had it wait again, or scaled it to 0"
}
_SERVICES_SLOT = '"label":"services"'
"""In a jobspec, which is canonical JSON: the slot of a MiniCluster's services pod."""


@dataclass(frozen=True)
class Observed:
    """A workload and its objects, as they were read.

    ``template`` is the pod spec of the user's object, None if that is deleted. ``duration_stated`` is true if
    the object states its duration.
    """

    job: FluxJob
    template: PodSpec | None = None
    duration_stated: bool = True
    pods: Sequence[Pod] = ()


def has_services(job: FluxJob) -> bool:
    """True if the workload includes a services pod."""
    return _SERVICES_SLOT in job.spec.jobspec


def explain(
    seen: Observed,
    now: datetime,
    *,
    every_pod: bool = False,
    colour: bool = False,
    guaranteed: str = "",
    matcher: str = "",
) -> str:
    """Return the explanation as text.

    Parameters
    ----------
    seen
        The FluxJob and its objects.
    now
        The present time, with a time zone; times are shown in this zone.
    every_pod
        Show all pods of a large workload.
    colour
        True for a terminal with colours.
    guaranteed
        What is guaranteed to its account, in words; empty: nothing.
    matcher
        What the matcher cannot do, in words; empty: nothing.
    """
    facts = [
        (name, in_zone(text, now))
        for name, text in facts_about(seen, now, guaranteed=guaranteed, matcher=matcher)
    ]
    width = max(len(name) for name, _ in facts)
    lines = [paint(printable(in_zone(headline(seen.job, now), now)), "bold" if colour else ""), ""]
    lines += [f"  {name.ljust(width)}   {printable(text, lines=True)}" for name, text in facts]
    fewer = was_started_with_fewer(seen.job, least_pods(seen.job))
    placed = placement(seen.job, seen.pods, by_index=not fewer)
    return "\n".join(lines) + "\n" + printable(pod_table(placed, every_pod=every_pod), lines=True)


def facts_about(
    seen: Observed, now: datetime, *, guaranteed: str = "", matcher: str = ""
) -> list[tuple[str, str]]:
    """Return what is known of a workload as names and texts, with times as messages write them;
    parameters as `explain`.
    """
    facts = [
        ("Asked for", _asked(seen)),
        *node_text(seen.job),
        *_pods_by_size(seen),
        *_account(seen.job, guaranteed),
        *([("Matcher", matcher)] if matcher else []),
        *_waiting(seen.job, now),
        *_said_of_running(seen.job),
        *_history(seen.job, now),
    ]
    if seen.job.status.nodes:
        facts.append(("Nodes", format_nodes(seen.job.status.nodes)))
    return facts + _bound_by(seen.pods)


def headline(job: FluxJob, now: datetime) -> str:
    """Return state, queue and times of a workload as a sentence."""
    who = f"{object_name(job) or job.metadata.name} in namespace {job.metadata.namespace}"
    status, (waited, ran) = job.status, times(job, now)
    queue = f"queue {job.spec.queue}"
    match state_of(job):
        case State.PENDING if status.reason == Reason.UNSATISFIABLE:
            return f"{who} can never start on this cluster as it is; it stays in {queue}."
        case state if status.requeues and (again := _again(state, queue, status.position, waited, ran)):
            return f"{who} {again}."
        case State.PENDING:
            position = f" at position {status.position}" if status.position is not None else ""
            return f"{who} waits in {queue}{position}, for {waited or '0s'} so far."
        case State.ALLOCATED:
            return f"{who} has its nodes and is being started, after waiting {waited}."
        case State.RUNNING:
            return f"{who} runs, for {ran or '0s'} so far, after waiting {waited} in {queue}."
        case State.DRAINING if job.spec.cancel:
            return f"{who} is being cancelled; its nodes are free when its last pods have ended."
        case State.DRAINING if status.reason == Reason.PREEMPTED:
            return f"{who} is preempted; its nodes are free when its last pods have ended."
        case State.DRAINING:
            return f"{who} has stopped; its nodes are free when its last pods are deleted."
        case State.COMPLETED:
            return f"{who} completed: it waited {waited} in {queue} and ran {ran or '0s'}."
        case State.FAILED:
            return (
                f"{who} failed{f' after {ran}' if ran else ''}: "
                f"{status.message or status.reason or 'see its pods'}."
            )
        case State.CANCELLED:
            return (
                f"{who} was cancelled: it waited "
                f"{waited or '0s'}{f' and ran {ran}' if ran else ' and never ran'}."
            )
        case other:
            return f"{who} is {other} in {queue}."


def _again(state: str, queue: str, position: int | None, since: str, ran: str) -> str:
    """Return what requeued work does, of which the time since it was submitted is not all waiting;
    empty for what needs no other words.
    """
    match state:
        case State.PENDING:
            return (
                f"waits again in {queue}{f' at position {position}' if position is not None else ''}, "
                f"{since} after it was submitted"
            )
        case State.ALLOCATED:
            return f"has its nodes and is being started again, {since} after it was submitted"
        case State.RUNNING:
            return (
                f"runs again, for {ran or '0s'} so far; this run began {since} after it was submitted to "
                f"{queue}"
            )
        case State.COMPLETED:
            return (
                f"completed: its last run began {since} after it was submitted to {queue} and took "
                f"{ran or '0s'}"
            )
        case State.CANCELLED if ran:
            return f"was cancelled: its last run began {since} after it was submitted and took {ran}"
        case State.CANCELLED:
            return f"was cancelled while it waited again, {since or '0s'} after it was submitted"
    return ""


def _asked(seen: Observed) -> str:
    job = seen.job
    services = has_services(job)
    brokers = job.spec.pods - services
    pods = "1 pod" if brokers == 1 else f"{brokers} pods"
    if seen.template is not None:
        try:
            amounts = [
                format_quantity(name, float(value))
                for name, value in sorted(pod_requests(seen.template).items())
            ]
        except InvalidRequest as error:
            amounts = [f"something unreadable ({error})"]
        each = "each with" if brokers != 1 else "with"
        pods = f"{pods}, {each} {' and '.join(amounts)}" if amounts else f"{pods} without requests"
    if services:
        pods += ", and a services pod"
    text = f"{pods}, together" if job.spec.pods > 1 else pods
    if job.spec.duration_seconds:
        text += (
            f", for {age(job.spec.duration_seconds)}"
            f"{'' if seen.duration_stated else ' (assumed: the object does not say)'}"
        )
    return text + _priority(seen)


def _priority(seen: Observed) -> str:
    """By which priority it is ordered; a PriorityClass that raises nothing is named,
    since kube-scheduler still goes by it.
    """
    if priority := seen.job.spec.priority:
        return f"; priority {priority}"
    name = seen.template.priority_class_name if seen.template is not None else None
    return f"; priority 0: the PriorityClass {name!r} does not put it ahead in this queue" if name else ""


def _pods_by_size(seen: Observed) -> list[tuple[str, str]]:
    """Return with how many pods moldable work starts, or was started, and what it gave back."""
    words, given = moldable_text(seen.job, least_pods(seen.job), seen.pods), gave_back_text(seen.job)
    facts = [("Pods", words), ("Gave back", given)] if given else [("Pods", words)]
    return facts if words else []


def _account(job: FluxJob, guaranteed: str) -> list[tuple[str, str]]:
    """Return the account of the work, if it has one, and what is guaranteed to it."""
    facts = [("Account", job.status.account)] if job.status.account else []
    return [*facts, ("Guaranteed", guaranteed)] if guaranteed else facts


def _waiting(job: FluxJob, now: datetime) -> list[tuple[str, str]]:
    status = job.status
    if state_of(job) in ENDED:
        return []
    if job.spec.cancel:
        return [("Cancelled", "its cancellation is in progress")]
    reason = status.reason or (Reason.HELD if job.spec.hold else "")
    if state_of(job) != State.PENDING and not reason:
        return []
    known = Reason(reason) if reason in list(Reason) else None
    why = status.message or (REASONS[known].why if known is not None else "")
    if not reason and (last := next(reversed(status.requeue_reasons or ()), None)) is not None:
        why = f"it was requeued ({last.reason}) and waits for nodes again"
    facts = [("Why", f"{reason}: {why}" if reason and why else reason or why)]
    if known is not None:
        facts.append(("What helps", REASONS[known].helps))
    expected = instant(status.reserved_at or status.eta)
    if expected is not None:
        left = (expected - now).total_seconds()
        kind, when = "reserved" if status.reserved_at else "estimated", time_text(expected)
        facts.append(
            (
                "Start",
                f"{kind} for {when}, in {age(left)}{_or_sooner(job, expected, now)}"
                if left >= 1
                else "due now",
            )
        )
        first, expected = instant(status.eta_first), max(expected, now)
        if first is not None and first != expected:
            moved = age(abs((expected - first).total_seconds()))
            facts.append(
                (
                    "First estimate",
                    (
                        f"{time_text(first)}; the start is now {moved} "
                        f"{'later' if expected > first else 'sooner'}"
                    ),
                )
            )
    return facts


def _said_of_running(job: FluxJob) -> list[tuple[str, str]]:
    """Return since when running work is idle, and what becomes of it; or what was moved for work."""
    said = job.status.message
    if said.startswith(ROOM_MADE):
        return [("Room", said.removeprefix(ROOM_MADE))]
    idle = state_of(job) == State.RUNNING and said.startswith(IDLE_SINCE)
    return [("Idle", said.removeprefix("idle "))] if idle else []


def _bound_by(pods: Sequence[Pod]) -> list[tuple[str, str]]:
    """Return the scheduler of the released pods."""
    released = [pod for pod in pods if pod.metadata.annotation(names.ALLOCATION_ANNOTATION) is not None]
    ours = sum(1 for pod in released if pod.fluxion_binds)
    if not released:
        return []
    if 0 < ours < len(released):
        return [
            (
                "Bound by",
                f"fluxion (fluxqueue's scheduler) {ours} pods, stock (kube-scheduler) {len(released) - ours}",
            )
        ]
    return [
        ("Bound by", "fluxion, the scheduler of fluxqueue" if ours else "stock, the scheduler of the cluster")
    ]


def _or_sooner(job: FluxJob, expected: datetime, now: datetime) -> str:
    soonest = instant(job.status.eta_soonest)
    if soonest is None or soonest >= expected:
        return ""
    return (
        f", or from {time_text(soonest)} on if others end early"
        if soonest > now
        else ", or sooner if others end early"
    )


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
        time = instant(text)
        if time is None:
            continue
        later = f", {age((time - before).total_seconds())} later" if before is not None else ""
        facts.append((name, f"{time_text(time)}{later}"))
        before = time
    first, allocated = instant(status.eta_first), instant(status.allocated_at)
    if first is not None and allocated is not None:
        error_s = (allocated - first).total_seconds()
        kept = (
            f"it got its nodes {age(abs(error_s))} {'later' if error_s > 0 else 'sooner'}"
            if error_s
            else "kept"
        )
        facts.append(("First estimate", f"{time_text(first)}; {kept}"))
    started = instant(status.started_at)
    if state_of(job) == State.RUNNING and started is not None and job.spec.duration_seconds:
        end = started + timedelta(seconds=duration_with_started_pods(job, least_pods(job)))
        facts.append(
            (
                "Ends by",
                time_text(end) if end > now else f"{time_text(end)}: it runs longer than its duration",
            )
        )
    if status.outcome:
        facts.append(("Outcome", f"{status.outcome}{f': {status.message}' if status.message else ''}"))
    if status.requeues:
        facts.append(("Requeued", "once" if status.requeues == 1 else f"{status.requeues} times"))
    return [*facts, *_requeues(job)]


def _requeues(job: FluxJob) -> list[tuple[str, str]]:
    """Return time and reason of each known requeue."""
    reasons = job.status.requeue_reasons or ()
    whys = [_PAST.get(each.reason, each.message) for each in reasons]  # a remedy of then is none now
    requeues = [
        (instant(each.at), f"{each.reason}: {why}" if why else each.reason)
        for each, why in zip(reasons, whys, strict=True)
    ]
    return [
        ("Requeues" if number == 0 else "", f"{time_text(at)}  {why}" if at else why)
        for number, (at, why) in enumerate(requeues)
    ]
