"""Slots that a running Job gives back, because other work is to start: which they are, and whether they are
free yet.

That they are given back is stored before any pod ends (`RequeueState.given_back`). From then on no other pod
gets such a slot, and it ends with the pod that has it. What is stored counts for one allocation, so it says
for good with how many slots the Job goes on.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from msgspec import structs

from fluxqueue.api import hostlists
from fluxqueue.queue.model.records import Allocation, Slot, Workload
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState

__all__ = [
    "as_held",
    "due_ranks",
    "given_back_message",
    "given_ranks",
    "giving_back",
    "kept_hosts",
    "leaving_ranks",
    "staying_slots",
    "with_given_back",
]

_NONE: Set[int] = frozenset()


def given_ranks(workload: Workload) -> Set[int]:
    """Return the ranks that a workload gave back of its present allocation."""
    given = workload.requeue_state.given_back
    return frozenset(given.ranks) if given is not None and given.jobid == workload.jobid else _NONE


def due_ranks(workload: Workload) -> Set[int]:
    """Return those of them that were given back before the last time, so that they have no grace any more."""
    given = workload.requeue_state.given_back
    return frozenset(given.due) & given_ranks(workload) if given is not None else _NONE


def leaving_ranks(workload: Workload, allocation: Allocation) -> Set[int]:
    """Return the ranks that a workload gave back and that are not free yet: their pods have not ended."""
    given = given_ranks(workload) if workload.jobid == allocation.jobid else _NONE
    return frozenset(slot.rank for slot in allocation.open_slots if slot.rank in given) if given else _NONE


def staying_slots(workload: Workload, allocation: Allocation) -> Sequence[Slot]:
    """Return the open slots with which a workload goes on: those that it does not give back."""
    leaving = leaving_ranks(workload, allocation)
    return (
        [slot for slot in allocation.open_slots if slot.rank not in leaving]
        if leaving
        else allocation.open_slots
    )


def as_held(workload: Workload, allocation: Allocation) -> Workload:
    """Return a workload as what it holds now counts for limits and guarantees:
    with what it gives back and has not freed yet.
    """
    given = workload.requeue_state.given_back
    if given is None or not (leaving := leaving_ranks(workload, allocation)):
        return workload
    free = structs.replace(given, ranks=tuple(rank for rank in given.ranks if rank not in leaving))
    return replace(workload, requeue_state=structs.replace(workload.requeue_state, given_back=free))


def giving_back(workload: Workload | None, given: GivenBack) -> RequeueState | None:
    """Return the requeue state of a workload that gives something back;
    None if it does not run in that allocation any more.
    """
    if workload is None or workload.jobid != given.jobid or workload.evicting:
        return None
    return structs.replace(workload.requeue_state, given_back=given)


def with_given_back(state: RequeueState, workload: Workload | None) -> RequeueState:
    """Return a requeue state with what its workload has given back by now:
    it may have been made from an earlier one.
    """
    given = workload.requeue_state.given_back if workload is not None else None
    return structs.replace(state, given_back=given) if state.given_back != given else state


def given_back_message(workload: Workload) -> str:
    """Return what a workload last gave back of its present allocation, in words; empty if nothing."""
    given = workload.requeue_state.given_back
    return given.message if given is not None and given.jobid == workload.jobid else ""


def kept_hosts(workload: Workload) -> str:
    """Return the nodes of a workload without those of slots that it gave back."""
    given = given_ranks(workload)
    if not given:
        return workload.hosts
    return hostlists.encode(
        tuple(host for rank, host in enumerate(hostlists.decode(workload.hosts)) if rank not in given)
    )
