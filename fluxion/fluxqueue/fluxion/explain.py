"""Why a request does not fit, in numbers and one sentence.

A request is read as: so many nodes or slots, each needing these amounts of leaf types in one place. Every admitted node is asked how
much it could give; what no single node can give is the shortage, closest miss first. If each piece fits somewhere, there are too few
such places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.graph import NODE, Graph, Vertex
from fluxqueue.fluxion.jobspecs import SLOT, Jobspec, Resource
from fluxqueue.fluxion.messages import Shortage
from fluxqueue.fluxion.walk import Window

__all__ = ["explain"]


@dataclass(frozen=True, slots=True)
class _Need:
    """One kind of piece: ``pieces`` of them, each with ``per_piece`` slots of these amounts in one node."""

    pieces: int
    per_piece: int
    amounts: tuple[tuple[str, int], ...]
    level: str


def explain(graph: Graph, jobspec: Jobspec, window: Window) -> tuple[str, tuple[Shortage, ...]]:
    """Say what is short for a request that does not fit a window.

    Parameters
    ----------
    window
        The one that was tried; its ``empty`` decides between "in all" and "free".

    Returns
    -------
    tuple
        One sentence, and the shortages, closest miss first.
    """
    admitted = [node for node in graph.nodes if _admitted(node, window)]
    needs = _needs(jobspec.resources)
    wanted_nodes = max((need.pieces for need in needs if need.level == NODE), default=1)
    if len(admitted) < wanted_nodes and (jobspec.constraint is not None or window.exclude or window.only is not None):
        text = jobspec.constraint.text if jobspec.constraint is not None else ""
        shortage = Shortage("constraint", wanted_nodes, len(admitted), NODE, text)
        what = f"the constraint {text}" if text else "the nodes allowed"
        return f"wants {_nodes(wanted_nodes)}, {len(admitted) or 'no node'} of {len(graph.nodes)} {_satisfies(len(admitted))} {what}", (
            shortage,
        )
    usable = [node for node in admitted if window.empty or (node.up and not node.closed)]
    if not usable:
        return f"no node is up: {len(graph.nodes)} in all", (Shortage("nodes", wanted_nodes, 0, "cluster"),)
    shortages: list[Shortage] = []
    for need in needs:
        shortages.extend(_missing(need, usable, window))
    if shortages:
        shortages.sort(key=lambda shortage: (shortage.wanted - shortage.available) / max(1, shortage.wanted))
        return _sentence(shortages[0], window), tuple(shortages)
    for need in needs:
        fit = sum(
            min(_slots(node, need.amounts, window), need.per_piece if need.level == NODE else 1 << 40) >= need.per_piece for node in usable
        )
        found = fit if need.level == NODE else sum(_slots(node, need.amounts, window) for node in usable)
        if found < need.pieces:
            kind = "nodes" if need.level == NODE else SLOT
            where = "the empty cluster holds" if window.empty else "free now:"
            noun = "nodes" if need.level == NODE else "slots"
            return f"wants {need.pieces} {noun}, {where} {found}", (Shortage(kind, need.pieces, found, "cluster"),)
    return "the parts fit, but not in the arrangement the request asks for", ()


def _admitted(node: Vertex, window: Window) -> bool:
    if window.constraint is not None and not window.constraint.accepts(node):
        return False
    return node not in window.exclude and (window.only is None or node in window.only)


def _needs(levels: Sequence[Resource], times: int = 1) -> list[_Need]:
    needs: list[_Need] = []
    for level in levels:
        count = times * level.count.low
        if level.type == NODE:
            slots = [child for child in level.children if child.type == SLOT]
            plain = tuple((child.type, child.count.low) for child in level.children if child.type != SLOT)
            needs.extend(_Need(count, slot.count.low, _amounts(slot), NODE) for slot in slots)
            if plain or not slots:
                needs.append(_Need(count, 1, plain, NODE))
        elif level.type == SLOT and not any(below.type == NODE for below in level.walk()):
            needs.append(_Need(count, 1, _amounts(level), SLOT))
        else:
            needs.extend(_needs(level.children, count))
    return needs


def _amounts(slot: Resource) -> tuple[tuple[str, int], ...]:
    return tuple((child.type, child.count.low) for child in slot.children)


def _free(node: Vertex, kind: str, window: Window) -> int:
    """Amount of a type that one place on the node could give."""
    if not window.empty and node.held(window.start, window.end, window.now):
        return 0
    best = 0
    for vertex in node.subtree():
        run = vertex.runs.get(kind)
        if run is not None:
            best = max(best, run.amount(window.free(run, exclusive=True)))
        best = max(best, sum(child.size for child in vertex.children if child.type == kind))
    return best


def _slots(node: Vertex, amounts: Sequence[tuple[str, int]], window: Window) -> int:
    """Slots of these amounts a node could hold."""
    fewest = 1 << 40
    for kind, amount in amounts:
        if amount == 0:
            return 0
        run = node.runs.get(kind)
        if run is None:
            fewest = min(fewest, _free(node, kind, window) // amount)
            continue
        free = 0 if not window.empty and node.held(window.start, window.end, window.now) else window.free(run, exclusive=True)
        each = -(-amount // run.size) if run.size else 1
        whole = free.bit_count() // each
        if run.amount(free) < whole * amount:
            whole = run.amount(free) // amount
        fewest = min(fewest, whole)
    return fewest if amounts else 1


def _missing(need: _Need, nodes: Sequence[Vertex], window: Window) -> list[Shortage]:
    out: list[Shortage] = []
    for kind, amount in need.amounts:
        wanted = amount * need.per_piece
        most = max(_free(node, kind, window) for node in nodes)
        if most < wanted:
            out.append(Shortage(kind, wanted, most, NODE))
    return out


def _sentence(shortage: Shortage, window: Window) -> str:
    if window.empty:
        return f"no node has {shortage.type} {shortage.wanted}: the largest has {shortage.available} in all"
    return f"no node has {shortage.type} {shortage.wanted} free: the most free is {shortage.available}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _satisfies(count: int) -> str:
    return "satisfy" if count > 1 else "satisfies"
