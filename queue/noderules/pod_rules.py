"""Rules of a pod about other pods, as the stock scheduler reads them.

Required podAffinity and podAntiAffinity terms, and spread constraints with
``whenUnsatisfiable: DoNotSchedule``, are read from a pod's spec or a template into plain values. Selectors
are complete: ``matchLabelKeys`` and ``mismatchLabelKeys`` are merged into them, as the API server does for
affinity and the scheduler for spread. A term without namespaces is about the pod's own namespace. The rules
are stored in the jobspec (``attributes.system.podRules``), as part of the shape of a request. The nodes that
they admit depend on the pods at present, and are computed for each match
(`fluxqueue.queue.noderules.admitted_nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.nodes import Taint
from fluxqueue.api.pods import PodSpec, Toleration
from fluxqueue.api.taints import HARD_EFFECTS, tolerates
from fluxqueue.queue.model.constraints import InexpressibleConstraint
from fluxqueue.queue.noderules.node_selection import meets_terms

__all__ = [
    "MAX_RULES",
    "NodeFacts",
    "PodRules",
    "Requirement",
    "Selector",
    "Spread",
    "Term",
    "labels_told_apart",
    "repelling_terms",
    "rules_of",
    "rules_of_all",
    "selector_of",
    "with_labels",
]

MAX_RULES = 16
"""Terms and spread constraints of one pod. Each is checked against other pods in every match."""

_MOST_LABELS = 64
"""Different labels of the pods of a group: each is compared with the rules of all placed pods."""
_OF_ONE_POD = (names.JOB_INDEX_LABEL, "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name")
"""Labels by which controllers number their pods."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _Value(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A value that is stored in the jobspec."""


class Requirement(_Value, frozen=True):
    """One expression about a label. An absent label meets NotIn and DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def met_by(self, labels: Mapping[str, str]) -> bool:
        """True if labels meet it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
        return value is None


class Selector(_Value, frozen=True):
    """Requirements that must all hold.
    Without requirements it selects everything; with ``nothing`` set (an absent selector), nothing.
    """

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if it selects an object with these labels."""
        return not self.nothing and all(requirement.met_by(labels) for requirement in self.requirements)

    @property
    def key(self) -> Requirement | None:
        """A requirement by which selected objects can be looked up, because it names the values of a label;
        None if there is none. A label that numbers pods goes first: few pods have one value of it.
        """
        named = [each for each in self.requirements if each.operator == "In"]
        return min(named, key=lambda each: each.key not in _OF_ONE_POD, default=None)


class Term(_Value, frozen=True):
    """A term of required podAffinity or podAntiAffinity:
    which pods it selects, and the node label that defines the domains.
    """

    topology: str
    selector: Selector
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector = Selector(nothing=True)

    @property
    def within(self) -> tuple[str, ...] | None:
        """The namespaces that it applies to; None if that depends on their labels."""
        return self.namespaces if self.namespace_selector.nothing else None

    def reaches(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """True if it applies to pods in a namespace."""
        return namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)

    def selects(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """True if it selects a pod."""
        return self.selector.matches(labels) and self.reaches(namespace, namespace_labels)


class Spread(_Value, frozen=True):
    """A spread constraint that must hold: pods of the own namespace are counted by the domains of a node
    label.
    """

    topology: str
    selector: Selector
    max_skew: int
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class NodeFacts(msgspec.Struct, frozen=True):
    """What rules read of a node: its name, labels and taints."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


class PodRules(_Value, frozen=True):
    """What a pod requires of other pods, and what rules of other pods read of it.

    Attributes
    ----------
    namespace, labels
        Rules of other pods select it by these. For a group, the labels that all its pods have in common.
    affinity, anti_affinity, spreads
        What it requires.
    labels_of_each
        The different labels of the pods of a group; empty if they differ by no more than the index of the
        pod.
    node_selector, node_affinity, tolerations
        Set only if it has spread constraints. They say which nodes count.
    """

    namespace: str
    labels: dict[str, str] = {}
    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()
    labels_of_each: tuple[dict[str, str], ...] = ()
    node_selector: dict[str, str] = {}
    node_affinity: dict[str, Any] = {}
    tolerations: tuple[Toleration, ...] = ()

    @property
    def any(self) -> bool:
        """True if it requires anything of other pods."""
        return bool(self.affinity or self.anti_affinity or self.spreads)

    @property
    def all_labels(self) -> tuple[dict[str, str], ...]:
        """The labels of each pod that has these rules, at least one."""
        return self.labels_of_each or (self.labels,)

    def selects_itself(self, term: Term, namespace_labels: Mapping[str, str]) -> bool:
        """True if a term selects pods like this one. Of a group, it selects all or none (`rules_of_all`)."""
        return term.selects(self.namespace, namespace_labels, self.all_labels[0])

    def counts_itself(self, spread: Spread) -> bool:
        """True if a spread constraint counts pods like this one."""
        return spread.selector.matches(self.all_labels[0])

    def keeps_apart(self, namespace_labels: Mapping[str, str]) -> bool:
        """True if no two pods like this one may share a node."""
        return any(
            term.topology == names.HOSTNAME_LABEL and self.selects_itself(term, namespace_labels)
            for term in self.anti_affinity
        )

    def repels(self, labels: Mapping[str, str], topology: str, namespace_labels: Mapping[str, str]) -> bool:
        """True if a pod with these labels, in its own namespace, may not be in its domains."""
        return any(
            term.topology == topology and term.selects(self.namespace, namespace_labels, labels)
            for term in self.anti_affinity
        )

    def ties_itself(self, namespace_labels: Mapping[str, str]) -> bool:
        """True if pods like this one depend on each other by more rules than one node per pod."""
        others = (
            term
            for term in (*self.affinity, *self.anti_affinity)
            if term.topology != names.HOSTNAME_LABEL or term in self.affinity
        )
        return any(self.selects_itself(term, namespace_labels) for term in others) or any(
            map(self.counts_itself, self.spreads)
        )

    def selectors(self) -> Iterable[tuple[str, Selector]]:
        """Yield each label selector, with the path of its field."""
        yield from ((f"spec.affinity.podAffinity.{_REQUIRED}", term.selector) for term in self.affinity)
        yield from (
            (f"spec.affinity.podAntiAffinity.{_REQUIRED}", term.selector) for term in self.anti_affinity
        )
        yield from (("spec.topologySpreadConstraints", spread.selector) for spread in self.spreads)

    def counts_on(self, node: NodeFacts, spread: Spread) -> bool:
        """True if the policies of a spread constraint admit a node, whatever its topology labels."""
        selective = bool(self.node_selector or self.node_affinity)
        if spread.honor_affinity and selective and not self._may_use(node):
            return False
        return not spread.honor_taints or all(
            any(tolerates(toleration, taint) for toleration in self.tolerations)
            for taint in node.taints
            if taint.effect in HARD_EFFECTS
        )

    def _may_use(self, node: NodeFacts) -> bool:
        if any(node.labels.get(key) != value for key, value in self.node_selector.items()):
            return False
        required = self.node_affinity.get(_REQUIRED)
        return not required or meets_terms(required.get("nodeSelectorTerms") or (), node.name, node.labels)


def rules_of(spec: PodSpec, namespace: str, labels: Mapping[str, str]) -> PodRules:
    """Read what a pod requires of other pods.

    Parameters
    ----------
    spec
        Of the pod, or of the template of such pods.
    namespace, labels
        Of the pod.

    Returns
    -------
    PodRules
        `PodRules.any` is true if it requires anything.
    """
    affinity = spec.affinity or {}
    spreads = tuple(
        _spread(each, labels)
        for each in spec.topology_spread_constraints or ()
        if each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    )
    return PodRules(
        namespace=namespace,
        labels=dict(sorted(labels.items())),
        affinity=_terms(affinity.get("podAffinity"), namespace, labels),
        anti_affinity=_terms(affinity.get("podAntiAffinity"), namespace, labels),
        spreads=spreads,
        node_selector=dict(sorted((spec.node_selector or {}).items())) if spreads else {},
        node_affinity=(affinity.get("nodeAffinity") or {}) if spreads else {},
        tolerations=tuple(spec.tolerations or ()) if spreads else (),
    )


def rules_of_all(members: Sequence[PodRules]) -> PodRules:
    """Return the common rules of the pods of a group, which is matched by one set of rules.

    Parameters
    ----------
    members
        The rules of each pod, at least one.

    Raises
    ------
    InexpressibleConstraint
        The pods have different rules, a pod has too many rules, or a selector selects some of the pods and
        not others.
    """
    first = members[0]
    alike = with_labels(first, [each.labels for each in members])
    number = len(first.affinity) + len(first.anti_affinity) + len(first.spreads)
    if number > MAX_RULES:
        raise InexpressibleConstraint(
            f"spec.affinity and spec.topologySpreadConstraints hold {number} required rules about other "
            f"pods: no more than {MAX_RULES} are read, so prefer some of them only"
        )
    if any(
        msgspec.structs.replace(each, labels=alike.labels, labels_of_each=alike.labels_of_each) != alike
        for each in members
    ):
        raise InexpressibleConstraint(
            "its pods have different rules about other pods (spec.affinity, "
            "spec.topologySpreadConstraints): one group has one set of rules, so give all its pods the same"
        )
    for where, selector in first.selectors():
        if len({selector.matches(each.labels) for each in members}) > 1:
            raise InexpressibleConstraint(
                f"{where} selects some of its own pods and not others: "
                "select by labels that all of them have, or prefer it only"
            )
    return alike


def labels_told_apart(rules: PodRules, labels: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Return the different labels of pods with these rules, without what only numbers them.

    Of a group with very many, only the labels count that all its pods have, and those that its own rules
    name. Anti-affinity of other pods that selects some of them by another label is left to the scheduler of
    the cluster.

    Raises
    ------
    InexpressibleConstraint
        There are too many by which its own rules tell its pods apart.
    """
    if len(labels) == 1:
        return labels
    named = {requirement.key for _, selector in rules.selectors() for requirement in selector.requirements}
    common = set(labels[0].items()).intersection(*(each.items() for each in labels))
    for counts in (lambda key: key in named or key not in _OF_ONE_POD, named.__contains__):
        different: dict[frozenset[tuple[str, str]], None] = {}
        for each in labels:
            different[frozenset(pair for pair in each.items() if pair in common or counts(pair[0]))] = None
            if len(different) > _MOST_LABELS:
                break
        else:
            return [dict(each) for each in different]
    raise InexpressibleConstraint(
        f"its pods have more than {_MOST_LABELS} different labels that its rules about other pods name "
        "(spec.affinity, spec.topologySpreadConstraints): select by labels that all of them have"
    )


def with_labels(rules: PodRules, labels: Sequence[Mapping[str, str]]) -> PodRules:
    """Return the rules for pods with these labels, at least one."""
    labels = labels_told_apart(rules, labels)
    common = set(labels[0].items()).intersection(*(each.items() for each in labels))
    told_apart = {
        tuple(sorted((key, value) for key, value in each.items() if key not in _OF_ONE_POD))
        for each in labels
    }
    different = sorted(told_apart) if len(told_apart) > 1 else []
    return msgspec.structs.replace(
        rules, labels=dict(sorted(common)), labels_of_each=tuple(dict(each) for each in different)
    )


def repelling_terms(spec: PodSpec, namespace: str, labels: Mapping[str, str]) -> tuple[Term, ...]:
    """Return the required anti-affinity of a pod, which keeps other pods out of its domains."""
    anti_affinity = (spec.affinity or {}).get("podAntiAffinity")
    return _terms(anti_affinity, namespace, labels) if anti_affinity else ()


def _terms(kind: Mapping[str, Any] | None, namespace: str, labels: Mapping[str, str]) -> tuple[Term, ...]:
    return tuple(_term(each, namespace, labels) for each in (kind or {}).get(_REQUIRED) or ())


def _term(term: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> Term:
    named, by_labels = term.get("namespaces") or (), term.get("namespaceSelector")
    selector = selector_of(term.get("labelSelector"))
    if not selector.nothing:
        added = [
            Requirement(key, "In", (labels[key],))
            for key in term.get("matchLabelKeys") or ()
            if key in labels
        ]
        added += [
            Requirement(key, "NotIn", (labels[key],))
            for key in term.get("mismatchLabelKeys") or ()
            if key in labels
        ]
        selector = _with(selector, added)
    return Term(
        topology=term.get("topologyKey", ""),
        selector=selector,
        namespaces=tuple(sorted(named)) if named or by_labels is not None else (namespace,),
        namespace_selector=selector_of(by_labels),
    )


def _spread(spread: Mapping[str, Any], labels: Mapping[str, str]) -> Spread:
    added = [
        Requirement(key, "In", (labels[key],)) for key in spread.get("matchLabelKeys") or () if key in labels
    ]
    return Spread(
        topology=spread.get("topologyKey", ""),
        selector=_with(selector_of(spread.get("labelSelector")), added),
        max_skew=int(spread.get("maxSkew", 1)),
        min_domains=int(spread.get("minDomains") or 1),
        honor_affinity=spread.get("nodeAffinityPolicy", "Honor") == "Honor",
        honor_taints=spread.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def selector_of(selector: Mapping[str, Any] | None) -> Selector:
    """Read a label selector of Kubernetes; one that is absent selects nothing."""
    if selector is None:
        return Selector(nothing=True)
    labels = [
        Requirement(key, "In", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    expressions = [
        Requirement(each.get("key", ""), each.get("operator", ""), tuple(sorted(each.get("values") or ())))
        for each in selector.get("matchExpressions") or ()
    ]
    return Selector((*labels, *expressions))


def _with(selector: Selector, added: Sequence[Requirement]) -> Selector:
    new = tuple(each for each in added if each not in selector.requirements)
    return Selector((*selector.requirements, *new), selector.nothing) if new else selector
