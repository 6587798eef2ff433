"""A request of the queue, as parts that a foreign matcher can be asked for.

A part is a number of equal slots, or what is wanted on one node. Parts are asked for one after the other, and
together they are one job of the queue. flux-sched does not match slots of several sizes side by side, so each
size is a part.

Levels, rules about domains, reservations and whole nodes are extensions of our matcher. Work that asks for
them is placed by it, node by node: then a part is what the work takes on one node, and no other node can be
the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.match.jobspec import SLOT, Jobspec, Resource
from fluxqueue.fluxion.messages import NodeShare

__all__ = ["Part", "foreign_jobspec", "free_parts", "node_parts", "slot_parts"]

_NODE = "node"


@dataclass(frozen=True, slots=True)
class Part:
    """What is asked for in one Match.

    Attributes
    ----------
    label, slots
        So many slots of this label; 0 for what is wanted on one node, whatever its slots.
    amounts
        Of one slot, or on the node, in our units.
    apart
        True if each slot has a node of its own.
    node
        The only node that may be the answer; empty: any that accepts the work.
    """

    label: str
    slots: int
    amounts: Mapping[str, int]
    apart: bool = False
    node: str = ""


def free_parts(jobspec: Jobspec) -> tuple[Part, ...]:
    """Return the parts among whose nodes the foreign matcher may choose;
    none if it cannot read the rules of this request.
    """
    if jobspec.level_needs or jobspec.domains or jobspec.reservation:
        return ()
    if sum(resource.type == _NODE for resource in jobspec.resources) > 1:
        return ()
    parts = [_part(resource) for resource in jobspec.resources]
    return tuple(part for part in parts if part is not None) if None not in parts else ()


def _part(resource: Resource) -> Part | None:
    if (
        resource.type == _NODE
        and resource.count.fixed
        and not resource.exclusive
        and len(resource.children) == 1
    ):
        slot = resource.children[0]
        alone = slot.type == SLOT and slot.count.fixed and slot.count.low == 1 and _plain(slot)
        return Part(slot.label, resource.count.low, _members(slot), apart=True) if alone else None
    if resource.type == SLOT and resource.count.fixed and _plain(resource):
        return Part(resource.label, resource.count.low, _members(resource))
    return None


def _plain(slot: Resource) -> bool:
    return all(child.count.fixed and not child.children and child.type != SLOT for child in slot.children)


def _members(slot: Resource) -> dict[str, int]:
    return {child.type: child.count.low for child in slot.children}


def node_parts(shares: Sequence[NodeShare]) -> tuple[Part, ...]:
    """Return a part for each node of a placement."""
    return tuple(Part(SLOT, 0, share.amounts, node=share.node) for share in shares)


def slot_parts(jobspec: Jobspec) -> tuple[Part, ...]:
    """Return a part for one slot of each kind, which is the least that any placement needs."""
    return tuple(
        Part(slot.label, 1, _members(slot)) for slot in jobspec.walk() if slot.type == SLOT and _plain(slot)
    )


def foreign_jobspec(
    part: Part, units: ForeignUnits, accepted: Collection[str], offered: Collection[str]
) -> str:
    """Write a part as a jobspec that every flux-sched reads.

    Parameters
    ----------
    accepted
        The nodes that may be the answer.
    offered
        The nodes of the foreign graph.
    """
    slot: dict[str, Any] = {
        "type": SLOT,
        "count": 1 if part.apart else max(part.slots, 1),
        "label": part.label,
        "with": [
            {"type": kind, "count": count} for kind, count in sorted(units.wanted(part.amounts).items())
        ],
    }
    spec = {
        "version": 1,
        "resources": [{"type": _NODE, "count": part.slots, "with": [slot]} if part.apart else slot],
        "tasks": [{"command": ["fluxqueue"], "slot": part.label, "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, **_constraints(accepted, offered)}},
    }
    return orjson.dumps(spec).decode()


def _constraints(accepted: Collection[str], offered: Collection[str]) -> dict[str, Any]:
    """Name the nodes that may be used, or those that may not, whichever are fewer; nothing if all may."""
    unwanted = sorted(set(offered) - set(accepted))
    wanted = sorted(set(offered) & set(accepted))
    if not unwanted:
        return {}
    hosts = {"not": [{"hostlist": unwanted}]} if len(unwanted) < len(wanted) else {"hostlist": wanted}
    return {"constraints": hosts}
