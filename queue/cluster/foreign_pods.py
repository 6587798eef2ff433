"""What runs on nodes without the queue, and what pods of the queue request beyond their slots.

Fluxion holds one system allocation per node with these amounts. It is set again whenever a pod that is not
the queue's is bound, ends or changes, so that Fluxion never grants what another pod has. The requests of a
node are summed before they are rounded up, once per node. Host ports count if work of the queue requests the
same ports. Volumes count if their driver limits them per node. Devices count if a claim has them that no slot
has booked. Where devices stand for a resource, claims say what is taken of it, and requests of pods do not
count.

A bound pod counts once. It is the queue's if a live allocation has a slot for it on its node: the slot names
the pod by its uid, or the slot is free and the pod is the workload's own, or is controlled by the Job of the
workload, in the workload's namespace. Keys that somebody copied onto another pod change nothing, and no more
pods count as the queue's than there are slots. The queue's pods count through their slots. If a pod requests
more than its slot (a sidecar added after admission, a resize in place), only the difference counts here. Pods
of DaemonSets are subtracted from what the node has (`fluxqueue.queue.cluster.daemonsets`), except for their
ports and volumes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from time import thread_time

import structlog

from fluxqueue.api import names
from fluxqueue.api.bounds import MAX_BYTES, MAX_CPUS
from fluxqueue.api.graphnames import POD_SLOTS, is_countable, resource_name
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.requests import InvalidRequest, pod_requests, pod_usage, sum_requests
from fluxqueue.fluxion.graph.nodes import unit_of
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.cluster.daemonsets import DaemonSetRequests, DaemonSets, daemonset_requests
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools, ports_taken
from fluxqueue.queue.model.jobids import parse_jobid
from fluxqueue.queue.model.jobspecs import sizes_in, slot_resources, taken_once_in
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Slot, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ForeignPods"]

log = structlog.get_logger()

_BY_NODE = "node"
_BY_SLOTS = "slots"
"""Pods that have not ended, by the node they are bound to and the allocation they name."""

Volumes = Callable[[Sequence[Pod]], Mapping[str, int]]
DevicesTaken = Callable[[str, frozenset[str], Callable[[str, str], Mapping[str, int]]], Mapping[str, int]]

_ALL_OF_A_NODE = {"cpu": Decimal(MAX_CPUS), "memory": Decimal(MAX_BYTES)}
"""Request of a pod that requests more than any pod may."""
_MAX_SIZES = 10_000
_TURN_S = 0.05
"""CPU time after which other work has its turn."""


class ForeignPods:
    """Sums of foreign pods by node, and which sums changed.

    Parameters
    ----------
    pods
        All pods of the cluster.
    ledger
        The workloads, whose slots decide which pods are the queue's.
    daemons
        The DaemonSets of the cluster.
    countables
        Which ports and volume drivers are in the graph.
    volumes
        Returns how many volumes the pods of one node have, by the driver's type.
    devices
        Returns how many devices of these types a node has not left, beyond what is booked for pods (uid and
        node).
    """

    def __init__(
        self,
        pods: ObjectCache[Pod],
        ledger: Ledger,
        daemons: DaemonSets | None = None,
        port_volume_pools: PortVolumePools | None = None,
        volumes: Volumes | None = None,
        devices: DevicesTaken | None = None,
    ) -> None:
        self._daemons = daemons
        self._port_volume_pools = port_volume_pools or PortVolumePools(ledger)
        self._volumes = volumes
        self._devices = devices
        self._pods = pods
        self._ledger = ledger
        self._changed: set[str] = set()
        self._claims_changed: set[str] = set()
        self._capped: set[str] = set()
        """Nodes to which more DaemonSet pods are to come than fit now:
        any change there may make room for them."""
        self._contested: set[str] = set()
        """Nodes with a pod that counts as foreign for want of a slot:
        it gets one when another pod goes, or a slot is stored."""
        self._alike: dict[tuple[FluxionJobId, str], tuple[object, Mapping[str, int]]] = {}
        """Request of the last pod of each slot size: most pods of one workload are alike."""
        self._listener: Callable[[], None] | None = None
        pods.add_index(_BY_NODE, _node_of)
        pods.add_index(_BY_SLOTS, _slots_named_by)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener when a node's sum may have changed."""
        self._listener = listener

    def take_changed(self) -> set[str]:
        """Return the nodes whose sum may have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def take_daemonset_changes(self) -> set[str]:
        """Return the nodes of which DaemonSets may take another amount since the last call."""
        changed, self._claims_changed = self._claims_changed, set()
        return changed

    def recount(self, nodes: Iterable[str]) -> None:
        """Count these nodes again: what is foreign there may have changed, although no pod did."""
        nodes = set(nodes)
        self._changed |= nodes
        self._claims_changed |= nodes & self._capped

    def recount_daemonsets(self, nodes: Iterable[str]) -> None:
        """Count the DaemonSets of these nodes again, although no pod changed."""
        nodes = set(nodes)
        self._changed |= nodes
        self._claims_changed |= nodes

    def shares(self, nodes: Iterable[str]) -> list[NodeShare]:
        """Return what foreign pods have on these nodes, in the graph's units;
        a share without amounts if they have nothing.
        """
        return [NodeShare(node=node, amounts=self._amounts(node)) for node in nodes]

    async def shares_in_turns(self, nodes: Iterable[str]) -> list[NodeShare]:
        """Return the same, while other work goes on.

        Thousands of pods may be bound to one node, and each claim of devices that all nodes reach counts on
        each of them.
        """
        found: list[NodeShare] = []
        began = thread_time()
        for node in nodes:
            found += self.shares([node])
            if thread_time() - began > _TURN_S:
                await asyncio.sleep(0)
                began = thread_time()
        return found

    def daemonset_requests(self, nodes: Iterable[Node]) -> dict[str, DaemonSetRequests]:
        """Return what DaemonSets take of these nodes, by name;
        without the nodes of which they take nothing.
        """
        if self._daemons is None:
            return {}
        found: dict[str, DaemonSetRequests] = {}
        booked: dict[str, Counter[str]] | None = None
        for node in nodes:
            name = node.metadata.name
            standing, rest, ours = self._sorted(name)
            coming = self._daemons.coming(node, standing)
            used: Mapping[str, Decimal] = {}
            if coming:
                booked = self._booked() if booked is None else booked
                used = _used(rest, ours, booked.get(name, Counter()))
            claim = daemonset_requests(node, standing.values(), coming, used)
            (self._capped.add if claim.capped else self._capped.discard)(name)
            if claim.amounts:
                found[name] = claim
        return found

    # ---- events --------------------------------------------------------------------------------------------

    def pod_changed(self, change: Change[Pod]) -> None:
        """Count a node again if a pod of it came, went, or takes other amounts."""
        old, new = change.old, change.new
        if old is not None and new is not None and _amounts_key(old) == _amounts_key(new):
            return
        for pod in (old, new):
            if pod is None or not (node := pod.spec.node_name):
                continue
            if self._daemons is not None and (node in self._capped or self._daemons.owns(pod)):
                self.recount_daemonsets((node,))
            elif node in self._contested or self._takes_more(pod):
                self._changed.add(node)
        if self._changed and self._listener is not None:
            self._listener()

    def _takes_more(self, pod: Pod) -> bool:
        """True if a pod takes something of its node that no slot counts."""
        return bool(
            pod.spec.resource_claims or (counted := self._slot_of(pod)) is None or self._beyond(pod, *counted)
        )

    def slots_changed(self, workload: WorkloadId) -> None:
        """Count nodes again on which a pod may have got its slot."""
        allocation = self._ledger.allocation(workload) if self._contested else None
        nodes = self._contested.intersection(allocation.open_nodes) if allocation is not None else set()
        if nodes:
            self._changed |= nodes
            if self._listener is not None:
                self._listener()

    # ---- whose a pod is ------------------------------------------------------------------------------------

    def _here(self, node: str | None) -> list[Pod]:
        return [pod for pod in self._pods.by_index(_BY_NODE, node) if not pod.terminal]

    def _sorted(self, node: str) -> tuple[dict[str, Pod], list[Pod], list[Mapping[str, int]]]:
        """Return the pods on a node: those of DaemonSets, the other foreign ones,
        and what the queue's pods request beyond their slots.
        """
        here = self._here(node)
        ours = self._ours(here)
        standing = (
            self._daemons.standing(pod for pod in here if pod.metadata.uid not in ours)
            if self._daemons is not None
            else {}
        )
        owned = {pod.metadata.uid for pod in standing.values()}
        rest = [pod for pod in here if pod.metadata.uid not in ours and pod.metadata.uid not in owned]
        beyond = [
            more
            for pod in here
            if (counted := ours.get(pod.metadata.uid)) is not None and (more := self._beyond(pod, *counted))
        ]
        return standing, rest, beyond

    def _slot_of(self, pod: Pod) -> tuple[Allocation, Slot] | None:
        """Return the slot through which a pod counts, or None."""
        allocation = self._held_by(pod)
        if allocation is None:
            return None
        slots = _slots_for(pod, allocation)
        if slots and slots[0].pod_uid == pod.metadata.uid:
            return allocation, slots[0]
        beside = self._pods.by_index(_BY_SLOTS, (pod.spec.node_name, allocation.jobid))
        if slots and len(beside) <= len(slots) and len(allocation.labels) == 1 and not pod.terminal:
            return allocation, slots[0]  # there are slots for all of them, and all slots are alike
        return self._ours(beside).get(pod.metadata.uid)

    def _ours(self, here: Iterable[Pod]) -> dict[str, tuple[Allocation, Slot]]:
        """Return the pods (by uid) that count through a slot.
        Each slot counts for one pod, and first for the pod that it names.
        """
        found: dict[str, tuple[Allocation, Slot]] = {}
        left: dict[tuple[Slot, ...], Iterator[Slot]] = {}
        held = [(pod, allocation) for pod in here if (allocation := self._held_by(pod)) is not None]
        for pod, allocation in sorted(held, key=lambda item: item[0].metadata.uid not in item[1].pod_uids):
            slots = _slots_for(pod, allocation)
            slot = next(left.setdefault(slots[:1], iter(slots)), None)
            if slot is not None:
                found[pod.metadata.uid] = allocation, slot
        return found

    def _held_by(self, pod: Pod) -> Allocation | None:
        """Return the live allocation that a pod's annotation names, if the pod can belong to it."""
        jobid = _jobid_of(pod)
        allocation = self._ledger.allocation_of_job(jobid) if jobid is not None else None
        workload = self._ledger.get(allocation.workload) if allocation is not None else None
        if allocation is None or workload is None or workload.namespace != pod.metadata.namespace:
            return None
        owner, uid = pod.metadata.controller, pod.metadata.uid
        owned = uid == workload.uid or (
            owner is not None and owner.kind == "Job" and owner.uid == workload.uid
        )
        return allocation if owned or uid in allocation.pod_uids else None

    # ---- sums ----------------------------------------------------------------------------------------------

    def _amounts(self, node: str) -> dict[str, int]:
        standing, rest, beyond = self._sorted(node)
        contested = any(self._held_by(pod) is not None for pod in rest)
        (self._contested.add if contested else self._contested.discard)(node)
        amounts: Counter[str] = Counter()
        if rest:
            amounts.update(
                {**slot_resources(sum_requests(_request(pod) for pod in rest)), POD_SLOTS: len(rest)}
            )
        for more in beyond:
            amounts.update(more)
        if types := self._port_volume_pools.types:
            coming = self._daemons.coming_to(node, standing) if self._daemons is not None else []
            foreign = [*rest, *standing.values()]
            amounts.update(ports_taken([*(pod.spec for pod in foreign), *coming], types))
            volumes = self._volumes(foreign) if self._volumes is not None else {}
            amounts.update({kind: count for kind, count in volumes.items() if kind in types})
        if self._devices is None:
            return dict(amounts)
        devices = self._port_volume_pools.devices
        taken = self._devices(node, devices | amounts.keys(), self._booked_for)
        return {
            kind: amount
            for kind, amount in ({**amounts, **taken}).items()
            if kind not in taken or (amount and kind in devices)
        }

    def _booked_for(self, user: str, node: str) -> Mapping[str, int]:
        """Return what a slot on a node has booked for a pod, which may not be bound yet,
        or for one of a PodGroup; empty if it has none.
        """
        of_group = self._here(node) if "/" in user else ()
        pod = self._pods.get_by_uid(user) or next(
            (each for each in of_group if _group_named_by(each) == user), None
        )
        allocation = self._held_by(pod) if pod is not None else None
        if pod is None or allocation is None:
            return {}
        slot = next(iter(allocation.open_slots_for(pod.metadata.uid, node)), None)
        if slot is None:
            return {}
        workload = self._ledger.get(allocation.workload)
        return Counter(self._size(allocation, slot)) + Counter(
            taken_once_in(workload.jobspec) if workload is not None else {}
        )

    def _beyond(self, pod: Pod, allocation: Allocation, slot: Slot) -> Mapping[str, int]:
        """Return what a pod requests beyond its slot, in the graph's units."""
        key, asked = (slot.jobid, slot.label), _asked(pod)
        known = self._alike.get(key)
        if known is None or known[0] != asked:
            if len(self._alike) >= _MAX_SIZES:
                self._alike.clear()
            known = self._alike[key] = asked, slot_resources(_request(pod))
        size = self._size(allocation, slot)
        return {
            kind: amount - size.get(kind, 0)
            for kind, amount in known[1].items()
            if amount > size.get(kind, 0)
        }

    def _size(self, allocation: Allocation, slot: Slot) -> Mapping[str, int]:
        """Return what is booked for a slot."""
        share = allocation.share_on(slot.node)
        if share is not None and len(share.slots) == 1:
            places = max(share.slots.get(slot.label, 1), 1)
            return {kind: amount // places for kind, amount in share.amounts.items()}
        workload = self._ledger.get(allocation.workload)
        return sizes_in(workload.jobspec).get(slot.label, {}) if workload is not None else {}

    def _booked(self) -> dict[str, Counter[str]]:
        """Return what the open slots of live allocations take of each node, in the graph's units."""
        booked: dict[str, Counter[str]] = {}
        for _, allocation in self._ledger.live():
            open_slots = Counter(slot.node for slot in allocation.open_slots)
            for share in allocation.shares:
                places, left = max(sum(share.slots.values()), 1), open_slots[share.node]
                for kind, amount in share.amounts.items():
                    booked.setdefault(share.node, Counter())[kind] += amount * min(left, places) // places
        return booked


def _jobid_of(pod: Pod) -> FluxionJobId | None:
    return parse_jobid(pod.metadata.annotation(names.ALLOCATION_ANNOTATION))


def _group_named_by(pod: Pod) -> str:
    """Return namespace and name of the PodGroup that a pod names; empty if it names none."""
    group = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else None
    return f"{pod.metadata.namespace}/{group}" if group else ""


def _slots_for(pod: Pod, allocation: Allocation) -> tuple[Slot, ...]:
    return allocation.open_slots_for(pod.metadata.uid, pod.spec.node_name)


def _used(
    rest: Sequence[Pod], beyond: Iterable[Mapping[str, int]], booked: Counter[str]
) -> dict[str, Decimal]:
    """Return what of a node is not free for DaemonSets, in base units."""
    ours = Counter(booked)
    for more in beyond:
        ours.update(more)
    amounts = {
        resource_name(kind): amount * unit_of(resource_name(kind))
        for kind, amount in ours.items()
        if not is_countable(kind)
    }
    return sum_requests([amounts, {POD_SLOTS: Decimal(len(rest))}, *(_request(pod) for pod in rest)])


def _request(pod: Pod) -> dict[str, Decimal]:
    """Return what a pod requests, or has while it is resized in place, as the scheduler counts it; a pod that
    requests more than any pod may fills its node.
    """
    try:
        requested = pod_requests(pod.spec)
    except InvalidRequest as error:
        log.warning("pod.request_unreadable", error=str(error))
        return dict(_ALL_OF_A_NODE)
    return pod_usage(pod) if _in_effect(pod) else requested


def _node_of(pod: Pod) -> Iterable[Hashable]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _slots_named_by(pod: Pod) -> Iterable[Hashable]:
    jobid = _jobid_of(pod)
    return (
        ((pod.spec.node_name, jobid),)
        if jobid is not None and pod.spec.node_name and not pod.terminal
        else ()
    )


def _asked(pod: Pod) -> tuple[object, ...]:
    """Return what the amounts of a pod depend on, on any node."""
    spec = pod.spec
    return spec.containers, spec.init_containers, spec.resources, spec.overhead, _in_effect(pod)


def _in_effect(pod: Pod) -> tuple[object, ...]:
    """Return what its node says of its resources; empty if it says nothing."""
    status = pod.status
    said = [
        (each.name, each.resources, each.allocated_resources)
        for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        if each.resources is not None
    ]
    if not said and status.resources is None:
        return ()
    pending = status.condition("PodResizePending")
    return said, status.resources, status.allocated_resources, pending.reason if pending is not None else ""


def _amounts_key(pod: Pod) -> tuple[object, ...]:
    """Return everything that a pod's amounts on its node depend on."""
    return pod.spec.node_name, pod.terminal, *_asked(pod), pod.spec.host_network
