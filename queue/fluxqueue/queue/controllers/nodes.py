"""Reads nodes for the graph, and says aloud which of them cannot be used because of what they report.

A quantity that is none (a device plugin wrote ``"lots"``) makes its node down: nothing is placed there, what runs there goes on, and all
other nodes are as they were. That is nothing a user of the queue did, so it is said where an administrator looks: in the log, and as an
Event of the node; once, until the node says something else.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from fluxqueue.api.objects import Node
from fluxqueue.fluxion.messages import NodeSpec
from fluxqueue.fluxion.nodes import NodeRules, graph_node
from fluxqueue.kube.events import Severity, Subject

__all__ = ["NodeReader"]

log = structlog.get_logger()


class Sayer(Protocol):
    """Takes Events."""

    def record(self, subject: Subject, reason: str, message: str, *, severity: Severity = ...) -> None:
        """Send one."""


class NodeReader:
    """A node as Fluxion counts it.

    Parameters
    ----------
    rules
        How nodes are cut into vertices.
    """

    def __init__(self, rules: NodeRules) -> None:
        self.sayer: Sayer | None = None
        """Where Events go, once there is somebody to send them."""
        self._rules = rules
        self._said: dict[str, str] = {}

    def __call__(self, node: Node) -> NodeSpec:
        """Read a node; what it cannot be used for is said once."""
        read = graph_node(node, self._rules)
        name = node.metadata.name
        complaint = read.complaint
        if complaint != self._said.get(name, ""):
            self._said[name] = complaint
            if complaint:
                log.warning("a node cannot be used", node=name, reason=complaint)
                if self.sayer is not None:
                    subject = Subject("v1", "Node", "", name, node.metadata.uid)
                    self.sayer.record(subject, "InvalidNode", f"fluxqueue places nothing here: {complaint}", severity=Severity.WARNING)
        return read.spec
