"""Partial cancel: what a job gives back, and what it keeps.

Clients name nodes with numbers of slots or amounts, or vertices by path. Slots are given back from the
highest on. An amount must be the sum of whole leaves; slots given back in the same request count towards it.
"""

from __future__ import annotations

from fluxqueue.fluxion.engine.refusals import Refused
from fluxqueue.fluxion.graph.jobs import GraphJob, GraphPlacement, PlacedSlots
from fluxqueue.fluxion.graph.pools import bits, highest
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.match.writers import node_shares
from fluxqueue.fluxion.messages import NodeShare

__all__ = ["PartialCancel"]


class PartialCancel:
    """Collects what a job gives back, and computes what it keeps."""

    def __init__(self, state: GraphState, job: GraphJob) -> None:
        self._state = state
        self._job = job
        self._leaves = dict(job.placement.leaves)
        self._slots = list(job.placement.slots)
        self._shares = {share.node: share for share in job.shares}
        self._emptied: set[str] = set()

    def give_back_share(self, given: NodeShare) -> None:
        """Give back slots and amounts on a node; all of the node if the share names neither."""
        have = self._shares.get(given.node)
        if have is None:
            raise Refused(f"job {self._job.jobid}: has nothing on node {given.node!r:.80}")
        node = next(
            (
                vertex
                for vertex in self._job.placement.vertices
                if vertex.type == NODE and vertex.name == given.node
            ),
            None,
        )
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
            raise Refused(
                f"job {self._job.jobid}: has {have} slots {label!r:.40} on node {name!r:.80}, not {count}"
            )
        freed: dict[str, int] = {}
        position = len(self._slots)
        while count and position:
            position -= 1
            slot = self._slots[position]
            if slot.node is not node or slot.label != label:
                continue
            kept, returned = _split_slots(slot, min(count, slot.count))
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
            raise Refused(
                f"job {self._job.jobid}: {kind} on node {name!r:.80} cannot be given back by this amount: "
                f"{amount} is left over"
            )

    def give_back_path(self, path: str) -> None:
        """Give back the vertex of a containment path, with everything below it."""
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

    def remainder(self) -> tuple[GraphPlacement, tuple[NodeShare, ...]] | None:
        """Return what the job keeps; None if nothing."""
        before = self._job.placement
        kept = GraphPlacement()
        for vertex, exclusive in before.vertices.items():
            if (
                vertex.type == NODE
                and exclusive
                and vertex.name not in self._emptied
                and not self._used_up(vertex)
            ):
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
        left = node_shares(kept)
        gone = tuple(
            share
            for share in self._job.shares
            if share.node not in self._state.graph.by_name and share.node not in self._emptied
        )
        left += tuple(absent for absent in gone if all(absent.node != share.node for share in left))
        if not any(share.amounts or share.slots or share.exclusive for share in left):
            return None
        return kept, left

    def _used_up(self, node: Vertex) -> bool:
        """Return True if an exclusive node had slots or leaves and has none left."""
        had = any(run.parent.node is node for run in self._job.placement.leaves) or any(
            slot.node is node for slot in self._job.placement.slots
        )
        has = any(mask and run.parent.node is node for run, mask in self._leaves.items()) or any(
            slot.node is node for slot in self._slots
        )
        return had and not has


def _split_slots(slot: PlacedSlots, count: int) -> tuple[PlacedSlots | None, PlacedSlots]:
    """Divide slots into those kept and ``count`` returned; each slot has an even share of the leaves."""
    if count == slot.count:
        return None, slot
    kept, returned = [], []
    for run, mask in slot.leaves:
        part = highest(mask, mask.bit_count() // slot.count * count)
        returned.append((run, part))
        kept.append((run, mask & ~part))
    return PlacedSlots(slot.label, slot.node, tuple(kept), slot.count - count), PlacedSlots(
        slot.label, slot.node, tuple(returned), count
    )
