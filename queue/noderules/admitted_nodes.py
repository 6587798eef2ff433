"""Which nodes the rules about other pods admit at present.

A pure reading of the kube-scheduler's filters InterPodAffinity and PodTopologySpread (Kubernetes 1.30 to
1.36). It turns a pod's rules, the placed pods and the labels of nodes into a constraint on nodes (RFC 31),
and, for the pods of a gang about each other, into rules by domains (`fluxqueue.fluxion.match.domains`). The
filters work as follows:

- A placed pod's required anti-affinity keeps the pods that it selects out of its domains, whatever their own
  rules are.
- Affinity is met only by pods that match all terms. While there is no such pod, a pod that matches its own
  terms may go anywhere.
- Spread counts pods that are not being deleted, on nodes that have all topology keys of the pod and that its
  policies admit; with an empty selector it counts none. Spread and affinity never use a node without a key.
  Anti-affinity does not restrict such a node.
- The scheduler sees our pods pinned to a node. With ``nodeAffinityPolicy: Honor`` only the pinned node counts
  for the scheduler, so it would accept any spread, and only the queue keeps it. But the scheduler measures
  ``minDomains`` above 1 on that one node, so the queue keeps that as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluxqueue.api import hostlists, names
from fluxqueue.api.graphnames import label_property
from fluxqueue.fluxion.graph.constraints import NodeSubject, read_constraint
from fluxqueue.fluxion.match.domains import AtMost, DomainOf, DomainRule, Skew, Together, satisfies_rules
from fluxqueue.queue.noderules.node_selection import named_nodes
from fluxqueue.queue.noderules.placed_pods import PlacedPods
from fluxqueue.queue.noderules.pod_rules import NodeFacts, PodRules, Selector, Spread, Term

__all__ = ["AdmittedNodes", "NodeTopology", "admitted_nodes", "selectors_of"]

Constraint = dict[str, Any]
_NODE_ITSELF = ""


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """The nodes of a cluster with their labels, which say in which topology domains they are.

    Attributes
    ----------
    nodes
        By name.
    namespace_labels
        Returns the labels of a namespace, by its name.
    """

    nodes: Mapping[str, NodeFacts]
    namespace_labels: Callable[[str], Mapping[str, str]]

    def domain(self, node: str, topology: str) -> str | None:
        """Return the domain of a node, by a topology key; None if the node has no such label."""
        facts = self.nodes.get(node)
        return facts.labels.get(topology) if facts is not None else None

    def counted(self, rules: PodRules, spread: Spread) -> dict[str, str]:
        """Return the nodes that count for a spread constraint of a pod, each with its domain.
        Only the node is looked at that the pod is pinned to, if that counts.
        """
        named = named_nodes(rules.node_affinity) if spread.honor_affinity else None
        topologies = {each.topology for each in rules.spreads}
        return {
            node.name: node.labels[spread.topology]
            for node in map(self.nodes.get, self.nodes if named is None else named)
            if node is not None and topologies <= node.labels.keys() and rules.counts_on(node, spread)
        }


@dataclass(frozen=True, slots=True)
class AdmittedNodes:
    """The nodes on which pods may be placed now.

    Attributes
    ----------
    constraint
        On nodes; None admits all nodes.
    domains
        Rules that the pods of a gang must keep among themselves.
    refusal
        Why no node is admitted, in a sentence; empty if some may be.
    """

    constraint: Constraint | None = None
    domains: tuple[DomainRule, ...] = ()
    refusal: str = ""

    def problem(self, nodes: Sequence[str], cluster: NodeTopology) -> str:
        """Return why pods may not be placed on these nodes together, in a sentence; empty if they may.
        One entry for each pod.
        """
        if self.refusal:
            return self.refusal
        constraint = read_constraint(self.constraint)
        for node in dict.fromkeys(nodes):
            facts = cluster.nodes.get(node)
            if facts is None:
                return f"node {node} is not there"
            if constraint is not None and not constraint.accepts(
                NodeSubject(node, _properties(facts.labels))
            ):
                return f"rules about other pods do not admit node {node} any more"
        if not satisfies_rules(self.domains, [_domains_of(node, cluster) for node in nodes]):
            return "rules about other pods do not admit its pods where they would lie together"
        return ""


def _properties(labels: Mapping[str, str]) -> dict[str, str]:
    return {**labels, **{label_property(key, value): "" for key, value in labels.items()}}


def _domains_of(node: str, cluster: NodeTopology) -> DomainOf:
    return lambda key: cluster.domain(node, key) if key else node


def admitted_nodes(
    rules: PodRules, pods: PlacedPods, cluster: NodeTopology, count: int = 1, *, apart: bool = False
) -> AdmittedNodes:
    """Return the nodes that rules admit, given the pods and nodes at present.

    Parameters
    ----------
    rules
        The rules of each pod.
    pods, cluster
        As they are at present. The pods in question are not among them.
    count
        Number of pods that are placed together.
    apart
        True if the request already asks for one node per pod.
    """
    return _Evaluation(rules, pods, cluster, count, apart).read()


class _Evaluation:
    def __init__(
        self, rules: PodRules, pods: PlacedPods, cluster: NodeTopology, count: int, apart: bool
    ) -> None:
        self._rules = rules
        self._pods = pods
        self._cluster = cluster
        self._gang = count > 1
        self._apart = apart
        self._own_namespace = cluster.namespace_labels(rules.namespace)
        self._parts: list[Constraint] = []
        self._closed: dict[str, set[str]] = {}
        self._domains: list[DomainRule] = []
        self._refusal = ""

    def read(self) -> AdmittedNodes:
        self._symmetric()
        for term in self._rules.anti_affinity:
            self._anti_affinity(term)
        if self._rules.affinity:
            self._affinity(self._rules.affinity)
        for spread in self._rules.spreads:
            self._spread(spread)
        closed = sorted((topology, sorted(values)) for topology, values in self._closed.items() if values)
        parts = [
            *self._parts,
            *({"not": [self._in_domains(topology, values)]} for topology, values in closed),
        ]
        constraint = None if not parts else parts[0] if len(parts) == 1 else {"and": parts}
        return AdmittedNodes(constraint, tuple(self._domains), self._refusal)

    def _symmetric(self) -> None:
        rules = self._rules
        for labels in rules.all_labels:
            for term, nodes in self._pods.repelling(rules.namespace, self._own_namespace, labels):
                self._exclude(term.topology, self._values(nodes, term.topology))

    def _anti_affinity(self, term: Term) -> None:
        self._exclude(term.topology, self._values(self._counted((term,)), term.topology))
        if not self._gang or not self._rules.selects_itself(term, self._own_namespace):
            return
        if not (self._apart and term.topology == names.HOSTNAME_LABEL):
            self._domains.append(AtMost(term.topology, 1))

    def _affinity(self, terms: tuple[Term, ...]) -> None:
        nodes = self._counted(terms)
        keys = tuple(dict.fromkeys(term.topology for term in terms))
        domains = {key: self._values(nodes, key) for key in keys}
        if any(domains.values()):
            for key in keys:
                self._keep(key, domains[key], f"spec.affinity.podAffinity by {key}")
            return
        if not all(self._rules.selects_itself(term, self._own_namespace) for term in terms):
            self._refuse(
                f"spec.affinity.podAffinity by {' and '.join(keys)}: no pod it wants to be near is placed"
            )
            return
        self._parts.append({"properties": list(keys)})
        if self._gang:
            self._domains.append(Together(keys))

    def _spread(self, spread: Spread) -> None:
        rules = self._rules
        eligible = self._cluster.counted(rules, spread)
        self._parts.append({"properties": [spread.topology]})
        selective = bool(spread.selector.requirements)
        term = Term(spread.topology, spread.selector, (rules.namespace,))
        counted = self._counted((term,), deleting=False) if selective else {}
        on_node = {node: count for node, count in counted.items() if node in eligible}
        filled = dict.fromkeys(eligible.values(), 0)
        for node, count in on_node.items():
            filled[eligible[node]] += count
        itself = rules.counts_itself(spread)
        zero = len(filled) < spread.min_domains
        pinned = spread.min_domains > 1 and spread.honor_affinity
        if self._gang and itself and selective:
            self._domains.append(Skew(spread.topology, spread.max_skew, tuple(sorted(filled.items())), zero))
            if pinned:
                nodes = dict.fromkeys(eligible, 0) | on_node
                self._domains.append(
                    Skew(_NODE_ITSELF, spread.max_skew, tuple(sorted(nodes.items())), zero=True)
                )
            return
        least = 0 if zero else min(filled.values(), default=0)
        most = spread.max_skew - itself
        self._exclude(spread.topology, {domain for domain, count in filled.items() if count - least > most})
        if filled and all(count - least > most for count in filled.values()):
            self._refuse(
                f"spec.topologySpreadConstraints by {spread.topology}: "
                "every domain has too many pods it counts"
            )
        if pinned and (over := sorted(node for node, count in on_node.items() if count > most)):
            self._parts.append({"not": [{"hostlist": [hostlists.encode(over)]}]})

    def _counted(self, terms: tuple[Term, ...], *, deleting: bool = True) -> Mapping[str, int]:
        """Return how many placed pods all of these terms select, by node."""
        return self._pods.counted(terms, self._cluster.namespace_labels, deleting=deleting)

    def _values(self, nodes: Iterable[str], topology: str) -> set[str]:
        return {value for node in set(nodes) if (value := self._cluster.domain(node, topology)) is not None}

    def _exclude(self, topology: str, values: Iterable[str]) -> None:
        self._closed.setdefault(topology, set()).update(values)

    def _keep(self, topology: str, values: Iterable[str], what: str) -> None:
        if present := sorted(values):
            self._parts.append(self._in_domains(topology, present))
        else:
            self._refuse(f"{what}: no pod it wants to be near is on a node with that label")

    def _in_domains(self, topology: str, values: Sequence[str]) -> Constraint:
        if topology == names.HOSTNAME_LABEL and len(values) > 1:
            wanted = set(values)
            hosts = sorted(
                node.name for node in self._cluster.nodes.values() if node.labels.get(topology) in wanted
            )
            return {"hostlist": [hostlists.encode(hosts)]}
        return (
            {"properties": [label_property(topology, values[0])]}
            if len(values) == 1
            else {"in": [topology, *values]}
        )

    def _refuse(self, sentence: str) -> None:
        self._refusal = self._refusal or sentence


def selectors_of(rules: PodRules) -> list[Selector]:
    """Return the selectors of all rules.
    When a pod that one selects is placed or removed, the rules may admit other nodes.
    """
    terms = [term.selector for term in (*rules.affinity, *rules.anti_affinity)]
    return [*terms, *(spread.selector for spread in rules.spreads)]
