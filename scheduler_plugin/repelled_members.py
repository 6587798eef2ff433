"""Which pods of a check are kept off their nodes by required anti-affinity of placed pods.

Each term is compared with all pods of the check at once: a set of them is an integer with a bit for each. So
many terms and many pods cost about as much as both together, whatever labels the terms name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.queue.noderules.admitted_nodes import NodeTopology
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods
from fluxqueue.queue.noderules.pod_rules import Requirement, Term

__all__ = ["RepelledMembers"]


class RepelledMembers:
    """The pods of one check, each on the node that is meant for it.

    Parameters
    ----------
    cluster
        Nodes and namespaces.
    members
        The pods.
    placed
        Pods on nodes at the beginning.
    """

    def __init__(self, cluster: NodeTopology, members: Sequence[PlacedPod], placed: PlacedPods) -> None:
        self._cluster = cluster
        self._all = (1 << len(members)) - 1
        self._bits = {pod.uid: 1 << number for number, pod in enumerate(members)}
        self._by_namespace: defaultdict[str, int] = defaultdict(int)
        self._by_label: defaultdict[str, int] = defaultdict(int)
        self._by_value: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._by_domain: defaultdict[tuple[str, str], int] = defaultdict(int)
        on_node: defaultdict[str, int] = defaultdict(int)
        for pod in members:
            bit = self._bits[pod.uid]
            on_node[pod.node] |= bit
            self._by_namespace[pod.namespace] |= bit
            for pair in pod.labels.items():
                self._by_label[pair[0]] |= bit
                self._by_value[pair] |= bit
        for node, bits in on_node.items():
            facts = cluster.nodes.get(node)
            for pair in facts.labels.items() if facts is not None else ():
                self._by_domain[pair] |= bits
        self._repelled = self._by_terms(placed.terms_about(self._by_value))
        self._by_pod: dict[str, Mapping[str, int]] = {}
        self._put: dict[str, Mapping[str, int]] = {}

    def topology(self, uid: str, topologies: Iterable[str]) -> str:
        """Return by which topology key a pod of the check is kept off its node, of those that the node has;
        empty if by none.
        """
        bit = self._bits.get(uid, 0)
        by_all = (self._repelled, *self._put.values())
        return next((key for key in topologies for each in by_all if each.get(key, 0) & bit), "")

    def assume(self, pod: PlacedPod) -> None:
        """Count a pod of the check as placed from now on."""
        for key, bits in self._by_terms((term, (pod.node,)) for term in pod.repels).items():
            self._repelled[key] = self._repelled.get(key, 0) | bits

    def put(self, pod: PlacedPod) -> None:
        """Count a pod that is not of the check as placed, until it is dropped."""
        if pod.uid not in self._by_pod:
            self._by_pod[pod.uid] = self._by_terms((term, (pod.node,)) for term in pod.repels)
        self._put[pod.uid] = self._by_pod[pod.uid]

    def drop(self, uid: str) -> None:
        """Do not count a pod any more that was put."""
        del self._put[uid]

    def _by_terms(self, terms: Iterable[tuple[Term, Iterable[str]]]) -> dict[str, int]:
        """Return whom some terms keep off, by their topology keys.
        Each term comes with the nodes of the pods that have it.
        """
        repelled: dict[str, int] = {}
        for term, nodes in terms:
            if selected := self._selected(term):
                near = 0
                for domain in {self._cluster.domain(node, term.topology) for node in nodes}:
                    near |= self._by_domain.get((term.topology, domain), 0) if domain is not None else 0
                repelled[term.topology] = repelled.get(term.topology, 0) | selected & near
        return repelled

    def _selected(self, term: Term) -> int:
        found = 0 if term.selector.nothing else self._all
        for requirement in term.selector.requirements:
            found &= self._meeting(requirement)
            if not found:
                return 0
        return found & sum(
            bits
            for namespace, bits in self._by_namespace.items()
            if term.reaches(namespace, self._cluster.namespace_labels(namespace))
        )

    def _meeting(self, requirement: Requirement) -> int:
        """Return whose labels meet a requirement (`Requirement.met_by`)."""
        key, operator = requirement.key, requirement.operator
        if operator in ("In", "NotIn"):
            named = 0
            for value in requirement.values:
                named |= self._by_value.get((key, value), 0)
        else:
            named = self._by_label.get(key, 0)
        return named if operator in ("In", "Exists") else self._all & ~named
