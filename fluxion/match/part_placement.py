"""The parts of a request: slots, or nodes of one slot each, that are placed one after the other.

A request whose top levels are several slots, each with its own label, is a group of different pods.
flux-sched matches no such request. Here the slots are placed one after the other, the largest first, each on
what the others left. The request fits if all of them fit. There is no search: a few orders are tried, and a
group that would fit only in another one is answered as one that does not fit now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.vertices import NODE, Graph, Vertex
from fluxqueue.fluxion.match.domain_placement import place_by_domains
from fluxqueue.fluxion.match.domains import Once, WholeNodes
from fluxqueue.fluxion.match.jobspec import SLOT, Jobspec, Resource
from fluxqueue.fluxion.match.once import joined, leaves_once
from fluxqueue.fluxion.match.plans import Plan, plan_for
from fluxqueue.fluxion.match.policies import MatchPolicy
from fluxqueue.fluxion.match.shortcuts import NeedsTraversal, Shortcut
from fluxqueue.fluxion.match.traverser import Traverser
from fluxqueue.fluxion.match.windows import Window

__all__ = ["PartPlacer", "size_of_part", "slot_of", "unlike_slots"]

_ORDERS = 4
"""In which the parts of a request are tried."""


class PartPlacer:
    """Places requests in a window, whole or part by part."""

    def __init__(self, graph: Graph, policy: MatchPolicy, shortcut: Shortcut, *, deep_slots: bool) -> None:
        self._graph = graph
        self._policy = policy
        self._shortcut = shortcut
        self._deep_slots = deep_slots

    def place(self, levels: tuple[Resource, ...], plan: Plan | None, window: Window) -> GraphPlacement | None:
        """Place a request in a window, by its plan if it has one."""
        if plan is not None:
            try:
                return self._shortcut.place(plan, window)
            except NeedsTraversal:
                pass
        return Traverser(self._graph, self._policy, window, self._deep_slots).place(levels)

    def by_domains(self, jobspec: Jobspec, window: Window) -> GraphPlacement | None:
        """Place slots, or nodes of one slot each, so that the domain rules of the request are kept."""
        if not all(slot_of(part) for part in jobspec.resources):
            return None
        parts = sorted(jobspec.resources, key=size_of_part, reverse=True)
        whole = any(isinstance(rule, WholeNodes) for rule in jobspec.domains)
        nodes = sorted(
            (node for node in self._graph.nodes if window.admits(node, exclusive=whole)),
            key=lambda node: node.id,
            reverse=self._policy.descending,
        )
        once = [each for rule in jobspec.domains if isinstance(rule, Once) for each in rule.amounts]
        shared = {node: leaves for node in nodes if (leaves := leaves_once(node, once, window)) is not None}
        kept = {run: mask for leaves in shared.values() for run, mask in leaves.items()}

        def place(part: Resource, only: Collection[Vertex], so_far: GraphPlacement) -> GraphPlacement | None:
            rest = replace(window, only=only, already_taken=joined(so_far.leaves, kept))
            if part.type == NODE:
                rest = replace(
                    rest,
                    exclude={*window.exclude, *(vertex for vertex in so_far.vertices if vertex.type == NODE)},
                )
            return self._part(part, rest)

        placement = place_by_domains(jobspec.domains, parts, [*shared], place)
        for node in (
            {slot.node for slot in placement.slots} if placement is not None and (whole or once) else ()
        ):
            if placement is not None and node is not None:
                for run, mask in shared[node].items():
                    placement.take_leaves(run, mask)
                if whole:
                    placement.take_vertex(node, exclusive=True, whole=True)
        return placement

    def each_by_itself(self, jobspec: Jobspec, window: Window) -> GraphPlacement | None:
        """Place slots of several labels, the largest first;
        a part that finds no place on what others left is tried before them.
        """
        parts = sorted(jobspec.resources, key=size_of_part, reverse=True)
        for _ in range(_ORDERS):
            placement, failed = self._one_by_one(parts, window)
            if failed is None or failed is parts[0]:
                return placement
            parts = [failed, *(part for part in parts if part is not failed)]
        return None

    def _one_by_one(
        self, parts: Sequence[Resource], window: Window
    ) -> tuple[GraphPlacement | None, Resource | None]:
        """Place parts in this order, each without a traversal where possible; or return the first that finds
        no place.

        Parts that request nodes never share one.
        """
        together = GraphPlacement()
        asked_for: set[Vertex] = set()
        for part in parts:
            rest = replace(window, already_taken=together.leaves)
            if part.type == NODE:
                rest = replace(rest, exclude={*window.exclude, *asked_for})
            placement = self._part(part, rest)
            if placement is None:
                return None, part
            if part.type == NODE:
                asked_for.update(vertex for vertex in placement.vertices if vertex.type == NODE)
            together.join(placement)
        return together, None

    def _part(self, part: Resource, window: Window) -> GraphPlacement | None:
        plan = plan_for((part,))
        covered = plan if plan is not None and self._shortcut.covers(plan) else None
        return self.place((part,), covered, window)


def unlike_slots(jobspec: Jobspec) -> bool:
    """Return True if the request is several slots with different labels; each may be in a node of its own."""
    parts = jobspec.resources
    if len(parts) < 2:
        return False
    slots = [slot for part in parts if (slot := slot_of(part)) is not None]
    return len(slots) == len({slot.label for slot in slots}) == len(parts)


def slot_of(part: Resource) -> Resource | None:
    """Return the slot of a part of a request: the part itself, or the only slot in each of its nodes."""
    if part.type == NODE and len(part.children) == 1:
        part = part.children[0]
    return part if part.type == SLOT else None


def size_of_part(part: Resource) -> tuple[int, ...]:
    """Return the sort key of parts: nodes of their own first, then more types of resources,
    then larger amounts.
    """
    slot = slot_of(part) or part
    return part.type == NODE, len(slot.children), *(level.count.low for level in slot.children)
