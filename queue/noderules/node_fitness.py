"""Checks that the nodes that were matched for work are still nodes on which it may start.

Between a match and the release somebody may remove a label from a node, taint or cordon it, or delete it.
Pods that are pinned there would never be bound. So the release checks again what the match required, on the
nodes as the API server last showed them: does each node exist, is it up, and does it meet the request's
constraint? Free room is not checked again, because the allocation holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import orjson

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.graph.constraints import Constraint, InvalidConstraint, NodeSubject, read_constraint
from fluxqueue.fluxion.graph.nodes import GraphNode, graph_node
from fluxqueue.fluxion.match.flavors import InvalidFlavors, admitting_any, read_flavors

__all__ = ["NodeFitness"]


class NodeFitness:
    """Checks matched nodes.

    Parameters
    ----------
    find
        Returns the node of a name as it is now, or None.
    """

    def __init__(self, find: Callable[[str], Node | None]) -> None:
        self._find = find
        self._read: dict[str, tuple[Node, GraphNode]] = {}

    def problem(self, jobspec: str, hosts: Iterable[str]) -> str:
        """Return why work of this request must not start on these nodes, in a sentence; empty if it may."""
        constraint = _constraint_of(jobspec)
        for name in dict.fromkeys(hosts):
            node = self._find(name)
            if node is None:
                self._read.pop(name, None)
                return f"node {name} is not there any more"
            read = self._as_read(name, node)
            if read.spec.down:
                return read.reason
            if constraint is not None and not constraint.accepts(NodeSubject(name, read.spec.properties)):
                return (
                    f"node {name} was changed: its labels or taints are not what the work asks for any more"
                )
        return ""

    def _as_read(self, name: str, node: Node) -> GraphNode:
        known = self._read.get(name)
        if known is None or known[0] is not node:
            known = self._read[name] = node, graph_node(node)
        return known[1]


def _constraint_of(jobspec: str) -> Constraint | None:
    try:
        system = orjson.loads(jobspec)["attributes"]["system"]
        return read_constraint(admitting_any(system.get("constraints"), read_flavors(system.get("flavors"))))
    except (orjson.JSONDecodeError, InvalidConstraint, InvalidFlavors, KeyError, TypeError, AttributeError):
        return None  # such a request was never matched
