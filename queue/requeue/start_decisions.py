"""What is done about released pods that do not start, so that it never costs pods that run.

- A Job is suspended and matched again as a whole only while none of its pods runs: that does not count as a
  failure of the Job.
- If a sibling runs, only the pods that did not start are deleted. Their replacements are created gated, and
  each is matched alone. A deleted pod counts as a failure of its Job. So no pod is deleted if that would fail
  the Job (`fluxqueue.queue.requeue.deletion_budget`), or while the template still pins new pods to the same
  node.
- If a sibling runs and pods were not even created in the time for a start, their slots are given back. A pod
  that is created later is gated, and is matched alone.
- A group of which nothing was bound in time is matched again as a whole, if an owner replaces all of its
  pods: they are deleted. If the scheduler refuses it and nobody replaces one of its pods, it ends as failed
  and holds no nodes: its scheduling gates cannot come back.
- If some of a group runs, the pods that the scheduler refuses, or whose node closed, are deleted if an owner
  replaces them. The slot of a refused pod without an owner is given back.
- The pod of another owner is deleted, so that its replacement is tried. A bare Pod is never deleted, and
  keeps its slot.
- A pod that waits for the scheduling gate of another controller keeps its slot: its replacement would have
  the gate too.

A pod that our own scheduler has not bound is withdrawn instead of deleted. That is no failure of the Job and
leaves the pod as it is. A workload that keeps its slots has the reason in its FluxJob. When it is matched
again, and where, is in `fluxqueue.queue.requeue.evictions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pinwindows import MARGIN, pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange
from fluxqueue.queue.model.records import (
    Allocation,
    ReleaseMode,
    Slot,
    SlotState,
    Workload,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.requeue_states import owner_and_revision
from fluxqueue.queue.requeue.deletion_budget import DeletionBudget
from fluxqueue.queue.requeue.evictions import (
    MOST_STARTS,
    evict_after_closed_node,
    evict_after_pod_refusal,
    evict_after_timeout,
    evict_group_after_timeout,
    recent_state,
    replace_after_timeout,
)
from fluxqueue.queue.requeue.start_failures import StartFailure, StartFailureCause

__all__ = ["StartDecision", "decide_group", "decide_job", "decide_pod", "keep"]

_REPLACED = "only what did not start is replaced"
_GIVEN_BACK = "the missing pods hold no nodes any more: each gets a node of its own once it is created"
_BARE = "has no controller: delete it and create it again to have it planned again"
_FAILS_JOB = "to delete it would fail its Job (backoffLimit)"


@dataclass(frozen=True, slots=True)
class StartDecision:
    """What is done about one workload.

    Attributes
    ----------
    eviction
        The workload is evicted as a whole.
    group_pods
        Of a group that is evicted as a whole: its pods.
    evicted_pods
        These pods are deleted, or withdrawn, and the rest of the workload goes on.
    given_back
        These slots are freed, and the rest of the workload goes on.
    ending
        The workload ends, and what it holds is freed.
    requeue_state
        With which the replacements of these pods begin.
    reason
        For the FluxJob of a workload that keeps its slots.
    """

    eviction: Eviction | None = None
    group_pods: tuple[Pod, ...] = ()
    evicted_pods: tuple[Pod, ...] = ()
    given_back: tuple[Slot, ...] = ()
    ending: Ending | None = None
    requeue_state: RequeueState | None = None
    reason: ReasonChange | None = None


def keep(workload: Workload, failure: StartFailure, pods: Sequence[Pod], remark: str = "") -> StartDecision:
    """Leave the slots of a workload as they are, and write the reason;
    ``pods`` are its pods, of which some may be bound.
    """
    partly = (workload.state is State.RUNNING and workload.pods > 1) or any(
        pod.active and pod.spec.node_name for pod in pods
    )
    doing = "runs, but not all of it" if partly else "keeps its nodes and does not start"
    text = f"{workload.ref} {doing}: {failure.message}" + (f"; {remark}" if remark else "")
    return StartDecision(reason=ReasonChange(workload=workload.id, reason=failure.reason, message=text))


def decide_job(
    workload: Workload,
    job: Job,
    pods: Sequence[Pod],
    failure: StartFailure,
    budget: DeletionBudget,
    now: datetime,
) -> StartDecision:
    """Decide about a Job.

    Parameters
    ----------
    workload, job
        The Job and its row.
    pods
        All its pods, also those that are matched alone.
    failure
        What does not start.
    budget
        Pods that may be deleted; those of the decision are counted.
    now
        The time of the database.
    """
    if not any(pod.active and pod.spec.node_name for pod in pods):
        return StartDecision(eviction=_evict_job(workload, failure, now))
    if failure.empty_slots and not _pins(workload, job, now):
        return StartDecision(
            given_back=failure.empty_slots, reason=keep(workload, failure, pods, _GIVEN_BACK).reason
        )
    deleted = sum(1 for pod in failure.pods if not pod.revocable)
    if (
        not failure.pods
        or failure.foreign_gate
        or deleted > budget.left(job)
        or (deleted and _pins(workload, job, now))
    ):
        return keep(workload, failure, pods, _GIVEN_BACK if failure.without_slots else "")
    if failure.cause is StartFailureCause.TIMEOUT and recent_state(workload, now).starts + 1 >= MOST_STARTS:
        return keep(workload, failure, pods)
    budget.spend(workload.uid, deleted)
    state = _evict_job(workload, failure, now).requeue_state
    return StartDecision(
        evicted_pods=failure.pods,
        requeue_state=None
        if state is None
        else msgspec.structs.replace(state, owner=workload.uid, not_before=None),
        reason=keep(workload, failure, pods, _REPLACED).reason,
    )


def _evict_job(workload: Workload, failure: StartFailure, now: datetime) -> Eviction:
    match failure.cause:
        case StartFailureCause.CLOSED:
            return evict_after_closed_node(workload, failure, now)
        case StartFailureCause.REFUSED:
            return evict_after_pod_refusal(workload, failure, now)
        case _:
            return evict_after_timeout(workload, failure, now)


def _pins(workload: Workload, job: Job, now: datetime) -> bool:
    """True if the webhook may still pin a pod that is created now to the same node."""
    return workload.release_mode is ReleaseMode.PIN and pin_until(job.spec.template.metadata) + MARGIN > now


def decide_group(
    workload: Workload,
    allocation: Allocation,
    pods: Sequence[Pod],
    failure: StartFailure,
    budget: DeletionBudget,
    now: datetime,
) -> StartDecision:
    """Decide about a group.

    It is evicted as a whole if nothing of it was bound in time. Else only pods are evicted that the scheduler
    refuses, or whose node closed. A pod is evicted if it can be withdrawn, or if its owner replaces it.

    Parameters
    ----------
    workload, allocation
        The group and its slots.
    pods
        Those in its slots.
    failure
        What does not start.
    budget
        Pods that may be deleted; those of the decision are counted.
    now
        The time of the database.
    """
    if failure.cause is StartFailureCause.CLOSED:
        evicted = tuple(
            pod for pod in failure.pods if pod.revocable or (owner_and_revision(pod) and budget.take(pod))
        )
        return StartDecision(
            evicted_pods=evicted, reason=keep(workload, failure, pods, _REPLACED if evicted else "").reason
        )
    if failure.foreign_gate:
        return keep(workload, failure, pods)
    if _has_begun(workload, allocation, pods):
        return _replace_refused(workload, allocation, pods, failure, budget, now)
    deleted = [pod for pod in pods if not pod.revocable]
    if (bare := _first_bare(deleted)) is not None:
        if failure.reason is not Reason.BIND_FAILED:
            return keep(workload, failure, pods, f"pod {bare.metadata.name} {_BARE}")
        text = (
            f"{workload.ref} did not start, and holds no nodes any more: {failure.message}; "
            f"pod {bare.metadata.name} {_BARE}"
        )
        return StartDecision(ending=Ending(workload.id, State.FAILED, Outcome.FAILED, text))
    if not all(budget.take(pod) for pod in deleted):
        return keep(workload, failure, pods, _FAILS_JOB)
    return StartDecision(
        eviction=evict_group_after_timeout(workload, failure, now, replaced=bool(deleted)),
        group_pods=tuple(pods),
    )


def _replace_refused(
    workload: Workload,
    allocation: Allocation,
    pods: Sequence[Pod],
    failure: StartFailure,
    budget: DeletionBudget,
    now: datetime,
) -> StartDecision:
    """Evict the pods of a group that the scheduler refuses while others run;
    give back the slots of those that nobody replaces.
    """
    if failure.reason is not Reason.BIND_FAILED:
        return keep(workload, failure, pods)
    bare = {
        pod.metadata.uid: pod for pod in failure.pods if not pod.revocable and not owner_and_revision(pod)
    }
    tries_left = recent_state(workload, now).starts + 1 < MOST_STARTS
    evicted = tuple(
        pod
        for pod in failure.pods
        if pod.metadata.uid not in bare and tries_left and (pod.revocable or budget.take(pod))
    )
    state = evict_after_timeout(workload, failure, now).requeue_state if evicted else None
    remarks = [_REPLACED] if evicted else []
    if (first := _first_bare(failure.pods)) is not None:
        remarks.append(f"pod {first.metadata.name} holds no node any more and {_BARE}")
    return StartDecision(
        evicted_pods=evicted,
        given_back=tuple(slot for slot in allocation.open_slots if slot.pod_uid in bare),
        requeue_state=None
        if state is None
        else msgspec.structs.replace(state, owner=owner_and_revision(evicted[0]), not_before=None),
        reason=keep(workload, failure, pods, "; ".join(remarks)).reason,
    )


def _first_bare(pods: Sequence[Pod]) -> Pod | None:
    """Return the first pod that can neither be withdrawn nor is replaced once it is deleted."""
    return next((pod for pod in pods if not pod.revocable and not owner_and_revision(pod)), None)


def _has_begun(workload: Workload, allocation: Allocation, pods: Sequence[Pod]) -> bool:
    """True if a pod of a group was bound, or may be released just now."""
    if workload.state is not State.ALLOCATED or any(
        slot.state is SlotState.ENDED for slot in allocation.slots
    ):
        return True
    return not pods or any(pod.held or not pod.active or pod.spec.node_name for pod in pods)


def decide_pod(
    workload: Workload, pod: Pod | None, failure: StartFailure, budget: DeletionBudget, now: datetime
) -> StartDecision:
    """Decide about a single pod; None if it is unknown."""
    closed = failure.cause is StartFailureCause.CLOSED
    if pod is not None and pod.revocable and closed:
        return StartDecision(eviction=evict_after_closed_node(workload, failure, now))
    if failure.foreign_gate or pod is None or not (owner := owner_and_revision(pod)):
        return keep(workload, failure, ())
    if not budget.take(pod):
        return keep(workload, failure, (), _FAILS_JOB)
    if closed:
        return StartDecision(eviction=evict_after_closed_node(workload, failure, now))
    return StartDecision(eviction=replace_after_timeout(workload, failure, now, owner))
