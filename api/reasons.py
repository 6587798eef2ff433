"""What there is to know of each reason why work waits: one entry in one table.

Everything else about reasons is derived from it or compared with it: which work is matched, what is reported
when, what `kubectl fluxqueue explain` says, the reference of reasons. The names are the values of
`fluxqueue.api.fluxjobs.Reason`, which the CRD and the tables list too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason

__all__ = ["REASONS", "ReasonFacts", "Report", "reasons_that"]


class Report(enum.Enum):
    """When an Event tells a reason."""

    NEVER = enum.auto()
    """Who caused it knows it."""
    WHEN_NEW = enum.auto()
    """Each time that it becomes the reason."""
    WHILE_WAITING = enum.auto()
    """Such reasons replace each other as the cluster changes:
    the first is told, and from time to time the present one."""
    TO_A_PERSON = enum.auto()
    """At once, and again when the message changes: somebody should look."""


@dataclass(frozen=True, slots=True)
class ReasonFacts:
    """What there is to know of a reason.

    Attributes
    ----------
    why
        The reason in words, after "it waits:".
    helps
        What somebody can do about it.
    matched
        Work with it is matched in every cycle; any other reason blocks.
    limit
        Such work waits for a limit and not for nodes.
    for_others
        Such work is matched once other work, or a time, has come: its start can be estimated.
    stalled
        Nothing happens by itself: somebody edits the work, or changes the cluster (kstatus).
    report
        When an Event tells it.
    urgency
        Of several problems of an object, the one with the least is shown; what only an edit can repair comes
        before what passes by itself. None: the intake does not find it.
    """

    why: str
    helps: str
    matched: bool = False
    limit: bool = False
    for_others: bool = False
    stalled: bool = False
    report: Report = Report.WHEN_NEW
    urgency: int | None = None


REASONS: Final[dict[Reason, ReasonFacts]] = {
    Reason.NONE: ReasonFacts(
        "the queue has not processed it yet",
        "nothing is needed; if this lasts, see whether the queue is running",
        matched=True,
        report=Report.NEVER,
    ),
    Reason.HELD: ReasonFacts(
        "somebody holds it",
        "kubectl fluxqueue release lets it start",
        urgency=4,
    ),
    Reason.USER_SUSPENDED: ReasonFacts(
        "the Job was applied with suspend: true, and only who suspended it may resume it",
        "set spec.suspend of the Job to false",
        report=Report.NEVER,
        urgency=5,
    ),
    Reason.QUEUE_HELD: ReasonFacts(
        "its queue is held or drained",
        "open the queue, or move the workload to another one (kubectl fluxqueue move)",
        urgency=6,
    ),
    Reason.UNKNOWN_QUEUE: ReasonFacts(
        "there is no queue of that name",
        f"create that FluxQueue, or correct the label {names.QUEUE_LABEL}",
        stalled=True,
        report=Report.TO_A_PERSON,
        urgency=3,
    ),
    Reason.QUEUE_LIMIT: ReasonFacts(
        "its queue, a ResourceQuota of its namespace, or what may wait of its namespace at once, "
        "is at a limit",
        "wait until others of the queue or the namespace end, ask for less, delete what is not needed, "
        "or have the limit raised",
        matched=True,
        limit=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.ACCOUNT_LIMIT: ReasonFacts(
        "its account, or one above it, is at a limit or has used up its budget",
        "wait until others of the account end, ask for less, or have its limit raised (spec.limits or "
        "spec.budget of the FluxAccount)",
        matched=True,
        limit=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.WAITING_FOR_NODES: ReasonFacts(
        "there is not enough free at once",
        "it starts when enough of what runs has ended; asking for less, or for less time, "
        "may start it sooner",
        matched=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.BLOCKED_BY_RESERVATION: ReasonFacts(
        "what is free is reserved for a workload ahead of it",
        "a shorter duration may let it fit in before the reservation begins",
        matched=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.RESERVATION: ReasonFacts(
        "nodes that it needs are set aside by a FluxReservation, or its own has not begun",
        "it starts afterwards; a shorter duration may let it end before (kubectl fluxqueue reservations)",
        matched=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.UNSATISFIABLE: ReasonFacts(
        "no set of nodes of this cluster could hold it, even if all were empty",
        "ask for less per pod or for other nodes, or add nodes that fit; it is tried again when nodes change",
        stalled=True,
        report=Report.TO_A_PERSON,
    ),
    Reason.WAITING_FOR_GROUP: ReasonFacts(
        "members of its pod group are missing",
        f"create the missing pods, or correct the annotation {names.POD_GROUP_SIZE_ANNOTATION}",
        report=Report.WHILE_WAITING,
        urgency=7,
    ),
    Reason.WAITING_FOR_VOLUMES: ReasonFacts(
        "a claim of its pods (of a volume, or of devices) cannot be used yet",
        "see kubectl describe of the claim; it can start when the claim exists, is bound and is free",
        report=Report.WHILE_WAITING,
        urgency=8,
    ),
    Reason.WAITING_FOR_DEPENDENCY: ReasonFacts(
        "another workload has to start or end first",
        f"see what the other one waits for; meanwhile the annotation {names.AFTER_ANNOTATION} may be edited",
        for_others=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.DEPENDENCY_NEVER_SATISFIED: ReasonFacts(
        "what it waits for can never happen",
        f"edit the annotation {names.AFTER_ANNOTATION}, or delete the object: it never starts as it is",
        stalled=True,
        report=Report.TO_A_PERSON,
    ),
    Reason.WAITING_FOR_BEGIN: ReasonFacts(
        "it may not begin yet",
        f"nothing is needed; while it waits, the annotation {names.BEGIN_ANNOTATION} may be edited",
        for_others=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.NODES_UNAVAILABLE: ReasonFacts(
        "nodes that could hold it are cordoned, not ready or gone",
        "bring the nodes back (kubectl get nodes)",
        matched=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.RELEASE_FAILED: ReasonFacts(
        "the API server refused its release, or its pods",
        "correct what the API server names (a quota, a ServiceAccount, a policy); "
        "it is retried automatically",
        matched=True,
        report=Report.TO_A_PERSON,
    ),
    Reason.BIND_FAILED: ReasonFacts(
        "a pod could not be bound to its node",
        "see the pod's Events; a bare Pod that the stock scheduler binds keeps its place on the node until "
        "it is deleted",
        matched=True,
        report=Report.TO_A_PERSON,
    ),
    Reason.START_TIMEOUT: ReasonFacts(
        "its pods did not start in time, so it was stopped and waits again",
        "see the Events of its pods (quota, LimitRange, image, volume); it is retried automatically",
        matched=True,
        report=Report.TO_A_PERSON,
    ),
    Reason.PREEMPTED: ReasonFacts(
        "other work took its nodes: it is more important, or this one was idle or is moved",
        "nothing is needed where it waits again: it keeps its submit time, and stands last if it was idle; "
        "what nobody creates again is to be submitted again",
        matched=True,
    ),
    Reason.INVALID_REQUEST: ReasonFacts(
        "its request cannot be read",
        "correct the field that the message names and apply the object again",
        stalled=True,
        report=Report.TO_A_PERSON,
        urgency=1,
    ),
    Reason.QUEUE_NOT_ALLOWED: ReasonFacts(
        "its namespace may not use that queue, or the queue is drained",
        "move it to another queue (kubectl fluxqueue move), or have the queue opened for it",
        stalled=True,
        report=Report.TO_A_PERSON,
        urgency=0,
    ),
    Reason.RESERVATION_NOT_ALLOWED: ReasonFacts(
        "there is no such reservation, or it is not for this work",
        f"edit or remove its annotation {names.RESERVATION_ANNOTATION}, or have the FluxReservation edited",
        stalled=True,
        report=Report.TO_A_PERSON,
        urgency=2,
    ),
    Reason.PROVISIONING: ReasonFacts(
        "only nodes that do not exist yet could hold it: they are requested from the autoscaler",
        "nothing is needed: it starts when they are ready; "
        "kubectl get provisioningrequests (or nodeclaims, of Karpenter) shows it",
        matched=True,
        report=Report.WHILE_WAITING,
    ),
    Reason.TIME_LIMIT: ReasonFacts(
        "it reached the end of its duration, or was idle for too long, and the queue ends it",
        "ask for a longer duration (annotation fluxqueue/duration) the next time, "
        "or have it save what it has; if it was idle, have it end when its work is done",
    ),
    Reason.DEADLINE_UNREACHABLE: ReasonFacts(
        "as it is planned now, it ends after its deadline",
        "it starts all the same when it can: a shorter duration, "
        "a smaller request or a higher priority may help",
        matched=True,
        report=Report.TO_A_PERSON,
    ),
}


def reasons_that(have: Callable[[ReasonFacts], bool]) -> frozenset[Reason]:
    """Return the reasons with these facts."""
    return frozenset(reason for reason, facts in REASONS.items() if have(facts))
