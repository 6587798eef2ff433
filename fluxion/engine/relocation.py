"""Relocation of jobs on a node that has shrunk, to leaves that the node still has.

Leaves of a pool are alike, and clients do not know which of them a job holds. So a job that holds leaves
beyond the end of a shrunken pool is moved to free leaves within it, at once or as soon as there are any. A
node is closed only while its jobs hold more than it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fluxqueue.fluxion.graph.jobs import GraphJob
from fluxqueue.fluxion.graph.pools import LeafRun, bits, highest, lowest
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.state import GraphState

__all__ = ["relocate_jobs"]


def relocate_jobs(state: GraphState, node: Vertex, *, displace: bool) -> set[GraphJob]:
    """Move jobs off the leaves that are no longer part of a node.

    Parameters
    ----------
    displace
        Drop reservations if the node has too few free leaves.

    Returns
    -------
    set of GraphJob
        The dropped reservations.
    """
    gone: set[GraphJob] = set()
    for run in node.runs.values():
        beyond = run.busy & ~run.full
        if not beyond:
            continue
        if displace and (run.full & ~run.held()).bit_count() < beyond.bit_count():
            for job in [*run.reserved]:
                state.free(job)
                gone.add(job)
        for job, mask in [*run.allocated.items()]:
            away, room = mask & beyond, run.full & ~run.held()
            if count := min(away.bit_count(), room.bit_count()):
                state.change(
                    job, partial(_take_other_leaves, job, run, highest(away, count), lowest(room, count))
                )
    state.update_closed(node)
    return gone


def _take_other_leaves(job: GraphJob, run: LeafRun, away: int, into: int) -> Callable[[], None]:
    """Give a job that is out of the graph as many other leaves of a run; return how to undo it."""
    before, job.placement = job.placement, job.placement.copy()
    pairs = dict(zip(bits(away), bits(into), strict=True))

    def other(mask: int) -> int:
        return sum(1 << pairs.get(index, index) for index in bits(mask))

    placement = job.placement
    placement.leaves[run] = other(placement.leaves[run])
    placement.slots = [
        replace(
            slot, leaves=tuple((each, other(mask) if each is run else mask) for each, mask in slot.leaves)
        )
        for slot in placement.slots
    ]

    def back() -> None:
        job.placement = before

    return back
