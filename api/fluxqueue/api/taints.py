"""The taints that decide which pods can be placed on a node now.

Three taints are left out, because they state that a node is cordoned, not ready or unreachable. The graph marks such a node as down, and
one fact should not be represented twice. The others count, among them those of pressure (`PRESSURES`). The node controller derives these
from the conditions of the node with a delay, so a condition counts as its taint at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fluxqueue.api.nodes import Node, Taint

__all__ = ["HARD_EFFECTS", "PRESSURES", "effective_taints"]

HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
_COVERED_BY_DOWN: Final = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
PRESSURES: Final[Mapping[str, Taint]] = {
    "MemoryPressure": Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule"),
    "DiskPressure": Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule"),
    "PIDPressure": Taint(key="node.kubernetes.io/pid-pressure", effect="NoSchedule"),
    "NetworkUnavailable": Taint(key="node.kubernetes.io/network-unavailable", effect="NoSchedule"),
}
"""Type of a condition -> the taint that Kubernetes sets while it is True (nodeConditionToTaintKeyStatusMap of the node controller)."""


def effective_taints(node: Node) -> frozenset[Taint]:
    """Return the taints of a node that is up. Soft taints are included; only those with `HARD_EFFECTS` exclude pods."""
    written = {taint for taint in node.spec.taints or () if taint.key not in _COVERED_BY_DOWN}
    pressures = {PRESSURES[each.type] for each in node.status.conditions or () if each.type in PRESSURES and each.status == "True"}
    return frozenset(written | pressures)
