"""Capacity of nodes that is reserved for released pods which are not bound yet, and which pods it excludes.

Some milliseconds pass between the release of a pod by the queue and its binding, and another pod could take
its capacity. If a foreign gate or a claim delays the pod, minutes pass. The reserved capacity is what
released pods request, whatever scheduler binds them. It counts as kube-scheduler counts the capacity of
nominated pods: against pods that have no higher priority. In particular DaemonSet pods of the system pass,
which belong on each node.

A pod is excluded from a node only if the reserved capacity makes the difference, because kube-scheduler has
checked everything else. What bound pods leave of a node is computed when it is first needed, and again after
a change on that node, so that a filter of 5,000 nodes only compares numbers. A pod that is about to be bound
is assumed: it counts on its node from then on, so that two pods bound at once do not both take the same
capacity.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from fluxqueue.api import names
from fluxqueue.api.disks import conflicting_disk
from fluxqueue.api.hostports import conflicting_port, open_ports
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.kube.object_cache import Change
from fluxqueue.queue.noderules.node_checks import room_left, room_wanted
from fluxqueue.scheduler_plugin.assignments import InvalidAssignment, NodeAssignment, written_assignment
from fluxqueue.scheduler_plugin.checks import ClusterView

__all__ = ["ReservedCapacity", "is_released", "released_assignment"]

_MOST_CLASSES: Final = 10_000


def is_released(pod: Pod) -> bool:
    """Return True if a pod has been released and is not bound yet, whatever scheduler binds it,
    even if a foreign gate holds it.
    """
    spec = pod.spec
    if spec.node_name or not pod.active or spec.gated_by(names.GATE):
        return False
    return (
        pod.metadata.annotation(names.ALLOCATION_ANNOTATION) is not None
        or spec.scheduler_name == names.SCHEDULER_NAME
    )


def released_assignment(pod: Pod) -> NodeAssignment | None:
    """Return the node of a released pod that is not bound yet, or None.

    Raises
    ------
    InvalidAssignment
        The node of the pod cannot be read.
    """
    return written_assignment(pod) if is_released(pod) else None


@dataclass(frozen=True, slots=True)
class _NodeCapacity:
    """The capacity of a node on which some is reserved.

    Attributes
    ----------
    left
        What bound pods leave of the resources that reserving pods request.
    spare
        What the reserving pods leave of that.
    spare_class
        A number shared by all nodes with the same ``spare``: one comparison serves all of them.
    lowest_priority
        The lowest priority of the reserving pods.
    reserving
        Priority, pod and requests of each pod for which capacity is reserved.
    """

    left: dict[str, int]
    spare: dict[str, int]
    spare_class: int
    lowest_priority: int
    reserving: Sequence[tuple[int, Pod, dict[str, int]]]

    def excludes(self, wanted: Mapping[str, int], priority: int, spec: PodSpec) -> bool:
        """Return True if a pod would take what is reserved for a pod of the same or a higher priority."""
        rivals = [(pod.spec, amounts) for each, pod, amounts in self.reserving if each >= priority]
        if not rivals:
            return False
        for resource in {*wanted} & {*self.left}:
            reserved = sum(amounts.get(resource, 0) for _, amounts in rivals)
            if reserved and wanted[resource] + reserved > self.left[resource]:
                return True
        specs = [rival for rival, _ in rivals]
        return conflicting_port(spec, specs) is not None or bool(conflicting_disk(spec, specs))


class ReservedCapacity:
    """The reserved capacity of each node; follows the stores of pods and nodes.

    Parameters
    ----------
    cluster
        Shows which pods are bound to which node.
    """

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._reserving: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self._capacities: dict[str, _NodeCapacity] = {}
        self._classes: dict[tuple[tuple[str, int], ...], int] = {}
        self._numbers = itertools.count()
        self._assumed: dict[str, tuple[Pod, str]] = {}

    @property
    def assumed(self) -> Set[str]:
        """Uids of pods that are about to be bound."""
        return self._assumed.keys()

    @property
    def nodes(self) -> Collection[str]:
        """Nodes with reserved capacity."""
        return self._reserving.keys()

    def apply(self, change: Change[Pod]) -> None:
        """Apply a change of a pod."""
        uid, pod = change.obj.metadata.uid, change.new
        for state in (change.old, pod):
            if state is not None and state.spec.node_name:
                self._invalidate(state.spec.node_name)
        if pod is None or pod.spec.node_name:
            self.unassume(uid)
        node = _reserved_node(pod) if pod is not None else ""
        before = self._node_of.get(uid)
        if before is not None and before != node:
            del self._node_of[uid]
            del self._reserving[before][uid]
            if not self._reserving[before]:
                del self._reserving[before]
            self._invalidate(before)
        if node and pod is not None:
            self._node_of[uid] = node
            self._reserving.setdefault(node, {})[uid] = pod
            self._invalidate(node)

    def apply_node(self, change: Change[Node]) -> None:
        """Apply a change of a node."""
        self._invalidate(change.obj.metadata.name)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod on a node from now on."""
        self._assumed[pod.metadata.uid] = pod, node
        self._invalidate(node)

    def unassume(self, uid: str) -> None:
        """Stop counting an assumed pod. A pod that is not assumed is no error."""
        if uid in self._assumed:
            self._invalidate(self._assumed.pop(uid)[1])

    def excluded(self, pod: Pod, nodes: Collection[str]) -> set[str]:
        """Return the nodes that a pod may not have, because it would take reserved capacity.

        Raises
        ------
        InvalidRequest
            The requests of the pod cannot be read.
        """
        excluded: set[str] = set()
        with_reservations = [node for node in nodes if node in self._reserving]
        if not with_reservations:
            return excluded
        priority, wanted = pod.spec.priority or 0, room_wanted(pod.spec)
        fitting: dict[int, bool] = {}
        shares = bool(pod.spec.volumes) or next(open_ports(pod.spec), None) is not None
        for node in with_reservations:
            capacity = self._capacities.get(node) or self._compute(node)
            fits = fitting.get(capacity.spare_class)
            if fits is None:
                fits = all(
                    amount <= capacity.spare.get(resource, amount) for resource, amount in wanted.items()
                )
                fitting[capacity.spare_class] = fits
            if fits and not shares:
                continue
            if (not fits and capacity.lowest_priority >= priority) or capacity.excludes(
                wanted, priority, pod.spec
            ):
                excluded.add(node)
        return excluded

    def precompute(self, most: int) -> None:
        """Compute at most ``most`` of the nodes without a current value, so that no request waits for it."""
        for node in [
            *itertools.islice((node for node in self._reserving if node not in self._capacities), most)
        ]:
            self._compute(node)

    def _invalidate(self, node: str) -> None:
        """Drop the computed capacity of a node, because something about the node has changed."""
        self._capacities.pop(node, None)

    def _compute(self, name: str) -> _NodeCapacity:
        pods = self._reserving[name]
        reserving = []
        for pod in pods.values():
            try:
                reserving.append((pod.spec.priority or 0, pod, room_wanted(pod.spec)))
            except InvalidRequest:
                continue  # the API server accepts no such pod
        resources = {resource for _, _, amounts in reserving for resource in amounts}
        node = self._cluster.node(name)
        assumed = [pod for pod, where in self._assumed.values() if where == name]
        bound = [pod for pod in (*self._cluster.pods_on(name), *assumed) if pod.metadata.uid not in pods]
        left = room_left(node, bound, resources) if node is not None else dict.fromkeys(resources, 0)
        spare = {
            resource: amount - sum(amounts.get(resource, 0) for _, _, amounts in reserving)
            for resource, amount in left.items()
        }
        lowest = min((priority for priority, _, _ in reserving), default=0)
        capacity = self._capacities[name] = _NodeCapacity(
            left, spare, self._class_of(spare), lowest, reserving
        )
        return capacity

    def _class_of(self, spare: Mapping[str, int]) -> int:
        if len(self._classes) >= _MOST_CLASSES:
            self._classes.clear()
        return self._classes.setdefault(tuple(sorted(spare.items())), next(self._numbers))


def _reserved_node(pod: Pod) -> str:
    try:
        assignment = released_assignment(pod)
    except InvalidAssignment:
        return ""
    return assignment.node if assignment is not None else ""
