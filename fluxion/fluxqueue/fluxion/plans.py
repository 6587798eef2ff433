"""Requests whose shape allows a shortcut, and what the shortcut needs to know of them.

Two shapes make up nearly all that a queue sends: so many nodes with slots of leaves in each (or taken whole), and so many slots of
leaves wherever there is room (of which leaves without a slot are a special case). For both, which nodes are taken follows from an order
of nodes that does not depend on what is taken in them, so nodes can be asked one after the other until enough have been found.
Everything else is for the walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.graph import NODE
from fluxqueue.fluxion.jobspecs import SLOT, Count, Resource

__all__ = ["NodePlan", "Plan", "SlotPlan", "plan_for"]

ONE = Count(1, 1)


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """``slot[count] -> leaves``, slots wherever there is room.

    Attributes
    ----------
    plain
        The request names leaves and no slot: it is placed as slots of one leaf each, which holds where leaves have size 1.
    """

    count: Count
    label: str
    needs: tuple[tuple[str, Count], ...]
    plain: bool = False


@dataclass(frozen=True, slots=True)
class NodePlan:
    """``node[count] -> slot -> leaves``, or whole nodes.

    Attributes
    ----------
    named_root
        Type of the root if the request names it: nodes must then be its children.
    slots
        What each node must hold; None for a node taken whole without slots.
    exclusive
        The node is asked for exclusively and taken with everything below it.
    """

    count: Count
    named_root: str
    slots: SlotPlan | None
    exclusive: bool


Plan = NodePlan | SlotPlan


def plan_for(levels: Sequence[Resource]) -> Plan | None:
    """The plan for a request, None if it has no such shape."""
    if len(levels) != 1:
        return None
    top = levels[0]
    if top.type == SLOT:
        return _slot_plan(top)
    if top.exclusive and not top.children and not top.label and top.type not in (NODE, "cluster") and top.count.low:
        return SlotPlan(top.count, "", ((top.type, ONE),), plain=True)
    named_root = ""
    if top.type == "cluster" and top.count == ONE and not top.exclusive and not top.label and len(top.children) == 1:
        named_root, top = top.type, top.children[0]
    if top.type != NODE or top.label or top.count.low == 0:
        return None
    if not top.children:
        return NodePlan(top.count, named_root, None, exclusive=True) if top.exclusive else None
    if len(top.children) != 1 or top.children[0].type != SLOT:
        return None
    slots = _slot_plan(top.children[0])
    return None if slots is None else NodePlan(top.count, named_root, slots, bool(top.exclusive))


def _slot_plan(slot: Resource) -> SlotPlan | None:
    members = slot.children
    if not members or slot.count.low == 0 or len({member.type for member in members}) != len(members):
        return None
    for member in members:
        if member.children or member.label or member.exclusive is False or member.type in (SLOT, NODE) or member.count.low == 0:
            return None
    return SlotPlan(slot.count, slot.label, tuple((member.type, member.count) for member in members))
