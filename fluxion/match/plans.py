"""Plans: requests of a shape that can be placed without a traversal.

Two shapes are nearly all that a queue sends: nodes with slots of leaves in each (or taken whole), and slots
of leaves on any nodes (leaves without a slot are a special case). For both, the choice of nodes follows from
an order of nodes that does not depend on what is taken in them. So nodes can be checked one after the other
until enough are found. All other requests need the traverser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fluxqueue.fluxion.graph.vertices import NODE
from fluxqueue.fluxion.match.domains import AtMost, DomainRule, WholeNodes
from fluxqueue.fluxion.match.jobspec import SLOT, Count, Resource

__all__ = ["NodePlan", "Plan", "SlotPlan", "plan_for"]

ONE = Count(1, 1)


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """``slot[count] -> leaves``: slots on any nodes.

    Attributes
    ----------
    plain
        The request names leaves and no slot. It is placed as slots of one leaf each, which is right where
        leaves have size 1.
    per_node
        Most slots of one node; 0: any number.
    whole
        Nodes with a slot are taken whole.
    """

    count: Count
    label: str
    needs: tuple[tuple[str, Count], ...]
    plain: bool = False
    per_node: int = 0
    whole: bool = False

    @property
    def most_in_one(self) -> int:
        """The most slots that one node gets."""
        return min(self.count.most, self.per_node) if self.per_node else self.count.most


@dataclass(frozen=True, slots=True)
class NodePlan:
    """``node[count] -> slot -> leaves``, or whole nodes.

    Attributes
    ----------
    named_root
        Type of the root if the request names it; then nodes must be its children.
    slots
        What each node must hold; None for a node taken whole without slots.
    exclusive
        The node is requested exclusively and taken with everything below it.
    """

    count: Count
    named_root: str
    slots: SlotPlan | None
    exclusive: bool


Plan = NodePlan | SlotPlan


def plan_for(levels: Sequence[Resource], rules: Sequence[DomainRule] = ()) -> Plan | None:
    """Return the plan for a request under domain rules; None if it has no such shape."""
    if rules:
        plan = plan_for(levels)
        return None if plan is None else _under(plan, rules)
    if len(levels) != 1:
        return None
    top = levels[0]
    if top.type == SLOT:
        return _slot_plan(top)
    if (
        top.exclusive
        and not top.children
        and not top.label
        and top.type not in (NODE, "cluster")
        and top.count.low
    ):
        return SlotPlan(top.count, "", ((top.type, ONE),), plain=True)
    named_root = ""
    if (
        top.type == "cluster"
        and top.count == ONE
        and not top.exclusive
        and not top.label
        and len(top.children) == 1
    ):
        named_root, top = top.type, top.children[0]
    if top.type != NODE or top.label or top.count.low == 0:
        return None
    if not top.children:
        return NodePlan(top.count, named_root, None, exclusive=True) if top.exclusive else None
    if len(top.children) != 1 or top.children[0].type != SLOT:
        return None
    slots = _slot_plan(top.children[0])
    return None if slots is None else NodePlan(top.count, named_root, slots, bool(top.exclusive))


def _under(plan: Plan, rules: Sequence[DomainRule]) -> Plan | None:
    """Return the plan under rules about how slots share nodes; None if a rule is about anything else."""
    whole, most = False, 0
    for rule in rules:
        if isinstance(rule, WholeNodes):
            whole = True
        elif isinstance(rule, AtMost) and not rule.key:
            most = min(most or rule.most, rule.most)
        else:
            return None
    if isinstance(plan, SlotPlan):
        return None if plan.plain else replace(plan, per_node=most, whole=whole)
    if most and (plan.slots is None or plan.slots.count.most > most):
        return None
    return replace(plan, exclusive=plan.exclusive or whole)


def _slot_plan(slot: Resource) -> SlotPlan | None:
    members = slot.children
    if not members or slot.count.low == 0 or len({member.type for member in members}) != len(members):
        return None
    for member in members:
        if (
            member.children
            or member.label
            or member.exclusive is False
            or member.type in (SLOT, NODE)
            or member.count.low == 0
        ):
            return None
    return SlotPlan(slot.count, slot.label, tuple((member.type, member.count) for member in members))
