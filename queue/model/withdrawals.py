"""Preemption that is withdrawn: for whom work was told to stop, and what it is once it may go on after all.

Work that is told to stop with a grace has lost nothing before that is over. If nobody needs its nodes any
more by then, it goes on as if it had not been chosen: a whole workload, or pods that a Job was to give back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from msgspec import structs

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.consolidations import is_being_moved
from fluxqueue.queue.model.given_back import due_ranks, given_back_message, given_ranks, leaving_ranks
from fluxqueue.queue.model.moldable import planned_duration_s
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import (
    Allocation,
    ReleaseMode,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState

__all__ = ["Notice", "end_of_going_on", "going_on", "jobs_of_grown", "notice_of"]


@dataclass(frozen=True, slots=True)
class Notice:
    """For whom work was told to stop, until when it may go on, and which of its slots (ranks) were to end."""

    preempted_for: WorkloadId
    stop_at: datetime
    ranks: Set[int]


def notice_of(workload: Workload, allocation: Allocation, now: datetime) -> Notice | None:
    """Return the notice that a workload has and whose grace is not over;
    None if it has none, or none says for whom it is.
    """
    state, given = workload.requeue_state, workload.requeue_state.given_back
    if workload.evicting:
        if state.stop_at is None or not state.preempted_for or not grace_left_s(workload, now):
            return None
        return Notice(
            WorkloadId(state.preempted_for),
            state.stop_at,
            frozenset(slot.rank for slot in allocation.open_slots),
        )
    if (
        given is None
        or not given.preempted_for
        or given.stop_at <= now
        or not leaving_ranks(workload, allocation) - due_ranks(workload)
    ):
        return None
    return Notice(WorkloadId(given.preempted_for), given.stop_at, given_ranks(workload))


def jobs_of_grown(
    told: Iterable[Workload], gave_back: Iterable[tuple[Workload, Allocation]]
) -> Iterator[tuple[Workload, Workload, Allocation]]:
    """Yield each pod by which a Job grew and that the Job gives back, with the Job and its allocation.

    Both have the message of that. If the pod goes on, the Job does not give it back.
    """
    pods = {each.message: each for each in told if each.kind == "Pod" and each.evicting}
    for job, allocation in gave_back if pods else ():
        pod = pods.get(given_back_message(job))
        if pod is not None and not job.evicting:
            yield pod, job, allocation


def going_on(workload: Workload, allocation: Allocation) -> Workload:
    """Return a workload that has a notice as it is without that."""
    if not workload.evicting:
        return replace(workload, requeue_state=_keeping(workload, allocation))
    moved = None if is_being_moved(workload) else workload.requeue_state.moved
    state = structs.replace(workload.requeue_state, stop_at=None, preempted_for=0, moved=moved)
    if workload.release_mode is ReleaseMode.POD:
        state = structs.replace(state, owner="", submitted_at=None)  # no pod is created instead
    running = State.RUNNING if workload.started_at is not None else State.ALLOCATED
    return replace(workload, state=running, reason=Reason.NONE, message="", requeue_state=state)


def _keeping(workload: Workload, allocation: Allocation) -> RequeueState:
    """Return the requeue state of a Job that does not give back what it gave last,
    except for slots that have ended since.
    """
    given = workload.requeue_state.given_back
    assert given is not None
    gone = given_ranks(workload) - (leaving_ranks(workload, allocation) - due_ranks(workload))
    if not gone:
        return structs.replace(workload.requeue_state, given_back=None)
    ranks = tuple(sorted(gone))
    message = f"{workload.ref} gave {len(ranks)} of its pods back and goes on with the others"
    return structs.replace(
        workload.requeue_state,
        given_back=structs.replace(given, ranks=ranks, due=ranks, preempted_for=0, message=message),
    )


def end_of_going_on(workload: Workload, allocation: Allocation, now: datetime) -> datetime | None:
    """Return when an allocation is planned to end whose workload goes on:
    as it was stated, or if that is past, as it is planned now.
    """
    duration_s = planned_duration_s(workload)
    if duration_s is None or allocation.end is None:
        return None
    stated = allocation.start + timedelta(seconds=duration_s)
    return stated if stated > now else allocation.end
