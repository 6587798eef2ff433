"""Where a pod may run, as a constraint Fluxion can check (RFC 31).

A node vertex carries its labels as properties (``key=value`` and the bare ``key``) and its taints as ``taint:key=value:effect``. So a
nodeSelector, a required node affinity and the taints a pod does not tolerate become one expression over properties. What cannot be said
that way (required pod affinity, DoNotSchedule spread, numeric comparisons) is refused with the field's name: placing such a pod on a
node its own rules forbid would leave it pending there for ever. Preferences are not rules and are left out.

One rule about other pods can be said, because it speaks of the group itself: pods of a Job that keep apart from each other by hostname
want one node each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.graphnames import label_property, taint_property
from fluxqueue.api.objects import PodSpec, Taint, Toleration

__all__ = ["InexpressibleConstraint", "constraint_of", "keeps_apart", "tolerates"]

Constraint = dict[str, Any]
_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_OF_ONE_JOB = frozenset({names.JOB_NAME_LABEL, "job-name", "batch.kubernetes.io/controller-uid", "controller-uid", names.POD_GROUP_LABEL})
"""Labels of the pods of one Job, or of one pod group, and of no other pods."""


class InexpressibleConstraint(ValueError):
    """A required placement rule that the graph cannot check; the message names the field."""


def constraint_of(
    spec: PodSpec,
    taints: Iterable[Taint] = (),
    node_selector: Mapping[str, str] | None = None,
    job_labels: Mapping[str, str] | None = None,
    avoided: Sequence[str] = (),
) -> Constraint | None:
    """The placement rules of a pod as one RFC 31 constraint.

    Parameters
    ----------
    spec
        The pod's spec, or that of a template.
    taints
        Taints that stand on nodes of the cluster at present: those the pod does not tolerate are excluded.
    node_selector
        More labels its nodes must have: those of the queue.
    job_labels
        Labels of a Job's template: rules by which its pods keep apart are left out here, see `keeps_apart`.

    avoided
        Names of nodes that are not to be taken.

    Returns
    -------
    dict or None
        The constraint's JSON, None where any node will do.

    Raises
    ------
    InexpressibleConstraint
        For a required rule the graph cannot check.
    """
    _refuse_other_rules(spec, job_labels or {})
    parts: list[Constraint] = []
    labels = sorted({*(spec.node_selector or {}).items(), *(node_selector or {}).items()})
    if labels:
        parts.append({"properties": [label_property(key, value) for key, value in labels]})
    required = ((spec.affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required:
        parts.append(_any_of(_terms(required.get("nodeSelectorTerms") or ())))
    shunned = sorted(
        {
            taint_property(taint)
            for taint in taints
            if taint.effect in _HARD_EFFECTS and not any(tolerates(toleration, taint) for toleration in spec.tolerations or ())
        }
    )
    parts.extend({"not": [{"properties": [taint]}]} for taint in shunned)
    if avoided:
        parts.append({"not": [{"hostlist": list(avoided)}]})
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"and": parts}


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with this toleration may run on a node with this taint (the kube-scheduler's rule)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def keeps_apart(spec: PodSpec, job_labels: Mapping[str, str]) -> bool:
    """Whether no two pods of a Job may share a node.

    Parameters
    ----------
    spec
        Of the Job's template.
    job_labels
        Of the template: the Job's name is among them once the API server has taken the Job.

    Returns
    -------
    bool
        True for required anti-affinity by hostname to the pods of this very Job. Rules about pods of others do not count.
    """
    return any(_about_itself(term, job_labels) for term in _required(spec, "podAntiAffinity"))


def _required(spec: PodSpec, kind: str) -> list[Mapping[str, Any]]:
    return list(((spec.affinity or {}).get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def _about_itself(term: Mapping[str, Any], job_labels: Mapping[str, str]) -> bool:
    selected = (term.get("labelSelector") or {}).get("matchLabels") or {}
    plain = not (set(term) - {"labelSelector", "topologyKey"}) and set(term.get("labelSelector") or ()) == {"matchLabels"}
    own = selected.items() <= job_labels.items() and not _OF_ONE_JOB.isdisjoint(selected)
    return plain and own and term.get("topologyKey") == names.HOSTNAME_LABEL


def _refuse_other_rules(spec: PodSpec, job_labels: Mapping[str, str]) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        if any(kind == "podAffinity" or not _about_itself(term, job_labels) for term in _required(spec, kind)):
            raise InexpressibleConstraint(
                f"spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution cannot be matched for a whole group: "
                "use preferredDuringSchedulingIgnoredDuringExecution"
            )
    for spread in spec.topology_spread_constraints or ():
        if spread.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            raise InexpressibleConstraint(
                "spec.topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule cannot be matched for a group: use ScheduleAnyway"
            )


def _terms(terms: Iterable[Mapping[str, Any]]) -> list[Constraint]:
    """Terms are alternatives; one without expressions matches no node, so it adds nothing."""
    found = [_term(term) for term in terms if term.get("matchExpressions") or term.get("matchFields")]
    if not found:
        raise InexpressibleConstraint("a required nodeAffinity term without expressions matches no node: remove it or name labels in it")
    return found


def _term(term: Mapping[str, Any]) -> Constraint:
    parts = [_label_expression(expression) for expression in term.get("matchExpressions") or ()]
    parts += [_field_expression(expression) for expression in term.get("matchFields") or ()]
    return parts[0] if len(parts) == 1 else {"and": parts}


def _label_expression(expression: Mapping[str, Any]) -> Constraint:
    key, operator, values = expression.get("key", ""), expression.get("operator"), expression.get("values") or []
    match operator:
        case "In":
            return _any_of([{"properties": [label_property(key, value)]} for value in values])
        case "NotIn":
            return {"not": [_any_of([{"properties": [label_property(key, value)]} for value in values])]}
        case "Exists":
            return {"properties": [key]}
        case "DoesNotExist":
            return {"not": [{"properties": [key]}]}
    raise InexpressibleConstraint(
        f"required nodeAffinity operator {operator} on {key} cannot be matched: use In, NotIn, Exists or DoesNotExist"
    )


def _field_expression(expression: Mapping[str, Any]) -> Constraint:
    values = expression.get("values") or []
    hosts: Constraint = {"hostlist": list(values)}
    return hosts if expression.get("operator") == "In" else {"not": [hosts]}


def _any_of(parts: list[Constraint]) -> Constraint:
    return parts[0] if len(parts) == 1 else {"or": parts}
