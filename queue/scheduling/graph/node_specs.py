"""The nodes of the cluster as the graph is to hold them, kept up to date by their changes.

A cycle asks for them each time, and a cluster of thousands of nodes changes in few of them between two
cycles. So only nodes that changed are read again: by the watch, by what DaemonSets take of them, or by the
types of ports and volumes that work requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import GraphNodeSpec, Pool
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.cluster.daemonsets import NO_DAEMONSET_REQUESTS, DaemonSetRequests
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools, with_pools

__all__ = ["NodeSpecs", "ToSpec"]

ToSpec = Callable[[Node, Mapping[str, Decimal]], GraphNodeSpec]


class _Known(NamedTuple):
    """What a node was read as."""

    pools: tuple[Pool, ...]
    daemonset_requests: DaemonSetRequests
    spec: GraphNodeSpec


class NodeSpecs:
    """The specification of each node.

    Parameters
    ----------
    nodes
        The cluster's nodes.
    to_spec
        Converts a node for Fluxion, less what DaemonSets take of it.
    foreign
        Knows what DaemonSets take of nodes; None: there are none.
    port_volume_pools
        What nodes have that they do not report.
    """

    def __init__(
        self,
        nodes: ObjectCache[Node],
        to_spec: ToSpec,
        foreign: ForeignPods | None,
        port_volume_pools: PortVolumePools,
    ) -> None:
        self._nodes = nodes
        self._to_spec = to_spec
        self._foreign = foreign
        self._port_volume_pools = port_volume_pools
        self._known: dict[str, _Known] = {}
        self._present: dict[str, GraphNodeSpec] = {}
        self._changed: dict[str, None] = {}
        """Nodes to read again, in the order in which they came: the graph gets them in this order."""
        self._types: frozenset[str] = frozenset()

    def of(self, nodes: Iterable[Node]) -> dict[str, GraphNodeSpec]:
        """Read these nodes now."""
        return {name: known.spec for name, known in self._read(list(nodes)).items()}

    def present(self) -> Mapping[str, GraphNodeSpec]:
        """Return every node by name.
        The answer is never changed; it is the same object as long as no node differs.
        """
        claimed = self._foreign.take_daemonset_changes() if self._foreign is not None else set()
        outdated = self._changed = (
            self._changed | dict.fromkeys(sorted(claimed)) | dict.fromkeys(self._with_other_pools())
        )
        if not outdated:
            return self._present
        nodes = {name: self._nodes.get("", name) for name in outdated}
        found = {
            name: node
            for name, node in nodes.items()
            if node is not None and not node.metadata.deletion_timestamp
        }
        read = self._read(found.values())
        gone = outdated.keys() - found.keys()
        for name in gone:
            self._known.pop(name, None)
        self._known |= read
        different = {
            name: known.spec for name, known in read.items() if known.spec != self._present.get(name)
        }
        if different or not gone.isdisjoint(self._present):
            self._present = {
                name: spec for name, spec in self._present.items() if name not in gone
            } | different
        self._changed, self._types = {}, self._port_volume_pools.types
        return self._present

    def largest_daemon_use(self) -> dict[str, int]:
        """Return the most that DaemonSets take of any node, by type, in the graph's units."""
        most: dict[str, int] = {}
        for claim in {
            id(known.daemonset_requests): known.daemonset_requests for known in self._known.values()
        }.values():
            for kind, amount in claim.counted.items():
                most[kind] = max(most.get(kind, 0), amount)
        return most

    def node_changed(self, change: Change[Node]) -> None:
        """Read a node again before the next match."""
        self._changed[change.obj.metadata.name] = None

    def _with_other_pools(self) -> list[str]:
        """Return the nodes whose pools are not those that they were read with.
        As long as work requests volumes, limits may change.
        """
        if not self._port_volume_pools.types and not self._types:
            return []
        return [
            name for name, known in self._known.items() if known.pools != self._port_volume_pools.pools(name)
        ]

    def _read(self, nodes: Iterable[Node]) -> dict[str, _Known]:
        nodes = list(nodes)
        found = self._foreign.daemonset_requests(nodes) if self._foreign is not None else {}
        read: dict[str, _Known] = {}
        for node in nodes:
            name = node.metadata.name
            requests, pools = found.get(name, NO_DAEMONSET_REQUESTS), self._port_volume_pools.pools(name)
            read[name] = _Known(pools, requests, with_pools(self._to_spec(node, requests.amounts), pools))
        return read
