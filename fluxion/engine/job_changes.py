"""Changes of what jobs hold: cancel, partial cancel, restore, extend, and withdrawn reservations.

Clients know nodes and amounts, never vertices. So amounts are converted to whole leaves here, always the
lowest free ones. A restored job may need more than a node has, because the node has shrunk. Then as much as
possible is booked, and the rest is excess, which closes the node for new matches until it is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fluxqueue.fluxion.engine.partial_cancel import PartialCancel
from fluxqueue.fluxion.engine.refusals import Refused
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement, PlacedSlots
from fluxqueue.fluxion.graph.pools import LeafRun, bits, lowest
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.messages import JobMode, NodeShare, RestoredJob

__all__ = ["JobChanges", "leaves_worth", "runs_of"]


class JobChanges:
    """Changes of the jobs of one state. A change that cannot be made raises `Refused`."""

    def __init__(self, state: GraphState) -> None:
        self._state = state

    # ---- cancel --------------------------------------------------------------------------------------------

    def cancel(self, jobids: Sequence[int]) -> None:
        """End jobs; unknown ones are no error."""
        for jobid in jobids:
            job = self._state.jobs.get(jobid)
            if job is not None and job.mode not in (JobMode.SYSTEM, JobMode.ADVANCE):
                self._state.free(job)

    def cancel_part(self, jobid: int, given: Sequence[NodeShare], paths: Sequence[str]) -> None:
        """Give back part of a job; `Refused` leaves it whole."""
        job = self._state.jobs.get(jobid)
        if job is None or job.mode is JobMode.ADVANCE:
            raise Refused(f"job {jobid}: unknown, or cancelled already")
        cancel = PartialCancel(self._state, job)
        for share in given:
            cancel.give_back_share(share)
        for path in paths:
            cancel.give_back_path(path)
        remainder = cancel.remainder()
        if remainder is None:
            self._state.free(job)
            return
        placement, left = remainder
        self._state.change(job, lambda: _swap(job, placement, left))

    # ---- restore -------------------------------------------------------------------------------------------

    def restore(self, jobs: Sequence[RestoredJob]) -> None:
        """Book allocations that are known from elsewhere;
        what a node does not have is recorded as its excess.
        """
        for restored in jobs:
            self._restore(restored)

    def _restore(self, restored: RestoredJob) -> None:
        state = self._state
        if restored.jobid <= 0:
            raise Refused(f"job {restored.jobid}: a job id above 0 is needed")
        end = min(restored.end, state.horizon) if restored.end else state.horizon
        start = restored.at
        live = state.jobs.get(restored.jobid)
        if live is not None:
            if _same(live.shares, _merged(restored.shares)):
                return
            raise Refused(f"job {restored.jobid}: exists already with other shares: cancel it first")
        if end <= start:
            raise Refused(f"job {restored.jobid}: ends at {end}, not after its start {start}")
        placement, missing = GraphPlacement(), dict[Vertex, dict[str, int]]()
        job = GraphJob(restored.jobid, start, end, placement, reserved=restored.reserved)
        given = _merged(restored.shares)
        for share in given:
            node = state.graph.by_name.get(share.node) or state.graph.removed.get(share.node)
            if node is None:
                state.awaited.setdefault(share.node, set()).add(job)
            elif short := self._take(job, placement, node, share):
                missing.setdefault(node, {}).update(short)
        job.shares = given
        state.book(job)
        for node, short in missing.items():
            state.note_excess(node, job, short)

    def book_awaited(self, node: Vertex) -> None:
        """Book what restored jobs hold on a node that was added after the restore."""
        state = self._state
        for job in sorted(state.awaited.pop(node.name, ()), key=lambda job: job.jobid):
            if state.jobs.get(job.jobid) is not job:
                continue
            short: dict[str, int] = {}

            def join(job: GraphJob = job, short: dict[str, int] = short) -> Callable[[], None]:
                before = job.placement
                job.placement = before.copy()
                for share in job.shares:
                    if share.node == node.name:
                        short.update(self._take(job, job.placement, node, share))
                return lambda: setattr(job, "placement", before)

            state.change(job, join)
            state.note_excess(node, job, short)

    def _take(
        self, job: GraphJob, placement: GraphPlacement, node: Vertex, share: NodeShare
    ) -> dict[str, int]:
        """Take leaves for one share; return the amounts that are missing."""
        start, end, now = job.start, job.end, self._state.now
        if share.exclusive:
            placement.take_vertex(node, exclusive=True)
        else:
            placement.pass_through(node)
        missing: dict[str, int] = {}
        taken: dict[LeafRun, int] = {}
        for kind, amount in share.amounts.items():
            left = amount
            for run in runs_of(node, kind):
                free = run.full & ~run.taken(start, end, now) & ~placement.leaves.get(run, 0)
                mask = leaves_worth(run, free, left)
                if mask:
                    placement.take_leaves(run, mask)
                    taken[run] = mask
                    left -= run.amount(mask)
                if left <= 0:
                    break
            if left > 0:
                missing[kind] = left
        placement.slots.extend(_slots_from(node, share.slots, taken))
        return missing

    # ---- extend --------------------------------------------------------------------------------------------

    def extend(self, jobid: int, end: int) -> tuple[int, ...]:
        """Move the end of a job; return the reservations that were dropped for it."""
        state = self._state
        job = state.jobs.get(jobid)
        if job is None or job.mode is JobMode.ADVANCE:
            raise Refused(f"job {jobid}: unknown, or cancelled already")
        end = min(end, state.horizon) if end else state.horizon
        if end <= job.start:
            raise Refused(f"job {jobid}: cannot end at {end}, it starts at {job.start}")

        def move() -> Callable[[], None]:
            before, job.end = job.end, end
            return lambda: setattr(job, "end", before)

        state.change(job, move)
        return self.displace(job)

    def displace(self, job: GraphJob) -> tuple[int, ...]:
        """Drop the reservations that overlap a job in resources and time, but for advance ones;
        return their ids.
        """
        rivals: set[GraphJob] = set()
        for vertex, exclusive in job.placement.vertices.items():
            rivals.update(other for other in vertex.exclusive if other.reserved)
            if exclusive:
                rivals.update(other for other in vertex.shared if other.reserved)
        for run, mask in job.placement.leaves.items():
            rivals.update(other for other, leaves in run.reserved.items() if leaves & mask)
        rivals.discard(job)
        displaced = sorted(
            (
                other
                for other in rivals
                if other.mode is not JobMode.ADVANCE and other.overlaps(job.start, job.end, self._state.now)
            ),
            key=lambda other: other.jobid,
        )
        for other in displaced:
            self._state.free(other)
        return tuple(other.jobid for other in displaced)

    # ---- yielding reservations -----------------------------------------------------------------------------

    def withdraw(self, jobids: Sequence[int]) -> list[GraphJob]:
        """Take reservations out of the graph until `reinstate`; other ids are ignored."""
        jobs = [
            job
            for jobid in dict.fromkeys(jobids)
            if (job := self._state.jobs.get(jobid)) is not None and job.mode is JobMode.RESERVED
        ]
        for job in jobs:
            self._state.withdraw(job)
        return jobs

    def reinstate(self, jobs: Sequence[GraphJob], matched: Sequence[int]) -> None:
        """Put withdrawn reservations back, and drop those whose resources the matched jobs have taken."""
        for job in jobs:
            self._state.reinstate(job)
        for jobid in matched if jobs else ():
            self.displace(self._state.jobs[jobid])


def _swap(job: GraphJob, placement: GraphPlacement, left: tuple[NodeShare, ...]) -> Callable[[], None]:
    before = job.placement, job.shares
    job.placement, job.shares = placement, left

    def undo() -> None:
        job.placement, job.shares = before

    return undo


def runs_of(node: Vertex, kind: str) -> list[LeafRun]:
    """Return the runs of a type on a node and below it."""
    return [vertex.runs[kind] for vertex in node.subtree() if kind in vertex.runs]


def leaves_worth(run: LeafRun, free: int, amount: int) -> int:
    """Return leaves of a free set whose sizes add up to an amount, or to as much of it as there is."""
    odd = 0
    for index in run.odd_sizes:
        odd |= 1 << index
    plain = free & ~odd
    size = run.size or 1
    mask = lowest(plain, min(amount // size, plain.bit_count()))
    left = amount - run.amount(mask)
    for index in bits(free & odd):
        if 0 < run.size_of(index) <= left:
            mask |= 1 << index
            left -= run.size_of(index)
    if left > 0 and (rest := free & ~mask):
        mask |= rest & -rest
        left = amount - run.amount(mask)
        if left > 0 and (rest := free & ~mask):
            mask |= lowest(rest, min(rest.bit_count(), -(-left // size)))
    return mask


def _slots_from(node: Vertex, slots: Mapping[str, int], taken: Mapping[LeafRun, int]) -> list[PlacedSlots]:
    """Return slots of which only the number is known;
    with several labels it is unknown to which slot a leaf belongs.
    """
    leaves = tuple(taken.items()) if len(slots) == 1 else ()
    return [PlacedSlots(label, node, leaves, count) for label, count in slots.items() if count > 0]


def _merged(shares: Sequence[NodeShare]) -> tuple[NodeShare, ...]:
    """Merge shares so that every node occurs once."""
    by_node: dict[str, NodeShare] = {}
    for share in shares:
        before = by_node.get(share.node)
        if before is not None:
            slots = {
                label: before.slots.get(label, 0) + share.slots.get(label, 0)
                for label in {**before.slots, **share.slots}
            }
            amounts = {
                kind: before.amounts.get(kind, 0) + share.amounts.get(kind, 0)
                for kind in {**before.amounts, **share.amounts}
            }
            share = NodeShare(share.node, slots, amounts, before.exclusive or share.exclusive)
        by_node[share.node] = share
    return tuple(by_node.values())


def _same(live: Sequence[NodeShare], given: Sequence[NodeShare]) -> bool:
    def plain(shares: Sequence[NodeShare]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
        return {
            share.node: (dict(share.slots), {k: v for k, v in share.amounts.items() if v}) for share in shares
        }

    return plain(live) == plain(given)
