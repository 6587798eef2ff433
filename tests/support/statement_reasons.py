"""What each reason of waiting claims, as a predicate over a picture.

A predicate returns why the claim is false, or an empty text. It is one-sided: what it cannot judge is taken
for true. A reason about which nothing can be checked says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from support.statement_fits import fits_empty_nodes, fits_now
from support.statement_pictures import Picture, ShownWork, seconds_at

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import QueueState
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.start_conditions import DependencyState

__all__ = ["REASONS", "Check", "NotCheckable"]

Check = Callable[[ShownWork, Picture], str]
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class NotCheckable:
    """A claim that is not checked, with a sentence why."""

    why: str


def _held(work: ShownWork, picture: Picture) -> str:
    spec = work.fluxjob.spec
    return "" if spec.hold or spec.cancel else "spec.hold of its FluxJob is false"


def _user_suspended(work: ShownWork, picture: Picture) -> str:
    job = work.job
    if job is None:
        return ""
    if (job.spec.parallelism if job.spec.parallelism is not None else 1) == 0:
        return ""
    if not job.spec.suspend:
        return "its Job is not suspended"
    ours = job.metadata.annotation(names.SUSPENDED_BY_ANNOTATION)
    return f"its Job is marked as suspended by {ours}" if ours else ""


def _queue_held(work: ShownWork, picture: Picture) -> str:
    queue = picture.queues.get(work.fluxjob.spec.queue)
    return (
        ""
        if queue is not None and queue.spec.state is not QueueState.OPEN
        else f"the queue {work.fluxjob.spec.queue!r} is not held"
    )


def _unknown_queue(work: ShownWork, picture: Picture) -> str:
    return (
        f"the queue {work.fluxjob.spec.queue!r} exists" if work.fluxjob.spec.queue in picture.queues else ""
    )


def _queue_not_allowed(work: ShownWork, picture: Picture) -> str:
    queue = picture.queues.get(work.fluxjob.spec.queue)
    if queue is None:
        return f"the queue {work.fluxjob.spec.queue!r} does not exist"
    closed = queue.spec.state is QueueState.DRAINED or queue.spec.namespaces is not None
    return "" if closed else f"the queue {queue.metadata.name!r} is open, for all namespaces"


def _queue_limit(work: ShownWork, picture: Picture) -> str:
    queue = picture.queues.get(work.fluxjob.spec.queue)
    limited = queue is not None and queue.spec.limits is not None
    if limited or any(namespace == work.row.namespace for namespace, _ in picture.quotas):
        return ""
    return "neither its queue has limits, nor its namespace ResourceQuotas"


def _account_limit(work: ShownWork, picture: Picture) -> str:
    account = work.fluxjob.status.account
    return "" if account in picture.accounts else f"its account {account!r} does not exist"


def _waiting_for_nodes(work: ShownWork, picture: Picture) -> str:
    ahead = any(_is_matched(row) and row.id != work.row.id for row in picture.ledger.workloads)
    return "" if ahead else fits_now(work, picture)


def _is_matched(row: Workload) -> bool:
    return row.state is State.PENDING and not row.blocked


_HOLDER = re.compile(
    r"reserved for (?P<kind>\w+) (?P<namespace>\S+)/(?P<name>\S+?)(?: and \d+ more)? from (?P<at>\S+Z) on"
)


def _blocked_by_reservation(work: ShownWork, picture: Picture) -> str:
    if not picture.ledger.reservations:
        return "nothing is reserved for any work"
    said = _HOLDER.search(work.row.message)
    if said is None:
        return ""
    row = _named(picture, said["kind"], said["namespace"], said["name"])
    if row is None or row.state is not State.PENDING:
        return f"{said['name']} does not wait"
    starts = [each.start for each in picture.ledger.reservations if each.workload == row.id]
    if not starts:
        return f"nothing is reserved for {said['name']}"
    return (
        ""
        if _same_second(starts[0], said["at"])
        else f"nodes are reserved for {said['name']} from {starts[0]:%H:%M:%S} on"
    )


def _named(picture: Picture, kind: str, namespace: str, name: str) -> Workload | None:
    known = [
        row
        for row in picture.ledger.workloads
        if (row.kind, row.namespace, row.name) == (kind, namespace, name)
    ]
    return max(known, key=lambda row: row.submitted_at, default=None)


def _same_second(at: datetime, text: str) -> bool:
    shown = seconds_at(text)
    return shown is not None and shown <= at < shown + _SECOND


def _reservation(work: ShownWork, picture: Picture) -> str:
    # Requeued for a maintenance: its node is set aside, and the message names it, also after that.
    return "" if picture.reservations or work.row.requeues else "there is no FluxReservation"


def _unsatisfiable(work: ShownWork, picture: Picture) -> str:
    return fits_empty_nodes(work, picture)


_CLAIM = re.compile(r"PersistentVolumeClaim (?P<namespace>\S+)/(?P<name>\S+) (?P<what>does not exist)")
_GROUP = re.compile(
    r"pod group (?P<namespace>\S+)/(?P<name>\S+) has (?:had only )?(?P<there>\d+) of (?P<size>\d+) pods"
)


def _waiting_for_group(work: ShownWork, picture: Picture) -> str:
    said = _GROUP.match(work.row.message)
    if said is None:
        return ""
    if int(said["there"]) >= int(said["size"]):
        return "all of its pods are there"
    group = said["namespace"], said["name"]
    there = [
        pod
        for pod in picture.pods
        if (pod.metadata.namespace, pod.metadata.label(names.POD_GROUP_LABEL)) == group and pod.active
    ]
    return "" if len(there) < int(said["size"]) else f"{len(there)} of its pods are there"


def _waiting_for_volumes(work: ShownWork, picture: Picture) -> str:
    said = _CLAIM.search(work.row.message)
    exists = said is not None and (said["namespace"], said["name"]) in picture.claims
    return f"the claim {said['name']} exists" if said is not None and exists else ""


def _waiting_for_dependency(work: ShownWork, picture: Picture) -> str:
    conditions = work.row.start_conditions
    open_ones = [each for each in conditions.after if each.open]
    for each in open_ones:
        target = picture.ledger.by_uid.get(each.target)
        if target is not None and target.state.ended:
            return f"{target.ref} has ended"
    if open_ones or not conditions.singleton:
        return "" if open_ones else "it waits for no other work"
    same = [
        row
        for row in picture.ledger.workloads
        if row.namespace == work.row.namespace and row.id != work.row.id
    ]
    rivals = [
        row for row in same if row.start_conditions.singleton == conditions.singleton and not row.state.ended
    ]
    return "" if rivals else f"no other work names the singleton {conditions.singleton!r}"


def _never_satisfied(work: ShownWork, picture: Picture) -> str:
    if "waits in a cycle" in work.row.message:
        return ""
    impossible = [
        each for each in work.row.start_conditions.after if each.state is DependencyState.IMPOSSIBLE
    ]
    if not impossible:
        return "all that it waits for can still happen"
    target = picture.ledger.by_uid.get(impossible[0].target)
    if target is None or (target.state.ended and target.outcome is not Outcome.SUCCEEDED):
        return ""
    return f"{target.ref} is {target.state}" if not target.state.ended else ""


_BEGIN = re.compile(r" may begin from (?P<at>\S+Z) on")


def _waiting_for_begin(work: ShownWork, picture: Picture) -> str:
    said, allowed = _BEGIN.search(work.row.message), work.row.start_conditions.not_before
    if said is None or allowed is None:
        return "no time is asked for"
    if not _same_second(allowed, said["at"]):
        return f"it may begin from {allowed:%Y-%m-%dT%H:%M:%SZ} on"
    return "" if allowed > picture.at else "that time has come"


_DOWN = re.compile(
    r"the nodes that are up could not hold it: (?P<nodes>.+?)(?: "
    r"and \d+ more)? (?:is|are) cordoned or not ready"
)


def _nodes_unavailable(work: ShownWork, picture: Picture) -> str:
    said = _DOWN.search(work.row.message)
    up = (
        [name for name in said["nodes"].split(", ") if _takes_work(picture.nodes.get(name))]
        if said is not None
        else []
    )
    return f"{up[0]} is up" if up else ""


def _takes_work(node: Node | None) -> bool:
    return node is not None and not node.spec.unschedulable and not node.spec.taints and node.status.ready


def _not_started(work: ShownWork, picture: Picture) -> str:
    if work.state is State.PENDING:
        return "" if work.row.requeues else "it was never requeued"
    grant = work.grant
    pods = {pod.metadata.uid: pod for pod in work.pods}
    placed = (
        [slot for slot in grant.slots if slot.pod_uid in pods and pods[slot.pod_uid].spec.node_name]
        if grant is not None
        else []
    )
    if (
        work.state is State.ALLOCATED
        and grant is not None
        and grant.slots
        and len(placed) == len(grant.slots)
    ):
        return "all of its pods are on their nodes"
    return ""


_PREEMPTED = re.compile(r"\(priority (?P<own>-?\d+)\) was preempted by .* \(priority (?P<other>-?\d+)\)")


_MOVED = re.compile(r"\((?P<won>[\d,]+ node-\w+) won, (?P<lost>[\d,]+ node-\w+) lost by the plan\)")


def _preempted(work: ShownWork, picture: Picture) -> str:
    said = _PREEMPTED.search(work.row.message)
    idle = "it was idle since" in work.row.message  # nobody but Prometheus knows that
    if said is not None and int(said["other"]) <= int(said["own"]) and not idle:
        return "the other one has no higher priority"
    moved = _MOVED.search(work.row.message)
    if moved is not None and _node_s(moved["won"]) <= _node_s(moved["lost"]):
        return "more is lost than won"
    return "" if work.state is State.DRAINING or work.row.requeues else "it was never requeued"


def _node_s(words: str) -> int:
    count, _, unit = words.replace(",", "").partition(" ")
    return int(count) * (60 if unit == "node-minutes" else 1)


def _reservation_not_allowed(work: ShownWork, picture: Picture) -> str:
    said = re.search(r"there is no FluxReservation '(?P<name>[^']+)'", work.row.message)
    return (
        f"the FluxReservation {said['name']} exists"
        if said is not None and said["name"] in picture.reservations
        else ""
    )


def _time_limit(work: ShownWork, picture: Picture) -> str:
    row = work.row
    if row.requeue_state.time_limit is None:
        return "the queue has not begun to end it"
    if row.requeue_state.idle:
        return ""  # what nobody but Prometheus knows
    if row.started_at is None or row.duration_s is None:
        return "it has not started, or has no end"
    return (
        ""
        if row.started_at + timedelta(seconds=row.duration_s) <= picture.at + _SECOND
        else "its duration is not over"
    )


def _deadline_unreachable(work: ShownWork, picture: Picture) -> str:
    deadline = work.row.start_conditions.deadline
    if deadline is None:
        return "it has no deadline"
    said = re.search(r"is to be done by (?P<at>\S+Z)", work.row.message)
    return (
        ""
        if said is not None and _same_second(deadline, said["at"])
        else f"its deadline is {deadline:%Y-%m-%dT%H:%M:%SZ}"
    )


REASONS: Mapping[Reason, Check | NotCheckable] = {
    Reason.NONE: NotCheckable(
        "it claims nothing; that a reason comes in time is a claim of its own (`statement_claims`)"
    ),
    Reason.HELD: _held,
    Reason.USER_SUSPENDED: _user_suspended,
    Reason.QUEUE_HELD: _queue_held,
    Reason.UNKNOWN_QUEUE: _unknown_queue,
    Reason.QUEUE_LIMIT: _queue_limit,
    Reason.ACCOUNT_LIMIT: _account_limit,
    Reason.WAITING_FOR_NODES: _waiting_for_nodes,
    Reason.BLOCKED_BY_RESERVATION: _blocked_by_reservation,
    Reason.RESERVATION: _reservation,
    Reason.UNSATISFIABLE: _unsatisfiable,
    Reason.WAITING_FOR_GROUP: _waiting_for_group,
    Reason.WAITING_FOR_VOLUMES: _waiting_for_volumes,
    Reason.WAITING_FOR_DEPENDENCY: _waiting_for_dependency,
    Reason.DEPENDENCY_NEVER_SATISFIED: _never_satisfied,
    Reason.WAITING_FOR_BEGIN: _waiting_for_begin,
    Reason.NODES_UNAVAILABLE: _nodes_unavailable,
    Reason.RELEASE_FAILED: NotCheckable(
        "the API server's refusal is not to be seen any more: the next attempt may pass"
    ),
    Reason.BIND_FAILED: _not_started,
    Reason.START_TIMEOUT: _not_started,
    Reason.PREEMPTED: _preempted,
    Reason.INVALID_REQUEST: NotCheckable(
        "what can be read is decided by the code of the intake, and its unit tests say what that is"
    ),
    Reason.QUEUE_NOT_ALLOWED: _queue_not_allowed,
    Reason.RESERVATION_NOT_ALLOWED: _reservation_not_allowed,
    Reason.PROVISIONING: _unsatisfiable,
    Reason.TIME_LIMIT: _time_limit,
    Reason.DEADLINE_UNREACHABLE: _deadline_unreachable,
}
