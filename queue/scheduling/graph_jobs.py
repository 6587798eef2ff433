"""What an allocation is in the graph: one job, and a second one for slots that it gives back.

Slots that are given back are free sooner than the rest of their allocation. A job of the graph has one end, so until they are free they are
a job of their own, whose id follows from that of the allocation. The tables know nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from fluxqueue.fluxion.changes import CancelPart
from fluxqueue.fluxion.messages import NodeShare, RestoredJob
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Slot, SlotState

__all__ = ["graph_part", "leaving_job", "part_of", "restored", "returned", "stored_jobid"]

_LEAVING: Final = 1 << 60
"""Added to the id of an allocation for the job of its slots that are given back; no id from the sequence is as large."""


def leaving_job(jobid: FluxionJobId) -> FluxionJobId:
    """Return the id of the job that holds what an allocation gives back."""
    return FluxionJobId(jobid | _LEAVING)


def stored_jobid(jobid: int) -> int:
    """Return the id of the allocation that a job of the graph belongs to."""
    return jobid & ~_LEAVING


def restored(allocation: Allocation, *, whole_nodes: bool = False, without: Set[int] = frozenset()) -> RestoredJob:
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
        shares=tuple(replace(share, exclusive=True) if whole_nodes else share for share in shares if share is not None),
        at=int(allocation.start.timestamp()),
        end=int(allocation.end.timestamp()) if allocation.end is not None else 0,
    )


def graph_part(allocation: Allocation, ranks: Set[int], end: int, *, whole_nodes: bool = False) -> RestoredJob:
    """Return the job of the slots that an allocation gives back: they are planned to be free at ``end`` (Unix seconds)."""
    others = frozenset(slot.rank for slot in allocation.slots if slot.rank not in ranks)
    part = restored(allocation, whole_nodes=whole_nodes, without=others)
    return replace(part, jobid=leaving_job(allocation.jobid), end=max(end, part.at + 1))


def part_of(jobid: FluxionJobId, slots: Sequence[Slot], kept: Iterable[Slot]) -> CancelPart:
    """Return what a job gives back with some of its slots, while it keeps others."""
    return CancelPart(jobid, tuple(returned(slots, {slot.node for slot in kept})))


def returned(slots: Sequence[Slot], kept: Collection[str]) -> list[NodeShare]:
    """Return what slots return: on a node where their job keeps no other slot, all that it had there."""
    of_kept = _counted(slot for slot in slots if slot.node in kept)
    return [NodeShare(node=node, slots=of_kept.get(node, {})) for node in dict.fromkeys(slot.node for slot in slots)]


def _counted(slots: Iterable[Slot]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for slot in slots:
        labels = counts.setdefault(slot.node, {})
        labels[slot.label] = labels.get(slot.label, 0) + 1
    return counts


def _shrunk(share: NodeShare, lost: Mapping[str, int]) -> NodeShare | None:
    """The rest of a share. With slots of several sizes on the node it keeps all its amounts until the last of them ends."""
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
