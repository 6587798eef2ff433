"""What an allocation is in the graph: one job, and a second one for slots that it gives back.

Slots that are given back are free sooner than the rest of their allocation. A job of the graph has one end,
so until they are free they are a job of their own, whose id follows from that of the allocation. The tables
know nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from fluxqueue.fluxion.changes import CancelJobs, CancelPart, Change, RestoreJobs
from fluxqueue.fluxion.messages import NodeShare, RestoredJob
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.jobspecs import takes_whole_nodes
from fluxqueue.queue.model.preemption_notices import given_back_grace_s
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Slot, SlotState, Workload
from fluxqueue.queue.store.freed import Freed
from fluxqueue.queue.store.ledger import Ledger

__all__ = [
    "DRAIN_S",
    "GraphJobs",
    "graph_part",
    "leaving_job",
    "part_of",
    "restored",
    "returned",
    "stored_jobid",
]

DRAIN_S: Final = 60
"""From an eviction until the nodes are planned to be free: twice the grace period of a pod in Kubernetes."""

_LEAVING: Final = 1 << 60
"""Added to the id of an allocation for the job of its slots that are given back;
no id from the sequence is as large."""


class GraphJobs:
    """Which jobs of the graph hold the allocations, as it was filled and changed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._leaving: dict[FluxionJobId, set[int]] = {}
        """Ranks that a job of their own holds."""
        self._leaving_ends: dict[FluxionJobId, int] = {}

    def clear(self) -> None:
        """Forget all: the graph is empty."""
        self._leaving, self._leaving_ends = {}, {}

    def of(self, jobid: FluxionJobId) -> list[FluxionJobId]:
        """Return the jobs that hold an allocation."""
        return [jobid, leaving_job(jobid)] if jobid in self._leaving else [jobid]

    def holds(self, allocation: Allocation) -> bool:
        """True if the job with the id of an allocation exists:
        it ends if only slots are left that are given back.
        """
        leaving = self._leaving.get(allocation.jobid)
        return not leaving or any(slot.rank not in leaving for slot in allocation.open_slots)

    def restored(self, workload: Workload, allocation: Allocation) -> list[RestoredJob]:
        """Return the jobs that hold an allocation, to restore them in an empty graph."""
        leaving = leaving_ranks(workload, allocation)
        jobs = [restored(allocation, whole_nodes=takes_whole_nodes(workload.jobspec), without=leaving)]
        if leaving:
            self._leaving[allocation.jobid] = set(leaving)
            jobs.append(self._leaving_part(workload, allocation, leaving))
        return jobs

    def divide(self, workload: Workload, allocation: Allocation) -> list[Change]:
        """Return the changes by which a job of their own holds what a workload gives back;
        none if one does.
        """
        known = self._leaving.get(allocation.jobid, set())
        new = leaving_ranks(workload, allocation) - known
        if not new:
            return []
        ended = self._ledger.freed.slots.get(allocation.jobid, ())  # the graph still has them
        held = [slot for slot in (*allocation.open_slots, *ended) if slot.rank not in known]
        part = part_of(
            allocation.jobid,
            [slot for slot in held if slot.rank in new],
            [slot for slot in held if slot.rank not in new],
        )
        again: list[Change] = [CancelJobs((leaving_job(allocation.jobid),))] if known else []
        self._leaving[allocation.jobid] = known | new
        as_in_graph = _with_open(allocation, {slot.rank for slot in ended if slot.rank in known})
        return [*again, part, RestoreJobs((self._leaving_part(workload, as_in_graph, known | new),))]

    def late(self) -> list[tuple[Workload, FluxionJobId]]:
        """Return the allocations of which slots that are given back are not free at their planned end, with
        their workloads.

        The workload may have been requeued, and the slots be on lost nodes.
        """
        now = self._ledger.wall().timestamp()
        late = [jobid for jobid, ranks in self._leaving.items() if ranks and self._leaving_ends[jobid] <= now]
        return [(workload, jobid) for jobid in late if (workload := self._ledger.by_jobid(jobid)) is not None]

    def later_end(self, workload: Workload, jobid: FluxionJobId) -> int:
        """Return until when slots that are given back are planned from now on (Unix seconds)."""
        self._leaving_ends[jobid] = end = self._leaving_end(workload)
        return end

    def returning(self) -> list[tuple[Workload, Allocation]]:
        """Return work of which a job of their own holds slots that it does not give back any more."""
        found = (
            (self._ledger.by_jobid(jobid), self._ledger.allocation_of_job(jobid)) for jobid in self._leaving
        )
        held = [
            (workload, allocation)
            for workload, allocation in found
            if workload is not None and allocation is not None
        ]
        return [pair for pair in held if not pair[1].remnant and self._returning_ranks(*pair)]

    def unite(self, workload: Workload, allocation: Allocation) -> list[Change]:
        """Return the changes by which one job holds again what a workload does not give back any more;
        its end is moved after that.
        """
        jobid = allocation.jobid
        known, back = self._leaving[jobid], self._returning_ranks(workload, allocation)
        ended = {slot.rank for slot in self._ledger.freed.slots.get(jobid, ())}  # the graph still has them
        as_in_graph, left = _with_open(allocation, ended), known - back
        whole = restored(as_in_graph, whole_nodes=takes_whole_nodes(workload.jobspec), without=left)
        end = self._leaving_ends[jobid]
        gone = [leaving_job(jobid), *([jobid] if self.holds(allocation) else [])]
        self._leaving[jobid] = left
        again = [replace(whole, end=max(min(end, whole.end or end), whole.at + 1))]
        if left:
            again.append(self._leaving_part(workload, as_in_graph, left))
        else:
            del self._leaving[jobid], self._leaving_ends[jobid]
        return [CancelJobs(tuple(gone)), RestoreJobs(tuple(again))]

    def _returning_ranks(self, workload: Workload, allocation: Allocation) -> Set[int]:
        still_open = {slot.rank for slot in allocation.open_slots}
        return (self._leaving[allocation.jobid] & still_open) - leaving_ranks(workload, allocation)

    def parts_without(self, allocation: Allocation, ranks: Collection[int]) -> list[CancelPart]:
        """Return what the graph regains if some slots of an allocation are gone,
        by the job of the graph that holds them.
        """
        return self._parts(
            [slot for slot in allocation.open_slots if slot.rank in ranks], allocation.open_slots
        )

    def held_by(self, freed: Freed) -> tuple[list[FluxionJobId], list[CancelPart]]:
        """Return the jobs, and the parts of others, that the graph holds although they are free by now."""
        jobs = {each for jobid in freed.jobs for each in self.of(jobid)}
        return sorted(jobs), [
            part for jobid, slots in freed.slots.items() for part in self._freed_parts(jobid, slots)
        ]

    def forget(self, freed: Freed) -> None:
        """Forget what the graph regains now."""
        for jobid in freed.jobs:
            self._leaving.pop(jobid, None)
            self._leaving_ends.pop(jobid, None)
        for jobid, slots in freed.slots.items():
            self._leaving.get(jobid, set()).difference_update(slot.rank for slot in slots)

    def _freed_parts(self, jobid: FluxionJobId, slots: Sequence[Slot]) -> list[CancelPart]:
        """Return what freed slots of an allocation return, by the job of the graph that holds them."""
        allocation = self._ledger.allocation_of_job(jobid)
        return self._parts(slots, allocation.open_slots if allocation is not None else ())

    def _parts(self, slots: Sequence[Slot], held: Sequence[Slot]) -> list[CancelPart]:
        """Return what slots of an allocation return, while it keeps the others of those that it held."""
        parts, ranks = list[CancelPart](), {slot.rank for slot in slots}
        for jobid in {slot.jobid for slot in slots}:
            leaving = self._leaving.get(jobid, set())
            for holder, of_leaving in ((jobid, False), (leaving_job(jobid), True)):
                gone = [slot for slot in slots if (slot.rank in leaving) is of_leaving]
                if gone:
                    kept = [
                        slot
                        for slot in held
                        if slot.rank not in ranks and (slot.rank in leaving) is of_leaving
                    ]
                    parts.append(part_of(holder, gone, kept))
        return parts

    def _leaving_part(self, workload: Workload, allocation: Allocation, ranks: Set[int]) -> RestoredJob:
        """Return the job of slots that are given back.
        It ends no later than the other: after that their nodes may be reserved.
        """
        end = self._leaving_end(workload)
        if allocation.end is not None:
            end = min(end, int(allocation.end.timestamp()))
        part = graph_part(allocation, ranks, end, whole_nodes=takes_whole_nodes(workload.jobspec))
        self._leaving_ends[allocation.jobid] = part.end
        return part

    def _leaving_end(self, workload: Workload) -> int:
        """Return when slots that a workload gives back are expected to be free, in Unix seconds."""
        return (
            int(self._ledger.wall().timestamp() + given_back_grace_s(workload, self._ledger.clock()))
            + DRAIN_S
        )


def leaving_job(jobid: FluxionJobId) -> FluxionJobId:
    """Return the id of the job that holds what an allocation gives back."""
    return FluxionJobId(jobid | _LEAVING)


def stored_jobid(jobid: int) -> int:
    """Return the id of the allocation that a job of the graph belongs to."""
    return jobid & ~_LEAVING


def restored(
    allocation: Allocation, *, whole_nodes: bool = False, without: Set[int] = frozenset()
) -> RestoredJob:
    """Return an allocation for the graph, without its ended slots.

    Parameters
    ----------
    allocation
        With its slots.
    whole_nodes
        No other job gets anything on its nodes.
    without
        Ranks that another job holds.
    """
    gone = [slot for slot in allocation.slots if slot.state is SlotState.ENDED or slot.rank in without]
    lost = _counted(gone)
    shares = [_shrunk(share, lost.get(share.node, {})) for share in allocation.shares]
    return RestoredJob(
        jobid=allocation.jobid,
        shares=tuple(
            replace(share, exclusive=True) if whole_nodes else share for share in shares if share is not None
        ),
        at=int(allocation.start.timestamp()),
        end=int(allocation.end.timestamp()) if allocation.end is not None else 0,
    )


def graph_part(
    allocation: Allocation, ranks: Set[int], end: int, *, whole_nodes: bool = False
) -> RestoredJob:
    """Return the job of the slots that an allocation gives back:
    they are planned to be free at ``end`` (Unix seconds).
    """
    others = frozenset(slot.rank for slot in allocation.slots if slot.rank not in ranks)
    part = restored(allocation, whole_nodes=whole_nodes, without=others)
    return replace(part, jobid=leaving_job(allocation.jobid), end=max(end, part.at + 1))


def _with_open(allocation: Allocation, ranks: Set[int]) -> Allocation:
    """Return an allocation as if some slots of it had not ended."""
    if not ranks:
        return allocation
    slots = (
        replace(slot, state=SlotState.TAKEN) if slot.rank in ranks else slot for slot in allocation.slots
    )
    return replace(allocation, slots=tuple(slots))


def part_of(jobid: FluxionJobId, slots: Sequence[Slot], kept: Iterable[Slot]) -> CancelPart:
    """Return what a job gives back with some of its slots, while it keeps others."""
    return CancelPart(jobid, tuple(returned(slots, {slot.node for slot in kept})))


def returned(slots: Sequence[Slot], kept: Collection[str]) -> list[NodeShare]:
    """Return what slots return: on a node where their job keeps no other slot, all that it had there."""
    of_kept = _counted(slot for slot in slots if slot.node in kept)
    return [
        NodeShare(node=node, slots=of_kept.get(node, {}))
        for node in dict.fromkeys(slot.node for slot in slots)
    ]


def _counted(slots: Iterable[Slot]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for slot in slots:
        labels = counts.setdefault(slot.node, {})
        labels[slot.label] = labels.get(slot.label, 0) + 1
    return counts


def _shrunk(share: NodeShare, lost: Mapping[str, int]) -> NodeShare | None:
    """The rest of a share.
    With slots of several sizes on the node it keeps all its amounts until the last of them ends.
    """
    if not lost:
        return share
    slots = {label: left for label, count in share.slots.items() if (left := count - lost.get(label, 0)) > 0}
    if not slots:
        return None
    if len(share.slots) > 1:
        return replace(share, slots=slots)
    ((label, left),) = slots.items()
    amounts = {kind: -(-amount * left // share.slots[label]) for kind, amount in share.amounts.items()}
    return replace(share, slots=slots, amounts=amounts)
