"""Whether the labels and the name of a node satisfy a pod, as the kube-scheduler's NodeAffinity reads it.

This is exact, and for one node. `fluxqueue.queue.model.constraints` has the same rules for the matcher. A
term without expressions matches nothing. An absent label meets NotIn and DoesNotExist. A comparison with a
text that is not a number is never met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fluxqueue.api.labelnumbers import label_number
from fluxqueue.api.pods import PodSpec

__all__ = ["meets_terms", "named_nodes", "selects"]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME: Final = "metadata.name"


def selects(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """True if the nodeSelector and the required node affinity of a pod admit a node."""
    if spec.node_selector and any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = ((spec.affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    return required is None or meets_terms(required.get("nodeSelectorTerms") or (), name, labels)


def meets_terms(terms: Iterable[Mapping[str, Any]], name: str, labels: Mapping[str, str]) -> bool:
    """True if a node meets one of the terms of a node selector."""
    return any(_meets(term, name, labels) for term in terms)


def named_nodes(node_affinity: Mapping[str, Any]) -> set[str] | None:
    """Return the names of the only nodes that required node affinity may admit; None if it names none."""
    required = node_affinity.get(_REQUIRED)
    if not required:
        return None
    names = {_named(term) for term in required.get("nodeSelectorTerms") or ()}
    return None if None in names else {name for name in names if name is not None}


def _named(term: Mapping[str, Any]) -> str | None:
    for each in term.get("matchFields") or ():
        values = [*(each.get("values") or ())]
        if each.get("key") == _NAME and each.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return None


def _meets(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_label(each, labels) for each in expressions) and all(_field(each, name) for each in fields)


def _label(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.get("key", "")), [*(expression.get("values") or ())]
    match expression.get("operator"):
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return len(values) == 1 and _compares(value, values[0], greater=operator == "Gt")
    return False


def _field(expression: Mapping[str, Any], name: str) -> bool:
    values = [*(expression.get("values") or ())]
    if expression.get("key") != _NAME or len(values) != 1:
        return False
    return bool(name == values[0]) == (expression.get("operator") == "In")


def _compares(value: str | None, bound: str, *, greater: bool) -> bool:
    have, wanted = label_number(value), label_number(bound)
    if have is None or wanted is None:
        return False
    return have > wanted if greater else have < wanted
