"""Why a request does not fit, in numbers and one sentence.

A request is read as: so many nodes or slots, each needing these amounts of leaf types in one place. Every admitted node is asked how
much it could give; what no single node can give is the shortage, closest miss first. If each piece fits somewhere, there are too few
such places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fluxqueue.fluxion.graph import NODE, Graph, Vertex
from fluxqueue.fluxion.jobspecs import SLOT, Jobspec, Resource
from fluxqueue.fluxion.messages import Shortage
from fluxqueue.fluxion.nodetable import NodeTable
from fluxqueue.fluxion.windows import Window

__all__ = ["explain"]

_CLOSE_LOOKS = 512
_MAX_AMOUNT = 1 << 31


@dataclass(frozen=True, slots=True)
class _Need:
    """One kind of piece: ``pieces`` of them, each with ``per_piece`` slots of these amounts in one node."""

    pieces: int
    per_piece: int
    amounts: tuple[tuple[str, int], ...]
    level: str


def explain(graph: Graph, table: NodeTable, jobspec: Jobspec, window: Window) -> tuple[str, tuple[Shortage, ...]]:
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
    if jobspec.asks_for_none:
        return "a count in the request is 0: nothing can match it", ()
    survey = _Survey(graph, table, window)
    needs = _needs(jobspec.resources)
    wanted_nodes = max((need.pieces for need in needs if need.level == NODE), default=1)
    admitted = survey.admitted
    if admitted < wanted_nodes and (jobspec.constraint is not None or window.exclude or window.only is not None):
        text = jobspec.constraint.text if jobspec.constraint is not None else ""
        shortage = Shortage("constraint", wanted_nodes, admitted, NODE, text)
        what = f"the constraint {text:.200}" if text else "the nodes allowed"
        verb = "satisfy" if admitted > 1 else "satisfies"
        return f"wants {_nodes(wanted_nodes)}, {admitted or 'no node'} of {len(graph.nodes)} {verb} {what}", (shortage,)
    if not survey.usable:
        return f"no node is up: {len(graph.nodes)} in all", (Shortage("nodes", wanted_nodes, 0, "cluster"),)
    shortages = [
        Shortage(kind, amount * need.per_piece, most, NODE)
        for need in needs
        for kind, amount in need.amounts
        if (most := survey.most(kind, amount * need.per_piece)) < amount * need.per_piece
    ]
    if shortages:
        shortages.sort(key=lambda shortage: (shortage.wanted - shortage.available) / max(1, shortage.wanted))
        return _sentence(shortages[0], window), tuple(shortages)
    for need in needs:
        found = survey.holding(need.amounts, need.per_piece, in_nodes=need.level == NODE)
        if found < need.pieces:
            kind, noun = ("nodes", "nodes") if need.level == NODE else (SLOT, "slots")
            where = "the empty cluster holds" if window.empty else "free now:"
            return f"wants {need.pieces} {noun}, {where} {found}", (Shortage(kind, need.pieces, found, "cluster"),)
    return "the parts fit, but not in the arrangement the request asks for", ()


class _Survey:
    """Asks nodes what they could give.

    In a plain graph the node table bounds every answer from above, and for windows that begin now it is exact on nodes without
    reservations whose leaves are all of one size: these are counted by column, and only the others are looked at closely.
    """

    def __init__(self, graph: Graph, table: NodeTable, window: Window) -> None:
        self._window = window
        self._table = table
        self._counts = table.full if window.empty else table.free
        if table.plain:
            mask = table.present.copy()
            if window.constraint is not None:
                mask &= table.accepted(window.constraint)
            for node in window.exclude:
                mask[node.row] = False
            if window.only is not None:
                mask &= np.isin(np.arange(len(mask)), table.rows(window.only))
            self.admitted = int(mask.sum())
            if not window.empty:
                mask &= table.open
            self._rows = np.flatnonzero(mask)
            self.usable = len(self._rows) > 0
            self._certain = np.ones(len(self._rows), dtype=np.bool_)
            self._free = np.ones(len(self._rows), dtype=np.bool_)
            if not window.empty:
                self._certain &= (table.reservations[self._rows] == 0) & (window.start <= window.now)
                self._free = table.held[self._rows] == 0
            return
        nodes = [node for node in graph.nodes if _admitted(node, window)]
        self.admitted = len(nodes)
        self._nodes = [node for node in nodes if window.empty or (node.up and not node.closed)]
        self.usable = bool(self._nodes)

    def most(self, kind: str, enough: int) -> int:
        """The most of a type that one place could give, or an amount of it that is enough."""
        table = self._table
        if not table.plain:
            return max(_free(node, kind, self._window) for node in self._nodes)
        if kind not in self._counts:
            return 0
        counts = self._counts[kind][self._rows].astype(np.int64)
        certain = self._certain if self._even(kind) else np.zeros_like(self._certain)
        best = int((counts * table.sizes[kind][self._rows])[certain & self._free].max(initial=0))
        bound = counts * table.largest[kind]
        open_ = np.flatnonzero(~certain & (bound > best))
        for position in open_[np.argsort(-bound[open_], kind="stable")][:_CLOSE_LOOKS].tolist():
            if bound[position] <= best or best >= enough:
                break
            best = max(best, _free(table.nodes[int(self._rows[position])], kind, self._window))
        return best

    def holding(self, amounts: Sequence[tuple[str, int]], per_piece: int, *, in_nodes: bool) -> int:
        """Slots of these amounts in all; with ``in_nodes``, nodes that hold so many of them each."""
        table = self._table
        if not table.plain:
            return _sum((_slots(node, amounts, self._window) for node in self._nodes), per_piece, in_nodes=in_nodes)
        slots = np.full(len(self._rows), _MAX_AMOUNT if amounts else 1, dtype=np.int64)
        bound = slots.copy()
        certain = self._certain
        for kind, amount in amounts:
            if kind not in self._counts or not 0 < amount <= _MAX_AMOUNT:
                return 0
            counts = self._counts[kind][self._rows]
            np.minimum(slots, counts // -(-amount // np.maximum(table.sizes[kind][self._rows], 1)), out=slots)
            np.minimum(bound, counts // -(-amount // max(1, table.largest[kind])), out=bound)
            if not self._even(kind):
                certain = np.zeros_like(certain)
        found = slots[certain & self._free].tolist()
        found += [_slots(table.nodes[row], amounts, self._window) for row in self._rows[~certain & (bound > 0)].tolist()]
        return _sum(found, per_piece, in_nodes=in_nodes)

    def _even(self, kind: str) -> bool:
        """Whether amounts of a type follow from counts of leaves."""
        return kind not in self._table.odd and self._table.smallest[kind] > 0


def _sum(slots: Iterable[int], per_piece: int, *, in_nodes: bool) -> int:
    return sum(count >= per_piece for count in slots) if in_nodes else sum(slots)


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


def _sentence(shortage: Shortage, window: Window) -> str:
    if window.empty:
        return f"no node has {shortage.type} {shortage.wanted}: the largest has {shortage.available} in all"
    return f"no node has {shortage.type} {shortage.wanted} free: the most free is {shortage.available}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
