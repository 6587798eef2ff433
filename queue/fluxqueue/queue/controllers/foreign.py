"""What runs on nodes without us, or is about to: pods of other schedulers, of unmanaged namespaces, of DaemonSets.

Fluxion holds one system allocation per node of their size, set anew whenever a pod that is not ours is bound, ends or changes, so that it
never grants what somebody else already has. Their requests are summed before they are rounded up, once for the node. A bound pod counts
once: ours carries a live allocation that names its node and counts through its slot, everything else counts here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import structlog

from fluxqueue.api import names
from fluxqueue.api.graphnames import POD_SLOTS
from fluxqueue.api.objects import Pod, PodSpec
from fluxqueue.api.requests import InvalidRequest, pod_requests, summed
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.kube.store import Change, Store
from fluxqueue.queue.jobspecs import slot_resources
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import FluxionJobId, SlotState

__all__ = ["ForeignPods"]

log = structlog.get_logger()

_BY_NODE = "node"

Daemons = Callable[[str, Sequence[str]], Sequence[PodSpec]]


class ForeignPods:
    """Sums of foreign pods by node, and which of them changed.

    Parameters
    ----------
    pods
        All pods of the cluster.
    ledger
        Whose allocations make a pod ours.
    daemons
        What DaemonSets are still to put on a node, given those (uids) that have a pod there.
    """

    def __init__(self, pods: Store[Pod], ledger: Ledger, daemons: Daemons | None = None) -> None:
        self._daemons = daemons
        self._pods = pods
        self._ledger = ledger
        self._changed: set[str] = set()
        self._listener: Callable[[], None] | None = None
        pods.add_index(_BY_NODE, _node_of)
        pods.add_handler(self._note)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener when a node's sum may have changed."""
        self._listener = listener

    def take_changed(self) -> set[str]:
        """Nodes whose sum may have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def recount(self, nodes: Iterable[str]) -> None:
        """What counts as foreign on these nodes may be another thing now, although no pod changed."""
        self._changed.update(nodes)

    def shares(self, nodes: Iterable[str]) -> list[NodeShare]:
        """What foreign pods have on these nodes, in the graph's units; nothing is said as no amounts."""
        return [NodeShare(node=node, amounts=self._amounts(node)) for node in nodes]

    def _note(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _weight(old) == _weight(new):
            return
        for pod in (old, new):
            if pod is not None and pod.spec.node_name and not self._is_ours(pod):
                self._changed.add(pod.spec.node_name)
        if self._changed and self._listener is not None:
            self._listener()

    def _amounts(self, node: str) -> dict[str, int]:
        here = [pod for pod in self._pods.by_index(_BY_NODE, node) if not pod.terminal]
        running = [pod for pod in here if not self._is_ours(pod)]
        owners = [owner.uid for pod in here if (owner := pod.metadata.controller) is not None and owner.kind == "DaemonSet"]
        specs = [(f"{pod.metadata.namespace}/{pod.metadata.name}", pod.spec) for pod in running]
        specs += [("of a DaemonSet", spec) for spec in (self._daemons(node, owners) if self._daemons is not None else ())]
        if not specs:
            return {}
        requests = []
        for name, spec in specs:
            try:
                requests.append(pod_requests(spec))
            except InvalidRequest as error:
                log.warning("a foreign pod's request cannot be read", pod=name, node=node, error=str(error))
        return {**slot_resources(summed(requests)), POD_SLOTS: len(specs)}

    def _is_ours(self, pod: Pod) -> bool:
        text = pod.metadata.annotation(names.ALLOCATION_ANNOTATION) or ""
        allocation = self._ledger.holding(FluxionJobId(int(text))) if text.isdecimal() and len(text) < 19 else None
        return allocation is not None and any(
            slot.node == pod.spec.node_name and slot.state is not SlotState.ENDED for slot in allocation.slots
        )


def _node_of(pod: Pod) -> Iterable[Hashable]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _weight(pod: Pod) -> tuple[object, ...]:
    """All that a pod's weight on its node depends on."""
    spec = pod.spec
    return spec.node_name, pod.terminal, spec.containers, spec.init_containers, spec.resources, spec.overhead
