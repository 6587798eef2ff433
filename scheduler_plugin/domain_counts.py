"""Pods by topology domain, for the rules of pods that are checked together.

What a rule asks of other pods is counted when the first pod of a check asks it: in which domains there are
pods that its terms select, or how many pods a spread constraint counts in each. The counts are kept up to
date while pods are added and removed. So a gang costs about as much for each of its members, however many
it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fluxqueue.queue.noderules.admitted_nodes import NodeTopology
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods, SelectorIndex
from fluxqueue.queue.noderules.pod_rules import PodRules, Spread, Term

__all__ = ["DomainCounts", "SpreadCount"]


class DomainCounts:
    """Counts of pods by domain during one check.

    Parameters
    ----------
    cluster
        Nodes and namespaces of the cluster, which do not change during the check.
    placed
        Pods on nodes without those being checked.
    waiting
        Pods being checked. Only spread constraints count them on their nodes before they are assumed.
    """

    def __init__(self, cluster: NodeTopology, placed: PlacedPods, waiting: PlacedPods) -> None:
        self.cluster = cluster
        self.placed = placed
        self._waiting = waiting
        self._near: dict[tuple[Term, ...], _Near] = {}
        self._near_by_selector: SelectorIndex[_Near] = SelectorIndex()
        self._repelling: dict[Term, Counter[str]] = {}
        self._spreads: dict[tuple[object, ...], SpreadCount] = {}
        self._eligible: dict[tuple[str, ...], _Eligible] = {}

    def waiting(self, uid: str) -> PlacedPod | None:
        """Return a pod being checked that is not assumed."""
        return self._waiting.get(uid)

    def assume(self, uid: str) -> None:
        """Count a pod being checked on its node for all rules."""
        pod = self._waiting.get(uid)
        if pod is not None:
            self._waiting.drop(uid)
            self.placed.put(pod)
            self._count_near(pod, 1)

    def put(self, pod: PlacedPod) -> None:
        """Add a pod that is neither placed nor checked."""
        self.placed.put(pod)
        self._count_near(pod, 1)
        for spread in self._spreads.values():
            spread.count(pod, 1)

    def drop(self, pod: PlacedPod) -> None:
        """Remove a pod that was put."""
        self.placed.drop(pod.uid)
        self._count_near(pod, -1)
        for spread in self._spreads.values():
            spread.count(pod, -1)

    def near(self, terms: Sequence[Term]) -> Mapping[str, Counter[str]]:
        """Return how many placed pods all of these terms select: by topology key and domain, without domains
        that have none.
        """
        known = self._near.get(tuple(terms))
        if known is None:
            known = self._near[tuple(terms)] = _Near(self.cluster, terms)
            first = known.terms[0]
            for pod in self.placed.selected(first.selector, first.within):
                known.count(pod, 1)
            self._near_by_selector.add(first.selector, known)
        return known.domains

    def repelling(self, namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[Term, Counter[str]]]:
        """Yield the required anti-affinity terms of placed pods that select a pod,
        with the number of those placed pods by domain.
        """
        for term, nodes in self.placed.repelling(namespace, self.cluster.namespace_labels(namespace), labels):
            if term not in self._repelling:
                domains = self._repelling[term] = Counter()
                for node, pods in nodes.items():
                    _count(domains, self.cluster.domain(node, term.topology), pods)
            yield term, self._repelling[term]

    def spread(self, rules: PodRules, spread: Spread) -> SpreadCount:
        """Return how many pods a spread constraint of a pod counts."""
        key, eligible = self._eligible_for(rules, spread)
        known = self._spreads.get((rules.namespace, spread.selector, key))
        if known is None:
            known = SpreadCount(rules.namespace, spread, eligible)
            self._spreads[rules.namespace, spread.selector, key] = known
            for pods in (self.placed, self._waiting):
                for pod in pods.selected(spread.selector, (rules.namespace,)):
                    known.count(pod, 1)
        return known

    def _count_near(self, pod: PlacedPod, number: int) -> None:
        for near in self._near_by_selector.about(pod.labels):
            near.count(pod, number)
        for term in pod.repels:
            if (domains := self._repelling.get(term)) is not None:
                _count(domains, self.cluster.domain(pod.node, term.topology), number)

    def _eligible_for(self, rules: PodRules, spread: Spread) -> tuple[tuple[str, ...], _Eligible]:
        """Return the nodes that count for a spread constraint, and what they depend on."""
        topologies = {each.topology for each in rules.spreads}
        chosen = (rules.node_selector, rules.node_affinity) if spread.honor_affinity else ()
        key = (
            spread.topology,
            *sorted(topologies),
            repr(chosen),
            repr(rules.tolerations if spread.honor_taints else ()),
        )
        if key not in self._eligible:
            self._eligible[key] = _Eligible(self.cluster.counted(rules, spread))
        return key, self._eligible[key]


class _Near:
    """Pods that all of some terms select, by topology key and domain."""

    def __init__(self, cluster: NodeTopology, terms: Sequence[Term]) -> None:
        self._cluster = cluster
        self.terms = sorted(terms, key=lambda term: (term.within is None, term.selector.key is None))
        self.domains: dict[str, Counter[str]] = {term.topology: Counter() for term in terms}

    def count(self, pod: PlacedPod, number: int) -> None:
        labels = self._cluster.namespace_labels(pod.namespace)
        if all(term.selects(pod.namespace, labels, pod.labels) for term in self.terms):
            for topology, domains in self.domains.items():
                _count(domains, self._cluster.domain(pod.node, topology), number)


class _Eligible:
    """Nodes that count for a spread constraint, each with its domain."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self.nodes = nodes
        self.domains = len(set(nodes.values()))


class SpreadCount:
    """Pods that a spread constraint counts, by domain.

    Attributes
    ----------
    domains
        Number of domains.
    least
        Pods in the domain that has the fewest.
    """

    def __init__(self, namespace: str, spread: Spread, eligible: _Eligible) -> None:
        self._namespace = namespace
        self._selector = spread.selector
        self._nodes = eligible.nodes
        self._pods: Counter[str] = Counter()
        self._domains_with = Counter({0: eligible.domains})
        self.domains = eligible.domains
        self.least = 0

    def __getitem__(self, domain: str) -> int:
        return self._pods[domain]

    def count(self, pod: PlacedPod, number: int) -> None:
        """Add (1) or remove (-1) a pod, if the constraint counts it."""
        domain = self._nodes.get(pod.node)
        if domain is None or not self._counts(pod):
            return
        before = self._pods[domain]
        now = self._pods[domain] = before + number
        self._domains_with[before] -= 1
        self._domains_with[now] += 1
        if now < self.least or (before == self.least and not self._domains_with[before]):
            self.least = now

    def _counts(self, pod: PlacedPod) -> bool:
        return (
            pod.namespace == self._namespace
            and not pod.deleting
            # one that selects everything counts nothing (countPodsMatchSelector)
            and bool(self._selector.requirements)
            and self._selector.matches(pod.labels)
        )


def _count(domains: Counter[str], domain: str | None, number: int) -> None:
    """Add a number of pods to a domain, and forget a domain that has none."""
    if domain is not None:
        domains[domain] += number
        if not domains[domain]:
            del domains[domain]
