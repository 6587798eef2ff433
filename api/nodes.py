"""Nodes and their taints: the fields that the queue reads (see `fluxqueue.api.metadata`)."""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectCondition, ObjectMeta, PartialObject

__all__ = [
    "Node",
    "NodeSpec",
    "NodeStatus",
    "Taint",
]


class Taint(PartialObject, frozen=True):
    """A taint: the node accepts only pods that tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(PartialObject, frozen=True):
    """Whether a node is cordoned (``unschedulable``), and its taints."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(PartialObject, frozen=True):
    """The resources and conditions of a node."""

    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    conditions: list[ObjectCondition] | None = None

    @property
    def ready(self) -> bool:
        """True if the condition ``Ready`` is True."""
        return any(c.type == "Ready" and c.status == "True" for c in self.conditions or ())


class Node(PartialObject, frozen=True):
    """A Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
