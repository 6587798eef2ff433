"""Pods by topology domain, for the rules of pods that are checked together.

What a rule asks of other pods is counted when the first pod of a check asks it: in which domains there are
pods that its terms select, or how many pods a spread constraint counts in each. The counts are kept up to
date while pods are added and removed. So a gang costs about as much for each of its members, however many
it has, also if each has terms of its own because of its completion index.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from fluxqueue.api import names
from fluxqueue.queue.noderules.admitted_nodes import NodeTopology
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods, SelectorIndex
from fluxqueue.queue.noderules.pod_rules import PodRules, Spread, Term
from fluxqueue.scheduler_plugin.repelled_members import RepelledMembers

__all__ = ["DomainCounts", "NearPods", "SpreadCount"]

_Place = tuple[str, str | None, str | None]


class DomainCounts:
    """Counts of pods by domain during one check.

    Parameters
    ----------
    cluster
        Nodes and namespaces of the cluster, which do not change during the check.
    placed
        Pods on nodes without those being checked.
    members
        Pods being checked. Only spread constraints count them on their nodes before they are assumed.
    """

    def __init__(self, cluster: NodeTopology, placed: PlacedPods, members: Sequence[PlacedPod]) -> None:
        self.cluster = cluster
        self.placed = placed
        self._members = members
        self._waiting = PlacedPods()
        for pod in members:
            self._waiting.put(pod)
        self._near: dict[tuple[Term, ...], _Near] = {}
        self._near_by_selector: SelectorIndex[_Near] = SelectorIndex()
        self._repelled: RepelledMembers | None = None
        self._spreads: dict[tuple[object, ...], SpreadCount] = {}
        self._spreads_by_selector: SelectorIndex[SpreadCount] = SelectorIndex()
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
            if self._repelled is not None:
                self._repelled.assume(pod)

    def put(self, pod: PlacedPod) -> None:
        """Add a pod that is neither placed nor checked."""
        self.repelled.put(pod)
        self.placed.put(pod)
        self._count_near(pod, 1)
        self._count_spread(pod, 1)

    def drop(self, pod: PlacedPod) -> None:
        """Remove a pod that was put."""
        self.repelled.drop(pod.uid)
        self.placed.drop(pod.uid)
        self._count_near(pod, -1)
        self._count_spread(pod, -1)

    @property
    def repelled(self) -> RepelledMembers:
        """The pods being checked that placed pods keep off."""
        if self._repelled is None:
            self._repelled = RepelledMembers(self.cluster, self._members, self.placed)
        return self._repelled

    def near(self, terms: Sequence[Term]) -> NearPods:
        """Return the placed pods that all of these terms select."""
        alike, but = zip(*map(_without_index, terms), strict=True)
        known = self._near.get(alike)
        if known is None:
            known = self._near[alike] = _Near(self.cluster, alike)
            first = known.terms[0]
            for pod in self.placed.selected(first.selector, first.within):
                known.count(pod, 1)
            self._near_by_selector.add(first.selector, known)
        return NearPods(known.pods, {index for index in but if index is not None})

    def spread(self, rules: PodRules, spread: Spread) -> SpreadCount:
        """Return how many pods a spread constraint of a pod counts."""
        key, eligible = self._eligible_for(rules, spread)
        known = self._spreads.get((rules.namespace, spread.selector, key))
        if known is None:
            known = SpreadCount(rules.namespace, spread, eligible)
            self._spreads[rules.namespace, spread.selector, key] = known
            self._spreads_by_selector.add(spread.selector, known)
            for pods in (self.placed, self._waiting):
                for pod in pods.selected(spread.selector, (rules.namespace,)):
                    known.count(pod, 1)
        return known

    def _count_near(self, pod: PlacedPod, number: int) -> None:
        for near in self._near_by_selector.about(pod.labels.items()):
            near.count(pod, number)

    def _count_spread(self, pod: PlacedPod, number: int) -> None:
        for spread in self._spreads_by_selector.about(pod.labels.items()):
            spread.count(pod, number)

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


class NearPods:
    """Placed pods that some terms select, but for those of some completion indexes.

    Parameters
    ----------
    pods
        Number of pods by topology key, domain and completion index; None stands for any.
    but
        Completion indexes of pods that are not meant.
    """

    def __init__(self, pods: Counter[_Place], but: Collection[str]) -> None:
        self._pods = pods
        self._but = but

    def any_in(self, topology: str, domain: str | None) -> bool:
        """True if any of the pods is in a domain; None: in any domain."""
        others = sum(self._pods[topology, domain, index] for index in self._but)
        return self._pods[topology, domain, None] > others


class _Near:
    """Pods that all of some terms select, by topology key, domain and completion index."""

    def __init__(self, cluster: NodeTopology, terms: Sequence[Term]) -> None:
        self._cluster = cluster
        self._topologies = {term.topology for term in terms}
        self.terms = sorted(terms, key=lambda term: (term.within is None, term.selector.key is None))
        self.pods: Counter[_Place] = Counter()

    def count(self, pod: PlacedPod, number: int) -> None:
        labels = self._cluster.namespace_labels(pod.namespace)
        if all(term.selects(pod.namespace, labels, pod.labels) for term in self.terms):
            indexes = {None, pod.labels.get(names.JOB_INDEX_LABEL)}
            for topology in self._topologies:
                if (domain := self._cluster.domain(pod.node, topology)) is not None:
                    for place in itertools.product((topology,), (None, domain), indexes):
                        self.pods[place] += number


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


def _without_index(term: Term) -> tuple[Term, str | None]:
    """Return a term without the requirement that excludes one completion index, and that index.

    ``mismatchLabelKeys`` gives each pod of a Job a term of its own, which differs from the others only there.
    """
    requirements = term.selector.requirements
    for each in requirements:
        if each.key == names.JOB_INDEX_LABEL and each.operator == "NotIn" and len(each.values) == 1:
            others = tuple(other for other in requirements if other is not each)
            selector = msgspec.structs.replace(term.selector, requirements=others)
            return msgspec.structs.replace(term, selector=selector), each.values[0]
    return term, None
