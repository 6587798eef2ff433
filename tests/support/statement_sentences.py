"""Each sentence that the queue gives with a reason, and what compares it with the cluster: no claim without a
check.

A test compares this table with the code (`reason_sentences`), so a new sentence is entered here with the
claim (`statement_claims`) that is false if the sentence is. All sentences are also read for names of queues,
accounts and quotas, and each comes with the predicate of its reason (`statement_reasons`).
"""

from __future__ import annotations

from collections.abc import Mapping

from support.statement_reasons import NotCheckable

from fluxqueue.api.fluxjobs import Reason

__all__ = ["SENTENCES"]

_CAUSE = NotCheckable("it tells what happened before the work was requeued, and that cannot be seen any more")
_INTAKE = NotCheckable("the unit tests of the intake say what cannot be read")
_OWNERS = NotCheckable("what owners say of their pods differs by kind, and is not read here")
_NOT_FOR_NAMESPACE = (
    "{} may not use the queue {}, which is not for namespace {}: choose another queue, or have the "
    "namespace added to spec.namespaces of the FluxQueue"
)

SENTENCES: Mapping[tuple[Reason, str], str | NotCheckable] = {
    (Reason.HELD, "{} is being cancelled"): "reason",
    (
        Reason.HELD,
        (
            "{} could not be released {} times and is held: {}; repair that, then edit the {} or set "
            "spec.hold of its FluxJob to false"
        ),
    ): ("reason"),
    (
        Reason.HELD,
        (
            "{} did not start {} times in a row and is held: {}; repair that, "
            "then set spec.hold of its FluxJob to false"
        ),
    ): "reason",
    (
        Reason.HELD,
        "{} lost its nodes {} times in a row and is held: {}; set spec.hold of its FluxJob to false to go on",
    ): "reason",
    (Reason.USER_SUSPENDED, "Job {}/{} has spec.parallelism 0: raise it and the Job can start"): "reason",
    (
        Reason.USER_SUSPENDED,
        "Job {}/{} was suspended by its user: set spec.suspend to false and it can start",
    ): "reason",
    (Reason.USER_SUSPENDED, "{} has spec.parallelism 0: raise it and the Job can start"): "reason",
    (
        Reason.USER_SUSPENDED,
        "{} was suspended by its user: set spec.suspend to false and it can start",
    ): "reason",
    (Reason.QUEUE_HELD, "the queue {} is held: open it and its work can start"): "reason",
    (
        Reason.UNKNOWN_QUEUE,
        "{} names the queue {}, which does not exist: create that FluxQueue or change {}",
    ): "reason",
    (
        Reason.QUEUE_NOT_ALLOWED,
        "the queue {} is drained and takes no new work: choose another, or wait until it is open",
    ): "reason",
    (Reason.QUEUE_NOT_ALLOWED, _NOT_FOR_NAMESPACE): "reason",
    (Reason.QUEUE_LIMIT, "{} may run {} workloads at once, and {} run or have nodes reserved"): "limits",
    (Reason.QUEUE_LIMIT, "{} may use {} nodes at once: it uses {}, and {} with this"): "limits",
    (Reason.QUEUE_LIMIT, "{} may use {}: ask for less (spec.limits of its {})"): "limits",
    (
        Reason.QUEUE_LIMIT,
        "{} allows one workload {}: ask for less (spec.limits.perWorkload of its {})",
    ): "limits",
    (Reason.QUEUE_LIMIT, "{} is at a limit (spec.limits of its {})"): "reason",
    (
        Reason.QUEUE_LIMIT,
        "{} is at a limit, and {} waits for it before this (spec.atLimit of the FluxQueue)",
    ): "reason",
    (
        Reason.QUEUE_LIMIT,
        "the account {} may have {} workloads submitted at once, and {} were submitted before this",
    ): "limits",
    (Reason.QUEUE_LIMIT, "the budget of the account {} is {} for a period, and "): "limits",
    (
        Reason.QUEUE_LIMIT,
        (
            "the budget of the account {} is used up until {}: {} of {} are used, "
            "{} may still be used by running work, and "
        ),
    ): "limits",
    (
        Reason.QUEUE_LIMIT,
        (
            "the budget of the account {} leaves too little for it in this period (spec.budget of its "
            "FluxAccount)"
        ),
    ): "limits",
    (Reason.QUEUE_LIMIT, "the ResourceQuotas of namespace {} leave no room for it: {}"): "reason",
    (Reason.QUEUE_LIMIT, "{} and leaves {}, and this asks for {}: {}"): "quota",
    (Reason.QUEUE_LIMIT, "{}, and this asks for {}: ask for less, or have the quota raised"): "quota",
    (Reason.WAITING_FOR_NODES, "nothing is started at present: {}"): NotCheckable(
        "nothing counts while the queue misses a service"
    ),
    (
        Reason.WAITING_FOR_NODES,
        "{} leave no place for it as pods lie now ({}): it waits until some come or go",
    ): NotCheckable("rules about other pods are judged by the oracle of their own tests"),
    (
        Reason.WAITING_FOR_NODES,
        "{}: it starts when they are added (the queue requests none: spec.provision of its FluxQueue)",
    ): "reason",
    (Reason.WAITING_FOR_NODES, "{}{}"): "held by",
    (Reason.PROVISIONING, "{}: they are requested from the autoscaler"): "reason",
    (
        Reason.BLOCKED_BY_RESERVATION,
        "would start now, but not end before nodes are needed that are reserved for {}",
    ): "reason",
    (
        Reason.RESERVATION,
        "{} was requeued: the maintenance {} of node {} began; it keeps its submit time",
    ): _CAUSE,
    (Reason.WAITING_FOR_GROUP, "{} has {} of {} pods: it can start when all are there"): "reason",
    (
        Reason.WAITING_FOR_GROUP,
        (
            "{} has had only {} of {} pods for more than {} minutes: create the others, or delete these; "
            "none is started before all are there"
        ),
    ): "reason",
    (Reason.WAITING_FOR_GROUP, "{} has {} of {} Jobs: it can start when all are there"): _OWNERS,
    (Reason.WAITING_FOR_GROUP, "{} has {}: it can start when all are there"): _OWNERS,
    (
        Reason.WAITING_FOR_GROUP,
        "{} has had only {} for more than {} s: none is started before all are there",
    ): _OWNERS,
    (
        Reason.WAITING_FOR_GROUP,
        (
            "{}, which was created again, waits until the queue has read the new one, "
            "or the pods of the old one are deleted"
        ),
    ): _OWNERS,
    (Reason.WAITING_FOR_GROUP, "{} cannot start yet: {}, so create the others"): _OWNERS,
    (
        Reason.WAITING_FOR_GROUP,
        (
            "{} starts after {} {}/{}, which has not started: the minimum of the groups above them is met "
            "without it"
        ),
    ): _OWNERS,
    (Reason.WAITING_FOR_VOLUMES, "{}: {}"): "reason",
    (Reason.WAITING_FOR_DEPENDENCY, "{} waits for {}{}"): "reason",
    (Reason.WAITING_FOR_DEPENDENCY, "{} waits for {} to end, which names the same {}: {}"): "reason",
    (Reason.DEPENDENCY_NEVER_SATISFIED, "{} waits for {}, and that cannot happen: {}: {}"): "reason",
    (
        Reason.DEPENDENCY_NEVER_SATISFIED,
        "{} waits in a cycle, and none of it can start: {}: {}",
    ): NotCheckable("only the graph of all dependencies has it; its unit tests have cycles"),
    (Reason.WAITING_FOR_BEGIN, "{} may begin from {} on"): "reason",
    (Reason.NODES_UNAVAILABLE, "the nodes that are up could not hold it: {} cordoned or not ready"): "reason",
    (Reason.NODES_UNAVAILABLE, "{} waits again: {}; it is tried again {} (time {} of {})"): _CAUSE,
    (Reason.NODES_UNAVAILABLE, "pod {}{} cannot be bound: {}"): "failed start",
    (Reason.RELEASE_FAILED, "the API server refuses its pods: {}"): NotCheckable("the next attempt may pass"),
    (Reason.RELEASE_FAILED, "pod {} could not be released: {}"): NotCheckable("the next attempt may pass"),
    (Reason.BIND_FAILED, "pod {}{} could not be bound{} in {} s: {}"): "failed start",
    (Reason.BIND_FAILED, "pod {}{} could not be bound{}: {}"): "failed start",
    (Reason.START_TIMEOUT, "pod {} was not bound in {} s: {}"): "failed start",
    (
        Reason.START_TIMEOUT,
        "pod {} still has the scheduling gate {} of another controller after {} s",
    ): "failed start",
    (
        Reason.START_TIMEOUT,
        (
            "{} of {} pods were not created in {} s: a quota or an admission plugin may refuse them, "
            "see the Events of their owner"
        ),
    ): "failed start",
    (
        Reason.START_TIMEOUT,
        "{} {} missing because a pod failed: the Job controller creates {} again by {} (its back-off)",
    ): "reason",
    (Reason.START_TIMEOUT, "{} of {} pods are missing: {} {} replaced once gone"): "reason",
    (
        Reason.START_TIMEOUT,
        (
            "the Job controller has not acted on its release in {} s: it has much to do, or it does not run "
            "(kube-controller-manager)"
        ),
    ): "reason",
    (Reason.PREEMPTED, "{}{}: {}"): "reason",
    (
        Reason.PREEMPTED,
        (
            "{} is moved so that {} starts sooner on {} ({}){}: it fits elsewhere, is requeued and restarts "
            "first in line"
        ),
    ): "reason",
    (
        Reason.RESERVATION_NOT_ALLOWED,
        "{}: there is no FluxReservation {}: have it created, or remove the annotation",
    ): "reason",
    (Reason.RESERVATION_NOT_ALLOWED, "{}: the FluxReservation {} {}"): NotCheckable(
        "who may use one is decided in one place, with unit tests"
    ),
    (Reason.RESERVATION_NOT_ALLOWED, "{}: {} is no name of a FluxReservation: correct or remove it"): _INTAKE,
    (Reason.INVALID_REQUEST, "Pod {}/{} names {}, which is complete without it: {}"): _INTAKE,
    (
        Reason.INVALID_REQUEST,
        (
            "{}: annotation {}: the work that waits in namespace {} would name more than {} others in "
            "all: let less of it wait for so many, or one for the others; it is read again each minute"
        ),
    ): _INTAKE,
    (
        Reason.INVALID_REQUEST,
        "{} wants priority {}, the queue {} allows {}: lower it or choose another queue",
    ): _INTAKE,
    (
        Reason.INVALID_REQUEST,
        "{} wants {} s, the queue {} allows {} s: lower the annotation {} or choose another queue",
    ): _INTAKE,
    (Reason.INVALID_REQUEST, "{} wants {}: {} together may ask for {} different {}, and does: {}"): _INTAKE,
    (Reason.INVALID_REQUEST, "{}: annotation {}: {}"): _INTAKE,
    (
        Reason.INVALID_REQUEST,
        "{}: its owner replaces its pods, so they cannot wait for others: remove the annotation {}",
    ): _INTAKE,
    (Reason.INVALID_REQUEST, "{}: its pods name different queues, {}: name one"): _INTAKE,
    (
        Reason.INVALID_REQUEST,
        "{}: there is no FluxReservation {}: have it created, or remove the annotation",
    ): _INTAKE,
    (Reason.INVALID_REQUEST, "{}: {}"): _INTAKE,
    (Reason.INVALID_REQUEST, "{}: {} cannot be read, correct it: {}"): _INTAKE,
    (Reason.INVALID_REQUEST, "{}: {} is no name of a FluxReservation: correct or remove it"): _INTAKE,
}
