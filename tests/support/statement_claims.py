"""What a FluxJob claims beside its reason: state, times, nodes, estimate, position, conditions, counts, and
the names in its message.

A claim may be false for a moment, because the cluster changes before anybody can say so. A few are slower by
design, and say for how long and why (`Claim.extra_s`). What is deliberately left out:

- ``etaSoonest`` may lie in the past: it is written at most twice a minute, with the estimate.
- That a position or an estimate is the one of the last plan: FluxJobs show them up to half a minute late
  while many change.
- That work that has ended longer than a minute ago says the truth: it was compared when it ended.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from support.statement_pictures import Picture, ShownWork, seconds_at
from support.statement_queues import POSITION_S, overtaking, positions, shared_nodes
from support.statement_reasons import REASONS, Check, NotCheckable

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import IDLE_SINCE, LIVE, Condition, Outcome, Reason, State
from fluxqueue.api.fluxqueues import Preemption, QueueLimits
from fluxqueue.api.pods import Pod
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.queue.model.consolidations import room_message
from fluxqueue.queue.model.given_back import given_back_message
from fluxqueue.queue.model.records import Allocation, SlotState, Workload
from fluxqueue.queue.model.users import programs_of, user_of

__all__ = ["CLAIMS", "Claim", "False_", "false_claims"]

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Claim:
    """A claim that FluxJobs make.

    Attributes
    ----------
    name
        For people.
    why_false
        Returns why it is false; empty if it is true or cannot be judged.
    extra_s
        For how much longer than others it may be false, by design, and ``why``.
    stored
        True if it is judged only while the FluxJob shows what the tables have: that it does not is a claim of
        its own.
    """

    name: str
    why_false: Check
    extra_s: float = 0.0
    why: str = ""
    stored: bool = True


@dataclass(frozen=True)
class False_:  # noqa: N801  # False is taken
    """A claim that is false in one picture, with what it said."""

    claim: str
    uid: str
    title: str
    said: str
    why: str
    extra_s: float

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal in the next picture if the same is still false:
        the same claim of the same work in the same words.
        """
        return self.claim, self.uid, self.said

    def __str__(self) -> str:
        return f"{self.claim}: {self.title} says {self.said!r}, but {self.why}"


def false_claims(picture: Picture, namespace: str | None = None) -> Iterator[False_]:
    """Return what is false in a picture, of the work of a namespace or of all."""
    for work in picture.work:
        if namespace not in (None, work.row.namespace):
            continue
        for claim in CLAIMS:
            if (not claim.stored or work.as_stored) and (why := claim.why_false(work, picture)):
                yield False_(claim.name, work.row.uid, work.title, _said(work), why, claim.extra_s)
    for queue, why in positions(picture).items():
        yield False_("position", queue, f"the queue {queue!r}", "", why, POSITION_S)
    for queue, why in overtaking(picture).items():
        yield False_("one after the other", queue, f"the queue {queue!r}", "", why, POSITION_S)
    for node, why in shared_nodes(picture).items():
        yield False_("exclusive", node, f"the node {node}", "", why, 0.0)


def _said(work: ShownWork) -> str:
    status = work.fluxjob.status
    return f"{status.state} {status.reason}: {status.message}" if status.reason else status.state


# ---- what the tables have ----------------------------------------------------------------------------------


def _stored_state(work: ShownWork, picture: Picture) -> str:
    row, shown = work.row, work.fluxjob.status
    reason = row.reason if shown.reason != Reason.TIME_LIMIT else shown.reason
    if (shown.state, shown.reason) == (row.state, reason):
        return ""
    return f"the queue has it as {row.state} {row.reason}"


def _stored_words(work: ShownWork, picture: Picture) -> str:
    shown, row = work.fluxjob, work.row
    words = row.message or given_back_message(row) or room_message(row)
    idle = row.state is State.RUNNING and shown.status.message.startswith(IDLE_SINCE)
    if shown.status.reason == row.reason and shown.status.message != words and not idle:
        return f"the queue says {words!r}"
    if shown.spec.pods != row.pods:
        return f"spec.pods is {shown.spec.pods}, and the queue counts {row.pods}"
    return (
        f"status.requeues is {shown.status.requeues}, not {row.requeues}"
        if shown.status.requeues != row.requeues
        else ""
    )


def _late_reason(work: ShownWork, picture: Picture) -> str:
    waits = work.state is State.PENDING and not work.fluxjob.status.reason
    return "it waits, and nothing says why" if waits and picture.at - work.row.submitted_at > _SECOND else ""


# ---- states ------------------------------------------------------------------------------------------------


def _pending(work: ShownWork, picture: Picture) -> str:
    running = [pod for pod in work.pods if _runs(pod, picture)]
    return f"its pod {running[0].metadata.name} runs" if work.state is State.PENDING and running else ""


def _runs(pod: Pod, picture: Picture) -> bool:
    """True if a pod runs where somebody hears of it: what happens to pods of lost nodes is not known."""
    return (
        pod.status.phase == "Running"
        and not pod.metadata.deletion_timestamp
        and picture.is_up(pod.spec.node_name)
    )


def _allocated(work: ShownWork, picture: Picture) -> str:
    grant = work.grant
    if work.state is not State.ALLOCATED or grant is None or not grant.slots:
        return ""
    pods = {pod.metadata.uid: pod for pod in work.pods}
    bound = [
        slot.pod_uid in pods and bool(pods[slot.pod_uid].spec.node_name)
        for slot in grant.slots
        if slot.pod_uid is not None
    ]
    return "all of its pods are on their nodes" if len(bound) == len(grant.slots) and all(bound) else ""


def _running(work: ShownWork, picture: Picture) -> str:
    if work.state is not State.RUNNING or not work.pods or work.row.uid in picture.ran:
        return ""
    if any(pod.metadata.uid in picture.ran for pod in work.pods) or _job_ran(work):
        return ""
    unbound = [pod for pod in work.pods if not pod.spec.node_name]
    return f"none of its {len(work.pods)} pods is on a node, or was" if len(unbound) == len(work.pods) else ""


def _job_ran(work: ShownWork) -> bool:
    return work.job is not None and bool(work.job.status.succeeded or work.job.status.failed)


def _draining(work: ShownWork, picture: Picture) -> str:
    return "it holds no nodes" if work.state is State.DRAINING and not work.allocations else ""


def _ended(work: ShownWork, picture: Picture) -> str:
    if not work.state.ended:
        return ""
    if work.grant is not None:
        return f"it holds {', '.join(sorted({share.node for share in work.grant.shares}))}"
    running = [pod for pod in work.pods if _runs(pod, picture)]
    return f"its pod {running[0].metadata.name} runs" if running else ""


_OUTCOMES = {
    State.COMPLETED: (Outcome.SUCCEEDED, Outcome.UNKNOWN),
    State.FAILED: (Outcome.FAILED, Outcome.TIME_LIMIT, Outcome.UNKNOWN),
    State.CANCELLED: (Outcome.CANCELLED,),
}


def _outcome(work: ShownWork, picture: Picture) -> str:
    outcome = work.fluxjob.status.outcome
    if not work.state.ended:
        return f"its outcome is {outcome!r}" if outcome else ""
    if outcome not in _OUTCOMES[work.state]:
        return f"its outcome is {outcome!r}"
    job = work.job
    if job is None or outcome == Outcome.TIME_LIMIT:
        return ""
    complete = job.status.has_condition("Complete") or job.status.has_condition("SuccessCriteriaMet")
    failed = job.status.has_condition("Failed") or job.status.has_condition("FailureTarget")
    if complete and work.state is not State.COMPLETED:
        return "its Job is Complete"
    return "its Job has failed" if failed and work.state is State.COMPLETED else ""


# ---- times -------------------------------------------------------------------------------------------------


def _times(work: ShownWork, picture: Picture) -> str:
    status = work.fluxjob.status
    shown = {
        "submittedAt": status.submitted_at,
        "allocatedAt": status.allocated_at,
        "startedAt": status.started_at,
        "finishedAt": status.finished_at,
    }
    known = [(name, at) for name, text in shown.items() if (at := seconds_at(text)) is not None]
    for (first, before), (then, after) in itertools.pairwise(known):
        if before > after:
            return f"{first} {before:%H:%M:%S} is after {then} {after:%H:%M:%S}"
    for name, at in known:
        if at > picture.at + _SECOND:
            return f"{name} {at:%H:%M:%S} is to come"
    if work.state.ended != (status.finished_at is not None):
        return f"finishedAt is {status.finished_at}"
    return "it has no startedAt" if work.state is State.RUNNING and status.started_at is None else ""


# ---- estimates ---------------------------------------------------------------------------------------------


def _past_estimate(work: ShownWork, picture: Picture) -> str:
    eta = seconds_at(work.fluxjob.status.eta)
    return f"its estimate {eta:%H:%M:%S} is over" if eta is not None and eta + _SECOND < picture.at else ""


def _estimate(work: ShownWork, picture: Picture) -> str:
    status = work.fluxjob.status
    eta, soonest = seconds_at(status.eta), seconds_at(status.eta_soonest)
    if work.state is not State.PENDING and (eta or soonest or status.position or status.reserved_at):
        return "only waiting work has a position and an estimate"
    if eta is None:
        return "etaSoonest or reservedAt is there without eta" if soonest or status.reserved_at else ""
    begin = work.row.start_conditions.begin_at
    if begin is not None and eta + _SECOND < begin:
        return f"its estimate {eta:%H:%M:%S} is before {begin:%H:%M:%S}, from when on it may begin"
    if soonest is not None and soonest > eta:
        return "etaSoonest is after eta"
    return (
        "reservedAt is not eta" if status.reserved_at is not None and status.reserved_at != status.eta else ""
    )


def _first_estimate(work: ShownWork, picture: Picture) -> str:
    status = work.fluxjob.status
    return "etaFirst is not there" if status.eta is not None and status.eta_first is None else ""


def _reserved(work: ShownWork, picture: Picture) -> str:
    shown = seconds_at(work.fluxjob.status.reserved_at)
    if shown is None or work.state is not State.PENDING:
        return ""
    if work.reservation is None:
        return "reservedAt is there, and nothing is reserved for it"
    start = work.reservation.start
    return (
        ""
        if shown <= start < shown + _SECOND
        else f"reservedAt is {shown:%H:%M:%S}, and its nodes are reserved from {start:%H:%M:%S} on"
    )


# ---- nodes -------------------------------------------------------------------------------------------------


def _nodes(work: ShownWork, picture: Picture) -> str:
    grant, state = work.grant, work.state
    if state not in (State.ALLOCATED, State.RUNNING):
        return ""
    if grant is None:
        return "" if state is State.RUNNING and _goes_on(work) else "it holds no nodes"
    shown = hostlists.decode(work.fluxjob.status.nodes)
    if shown != list(grant.hosts):
        return f"its nodes are {','.join(shown)}, and it holds {','.join(grant.hosts)}"
    pods = {pod.metadata.uid: pod for pod in work.pods}
    for slot in grant.slots:
        pod = pods.get(slot.pod_uid or "")
        if (
            slot.state is SlotState.TAKEN
            and pod is not None
            and pod.active
            and pod.spec.node_name not in (None, "", slot.node)
        ):
            return f"its pod {pod.metadata.name} is on {pod.spec.node_name}, and its place is on {slot.node}"
    return _elsewhere(work, grant)


def _goes_on(work: ShownWork) -> bool:
    """True for a Job that is not over for its controller:
    its last pods have just ended, or are matched alone.
    """
    return work.job is not None and not work.job.finished and not work.job.spec.suspend


def _elsewhere(work: ShownWork, grant: Allocation) -> str:
    """Say which of the pods that it was released with is on a node that it does not hold."""
    held = {slot.node for each in work.allocations for slot in each.slots}
    jobid = str(grant.jobid)
    for pod in work.pods:
        ours = pod.metadata.annotation(names.ALLOCATION_ANNOTATION) == jobid
        if ours and pod.active and pod.spec.node_name and pod.spec.node_name not in held:
            return (
                f"its pod {pod.metadata.name} is on {pod.spec.node_name}, "
                f"and it holds {', '.join(sorted(held))}"
            )
    return ""


# ---- conditions --------------------------------------------------------------------------------------------


def _conditions(work: ShownWork, picture: Picture) -> str:
    if not work.conditions:
        return ""
    types = [each["type"] for each in work.conditions]
    if len(set(types)) != len(types) or not {
        Condition.ALLOCATED,
        Condition.STARTED,
        Condition.FINISHED,
    } <= set(types):
        return f"its conditions are {types}"
    true = {each["type"] for each in work.conditions if each["status"] == "True"}
    if (Condition.FINISHED in true) != work.state.ended:
        return "the condition Finished is not so"
    if (Condition.ALLOCATED in true) != (
        work.state is not State.PENDING and work.fluxjob.status.allocated_at is not None
    ):
        return "the condition Allocated is not so"
    if Condition.STARTED in true and work.fluxjob.status.started_at is None:
        return "the condition Started is True, and it has no startedAt"
    if {Condition.STALLED, Condition.RECONCILING} <= true:
        return "it is both Stalled and Reconciling"
    late = [each for each in work.conditions if _to_come(each.get("lastTransitionTime"), picture.at)]
    return f"the condition {late[0]['type']} changes at {late[0]['lastTransitionTime']}" if late else ""


def _to_come(text: str | None, now: datetime) -> bool:
    at = seconds_at(text)
    return at is not None and at > now + _SECOND


# ---- messages ----------------------------------------------------------------------------------------------

_RESERVED_FOR_IT = re.compile(r"(?:node (?P<node>\S+) is|\d+ nodes are) reserved for it from (?P<at>\S+Z) on")
_RUNNING_LIMIT = re.compile(
    r"(?:(?P<part>namespace|user|work of ServiceAccounts in namespace) '(?P<who>[^']+)' in )?the "
    r"(?P<kind>queue|account) '(?P<name>[^']+)' may run (?P<most>\d+) workloads at once, "
    r"and (?P<used>\d+) run"
)
_NODE_LIMIT = re.compile(
    r"may use (?P<most>\d+) nodes at once: it uses (?P<used>\d+), and (?P<total>\d+) with this"
)
_SUBMITTED_LIMIT = re.compile(
    r"may have (?P<most>\d+) workloads submitted at once, and (?P<used>\d+) were submitted before this"
)
_AMOUNT_LIMIT = re.compile(
    r"may use (?P<most>[\d.]+) cores at once: it uses (?P<used>[\d.]+), "
    r"and this wants (?P<wanted>[\d.]+) more"
)
_LIMIT_OF_ONE = re.compile(
    r"(?:allows one workload (?P<most>[\d.]+) .*?|may use (?P<nodes>\d+) nodes at once), "
    r"and this (?:wants|would get) (?P<wanted>[\d.]+)\S*: ask"
)
_BUDGET = re.compile(
    r"(?P<used>[\d.,]+) of (?P<most>[\d.,]+) \S.* are used, "
    r"(?P<promised>[\d.,]+) may still be used .* this may use (?P<wanted>[\d.,]+)"
)
_ROUNDED = 0.995
"""Three figures of a budget are rounded to its thousandth."""
_QUOTA = re.compile(r"the ResourceQuota '(?P<name>[^']+)' of namespace '(?P<namespace>[^']+)'")
_NAMED_QUEUE = re.compile(r"the queue '(?P<name>[^']+)'")
_NAMED_ACCOUNT = re.compile(r"the account '(?P<name>[^']+)'")
_EITHER_MISSING = (Reason.UNKNOWN_QUEUE, Reason.INVALID_REQUEST)


def _reserved_for_it(work: ShownWork, picture: Picture) -> str:
    said = _RESERVED_FOR_IT.search(work.row.message)
    if said is None or work.state is not State.PENDING:
        return ""
    if work.reservation is None:
        return "nothing is reserved for it"
    start, shown = work.reservation.start, seconds_at(said["at"])
    if shown is None or not shown <= start < shown + _SECOND:
        return f"its nodes are reserved from {start:%Y-%m-%dT%H:%M:%SZ} on"
    nodes = {share.node for share in work.reservation.shares}
    if said["node"] is not None and said["node"] not in nodes:
        return f"{', '.join(sorted(nodes))} is reserved for it"
    return (
        f"the node {said['node']} does not exist"
        if said["node"] is not None and said["node"] not in picture.nodes
        else ""
    )


def _limits(work: ShownWork, picture: Picture) -> str:
    """Say why the figures of a limit are no reason to wait, or are not what the queue has."""
    message = work.row.message
    if (said := _RUNNING_LIMIT.search(message)) is not None:
        if int(said["used"]) < int(said["most"]):
            return "by its own figures there is room"
        return _running_limit(said, picture) if said["kind"] == "queue" else ""
    if (said := _NODE_LIMIT.search(message)) is not None:
        return "by its own figures there is room" if int(said["total"]) <= int(said["most"]) else ""
    if (said := _SUBMITTED_LIMIT.search(message)) is not None:
        return "by its own figures there is room" if int(said["used"]) < int(said["most"]) else ""
    if (said := _AMOUNT_LIMIT.search(message)) is not None:
        enough = float(said["used"]) + float(said["wanted"]) <= float(said["most"])
        return "by its own figures there is room" if enough else ""
    if (said := _LIMIT_OF_ONE.search(message)) is not None:
        return (
            "by its own figures it is allowed"
            if float(said["wanted"]) <= float(said["most"] or said["nodes"])
            else ""
        )
    if (said := _BUDGET.search(message)) is not None:
        used, most, promised, wanted = (
            float(said[name].replace(",", "")) for name in ("used", "most", "promised", "wanted")
        )
        return "by its own figures there is room" if used + promised + wanted < most * _ROUNDED else ""
    return ""


def _running_limit(said: re.Match[str], picture: Picture) -> str:
    queue = picture.queues.get(said["name"])
    limits = queue.spec.limits if queue is not None and queue.spec.limits is not None else QueueLimits()
    part = (
        limits
        if said["part"] is None
        else limits.per_namespace
        if said["part"] == "namespace"
        else limits.per_user
    )
    limit = part.running if part is not None else None
    if limit is None or limit != int(said["most"]):
        return f"the limit is {limit}"
    reserved = {each.workload for each in picture.ledger.reservations}
    counted = [
        row
        for row in picture.ledger.workloads
        if row.queue == said["name"] and (row.state in LIVE or row.id in reserved)
    ]
    counted = [row for row in counted if _is_of(row, said["part"], said["who"])]
    return "" if len(counted) >= limit else f"{len(counted)} of them run or have nodes reserved"


def _is_of(row: Workload, part: str | None, who: str) -> bool:
    """True if a row is of this namespace or this user; without a part, of whomever it is."""
    if part is None or part == "namespace":
        return part is None or row.namespace == who
    return user_of(row) == (who if part == "user" else programs_of(who))


_LEAVES = re.compile(
    r"the ResourceQuota '(?P<name>[^']+)' of namespace '(?P<namespace>[^']+)' allows (?P<most>.+?) and "
    r"leaves (?P<left>.+?),"
)


def _quota(work: ShownWork, picture: Picture) -> str:
    said = _LEAVES.search(work.row.message)
    quota = picture.quotas.get((said["namespace"], said["name"])) if said is not None else None
    if said is None or quota is None or said["most"] == said["left"]:
        return ""
    used = any(parse_quantity(amount) for amount in (quota.status.used or {}).values())
    live = any(row.namespace == said["namespace"] and row.state in LIVE for row in picture.ledger.workloads)
    return (
        ""
        if used or live or picture.ledger.reservations
        else f"nothing of the ResourceQuota {said['name']!r} is used"
    )


_FAILED_POD = re.compile(
    r"pod (?P<name>[^\s,]+)(?:, and \d+ more)? (?:was not bound|could not be bound|cannot be bound|still has)"
)
_NOT_CREATED = re.compile(r"(?P<missing>\d+) of (?P<all>\d+) pods were not created")


def _failed_start(work: ShownWork, picture: Picture) -> str:
    """Say which pod is on a node, or there, that a failed start names;
    what failed before the work was requeued is past.
    """
    if work.state is not State.ALLOCATED:
        return ""
    if (said := _FAILED_POD.search(work.row.message)) is not None:
        pod = next((pod for pod in work.pods if pod.metadata.name == said["name"]), None)
        if pod is None:
            return f"there is no pod {said['name']}"
        return f"the pod {said['name']} is on {pod.spec.node_name}" if pod.spec.node_name else ""
    if (said := _NOT_CREATED.search(work.row.message)) is not None:
        there = sum(pod.active for pod in work.pods)
        return f"{there} of its pods are there" if there >= int(said["all"]) else ""
    return ""


_NEXT_FLAVOR = re.compile(r"; it may use flavor '(?P<name>[^']+)' too from (?P<at>\S+Z) on")


def _next_flavor(work: ShownWork, picture: Picture) -> str:
    """Say from when on the work may really use the flavor of its queue that is named as the next."""
    said, queue = _NEXT_FLAVOR.search(work.row.message), picture.queues.get(work.row.queue)
    if said is None or queue is None or work.state is not State.PENDING:
        return ""
    flavor = next((each for each in queue.spec.flavors or () if each.name == said["name"]), None)
    if flavor is None:
        return f"the queue has no flavor {said['name']}"
    since = max(work.row.submitted_at, work.row.start_conditions.not_before or work.row.submitted_at)
    at = since + timedelta(seconds=flavor.wait_seconds)
    told = datetime.fromisoformat(said["at"])
    return f"it may use it from {at} on" if abs(told - at) > _SECOND or told < picture.at else ""


_HELD_BY = re.compile(r"; nothing is preempted for it: nodes that it needs are held by (?P<names>.+)$")
_HOLDER = re.compile(r"(?P<kind>\w+) (?P<namespace>[^\s/]+)/(?P<name>\S+) \((?P<why>[^)]+)\)")


def _held_by(work: ShownWork, picture: Picture) -> str:
    """Say which work does not hold nodes, or could be preempted,
    that is named as the cause why nothing is preempted.
    """
    said = _HELD_BY.search(work.row.message)
    for holder in _HOLDER.finditer(said["names"]) if said is not None and work.state is State.PENDING else ():
        named = holder["kind"], holder["namespace"], holder["name"]
        rows = [
            row
            for row in picture.ledger.workloads
            if (row.kind, row.namespace, row.name) == named and row.state in LIVE
        ]
        if not any(each.workload == row.id for row in rows for each in picture.ledger.allocations):
            return f"{holder['name']} holds no nodes"
        if wrong := _may_be_preempted(holder["why"], rows[0], work.row, picture):
            return f"{holder['name']} {wrong}"
    return ""


def _may_be_preempted(why: str, holder: Workload, row: Workload, picture: Picture) -> str:
    """Say why a holder of nodes is not spared for the cause that is told."""
    if why in ("of equal priority", "of higher priority"):
        ahead = (holder.priority > row.priority) - (holder.priority < row.priority)
        return "" if ahead == (why == "of higher priority") else f"has the priority {holder.priority}"
    queue = picture.queues.get(holder.queue)
    if why == "in a queue without preemption":
        preempts = queue is not None and queue.spec.preemption is Preemption.LOWER_PRIORITY
        return f"is in the queue {holder.queue!r}, which has preemption" if preempts else ""
    if why.startswith("in its minimum run time until "):
        until, rules = (
            seconds_at(why.rpartition(" ")[2]),
            queue.spec.preemption_rules if queue is not None else None,
        )
        if until is None or until < picture.at:
            return "has run for long enough"
        ends = (holder.started_at or until) + timedelta(
            seconds=rules.min_run_seconds if rules is not None else 0
        )
        return (
            ""
            if holder.started_at is None or until <= ends < until + _SECOND
            else f"has run for long enough at {ends:%H:%M:%S}"
        )
    return ""


def _names_exist(work: ShownWork, picture: Picture) -> str:
    message, reason = work.row.message, work.row.reason
    if work.state is not State.PENDING or reason in _EITHER_MISSING:
        return ""
    for said in _NAMED_QUEUE.finditer(message):
        if said["name"] not in picture.queues:
            return f"there is no queue {said['name']!r}"
    for said in _NAMED_ACCOUNT.finditer(message):
        if said["name"] not in picture.accounts:
            return f"there is no account {said['name']!r}"
    for said in _QUOTA.finditer(message):
        if (said["namespace"], said["name"]) not in picture.quotas:
            return f"there is no ResourceQuota {said['name']!r}"
    return ""


def _reason(work: ShownWork, picture: Picture) -> str:
    reason = Reason(work.fluxjob.status.reason)
    check = REASONS[reason]
    if isinstance(check, NotCheckable) or reason is Reason.DEADLINE_UNREACHABLE:
        return ""
    if reason is not Reason.TIME_LIMIT and (work.state.ended or work.state is State.RUNNING):
        return f"{work.state} work waits for nothing"
    past = work.state is State.DRAINING and reason not in (Reason.TIME_LIMIT, Reason.PREEMPTED)
    # work that frees its nodes says why it does, not what is so now
    return "" if past else check(work, picture)


def _deadline(work: ShownWork, picture: Picture) -> str:
    check = REASONS[Reason.DEADLINE_UNREACHABLE]
    shown = work.state is State.PENDING and work.fluxjob.status.reason == Reason.DEADLINE_UNREACHABLE
    return check(work, picture) if shown and not isinstance(check, NotCheckable) else ""


CLAIMS = (
    Claim(
        "stored state",
        _stored_state,
        extra_s=12,
        why=(
            "FluxJobs show a state that usually passes, or a new one in a burst, "
            "only after 10 s (fluxjob_pace)"
        ),
        stored=False,
    ),
    Claim("stored words", _stored_words, extra_s=12, why="the same", stored=False),
    Claim(
        "reason in time",
        _late_reason,
        extra_s=20,
        why="a FluxJob is pending without a reason for 10 s (fluxjob_pace), then matched",
    ),
    Claim("Pending", _pending),
    Claim("Allocated", _allocated),
    Claim("Running", _running),
    Claim("Draining", _draining),
    Claim("ended", _ended),
    Claim("outcome", _outcome),
    Claim("times", _times, stored=False),
    Claim("past estimate", _past_estimate, extra_s=10, why="the plan is made every 5 s, and read every 2 s"),
    Claim("estimate", _estimate, stored=False),
    Claim("etaFirst", _first_estimate, stored=False),
    Claim("reservedAt", _reserved, extra_s=40, why="an estimate changes at most twice a minute"),
    Claim("nodes", _nodes),
    Claim("conditions", _conditions, stored=False),
    Claim("reserved for it", _reserved_for_it),
    Claim("limits", _limits),
    Claim("quota", _quota),
    Claim("failed start", _failed_start),
    Claim("held by", _held_by, extra_s=10, why="it is compared in each cycle"),
    Claim("next flavor", _next_flavor, extra_s=3, why="a cycle follows the time, and many may do at once"),
    Claim("names", _names_exist),
    Claim("reason", _reason),
    Claim("deadline", _deadline),
)
