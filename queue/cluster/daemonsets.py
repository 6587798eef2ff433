"""What DaemonSets take of nodes, before and after their pods exist.

A new node looks empty: the pods of its DaemonSets (network, storage, monitoring) are bound some seconds
later. If work filled the node meanwhile, they would not fit. So from the start a node counts as having the
pod of each DaemonSet that matches it: with the template's request until the pod is bound, and with the pod's
own request from then on. Work can never use any of that. So it is subtracted from what the node has in the
graph, and a request that fits only without it is unsatisfiable.

Any user who may create a DaemonSet decides its size, so a DaemonSet cannot take what a node does not have. A
template larger than the whole node is left out, because its pod will not come. Of the pods still to come, no
more counts than is free, so a node full of work keeps its size until something ends there. One pod of a
DaemonSet counts for it on each node. A second one, during an update, counts as foreign.

Whether a DaemonSet matches a node is decided as its controller does: by nodeSelector, required node affinity,
and the taints that it tolerates, to which the controller adds those that Kubernetes itself puts on nodes. If
a rule cannot be checked on the graph, the pod is assumed to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import msgspec

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.graphnames import POD_SLOTS
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod, PodSpec, Toleration
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.requests import InvalidRequest, pod_requests, pod_usage, sum_requests
from fluxqueue.api.taints import PRESSURES
from fluxqueue.fluxion.graph.constraints import Constraint, NodeSubject, read_constraint
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.constraints import InexpressibleConstraint, constraint_of
from fluxqueue.queue.model.jobspecs import slot_resources

__all__ = ["NO_DAEMONSET_REQUESTS", "DaemonSetRequests", "DaemonSets", "daemonset_requests"]

Amounts = Mapping[str, Decimal]
_ONE = {POD_SLOTS: Decimal(1)}
_ADDED = tuple(Toleration(key=taint.key, operator="Exists") for taint in PRESSURES.values())
_MAX_RULES = 1_000


@dataclass(frozen=True, slots=True)
class DaemonSetRequests:
    """What the pods of DaemonSets request of one node.

    Attributes
    ----------
    amounts
        Resource name -> amount in base units, ``pods`` among them.
    capped
        True if more is still to come than is free now.
    """

    amounts: Amounts
    capped: bool = False

    @property
    def counted(self) -> dict[str, int]:
        """The amounts in the graph's units."""
        pods = int(self.amounts.get(POD_SLOTS, 0))
        return {
            **slot_resources({name: amount for name, amount in self.amounts.items() if name != POD_SLOTS}),
            POD_SLOTS: pods,
        }


NO_DAEMONSET_REQUESTS = DaemonSetRequests({})


def daemonset_requests(
    node: Node, standing: Iterable[Pod], coming: Sequence[PodSpec], used: Amounts
) -> DaemonSetRequests:
    """Return what DaemonSets take of a node.

    Parameters
    ----------
    node
        As the API server returned it.
    standing
        The pods of DaemonSets that are bound there, one of each.
    coming
        Specs of those that are to come.
    used
        What all other pods use.
    """
    bound = sum_requests(_usage(pod) for pod in standing)
    capped = False
    for resource, amount in sum_requests(_request(spec) for spec in coming).items():
        free = max(
            _allocatable(node, resource) - bound.get(resource, Decimal()) - used.get(resource, Decimal()),
            Decimal(),
        )
        capped |= amount > free
        bound[resource] = bound.get(resource, Decimal()) + min(amount, free)
    return DaemonSetRequests(bound, capped)


class DaemonSets:
    """The DaemonSets of a cluster, and which nodes they match.

    Parameters
    ----------
    daemonsets, nodes
        Of the cluster.
    complete
        Returns a template's spec as its pods will have it.
    """

    def __init__(
        self,
        daemonsets: ObjectCache[DaemonSet],
        nodes: ObjectCache[Node],
        complete: Callable[[DaemonSet], PodSpec] = lambda found: found.spec.template.spec,
    ) -> None:
        self._daemonsets = daemonsets
        self._nodes = nodes
        self._complete = complete
        self._rules: dict[tuple[str, str], tuple[bool, Constraint | None]] = {}

    def owns(self, pod: Pod) -> str:
        """Return the uid of the DaemonSet that a pod belongs to; empty if it belongs to none that exists."""
        owner = pod.metadata.controller
        found = (
            self._daemonsets.get_by_uid(owner.uid)
            if owner is not None and owner.kind == "DaemonSet"
            else None
        )
        return (
            found.metadata.uid
            if found is not None and found.metadata.namespace == pod.metadata.namespace
            else ""
        )

    def standing(self, here: Iterable[Pod]) -> dict[str, Pod]:
        """Return the pod of each DaemonSet (by its uid) among the pods of a node: the newest of each."""
        found: dict[str, Pod] = {}
        for pod in sorted(here, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
            if uid := self.owns(pod):
                found[uid] = pod
        return found

    def coming(self, node: Node, present: Iterable[str]) -> list[PodSpec]:
        """Return the specs of the pods still to come to a node, given the uids of DaemonSets that have a pod
        there.
        """
        there = set(present)
        missing = [
            each
            for each in self._daemonsets.list()
            if each.metadata.uid not in there and not each.metadata.deletion_timestamp
        ]
        if not missing:
            return []
        spec = graph_node(node).spec
        subject = NodeSubject(spec.name, spec.properties)
        specs = [self._complete(each) for each in missing if self._matches(each, subject)]
        return [spec for spec in specs if _fits(spec, node)]

    def coming_to(self, name: str, present: Iterable[str]) -> list[PodSpec]:
        """Return the specs of the pods still to come to the node of this name, as `coming` does."""
        node = self._nodes.get("", name) if len(self._daemonsets) else None
        return self.coming(node, present) if node is not None else []

    def _matches(self, daemonset: DaemonSet, subject: NodeSubject) -> bool:
        key = daemonset.metadata.uid, daemonset.metadata.resource_version
        if key not in self._rules:
            if len(self._rules) >= _MAX_RULES:
                self._rules.clear()
            self._rules[key] = _rule(daemonset.spec.template.spec)
        certain, rule = self._rules[key]
        return not certain or rule is None or rule.accepts(subject)


def _rule(pod: PodSpec) -> tuple[bool, Constraint | None]:
    """Return whether a DaemonSet's rules can be checked, and their constraint."""
    tolerant = msgspec.structs.replace(pod, tolerations=[*(pod.tolerations or ()), *_ADDED])
    try:
        return True, read_constraint(constraint_of(tolerant))
    except (InexpressibleConstraint, ValueError):
        return False, None


def _fits(spec: PodSpec, node: Node) -> bool:
    try:
        return all(amount <= _allocatable(node, resource) for resource, amount in pod_requests(spec).items())
    except InvalidRequest:
        return False


def _usage(pod: Pod) -> dict[str, Decimal]:
    """Return what a bound pod requests, or has while it is resized in place, as the scheduler counts it."""
    try:
        pod_requests(pod.spec)
    except InvalidRequest:
        return dict(_ONE)
    return {**pod_usage(pod), **_ONE}


def _request(spec: PodSpec) -> dict[str, Decimal]:
    try:
        return {**pod_requests(spec), **_ONE}
    except InvalidRequest:
        return dict(_ONE)


def _allocatable(node: Node, resource: str) -> Decimal:
    try:
        return parse_quantity((node.status.allocatable or {}).get(resource, 0))
    except InvalidQuantity:
        return Decimal()
