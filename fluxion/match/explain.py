"""Why a request does not fit, in numbers and one sentence.

A request is read as a number of nodes or slots, each of which needs amounts of leaf types in one place. For
each admitted node the available amounts are computed. A shortage is an amount that no single node has; the
smallest relative shortage comes first. If each piece fits somewhere, there are too few such places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from fluxqueue.api.formatting import format_constraint, format_graph_amount
from fluxqueue.api.graphnames import is_port
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.documents import Document
from fluxqueue.fluxion.graph.constraints import in_rfc31
from fluxqueue.fluxion.graph.vertices import NODE, Graph, Vertex
from fluxqueue.fluxion.match.domains import Once
from fluxqueue.fluxion.match.jobspec import SLOT, Jobspec, Resource
from fluxqueue.fluxion.match.node_table import Counts, NodeTable
from fluxqueue.fluxion.match.windows import Window
from fluxqueue.fluxion.messages import Shortage

__all__ = ["explain"]

_PASSING = frozenset(PRESSURES.values())
_MAX_NODES_CHECKED = 512
_LONGEST_TEXT = 1_024
"""Of a constraint in an answer: answers are kept for each waiting request."""
_MAX_AMOUNT = 1 << 31


@dataclass(frozen=True, slots=True)
class _Need:
    """One kind of piece: a number of pieces, each with ``per_piece`` slots of these amounts in one node."""

    pieces: int
    per_piece: int
    amounts: tuple[tuple[str, int], ...]
    level: str
    in_words: str


def explain(
    graph: Graph, table: NodeTable, jobspec: Jobspec, window: Window
) -> tuple[str, tuple[Shortage, ...]]:
    """Explain why a request does not fit a window.

    Parameters
    ----------
    window
        The window that was tried; its ``empty`` decides between "in all" and "free".

    Returns
    -------
    tuple
        One sentence, and the shortages, the smallest relative one first.
    """
    if jobspec.asks_for_none:
        return "a count in the request is 0: nothing can satisfy it", ()
    survey = _Survey(graph, table, window)
    needs = _needs(jobspec.resources)
    once = [each for rule in jobspec.domains if isinstance(rule, Once) for each in rule.amounts]
    wanted_nodes = max((need.pieces for need in needs if need.level == NODE), default=1)
    admitted = survey.admitted
    rules = _rules(jobspec, table, window) if admitted < wanted_nodes else {}
    if admitted < wanted_nodes and (rules or window.exclude or window.only is not None):
        text = orjson.dumps(rules).decode() if rules else ""
        shortage = Shortage(
            "constraint", wanted_nodes, admitted, NODE, text if len(text) <= _LONGEST_TEXT else ""
        )
        what = f": {format_constraint(rules)}" if rules else " the nodes allowed"
        verb = "satisfy" if admitted > 1 else "satisfies"
        return f"wants {_nodes(wanted_nodes)}, {admitted or 'no node'} of {len(graph.nodes)} {verb}{what}", (
            shortage,
        )
    if not survey.usable:
        return f"no node is up: {len(graph.nodes)} in all", (Shortage("nodes", wanted_nodes, 0, "cluster"),)
    amounts = [*once, *((kind, amount * need.per_piece) for need in needs for kind, amount in need.amounts)]
    shortages = [
        Shortage(kind, amount, most, NODE)
        for kind, amount in amounts
        if (most := survey.most(kind, amount)) < amount
    ]
    if shortages:
        shortages.sort(key=lambda shortage: (shortage.wanted - shortage.available) / max(1, shortage.wanted))
        return _sentence(shortages[0], window, _where(jobspec, table, window)), tuple(shortages)
    for need in needs:
        pieces = survey.holding(need.amounts, need.per_piece, in_nodes=need.level == NODE)
        if pieces < need.pieces:
            kind = "nodes" if need.level == NODE else SLOT
            where = "the empty cluster holds" if window.empty else "free now:"
            return f"wants {need.in_words}, {where} {pieces}", (
                Shortage(kind, need.pieces, pieces, "cluster"),
            )
    return "the parts fit, but not in the arrangement the request asks for", ()


class _Survey:
    """Computes what nodes have available.

    In a plain graph, free leaves are known by column for windows that begin now (`PresentLeaves`). Where
    leaves of a type have one size, amounts follow from them. In other windows the node table is an upper
    bound, and nodes are checked one by one.
    """

    def __init__(self, graph: Graph, table: NodeTable, window: Window) -> None:
        self._window = window
        self._table = table
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
            self._exact = window.empty or window.start <= window.now
            self._free = (
                np.ones(len(self._rows), dtype=np.bool_) if window.empty else table.held[self._rows] == 0
            )
            return
        nodes = [node for node in graph.nodes if _admitted(node, window)]
        self.admitted = len(nodes)
        self._nodes = [node for node in nodes if window.empty or (node.up and not node.closed)]
        self.usable = bool(self._nodes)

    def most(self, kind: str, enough: int) -> int:
        """Return the most of a type that one place has, or an amount of it that is enough."""
        table = self._table
        if not table.plain:
            return max(_free(node, kind, self._window) for node in self._nodes)
        if kind not in table.free:
            return 0
        counts = self._leaves(kind).astype(np.int64)
        if self._exact and self._even(kind):
            return int((counts * table.sizes[kind][self._rows])[self._free].max(initial=0))
        best, bound = 0, counts * table.largest[kind]
        open_ = np.flatnonzero(bound)
        for position in open_[np.argsort(-bound[open_], kind="stable")][:_MAX_NODES_CHECKED].tolist():
            if bound[position] <= best or best >= enough:
                break
            best = max(best, _free(table.nodes[int(self._rows[position])], kind, self._window))
        return best

    def holding(self, amounts: Sequence[tuple[str, int]], per_piece: int, *, in_nodes: bool) -> int:
        """Return the number of slots of these amounts; with ``in_nodes``,
        of nodes that hold ``per_piece`` of them each.
        """
        table = self._table
        if not table.plain:
            return _sum(
                (_slots(node, amounts, self._window) for node in self._nodes), per_piece, in_nodes=in_nodes
            )
        slots = np.full(len(self._rows), _MAX_AMOUNT if amounts else 1, dtype=np.int64)
        bound = slots.copy()
        exact = self._exact
        for kind, amount in amounts:
            if kind not in table.free or not 0 < amount <= _MAX_AMOUNT:
                return 0
            counts = self._leaves(kind)
            np.minimum(slots, counts // -(-amount // np.maximum(table.sizes[kind][self._rows], 1)), out=slots)
            np.minimum(bound, counts // -(-amount // max(1, table.largest[kind])), out=bound)
            exact = exact and self._even(kind)
        if not exact:
            checked = (
                _slots(table.nodes[row], amounts, self._window) for row in self._rows[bound > 0].tolist()
            )
            return _sum(checked, per_piece, in_nodes=in_nodes)
        slots = slots[self._free]
        return int(np.count_nonzero(slots >= per_piece) if in_nodes else slots.sum())

    def _leaves(self, kind: str) -> Counts:
        """Return the leaves of a type that each node has free;
        an upper bound for windows that begin later.
        """
        table, window = self._table, self._window
        if window.empty or window.start > window.now:
            return table.full[kind][self._rows]
        return table.present_leaves.free(kind, window.end, window.now)[self._rows]

    def _even(self, kind: str) -> bool:
        """Return True if amounts of a type follow from counts of leaves."""
        return kind not in self._table.odd and self._table.smallest[kind] > 0


def _sum(slots: Iterable[int], per_piece: int, *, in_nodes: bool) -> int:
    return sum(count >= per_piece for count in slots) if in_nodes else sum(slots)


def _admitted(node: Vertex, window: Window) -> bool:
    if not window.meets_constraint(node):
        return False
    return node not in window.exclude and (window.only is None or node in window.only)


def _needs(levels: Sequence[Resource], times: int = 1) -> list[_Need]:
    needs: list[_Need] = []
    for level in levels:
        count = times * level.count.low
        if level.type == NODE:
            slots = [child for child in level.children if child.type == SLOT]
            plain = tuple((child.type, child.count.low) for child in level.children if child.type != SLOT)
            needs.extend(
                _Need(count, slot.count.low, _amounts(slot), NODE, level.counted(count)) for slot in slots
            )
            if plain or not slots:
                needs.append(_Need(count, 1, plain, NODE, level.counted(count)))
        elif level.type == SLOT and not any(below.type == NODE for below in level.walk()):
            needs.append(_Need(count, 1, _amounts(level), SLOT, level.counted(count)))
        else:
            needs.extend(_needs(level.children, count))
    return needs


def _amounts(slot: Resource) -> tuple[tuple[str, int], ...]:
    return tuple((child.type, child.count.low) for child in slot.children)


def _free(node: Vertex, kind: str, window: Window) -> int:
    """Return the amount of a type that one place on the node has."""
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
    """Return the number of slots of these amounts that a node can hold."""
    fewest = 1 << 40
    for kind, amount in amounts:
        if amount == 0:
            return 0
        run = node.runs.get(kind)
        if run is None:
            fewest = min(fewest, _free(node, kind, window) // amount)
            continue
        free = (
            0
            if not window.empty and node.held(window.start, window.end, window.now)
            else window.free(run, exclusive=True)
        )
        each = -(-amount // run.size) if run.size else 1
        whole = free.bit_count() // each
        if run.amount(free) < whole * amount:
            whole = run.amount(free) // amount
        fewest = min(fewest, whole)
    return fewest if amounts else 1


def _sentence(shortage: Shortage, window: Window, where: str) -> str:
    node = f"no node ({where})" if where else "no node"
    wanted, most = (
        format_graph_amount(shortage.type, shortage.wanted),
        format_graph_amount(shortage.type, shortage.available),
    )
    if is_port(shortage.type) and not window.empty:
        return f"{wanted} is taken on every node that it may use"
    if window.empty:
        return f"{node} has {wanted}: " + (
            f"the largest has {most} in all" if shortage.available else "none has any"
        )
    return f"{node} has {wanted} free: " + (
        f"the most free is {most}" if shortage.available else "none has any free"
    )


def _rules(jobspec: Jobspec, table: NodeTable, window: Window) -> dict[str, Document]:
    """Return the constraint of a request with the taints that keep it from nodes:
    in an empty window without those that pass.
    """
    if jobspec.constraint is None:
        return {}
    return in_rfc31(jobspec.constraint, table.taints - _PASSING if window.empty else table.taints)


def _where(jobspec: Jobspec, table: NodeTable, window: Window) -> str:
    """Return which nodes the request admits, in words.

    Taints are named only where nothing fits an empty cluster. What is short for the moment is short for each
    waiting request, and a new taint would change what all of them say.
    """
    if jobspec.constraint is None:
        return ""
    return format_constraint(
        _rules(jobspec, table, window) if window.empty else orjson.loads(jobspec.constraint.text)
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
