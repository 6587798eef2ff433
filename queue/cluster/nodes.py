"""Reads nodes for the graph, and reports those that cannot be used because of what they report.

If a node reports a quantity that cannot be read (a device plugin wrote ``"lots"``), the node is down in the
graph. Nothing is placed there, what runs there continues, and all other nodes stay as they are. No user of
the queue caused that, so it is reported where an administrator looks: in the log, and as an Event of the
node. It is reported once, until what the node reports changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Protocol

import structlog

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.graph.nodes import NodeRules, graph_node
from fluxqueue.fluxion.messages import GraphNodeSpec
from fluxqueue.kube.events import Severity, Subject

__all__ = ["NodeReader"]

log = structlog.get_logger()

_NOTHING: Final[Mapping[str, Decimal]] = {}


class NodeEventRecorder(Protocol):
    """Records Events."""

    def record(self, subject: Subject, reason: str, message: str, *, severity: Severity = ...) -> object:
        """Record one."""


class NodeReader:
    """Reads nodes as Fluxion counts them.

    Parameters
    ----------
    rules
        How nodes are divided into vertices.
    recorder
        For Events on nodes that cannot be used.
    """

    def __init__(self, rules: NodeRules, recorder: NodeEventRecorder) -> None:
        self._recorder = recorder
        self._rules = rules
        self._reported: dict[str, str] = {}

    def __call__(self, node: Node, taken: Mapping[str, Decimal] = _NOTHING) -> GraphNodeSpec:
        """Read a node, of which DaemonSets take these amounts; report once why it cannot be used."""
        read = graph_node(node, self._rules, taken)
        name = node.metadata.name
        complaint = read.problem
        if complaint != self._reported.get(name, ""):
            self._reported[name] = complaint
            if complaint:
                log.warning("node.unusable", node=name, reason=complaint)
                self._recorder.record(
                    Subject("v1", "Node", "", name, node.metadata.uid),
                    "InvalidNode",
                    f"fluxqueue places nothing here: {complaint}",
                    severity=Severity.WARNING,
                )
        return read.spec
