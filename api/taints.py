"""The taints that decide which pods can be placed on a node now.

Three taints are left out, because they state that a node is cordoned, not ready or unreachable. The graph
marks such a node as down, and one fact should not be represented twice. The others count, among them those of
pressure (`PRESSURES`). The node controller derives these from the conditions of the node with a delay, so a
condition counts as its taint at once.

A request carries what its pods tolerate, as texts: ``gpu=yes:NoSchedule``, ``gpu:NoSchedule`` (any value),
``gpu:`` (any value and effect). They do not depend on the taints that nodes have. So a new taint on a node
changes no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fluxqueue.api.nodes import Node, Taint
from fluxqueue.api.pods import Toleration

__all__ = [
    "HARD_EFFECTS",
    "PRESSURES",
    "TOLERATES_ALL",
    "effective_taints",
    "read_toleration",
    "tolerates",
    "toleration_texts",
]

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
"""Type of a condition -> the taint that Kubernetes sets while it is True (nodeConditionToTaintKeyStatusMap of
the node controller)."""

TOLERATES_ALL: Final = ":"
"""The text of a toleration of all taints."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """True if a pod with this toleration may run on a node with this taint (the kube-scheduler's rule)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


def toleration_texts(tolerations: Iterable[Toleration]) -> list[str]:
    """Return the texts of those tolerations that decide about nodes that are up, sorted, each once.

    Examples
    --------
    >>> one = Toleration(key="a", value="b", effect="NoSchedule")
    >>> toleration_texts([Toleration(key="gpu", operator="Exists"), one])
    ['a=b:NoSchedule', 'gpu:']
    """
    texts = {_toleration_text(each) for each in tolerations if _counts(each)}
    return [TOLERATES_ALL] if TOLERATES_ALL in texts else sorted(texts)


def read_toleration(text: str) -> Toleration | None:
    """Return the toleration that a text of `toleration_texts` stands for; None if it is no such text."""
    what, colon, effect = text.rpartition(":")
    key, equals, value = what.partition("=")
    if not colon or effect not in ("", *HARD_EFFECTS) or ":" in what or (equals and not key):
        return None
    return Toleration(key=key, operator="Equal" if equals else "Exists", value=value, effect=effect)


def _counts(toleration: Toleration) -> bool:
    if toleration.effect not in ("", *HARD_EFFECTS) or toleration.key in _COVERED_BY_DOWN:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and bool(toleration.key))


def _toleration_text(toleration: Toleration) -> str:
    what = toleration.key if toleration.operator == "Exists" else f"{toleration.key}={toleration.value}"
    return f"{what}:{toleration.effect}"


def effective_taints(node: Node) -> frozenset[Taint]:
    """Return the taints of a node that is up.
    Soft taints are included; only those with `HARD_EFFECTS` exclude pods.
    """
    written = {taint for taint in node.spec.taints or () if taint.key not in _COVERED_BY_DOWN}
    pressures = {
        PRESSURES[each.type]
        for each in node.status.conditions or ()
        if each.type in PRESSURES and each.status == "True"
    }
    return frozenset(written | pressures)
