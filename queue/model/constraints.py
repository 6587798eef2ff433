"""Where a pod may run, as a constraint that Fluxion can check (RFC 31).

A node vertex has its labels as properties (``key=value`` and the bare ``key``) and its taints as
``taint:key=value:effect``. So a nodeSelector and a required node affinity become an expression over
properties. Comparisons of numbers, lists of values and tolerations are no part of RFC 31, but of our matcher.
Taints are never named: a request says what its pods tolerate, and the matcher compares that with each node,
so the request stays the same when the taints of nodes change. A rule that no node can meet, or that has an
unknown operator, is refused with the name of its field. A pod on a node that its own rules forbid would stay
pending there for ever. Preferences are not rules, and are left out. Rules about other pods are in
`fluxqueue.queue.noderules.pod_rules`, because the nodes that they admit change with the pods that exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fluxqueue.api.graphnames import label_property
from fluxqueue.api.labelnumbers import label_number
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.taints import TOLERATES_ALL, toleration_texts

__all__ = ["InexpressibleConstraint", "constraint_of", "label_rules", "node_terms", "tolerance"]

Constraint = dict[str, Any]
_EVERYTHING: Final = frozenset({TOLERATES_ALL})
_COMPARISONS: Final = {"Gt": "greater", "Lt": "less"}


class InexpressibleConstraint(ValueError):
    """A required placement rule that the graph cannot check; the message names the field."""


def constraint_of(spec: PodSpec, node_selector: Mapping[str, str] | None = None) -> Constraint | None:
    """Return the placement rules of a pod as one constraint: `label_rules` and `tolerance` together;
    None if any node is admitted.
    """
    parts = [part for part in (label_rules(spec, node_selector), tolerance([spec])) if part is not None]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"and": parts}


def label_rules(spec: PodSpec, node_selector: Mapping[str, str] | None = None) -> Constraint | None:
    """Return what a pod requires of the labels and the name of its node.

    Parameters
    ----------
    spec
        The pod's spec, or that of a template.
    node_selector
        More labels that its nodes must have: those of the queue.

    Returns
    -------
    dict or None
        The constraint's JSON; None if it requires nothing.

    Raises
    ------
    InexpressibleConstraint
        A required rule cannot be checked on the graph.
    """
    parts: list[Constraint] = []
    labels = sorted({*(spec.node_selector or {}).items(), *(node_selector or {}).items()})
    if labels:
        parts.append({"properties": [label_property(key, value) for key, value in labels]})
    required = ((spec.affinity or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required:
        parts.append(node_terms(required.get("nodeSelectorTerms") or ()))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"and": parts}


def tolerance(specs: Iterable[PodSpec]) -> Constraint | None:
    """Return which taints the nodes of several pods may have: those that all of them tolerate.
    None if that is any taint.
    """
    tolerated = {frozenset(toleration_texts(spec.tolerations or ())) for spec in specs}
    tolerated.discard(_EVERYTHING)
    least = [each for each in tolerated if not any(other < each for other in tolerated)]
    parts: list[Constraint] = [{"tolerates": texts} for texts in sorted(sorted(each) for each in least)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"and": parts}


def node_terms(terms: Iterable[Mapping[str, Any]]) -> Constraint:
    """Return the constraint for the terms of a required node selector, of which one must hold.

    Raises
    ------
    InexpressibleConstraint
        No term matches any node, or one has an unknown operator.
    """
    return _any_of(_terms(terms))


def _terms(terms: Iterable[Mapping[str, Any]]) -> list[Constraint]:
    """Return the terms, which are alternatives. A term that can match no node adds nothing."""
    alternatives = [_term(term) for term in terms if _can_match(term)]
    if not alternatives:
        raise InexpressibleConstraint(
            "a required nodeAffinity term without expressions, or that compares a label with anything but "
            "one whole number, fits no node: remove it or name labels in it"
        )
    return alternatives


def _can_match(term: Mapping[str, Any]) -> bool:
    """True if a term has expressions, and a whole number in each comparison."""
    expressions = term.get("matchExpressions") or ()
    return bool(expressions or term.get("matchFields")) and all(
        _bound(each) is not None for each in expressions if each.get("operator") in _COMPARISONS
    )


def _bound(expression: Mapping[str, Any]) -> int | None:
    """Return the number with which an expression compares a label, if it is one."""
    values = expression.get("values") or []
    return label_number(values[0]) if len(values) == 1 else None


def _term(term: Mapping[str, Any]) -> Constraint:
    parts = [_label_expression(expression) for expression in term.get("matchExpressions") or ()]
    parts += [_field_expression(expression) for expression in term.get("matchFields") or ()]
    return parts[0] if len(parts) == 1 else {"and": parts}


def _label_expression(expression: Mapping[str, Any]) -> Constraint:
    key, operator, values = (
        expression.get("key", ""),
        expression.get("operator"),
        expression.get("values") or [],
    )
    match operator:
        case "In":
            return _one_value(key, values)
        case "NotIn":
            return {"not": [_one_value(key, values)]}
        case "Exists":
            return {"properties": [key]}
        case "DoesNotExist":
            return {"not": [{"properties": [key]}]}
        case "Gt" | "Lt":
            return {_COMPARISONS[operator]: [key, str(_bound(expression))]}
    raise InexpressibleConstraint(
        f"required nodeAffinity operator {operator} on {key} is not known: use In, NotIn, "
        "Exists, DoesNotExist, Gt or Lt"
    )


def _one_value(key: str, values: Sequence[str]) -> Constraint:
    """Return that a label has one of these values, in the form that repeats the key least:
    a request may name hundreds of nodes.
    """
    return {"properties": [label_property(key, values[0])]} if len(values) == 1 else {"in": [key, *values]}


def _field_expression(expression: Mapping[str, Any]) -> Constraint:
    values = expression.get("values") or []
    hosts: Constraint = {"hostlist": list(values)}
    return hosts if expression.get("operator") == "In" else {"not": [hosts]}


def _any_of(parts: list[Constraint]) -> Constraint:
    return parts[0] if len(parts) == 1 else {"or": parts}
