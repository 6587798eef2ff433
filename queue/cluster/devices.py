"""Devices of nodes and the claims for them, as the watches show them, and how many of each kind a node has
and has left.

A resource that a class of devices stands for is a kind too: a node that does not report it has as much of it
as devices of the class (`fluxqueue.queue.cluster.extended_resources`).

A node has of a kind (`fluxqueue.queue.noderules.device_requests`) as many devices as are selected among the
newest slices of its complete pools. Devices that other nodes reach too count on each of them.

What is allocated counts once. An allocation of the queue has its devices through its slot, from the match on.
A claim of any other pod takes them as foreign pods take ports. Kinds may have devices in common, so a device
that a slot holds as one kind is missing in all other kinds that select it: that too counts as foreign there,
as soon as the scheduler of the cluster has chosen the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from fluxqueue.api.devices import (
    ConsumerReference,
    Device,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from fluxqueue.api.graphnames import display_name, is_device, resource_type
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.cluster.extended_resources import ExtendedResources
from fluxqueue.queue.model.constraints import InexpressibleConstraint
from fluxqueue.queue.noderules.device_counters import SharedCounters, shared_counters
from fluxqueue.queue.noderules.device_requests import (
    DeviceKind,
    DeviceQuery,
    KindKey,
    device_needs,
    key_in,
    kinds_of,
    plain_kind,
)
from fluxqueue.queue.noderules.device_selection import Held, KnownDevice, Selection, select

__all__ = ["ANY_CLAIM", "DEVICE_CLAIMS", "ClusterDevices", "DeviceSource", "sources_used"]

DeviceSource = tuple[str, str, str]
"""Plural of the kind, namespace and name of a claim, or of a template of claims."""
DEVICE_CLAIMS: Final = "resourceclaims"
ANY_CLAIM: Final[DeviceSource] = ("", "", "")
"""Under which every object with claims is indexed."""
_EVERY_NODE: Final = ""
_MOST_ON_NODE: Final = 4_096
"""Devices of a node that are counted."""
_MOST_KINDS: Final = 1_024
_MOST_SELECTED: Final = 1_000_000
_NODE, _POOL, _KIND = "node", "pool", "kind"

Slots = Callable[[str, str], Mapping[str, int]]
"""Uid of a pod, or namespace/name of a PodGroup, and node -> what is booked for the pod, or one of the group,
there, by type.

It is empty for pods that are not the queue's.
"""


def sources_used(namespace: str, spec: PodSpec) -> list[DeviceSource]:
    """Return the claims and templates of claims that a pod names, and `ANY_CLAIM` if there are any."""
    found: list[DeviceSource] = []
    for each in spec.resource_claims or ():
        if each.resource_claim_name:
            found.append((DEVICE_CLAIMS, namespace, each.resource_claim_name))
        elif each.resource_claim_template_name:
            found.append(("resourceclaimtemplates", namespace, each.resource_claim_template_name))
    return [*dict.fromkeys(found), ANY_CLAIM] if found else []


class ClusterDevices:
    """The devices of a cluster.

    Parameters
    ----------
    counted
        True if they are watched.
    find_node
        Returns a node by its name, or None.

    Attributes
    ----------
    extended
        The resources that classes stand for.
    classes, slices, taint_rules, claims, templates
        The watched objects.
    """

    def __init__(
        self, *, counted: bool = False, find_node: Callable[[str], Node | None] = lambda _name: None
    ) -> None:
        self.counted = counted
        self.classes: ObjectCache[DeviceClass] = ObjectCache()
        self.extended = ExtendedResources(self.classes.list, find_node)
        self.slices: ObjectCache[ResourceSlice] = ObjectCache()
        self.taint_rules: ObjectCache[DeviceTaintRule] = ObjectCache()
        self.claims: ObjectCache[ResourceClaim] = ObjectCache()
        self.templates: ObjectCache[ResourceClaimTemplate] = ObjectCache()
        self._kinds: dict[KindKey, DeviceKind] = {}
        """Kinds that were asked for. The tag is a digest of the selection, so none can become another one."""
        self._selected: dict[tuple[str, KindKey], Selection] = {}
        self._counters: dict[str, SharedCounters] = {}
        self._listeners: list[Callable[[frozenset[str] | None], None]] = []
        self.slices.add_index(_NODE, _nodes_of)
        self.slices.add_index(_POOL, lambda each: ((each.spec.driver, each.spec.pool.name),))
        self.claims.add_index(_POOL, ResourceClaim.pools)
        self.claims.add_index(_KIND, lambda claim: kinds_of(claim.spec))
        self.templates.add_index(_KIND, lambda template: kinds_of(template.spec.spec))
        self.slices.add_handler(self._slice_changed)
        self.classes.add_handler(self._class_changed)
        self.taint_rules.add_handler(self._taint_rule_changed)
        self.claims.add_handler(self._claim_changed)

    def subscribe(self, listener: Callable[[frozenset[str] | None], None]) -> None:
        """Call a listener with the nodes that have, or have left, other devices; None: any may."""
        self._listeners.append(listener)

    def device_class(self, name: str) -> DeviceClass | None:
        """Return a class by its name."""
        return self.classes.get("", name)

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """Return a claim by its name."""
        return self.claims.get(namespace, name)

    def is_unallocated(self, namespace: str, name: str) -> bool:
        """True for a claim that exists and has no devices yet."""
        claim = self.claims.get(namespace, name)
        return claim is not None and claim.status.allocation is None

    def template(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        """Return a template of claims by its name."""
        return self.templates.get(namespace, name)

    def of_one_node(self, kinds: Iterable[str]) -> bool:
        """True if no device of these kinds (vertex types) is reached from several nodes."""
        selections = [self._selection(_EVERY_NODE, key_in(kind)) for kind in kinds]
        return not any(selection is not None and selection.devices for selection in selections)

    def capacity(self, node: str, kinds: Iterable[str]) -> dict[str, int]:
        """Return how many devices of each of these kinds (vertex types) a node has;
        without resources that it reports.
        """
        found: dict[str, int] = {}
        for kind, key in self._counted_on(node, kinds).items():
            selection = self._selection(node, key)
            there = selection.left(self._counters_of(node)) if selection is not None else 0
            found[kind] = min(there, 1) if selection is not None and selection.kind.every else there
        return found

    def taken(self, node: str, kinds: Iterable[str], slots: Slots) -> dict[str, int]:
        """Return how many devices of each of these kinds a node has not left, beyond what is booked for
        slots.

        Claims say all that is taken of a resource that devices stand for: its amount is in the answer also
        where it is 0.
        """
        counted = self._counted_on(node, kinds)
        taken = dict.fromkeys((kind for kind in counted if not is_device(kind)), 0)
        held = self._held(node) if counted else {}
        if not held:
            return taken
        booked = {uid: slots(uid, node) for uid in held if uid}
        counters, everything = self._counters_of(node), [each for own in held.values() for each in own]
        for kind, key in counted.items():
            selection = self._selection(node, key)
            if selection is None:
                continue
            there = selection.left(counters)
            used = there - selection.left(counters, everything)
            if selection.kind.every:
                used = min(there, 1) if used else 0
            through_slots = sum(
                min(booked[uid].get(kind, 0), selection.units_of(own)) for uid, own in held.items() if uid
            )
            if used > through_slots:
                taken[kind] = used - through_slots
        return taken

    def shortage(self, node: str, namespace: str, spec: PodSpec) -> str:
        """Return of which devices a node has fewer than a pod needs, whoever has them now; empty if it has
        enough.

        Devices may be tainted or withdrawn after work was matched. Its next pod must then not go to the same
        node.
        """
        kinds = self._wanted(namespace, spec)
        has = self.capacity(node, kinds) if kinds else {}
        short = next((kind for kind, amount in sorted(kinds.items()) if has.get(kind, amount) < amount), "")
        return f"node {node} has too few {display_name(short)}" if short else ""

    def gives_shares(self, node: str, namespace: str, spec: PodSpec) -> bool:
        """True if a pod may get a share of a device of a node, and not a device alone."""
        keys = self._counted_on(node, self._wanted(namespace, spec)).values()
        return any(
            selection is not None and selection.shared
            for selection in (self._selection(node, key) for key in keys)
        )

    def _wanted(self, namespace: str, spec: PodSpec) -> dict[str, int]:
        """Return how many devices of each kind (vertex type) a pod needs; none if that cannot be read."""
        if not spec.resource_claims and not self.extended.types:
            return {}
        try:
            wanted = Counter(
                {name: int(amount) for name, amount in device_needs(spec, namespace, self).requests.items()}
            )
            wanted.update(
                {name: int(amount) for name, amount in pod_requests(spec).items() if name in self.extended}
            )
        except (InvalidRequest, InexpressibleConstraint):
            return {}
        return {resource_type(name): amount for name, amount in wanted.items()}

    # ---- devices of a node ---------------------------------------------------------------------------------

    def _counted_on(self, node: str, kinds: Iterable[str]) -> dict[str, KindKey]:
        """Return class and tag of those vertex types that are devices on a node."""
        kinds = [*kinds]
        found = {kind: key_in(kind) for kind in kinds if is_device(kind)}
        return found | {
            kind: DeviceKind((DeviceQuery(self.extended.class_of(kind)),)).key
            for kind in self.extended.served(node, kinds)
        }

    def _kind(self, key: KindKey) -> DeviceKind | None:
        """Return a kind: by its name, or from a claim or template that asks for it."""
        known = self._kinds.get(key) or plain_kind(key)
        if known is None:
            specs = [each.spec.spec for each in self.templates.by_index(_KIND, key)] or [
                each.spec for each in self.claims.by_index(_KIND, key)
            ]
            known = kinds_of(specs[0])[key] if specs else None
        if known is not None:
            if key not in self._kinds and len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[key] = known
        return known

    def _selection(self, node: str, key: KindKey) -> Selection | None:
        """Return the devices of a kind that a node has; None if nothing says what the kind is."""
        known = self._selected.get((node, key))
        if known is None and (kind := self._kind(key)) is not None:
            classes = {query.device_class: self.device_class(query.device_class) for query in kind.queries}
            if len(self._selected) >= _MOST_SELECTED:
                self._selected.clear()
            known = self._selected[node, key] = select(kind, self._devices(node), classes)
        return known

    def _counters_of(self, node: str) -> SharedCounters:
        """Return what devices of a node share."""
        known = self._counters.get(node)
        if known is None:
            known = self._counters[node] = shared_counters(self._slices(node))
        return known

    def _slices(self, node: str) -> Iterator[ResourceSlice]:
        """Yield the slices with devices of a node and those that every node reaches,
        as far as their pools are complete.
        """
        of_node = (*self.slices.by_index(_NODE, node), *self.slices.by_index(_NODE, _EVERY_NODE))
        return (each for each in of_node if self._is_current(each))

    def _devices(self, node: str) -> Iterator[KnownDevice]:
        """Yield the devices of a node."""
        number = 0
        for each in self._slices(node):
            spec = each.spec
            for device in spec.devices or ():
                if device.node_name in (None, "", node) and (number := number + 1) <= _MOST_ON_NODE:
                    yield KnownDevice(
                        spec.driver, spec.pool.name, self._with_taints(spec.driver, spec.pool.name, device)
                    )

    def _with_taints(self, driver: str, pool: str, device: Device) -> Device:
        """Return a device with the taints that rules give it."""
        added = [
            rule.spec.taint for rule in self.taint_rules.list() if rule.taints(driver, pool, device.name)
        ]
        return msgspec.structs.replace(device, taints=[*(device.taints or ()), *added]) if added else device

    def _is_current(self, each: ResourceSlice) -> bool:
        """True if a slice is of the newest generation of its pool, and all slices of that are there."""
        pool = each.spec.pool
        of_pool = [other.spec.pool for other in self.slices.by_index(_POOL, (each.spec.driver, pool.name))]
        newest = max(other.generation for other in of_pool)
        return (
            pool.generation == newest
            and sum(other.generation == newest for other in of_pool) == pool.resource_slice_count
        )

    def _held(self, node: str) -> dict[str, list[Held]]:
        """Return the allocated devices of a node by the uid of the pod that has them; empty: no pod does."""
        slices = (*self.slices.by_index(_NODE, node), *self.slices.by_index(_NODE, _EVERY_NODE))
        held: dict[str, list[Held]] = {}
        for pool in {(each.spec.driver, each.spec.pool.name) for each in slices}:
            for claim in self.claims.by_index(_POOL, pool):
                uid = next(
                    filter(
                        None,
                        (_user(each, claim.metadata.namespace) for each in claim.status.reserved_for or ()),
                    ),
                    "",
                )
                devices = [each for each in claim.allocated if (each.driver, each.pool) == pool]
                held.setdefault(uid, []).extend(
                    Held((each.driver, each.pool, each.device), each.amounts) for each in devices
                )
        return held

    # ---- changes -------------------------------------------------------------------------------------------

    def _slice_changed(self, change: Change[ResourceSlice]) -> None:
        pools = {
            (each.spec.driver, each.spec.pool.name) for each in (change.old, change.new) if each is not None
        }
        of_pools = [each for pool in pools for each in self.slices.by_index(_POOL, pool)]
        nodes = {
            node for each in (*of_pools, *filter(None, (change.old, change.new))) for node in _nodes_of(each)
        }
        self._forget(None if _EVERY_NODE in nodes else frozenset(nodes))

    def _class_changed(self, change: Change[DeviceClass]) -> None:
        self.extended.refresh(change)
        self._forget(None)

    def _taint_rule_changed(self, change: Change[DeviceTaintRule]) -> None:
        """Select again, unless only the status changed: it says how many pods are evicted."""
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._forget(None)

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        """Tell that other devices are allocated: heartbeats and new claims without devices change nothing."""
        old, new = (
            () if each is None else (each.allocated, each.status.reserved_for)
            for each in (change.old, change.new)
        )
        if old == new:
            return
        pools = {pool for each in (change.old, change.new) if each is not None for pool in each.pools()}
        nodes = {
            node for pool in pools for each in self.slices.by_index(_POOL, pool) for node in _nodes_of(each)
        }
        if nodes:
            self._tell(None if _EVERY_NODE in nodes else frozenset(nodes))

    def _forget(self, nodes: frozenset[str] | None) -> None:
        """Have the devices of nodes selected again."""
        gone = [known for known in self._selected if nodes is None or known[0] in nodes]
        for known in gone:
            del self._selected[known]
        self._counters = (
            {}
            if nodes is None
            else {name: known for name, known in self._counters.items() if name not in nodes}
        )
        self._tell(nodes)

    def _tell(self, nodes: frozenset[str] | None) -> None:
        for listener in self._listeners:
            listener(nodes)


def _user(each: ConsumerReference, namespace: str) -> str:
    """Return who uses a claim, as `Slots` takes it; empty: nobody whose slot can be known."""
    if each.resource == "pods":
        return each.uid
    return f"{namespace}/{each.name}" if each.resource == "podgroups" else ""


def _nodes_of(each: ResourceSlice) -> Iterable[str]:
    """Return the nodes whose devices a slice has; `_EVERY_NODE` for devices that several nodes reach."""
    if each.spec.node_name:
        return (each.spec.node_name,)
    counts = Counter(device.node_name or _EVERY_NODE for device in each.spec.devices or ())
    return tuple(counts) or (_EVERY_NODE,)
