"""What is done about released pods that do not start, so that it never costs pods that run.

- A Job is suspended and matched again as a whole only while none of its pods runs: that does not count as a failure of the Job.
- If a sibling runs, only the pods that did not start are deleted. Their replacements are created gated, and each is matched alone.
  A deleted pod counts as a failure of its Job. So no pod is deleted if that would fail the Job
  (`fluxqueue.queue.requeue.deletion_budget`), or while the template still pins new pods to the same node.
- Of a group, only pods whose node closed are deleted, and only if an owner replaces them.
- The pod of another owner is deleted, so that its replacement is matched. A bare Pod is never deleted.
- A pod that waits for the scheduling gate of another controller keeps its slot: its replacement would have the gate too.

A pod that our own scheduler has not bound is withdrawn instead of deleted. That is no failure of the Job and leaves the pod as it is. A
workload that keeps its slots has the reason in its FluxJob. When it is matched again, and where, is in `fluxqueue.queue.requeue.evictions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pinwindows import MARGIN, pin_until
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.changes import Eviction, ReasonChange
from fluxqueue.queue.model.records import ReleaseMode, RequeueState, Workload
from fluxqueue.queue.model.requeue_states import owner_and_revision
from fluxqueue.queue.requeue.deletion_budget import DeletionBudget
from fluxqueue.queue.requeue.evictions import (
    MOST_STARTS,
    evict_after_closed_node,
    evict_after_pod_refusal,
    evict_after_timeout,
    recent_state,
    replace_after_timeout,
)
from fluxqueue.queue.requeue.start_failures import StartFailure, StartFailureCause

__all__ = ["StartDecision", "decide_group", "decide_job", "decide_pod", "keep"]

_REPLACED = "only what did not start is replaced"


@dataclass(frozen=True, slots=True)
class StartDecision:
    """What is done about one workload.

    Attributes
    ----------
    eviction
        The workload is evicted as a whole.
    evicted_pods
        These pods are deleted, or withdrawn, and the rest of the workload goes on.
    requeue_state
        With which the replacements of these pods begin.
    reason
        For the FluxJob of a workload that keeps its slots.
    """

    eviction: Eviction | None = None
    evicted_pods: tuple[Pod, ...] = ()
    requeue_state: RequeueState | None = None
    reason: ReasonChange | None = None


def keep(workload: Workload, failure: StartFailure, remark: str = "") -> StartDecision:
    """Leave the slots of a workload as they are, and write the reason."""
    partly = workload.state is State.RUNNING and workload.pods > 1
    doing = "runs, but not all of it" if partly else "keeps its nodes and does not start"
    text = f"{workload.ref} {doing}: {failure.message}" + (f"; {remark}" if remark else "")
    return StartDecision(reason=ReasonChange(workload=workload.id, reason=failure.reason, message=text))


def decide_job(
    workload: Workload, job: Job, pods: Sequence[Pod], failure: StartFailure, budget: DeletionBudget, now: datetime
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
    deleted = sum(1 for pod in failure.pods if not pod.revocable)
    if not failure.pods or failure.foreign_gate or deleted > budget.left(job) or (deleted and _pins(workload, job, now)):
        return keep(workload, failure)
    if failure.cause is StartFailureCause.TIMEOUT and recent_state(workload, now).starts + 1 >= MOST_STARTS:
        return keep(workload, failure)
    budget.spend(workload.uid, deleted)
    state = _evict_job(workload, failure, now).requeue_state
    return StartDecision(
        evicted_pods=failure.pods,
        requeue_state=None if state is None else msgspec.structs.replace(state, owner=workload.uid, not_before=None),
        reason=keep(workload, failure, _REPLACED).reason,
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


def decide_group(workload: Workload, failure: StartFailure, budget: DeletionBudget) -> StartDecision:
    """Decide about a group: only pods whose node closed are evicted, if they can be withdrawn or their owner replaces them."""
    closed_out = failure.pods if failure.cause is StartFailureCause.CLOSED else ()
    evicted = tuple(pod for pod in closed_out if pod.revocable or (owner_and_revision(pod) and budget.take(pod)))
    return StartDecision(evicted_pods=evicted, reason=keep(workload, failure, _REPLACED if evicted else "").reason)


def decide_pod(workload: Workload, pod: Pod | None, failure: StartFailure, budget: DeletionBudget, now: datetime) -> StartDecision:
    """Decide about a single pod; None if it is unknown."""
    closed = failure.cause is StartFailureCause.CLOSED
    if pod is not None and pod.revocable and closed:
        return StartDecision(eviction=evict_after_closed_node(workload, failure, now))
    if failure.foreign_gate or pod is None or not (owner := owner_and_revision(pod)):
        return keep(workload, failure)
    if not budget.take(pod):
        return keep(workload, failure, "to delete it would fail its Job (backoffLimit)")
    if closed:
        return StartDecision(eviction=evict_after_closed_node(workload, failure, now))
    return StartDecision(eviction=replace_after_timeout(workload, failure, now, owner))
