"""System allocations, which are what runs on nodes outside of Fluxion, and the excess of nodes.

Pods that the queue did not place use resources all the same. Each node has at most one system allocation. Its
size is set, not increased. It takes leaves from the high end, because jobs take the low ones: first leaves
that no job has, then leaves that are only reserved. Such reservations are dropped, because their resources
are in fact used. What the node does not have at all is excess.

Excess also comes from a restored job on a node that has shrunk. It closes the node for new matches. Whenever
something becomes free, `SystemAllocations.settle_excess` gives it to the jobs with excess, and opens the node
when no excess is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from fluxqueue.fluxion.engine.job_changes import leaves_worth, runs_of
from fluxqueue.fluxion.engine.refusals import Refused
from fluxqueue.fluxion.engine.relocation import relocate_jobs
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.messages import JobMode, NodeShare

__all__ = ["SystemAllocations"]


class SystemAllocations:
    """System allocations and excess of one state."""

    def __init__(self, state: GraphState) -> None:
        self._state = state
        self._serial = count(1)

    def resize(self, shares: Sequence[NodeShare]) -> tuple[int, ...]:
        """Set the system allocations of nodes; return the dropped reservations."""
        displaced: list[int] = []
        for share in shares:
            node = self._state.graph.by_name.get(share.node) or self._state.graph.removed.get(share.node)
            if node is None:
                raise Refused(f"resize: there is no node {share.node!r:.200}")
            if any(amount < 0 for amount in share.amounts.values()):
                raise Refused(f"resize: node {share.node}: amounts cannot be negative")
            displaced.extend(
                self._resize(node, {kind: amount for kind, amount in share.amounts.items() if amount})
            )
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
        placement = GraphPlacement()
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
        job = GraphJob(
            -next(self._serial), state.now, state.horizon, placement, reserved=False, mode=JobMode.SYSTEM
        )
        job.shares = (NodeShare(node.name, amounts=dict(amounts)),)
        state.book(job)
        self._remember(node.name, job)
        state.note_excess(node, job, missing)
        return displaced

    def _remember(self, name: str, job: GraphJob | None) -> None:
        system = self._state.system
        before = system.pop(name, None)
        if job is not None:
            system[name] = job
        self._state.undo(lambda: self._remember(name, before))

    def settle_excess(self) -> None:
        """Give what has become free to the jobs with excess."""
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
                relocate_jobs(state, node, displace=False)

    def _give(self, node: Vertex, job: GraphJob, missing: Mapping[str, int]) -> dict[str, int]:
        given: dict[LeafRun, int] = {}
        still: dict[str, int] = {}
        for kind, amount in missing.items():
            left = amount
            for run in runs_of(node, kind):
                mask = leaves_worth(run, run.full & ~run.held(), left)
                if mask:
                    given[run] = mask
                    left -= run.amount(mask)
                if left <= 0:
                    break
            if left > 0:
                still[kind] = left
        if given:
            self._state.change(job, lambda: job.grow(given))
        return still

    def excess_on(self, names: Iterable[str] | None = None) -> tuple[NodeShare, ...]:
        """Return the excess by node, on all nodes or on these."""
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
    """Return leaves from the high end whose sizes add up to an amount, or all of them."""
    taken = 0
    while amount > 0 and mask:
        leaf = 1 << (mask.bit_length() - 1)
        taken |= leaf
        mask ^= leaf
        amount -= run.size_of(leaf.bit_length() - 1)
    return taken
