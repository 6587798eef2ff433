"""Rules of pods about other pods, checked for one pod and one node when the pod is bound.

The match keeps these rules when it chooses nodes, but foreign pods come and go between the match and the
bind. The checks are those of InterPodAffinity and PodTopologySpread in kube-scheduler (Kubernetes 1.30 to
1.36): required anti-affinity of the pods on nodes, then the pod's own required anti-affinity and affinity,
and its spread constraints with ``DoNotSchedule``. The pods of a gang count for each other. For affinity those
before a pod count, as if they had been bound one by one. For spread all of them count, because only the whole
gang is bound.

Pods are indexed by the selectors that rules use (`fluxqueue.queue.noderules.placed_pods`). The index is built
when the first pod with such a rule is seen. A cluster without such rules pays only for one check of each pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.kube.kinds import Key
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.cluster.storage import claims_used
from fluxqueue.queue.noderules.admitted_nodes import NodeTopology
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods
from fluxqueue.queue.noderules.pod_rules import NodeFacts, PodRules, Spread, repelling_terms, rules_of
from fluxqueue.scheduler_plugin.domain_counts import DomainCounts, NearPods

__all__ = ["InterPodCheck", "InterPodRules"]

_BY_CLAIM: Final = "claim in use"


class InterPodRules:
    """An index of pods on nodes for the rules that refer to them."""

    def __init__(
        self, pods: ObjectCache[Pod], nodes: ObjectCache[Node], namespaces: ObjectCache[Namespace]
    ) -> None:
        self._pods = pods
        self._namespaces = namespaces
        self._assumed: dict[str, tuple[Pod, str]] = {}
        self._placed: PlacedPods | None = None
        self._nodes: dict[str, NodeFacts] = {}
        self._topology = NodeTopology(self._nodes, self._labels_of)
        pods.add_index(_BY_CLAIM, _claims_in_use)
        pods.add_handler(self._pod_changed)
        nodes.add_handler(self._node_changed)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod on a node although the watch does not show it there yet."""
        self._assumed[pod.metadata.uid] = pod, node
        self._index(_as_placed(pod, node))

    def forget(self, uid: str) -> None:
        """Stop counting an assumed pod. A pod that is not assumed is no error."""
        if self._assumed.pop(uid, None) is None or self._placed is None:
            return
        self._placed.drop(uid)
        known = self._pods.get_by_uid(uid)
        if known is not None and (placed := _placed(known)) is not None:
            self._placed.put(placed)

    def users_of(self, claim: Key) -> Iterator[Pod]:
        """Return the pods on nodes that use a claim (namespace, name)."""
        yield from self._pods.by_index(_BY_CLAIM, claim)
        yield from (
            pod
            for pod, _ in self._assumed.values()
            if pod.spec.volumes and claim in claims_used(pod.metadata.namespace, pod.spec)
        )

    @contextmanager
    def checking(self, members: Sequence[tuple[Pod, str]]) -> Iterator[InterPodCheck]:
        """Begin a check of pods that are to be bound together, each with the name of its node.
        None of them counts as on a node yet.
        """
        has_rules = any(_has_rules(pod.spec) for pod, _ in members)
        waiting = [_as_placed(pod, node) for pod, node in members]
        if self._placed is None and not has_rules:
            yield InterPodCheck(DomainCounts(self._topology, PlacedPods(), waiting), active=False)
            return
        pods = self._build()
        uids = [pod.uid for pod in waiting]
        former = [placed for uid in uids if (placed := pods.get(uid)) is not None]
        for uid in uids:
            pods.drop(uid)
        try:
            yield InterPodCheck(DomainCounts(self._topology, pods, waiting), active=True)
        finally:
            for uid in uids:
                pods.drop(uid)
            for placed in former:
                pods.put(placed)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        known = self._namespaces.get("", namespace)
        return (known.metadata.labels or {}) if known is not None else {}

    def _build(self) -> PlacedPods:
        if self._placed is None:
            self._placed = PlacedPods()
            for pod in self._pods.list():
                if (placed := _placed(pod)) is not None:
                    self._placed.put(placed)
            for pod, node in self._assumed.values():
                self._placed.put(_as_placed(pod, node))
        return self._placed

    def _index(self, placed: PlacedPod) -> None:
        if self._placed is not None:
            self._placed.put(placed)
        elif placed.repels:
            self._build()

    def _pod_changed(self, change: Change[Pod]) -> None:
        now = _placed(change.new) if change.new is not None else None
        if now is not None:
            if self._placed is None or self._placed.get(now.uid) != now:
                self._index(now)
        elif self._placed is not None and change.obj.metadata.uid not in self._assumed:
            self._placed.drop(change.obj.metadata.uid)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._nodes[change.new.metadata.name] = _facts(change.new)
        else:
            self._nodes.pop(change.obj.metadata.name, None)


class InterPodCheck:
    """The rules during one check of pods that are to be bound together.

    Parameters
    ----------
    counts
        Pods on nodes and pods being checked.
    active
        False if neither a pod on a node nor a pod being checked has a rule.
    """

    def __init__(self, counts: DomainCounts, *, active: bool) -> None:
        self._counts = counts
        self._active = active

    def assume(self, pod: Pod) -> None:
        """Count a checked pod on its node from now on."""
        self._counts.assume(pod.metadata.uid)

    def violation(self, pod: Pod, node: Node, nominated: Sequence[Pod] = ()) -> str:
        """Return which rule forbids a pod on a node now, as a sentence; empty if none does.

        Parameters
        ----------
        pod, node
            One of the pods being checked, and the node it is to be bound to.
        nominated
            Pods for which kube-scheduler keeps room on the node. The rules must hold with and without them.
        """
        of_rivals = any(_has_rules(each.spec) for each in nominated)
        if not self._active and not of_rivals:
            return ""
        counts = self._counts
        rules = rules_of(pod.spec, pod.metadata.namespace, pod.metadata.labels or {})
        if not rules.any and not counts.placed.any_repel and not of_rivals:
            return ""
        check = _PodOnNode(counts, pod.metadata.uid, rules, _facts(node))
        coming = [
            _as_placed(each, node.metadata.name)
            for each in nominated
            if counts.placed.get(each.metadata.uid) is None
        ]
        for each in coming:
            counts.put(each)
        try:
            why = check.violation()
        finally:
            for each in coming:
                counts.drop(each)
        return why or (check.violation() if coming else "")


class _PodOnNode:
    """The rules about one pod on one node."""

    def __init__(self, counts: DomainCounts, uid: str, rules: PodRules, node: NodeFacts) -> None:
        self._counts = counts
        self._uid = uid
        self._rules = rules
        self._node = node
        self._itself = counts.waiting(uid)

    def violation(self) -> str:
        """Return the first violation in the order of kube-scheduler,
        so that it is the one that kube-scheduler would name.
        """
        spreads = (self._spread(spread) for spread in self._rules.spreads)
        return (
            next((why for why in spreads if why), "")
            or self._affinity()
            or self._anti_affinity()
            or self._repelled()
        )

    def _repelled(self) -> str:
        if topology := self._counts.repelled.topology(self._uid, self._node.labels):
            return (
                f"required podAntiAffinity of another pod by {topology} keeps the pod off node "
                f"{self._node.name}"
            )
        return ""

    def _anti_affinity(self) -> str:
        for term in self._rules.anti_affinity:
            if self._is_near(self._counts.near((term,)), term.topology):
                return (
                    f"required podAntiAffinity of the pod by {term.topology} keeps it off node "
                    f"{self._node.name}"
                )
        return ""

    def _affinity(self) -> str:
        rules, node = self._rules, self._node
        if not rules.affinity:
            return ""
        topologies = list(dict.fromkeys(term.topology for term in rules.affinity))
        near = self._counts.near(rules.affinity)
        if missing := [key for key in topologies if key not in node.labels]:
            return (
                f"required podAffinity of the pod asks for the label {missing[0]}, "
                f"which node {node.name} does not have"
            )
        if not any(near.any_in(key, None) for key in topologies):
            own = self._counts.cluster.namespace_labels(rules.namespace)
            if all(rules.selects_itself(term, own) for term in rules.affinity):
                return ""
        for key in topologies:
            if not self._is_near(near, key):
                return (
                    f"no pod that required podAffinity of the pod asks for is near node {node.name} by {key}"
                )
        return ""

    def _spread(self, spread: Spread) -> str:
        node = self._node
        domain = node.labels.get(spread.topology)
        if domain is None:
            return (
                f"topologySpreadConstraints of the pod ask for the label {spread.topology}, "
                f"which node {node.name} does not have"
            )
        counted = self._counts.spread(self._rules, spread)
        if self._itself is not None:
            counted.count(self._itself, -1)
        filled, least = counted[domain], 0 if counted.domains < spread.min_domains else counted.least
        if self._itself is not None:
            counted.count(self._itself, 1)
        if filled + spread.selector.matches(self._rules.labels) - least > spread.max_skew:
            return (
                f"topologySpreadConstraints of the pod by {spread.topology} leave no room for it on node "
                f"{node.name}"
            )
        return ""

    def _is_near(self, pods: NearPods, topology: str) -> bool:
        """Return True if one of these pods is in the domain of the node."""
        domain = self._node.labels.get(topology)
        return domain is not None and pods.any_in(topology, domain)


def _has_rules(spec: PodSpec) -> bool:
    affinity = spec.affinity or {}
    return bool(
        spec.topology_spread_constraints or affinity.get("podAffinity") or affinity.get("podAntiAffinity")
    )


def _claims_in_use(pod: Pod) -> Iterable[Key]:
    return claims_used(pod.metadata.namespace, pod.spec) if pod.spec.node_name and not pod.terminal else ()


def _placed(pod: Pod) -> PlacedPod | None:
    """Return a pod as rules see it; None if it is not bound or has ended."""
    node = pod.spec.node_name
    return _as_placed(pod, node) if node and not pod.terminal else None


def _as_placed(pod: Pod, node: str) -> PlacedPod:
    meta = pod.metadata
    labels = meta.labels or {}
    repels = repelling_terms(pod.spec, meta.namespace, labels) if pod.spec.affinity else ()
    return PlacedPod(meta.uid, meta.namespace, labels, node, meta.deletion_timestamp is not None, repels)


def _facts(node: Node) -> NodeFacts:
    return NodeFacts(node.metadata.name, node.metadata.labels or {}, tuple(node.spec.taints or ()))
