"""The cluster as the scheduler sees it: watched objects, and pods that are assumed on nodes before the watch
shows them there.

Every replica watches, so that a follower can lead at once and every replica can serve the extender. Some
milliseconds pass between a bind and the watch event that shows it. Without a correction the next check would
count the node as emptier than it is. So a pod is *assumed* before it is bound: it counts on its node until
the watch shows it bound or gone, or until the bind is known to have failed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final

from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.kinds import CLAIMS, CSI_NODES, NAMESPACES, NODES, PODS, STORAGE_CLASSES, VOLUMES
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.kube.watches import Watches
from fluxqueue.queue.cluster.storage import ClusterStorage
from fluxqueue.scheduler_plugin.assignments import InvalidAssignment, assignment_of
from fluxqueue.scheduler_plugin.interpod_rules import InterPodRules

__all__ = ["SchedulerCaches"]

_BY_NODE: Final = "node"
_NOMINATED: Final = "nominated"


class SchedulerCaches:
    """Stores of all kinds that the scheduler watches, updated by `watches`; a
    `fluxqueue.scheduler_plugin.checks.ClusterView`.

    Attributes
    ----------
    pods, nodes
        All pods and nodes of the cluster.
    namespaces
        Namespaces with their labels.
    storage
        Claims, volumes, StorageClasses and the volume limits of nodes.
    interpod
        Inter-pod affinity and topology spread.
    """

    def __init__(self, api: Api) -> None:
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.nodes: ObjectCache[Node] = ObjectCache()
        self.namespaces: ObjectCache[Namespace] = ObjectCache()
        self.storage = ClusterStorage()
        self.interpod = InterPodRules(self.pods, self.nodes, self.namespaces)
        self._assumed: dict[str, str] = {}
        self._assumed_on: dict[str, dict[str, Pod]] = {}
        self.pods.add_index(_BY_NODE, _bound_to)
        self.pods.add_index(_NOMINATED, _nominated_to)
        self.pods.add_handler(self._reconcile)
        self.watches = Watches(
            Reflector(api, PODS, self.pods),
            Reflector(api, NODES, self.nodes),
            Reflector(api, NAMESPACES, self.namespaces),
            Reflector(api, CLAIMS, self.storage.claims),
            Reflector(api, VOLUMES, self.storage.volumes),
            Reflector(api, STORAGE_CLASSES, self.storage.classes),
            Reflector(api, CSI_NODES, self.storage.csi_nodes),
        )

    def node(self, name: str) -> Node | None:
        """Return a node by its name."""
        return self.nodes.get("", name)

    def pods_on(self, node: str) -> Iterator[Pod]:
        """Yield the pods bound to a node or assumed to be, without those that have ended."""
        for pod in self.pods.by_index(_BY_NODE, node):
            if not pod.terminal:
                yield pod
        yield from self._assumed_on.get(node, {}).values()

    def nominated_to(self, node: str) -> list[Pod]:
        """Return the unbound pods for which kube-scheduler keeps room on a node."""
        return self.pods.by_index(_NOMINATED, node)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod on a node from now on, because it is about to be bound there."""
        uid = pod.metadata.uid
        known = self.pods.get_by_uid(uid)
        if known is None or known.spec.node_name:
            return
        self._drop(uid)
        self._assumed[uid] = node
        self._assumed_on.setdefault(node, {})[uid] = pod
        self.interpod.assume(pod, node)

    def forget(self, uid: str, node: str) -> None:
        """Stop counting a pod that is assumed on a node. A pod that is not assumed there is no error."""
        if self._assumed.get(uid) == node:
            self._drop(uid)

    def assumed_node(self, uid: str) -> str | None:
        """Return the node on which a pod is assumed to be."""
        return self._assumed.get(uid)

    def _drop(self, uid: str) -> None:
        node = self._assumed.pop(uid, None)
        if node is not None:
            assumed = self._assumed_on[node]
            del assumed[uid]
            if not assumed:
                del self._assumed_on[node]
            self.interpod.forget(uid)

    def _reconcile(self, change: Change[Pod]) -> None:
        """Drop a pod that the watch shows as bound, deleted or assigned to another node.
        A Binding in flight is refused then.
        """
        if not self._assumed:
            return
        new, uid = change.new, change.obj.metadata.uid
        if (
            new is None
            or new.spec.node_name
            or (uid in self._assumed and _assigned_node(new) != self._assumed[uid])
        ):
            self._drop(uid)


def _assigned_node(pod: Pod) -> str | None:
    try:
        assignment = assignment_of(pod)
    except InvalidAssignment:
        return None
    return assignment.node if assignment is not None else None


def _bound_to(pod: Pod) -> Iterable[Hashable]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _nominated_to(pod: Pod) -> Iterable[Hashable]:
    node = pod.status.nominated_node_name
    return (node,) if node and not pod.spec.node_name and pod.active else ()
