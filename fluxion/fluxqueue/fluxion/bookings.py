"""Changing what jobs have: giving part of it back, putting known allocations back, what runs without us, moving an end.

Clients know nodes and counts, never vertices. So amounts are turned into whole leaves here, always those the policy would take first,
and slots are given back from the highest on. What cannot be honoured because a node has become smaller is booked as far as it goes; the
rest is excess, which closes the node for new matches until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fluxqueue.fluxion.emission import shares
from fluxqueue.fluxion.graph import NODE, Vertex
from fluxqueue.fluxion.jobs import Job, Placement, Slot
from fluxqueue.fluxion.messages import Mode, NodeShare, RestoredJob
from fluxqueue.fluxion.runs import LeafRun, bits, highest, lowest
from fluxqueue.fluxion.state import State

__all__ = ["Bookings", "Refused", "leaves_of", "runs_of"]


class Refused(Exception):
    """A change that cannot be made; nothing has changed. The message is one sentence."""


class Bookings:
    """Partial cancel, restore, resize and extend on one state."""

    def __init__(self, state: State) -> None:
        self._state = state

    # ---- giving back -----------------------------------------------------------------------------------------------------------

    def cancel(self, jobids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Free jobs; those that are not there are named, not refused."""
        cancelled: list[int] = []
        unknown: list[int] = []
        for jobid in jobids:
            job = self._state.jobs.get(jobid)
            if job is None or job.mode is Mode.SYSTEM:
                unknown.append(jobid)
            else:
                self._state.free(job)
                cancelled.append(jobid)
        return cancelled, unknown

    def cancel_part(self, jobid: int, given: Sequence[NodeShare], paths: Sequence[str]) -> None:
        """Give back part of a job; `Refused` leaves it whole."""
        job = self._state.jobs.get(jobid)
        if job is None:
            raise Refused(f"job {jobid}: unknown, or cancelled already")
        returned = _Return(self._state, job)
        for share in given:
            returned.share(share)
        for path in paths:
            returned.path(path)
        remaining = returned.remainder()
        if remaining is None:
            self._state.free(job)
            return
        placement, left = remaining
        self._state.change(job, lambda: _swap(job, placement, left))

    # ---- putting back ----------------------------------------------------------------------------------------------------------

    def restore(self, jobs: Sequence[RestoredJob]) -> None:
        """Book allocations that are known from elsewhere; what does not fit a node is noted as its excess."""
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
            raise Refused(f"job {restored.jobid}: is there already with other shares: cancel it first")
        if end <= start:
            raise Refused(f"job {restored.jobid}: ends at {end}, not after its start {start}")
        placement, missing = Placement(), dict[Vertex, dict[str, int]]()
        job = Job(restored.jobid, start, end, placement, reserved=restored.reserved)
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

    def arrived(self, node: Vertex) -> None:
        """Book what jobs were restored with on a node that has only now come."""
        state = self._state
        for job in sorted(state.awaited.pop(node.name, ()), key=lambda job: job.jobid):
            if state.jobs.get(job.jobid) is not job:
                continue
            short: dict[str, int] = {}

            def join(job: Job = job, short: dict[str, int] = short) -> Callable[[], None]:
                before = job.placement
                job.placement = before.copy()
                for share in job.shares:
                    if share.node == node.name:
                        short.update(self._take(job, job.placement, node, share))
                return lambda: setattr(job, "placement", before)

            state.change(job, join)
            state.note_excess(node, job, short)

    def _take(self, job: Job, placement: Placement, node: Vertex, share: NodeShare) -> dict[str, int]:
        """Find leaves for one share; returns what is not there."""
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
                mask = leaves_of(run, free, left)
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

    # ---- moving an end ---------------------------------------------------------------------------------------------------------

    def extend(self, jobid: int, end: int) -> tuple[int, ...]:
        """Move the end of a job; returns reservations that had to go."""
        state = self._state
        job = state.jobs.get(jobid)
        if job is None:
            raise Refused(f"job {jobid}: unknown, or cancelled already")
        end = min(end, state.horizon) if end else state.horizon
        if end <= job.start:
            raise Refused(f"job {jobid}: cannot end at {end}, it starts at {job.start}")

        def move() -> Callable[[], None]:
            before, job.end = job.end, end
            return lambda: setattr(job, "end", before)

        state.change(job, move)
        return self.displace(job)

    def displace(self, job: Job) -> tuple[int, ...]:
        """Drop reservations that overlap a job in place and time."""
        rivals: set[Job] = set()
        for vertex, exclusive in job.placement.vertices.items():
            rivals.update(other for other in vertex.exclusive if other.reserved)
            if exclusive:
                rivals.update(other for other in vertex.shared if other.reserved)
        for run, mask in job.placement.leaves.items():
            rivals.update(other for other, leaves in run.reserved.items() if leaves & mask)
        rivals.discard(job)
        displaced = sorted(
            (other for other in rivals if other.overlaps(job.start, job.end, self._state.now)), key=lambda other: other.jobid
        )
        for other in displaced:
            self._state.free(other)
        return tuple(other.jobid for other in displaced)


class _Return:
    """Collects what a job gives back, then says what it keeps."""

    def __init__(self, state: State, job: Job) -> None:
        self._state = state
        self._job = job
        self._leaves = dict(job.placement.leaves)
        self._slots = list(job.placement.slots)
        self._shares = {share.node: share for share in job.shares}
        self._emptied: set[str] = set()

    def share(self, given: NodeShare) -> None:
        have = self._shares.get(given.node)
        if have is None:
            raise Refused(f"job {self._job.jobid}: has nothing on node {given.node!r:.80}")
        node = next((vertex for vertex in self._job.placement.vertices if vertex.type == NODE and vertex.name == given.node), None)
        if not given.slots and not given.amounts:
            self._all_of(given.node, node)
            return
        freed: dict[str, int] = {}
        for label, count in given.slots.items():
            freed_by_slots = self._slots_of(given.node, node, label, count)
            for kind, amount in freed_by_slots.items():
                freed[kind] = freed.get(kind, 0) + amount
        for kind, amount in given.amounts.items():
            if (left := amount - freed.get(kind, 0)) > 0:
                self._amount_of(given.node, node, kind, left)

    def _all_of(self, name: str, node: Vertex | None) -> None:
        for run in list(self._leaves):
            if node is not None and run.parent.node is node:
                del self._leaves[run]
        self._slots = [slot for slot in self._slots if slot.node is not node]
        self._emptied.add(name)

    def _slots_of(self, name: str, node: Vertex | None, label: str, count: int) -> dict[str, int]:
        have = self._shares[name].slots.get(label, 0)
        if count < 0 or count > have:
            raise Refused(f"job {self._job.jobid}: has {have} slots {label!r:.40} on node {name!r:.80}, not {count}")
        freed: dict[str, int] = {}
        position = len(self._slots)
        while count and position:
            position -= 1
            slot = self._slots[position]
            if slot.node is not node or slot.label != label:
                continue
            kept, returned = _part(slot, min(count, slot.count))
            self._slots[position : position + 1] = [kept] if kept is not None else []
            count -= returned.count
            for run, mask in returned.leaves:
                mask &= self._leaves.get(run, 0)
                freed[run.type] = freed.get(run.type, 0) + run.amount(mask)
                self._leaves[run] = self._leaves.get(run, 0) & ~mask
        return freed

    def _amount_of(self, name: str, node: Vertex | None, kind: str, amount: int) -> None:
        for run, mask in self._leaves.items():
            if run.type == kind and node is not None and run.parent.node is node:
                for index in reversed(list(bits(mask))):
                    if amount < run.size_of(index):
                        break
                    self._leaves[run] &= ~(1 << index)
                    amount -= run.size_of(index)
        if amount > 0 and node is not None:
            raise Refused(f"job {self._job.jobid}: {kind} on node {name!r:.80} cannot be given back by this amount: {amount} is left over")

    def path(self, path: str) -> None:
        graph = self._state.graph
        vertex = graph.by_path.get(path)
        if vertex is not None and vertex in self._job.placement.vertices:
            for below in vertex.subtree():
                for run in below.runs.values():
                    self._leaves.pop(run, None)
            if vertex.type == NODE:
                self._all_of(vertex.name, vertex)
            return
        leaf = graph.find_leaf(path)
        if leaf is None or not self._leaves.get(leaf[0], 0) >> leaf[1] & 1:
            raise Refused(f"job {self._job.jobid}: does not hold {path!r:.200}")
        self._leaves[leaf[0]] &= ~(1 << leaf[1])

    def remainder(self) -> tuple[Placement, tuple[NodeShare, ...]] | None:
        """What the job keeps: None if nothing."""
        before = self._job.placement
        kept = Placement()
        for vertex, exclusive in before.vertices.items():
            if vertex.type == NODE and exclusive and vertex.name not in self._emptied and not self._used_up(vertex):
                kept.take_vertex(vertex, exclusive=True)
        for run, mask in self._leaves.items():
            if mask:
                kept.take_leaves(run, mask)
        for run, mask in before.shared_leaves.items():
            if run.parent in kept.vertices:
                kept.take_leaves(run, mask, shared=True)
        kept.slots = self._slots
        kept.labels = before.labels
        for slot in self._slots:
            if slot.node is not None:
                kept.pass_through(slot.node)
        left = shares(kept)
        ghosts = tuple(
            share for share in self._job.shares if share.node not in self._state.graph.by_name and share.node not in self._emptied
        )
        left += tuple(ghost for ghost in ghosts if all(ghost.node != share.node for share in left))
        if not any(share.amounts or share.slots or share.exclusive for share in left):
            return None
        return kept, left

    def _used_up(self, node: Vertex) -> bool:
        """Whether an exclusive node had slots or leaves and has none left."""
        had = any(run.parent.node is node for run in self._job.placement.leaves) or any(
            slot.node is node for slot in self._job.placement.slots
        )
        has = any(mask and run.parent.node is node for run, mask in self._leaves.items()) or any(slot.node is node for slot in self._slots)
        return had and not has


def _swap(job: Job, placement: Placement, left: tuple[NodeShare, ...]) -> Callable[[], None]:
    before = job.placement, job.shares
    job.placement, job.shares = placement, left

    def unmake() -> None:
        job.placement, job.shares = before

    return unmake


def runs_of(node: Vertex, kind: str) -> list[LeafRun]:
    """Runs of a type on a node and below it."""
    return [vertex.runs[kind] for vertex in node.subtree() if kind in vertex.runs]


def leaves_of(run: LeafRun, free: int, amount: int) -> int:
    """Leaves of a free set that together come to an amount, or to as much of it as there is."""
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


def _part(slot: Slot, count: int) -> tuple[Slot | None, Slot]:
    """Divide slots into those kept and so many returned, each of which is an even share of the leaves."""
    if count == slot.count:
        return None, slot
    kept, returned = [], []
    for run, mask in slot.leaves:
        part = highest(mask, mask.bit_count() // slot.count * count)
        returned.append((run, part))
        kept.append((run, mask & ~part))
    return Slot(slot.label, slot.node, tuple(kept), slot.count - count), Slot(slot.label, slot.node, tuple(returned), count)


def _slots_from(node: Vertex, slots: Mapping[str, int], taken: Mapping[LeafRun, int]) -> list[Slot]:
    """Slots of which only the number is known; with several labels nobody knows whose a leaf is."""
    leaves = tuple(taken.items()) if len(slots) == 1 else ()
    return [Slot(label, node, leaves, count) for label, count in slots.items() if count > 0]


def _merged(shares: Sequence[NodeShare]) -> tuple[NodeShare, ...]:
    """Shares with every node standing once."""
    by_node: dict[str, NodeShare] = {}
    for share in shares:
        before = by_node.get(share.node)
        if before is not None:
            slots = {label: before.slots.get(label, 0) + share.slots.get(label, 0) for label in {**before.slots, **share.slots}}
            amounts = {kind: before.amounts.get(kind, 0) + share.amounts.get(kind, 0) for kind in {**before.amounts, **share.amounts}}
            share = NodeShare(share.node, slots, amounts, before.exclusive or share.exclusive)
        by_node[share.node] = share
    return tuple(by_node.values())


def _same(live: Sequence[NodeShare], given: Sequence[NodeShare]) -> bool:
    def plain(shares: Sequence[NodeShare]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
        return {share.node: (dict(share.slots), {k: v for k, v in share.amounts.items() if v}) for share in shares}

    return plain(live) == plain(given)
