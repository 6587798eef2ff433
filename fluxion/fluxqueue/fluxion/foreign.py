"""What runs on nodes without us, and what nodes owe.

Pods that never came through the queue take up room all the same. For each node there is at most one system allocation, whose size is
set, not added to: it takes leaves from the high end, so that the low ones stay with jobs, first those nobody has any claim to, then
those that are merely reserved (such reservations are dropped: the room is in fact gone). What is not there at all is excess.

Excess, whether of foreign pods or of a restored job on a node that has shrunk, closes the node for new matches. Whenever something is
freed, `settle` gives to those who are owed, and opens the node when nothing is owed any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from fluxqueue.fluxion.bookings import Refused, leaves_of, runs_of
from fluxqueue.fluxion.graph import Vertex
from fluxqueue.fluxion.jobs import Job, Placement
from fluxqueue.fluxion.messages import Mode, NodeShare
from fluxqueue.fluxion.runs import LeafRun
from fluxqueue.fluxion.state import State

__all__ = ["Foreign"]


class Foreign:
    """System allocations and excess of one state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._serial = count(1)

    def resize(self, shares: Sequence[NodeShare]) -> tuple[int, ...]:
        """Set the system allocations of nodes; returns dropped reservations."""
        displaced: list[int] = []
        for share in shares:
            node = self._state.graph.by_name.get(share.node) or self._state.graph.removed.get(share.node)
            if node is None:
                raise Refused(f"resize: there is no node {share.node!r:.200}")
            if any(amount < 0 for amount in share.amounts.values()):
                raise Refused(f"resize: node {share.node}: amounts cannot be negative")
            displaced.extend(self._resize(node, {kind: amount for kind, amount in share.amounts.items() if amount}))
        return tuple(sorted(set(displaced)))

    def _resize(self, node: Vertex, amounts: Mapping[str, int]) -> list[int]:
        state = self._state
        before = state.system.get(node.name)
        held = dict(before.placement.leaves) if before is not None else {}
        if before is not None:
            state.free(before)
            del state.ended[before.jobid]
            state.note_excess(node, before, {})
            self._remember(node.name, None)
        if not amounts:
            return []
        placement = Placement()
        placement.pass_through(node)
        missing: dict[str, int] = {}
        displaced: list[int] = []
        for kind, amount in amounts.items():
            left = amount
            for run in runs_of(node, kind):
                kept = _top(run, held.get(run, 0) & run.full, left)
                left -= run.amount(kept)
                unclaimed = run.full & ~run.held() & ~kept
                more = _top(run, unclaimed, left)
                left -= run.amount(more)
                if left > 0 and (reserved := run.full & ~run.busy & ~kept & ~more):
                    forced = _top(run, reserved, left)
                    left -= run.amount(forced)
                    more |= forced
                    for job in [job for job, mask in run.reserved.items() if mask & forced]:
                        state.free(job)
                        displaced.append(job.jobid)
                if kept | more:
                    placement.take_leaves(run, kept | more)
                if left <= 0:
                    break
            if left > 0:
                missing[kind] = left
        job = Job(-next(self._serial), state.now, state.horizon, placement, reserved=False, mode=Mode.SYSTEM)
        job.shares = (NodeShare(node.name, amounts=dict(amounts)),)
        state.book(job)
        self._remember(node.name, job)
        state.note_excess(node, job, missing)
        return displaced

    def _remember(self, name: str, job: Job | None) -> None:
        system = self._state.system
        before = system.pop(name, None)
        if job is not None:
            system[name] = job
        self._state.undo(lambda: self._remember(name, before))

    def settle(self) -> None:
        """Give what has become free to those who are owed it."""
        state = self._state
        for node, notes in [(node, dict(notes)) for node, notes in state.excess.items()]:
            for job, missing in notes.items():
                if state.jobs.get(job.jobid) is not job:
                    state.note_excess(node, job, {})
                    continue
                left = self._give(node, job, missing)
                if left != missing:
                    state.note_excess(node, job, left)
        for node in list(state.closed):
            if node not in state.excess:
                state.reclose(node)

    def _give(self, node: Vertex, job: Job, missing: Mapping[str, int]) -> dict[str, int]:
        found: dict[LeafRun, int] = {}
        still: dict[str, int] = {}
        for kind, amount in missing.items():
            left = amount
            for run in runs_of(node, kind):
                mask = leaves_of(run, run.full & ~run.held(), left)
                if mask:
                    found[run] = mask
                    left -= run.amount(mask)
                if left <= 0:
                    break
            if left > 0:
                still[kind] = left
        if found:
            self._state.change(job, lambda: job.grow(found))
        return still

    def owed(self, names: Iterable[str] | None = None) -> tuple[NodeShare, ...]:
        """What is owed, by node; on all nodes, or on these."""
        wanted = None if names is None else set(names)
        out: list[NodeShare] = []
        for node, notes in self._state.excess.items():
            if wanted is None or node.name in wanted:
                amounts: dict[str, int] = {}
                for missing in notes.values():
                    for kind, amount in missing.items():
                        amounts[kind] = amounts.get(kind, 0) + amount
                out.append(NodeShare(node.name, amounts=amounts))
        return tuple(out)


def _top(run: LeafRun, mask: int, amount: int) -> int:
    """Leaves from the high end that together come to an amount, or all of them."""
    taken = 0
    while amount > 0 and mask:
        leaf = 1 << (mask.bit_length() - 1)
        taken |= leaf
        mask ^= leaf
        amount -= run.size_of(leaf.bit_length() - 1)
    return taken
