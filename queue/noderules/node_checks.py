"""Why a node does not take a pod at present: what the stock scheduler would check, read from the objects.

The matcher decides about nodes ahead of time, on the graph. Before a pod is bound, somebody may drain, taint,
relabel or fill the node. A slot that a pod has left may also be on such a node. So a caller that is about to
put a pod on a node that was granted a while ago checks here first. An empty answer is no guarantee: the
scheduler decides.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final

import msgspec

from fluxqueue.api.disks import conflicting_disk
from fluxqueue.api.graphnames import POD_SLOTS
from fluxqueue.api.hostports import conflicting_port
from fluxqueue.api.nodes import Node, Taint
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.requests import InvalidRequest, pod_requests, pod_usage
from fluxqueue.api.storedjson import plain
from fluxqueue.api.taints import HARD_EFFECTS, effective_taints, tolerates
from fluxqueue.queue.noderules.node_selection import selects

__all__ = ["closed", "node_rules", "obstacle", "room_left", "room_wanted", "without_pin"]

_CORDON = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")


def closed(node: Node | None, spec: PodSpec, *, lagging: bool = False) -> str:
    """Return why a node takes no pod of this spec, of any size; empty if it may.

    Parameters
    ----------
    node
        As it is now; None if it does not exist.
    spec
        Of the pod or its template, without our pin.
    lagging
        True if taints for a cordoned or failed node count for as long as the node has them, as they do for
        the scheduler. Such a taint may stay on a node for a moment after its cause is gone, so planning ahead
        leaves them out.
    """
    if node is None:
        return "the node does not exist"
    name = node.metadata.name
    if node.metadata.deletion_timestamp:
        return f"node {name} is being deleted"
    if not node.status.ready:
        return f"node {name} is not ready"
    if node.spec.unschedulable and not _tolerated(_CORDON, spec):
        return f"node {name} is cordoned"
    taints = effective_taints(node) | frozenset(node.spec.taints or () if lagging else ())
    for taint in sorted(taints, key=lambda taint: taint.key):
        if taint.effect in HARD_EFFECTS and not _tolerated(taint, spec):
            return (
                f"node {name} has the taint {taint.key}={taint.value}:{taint.effect}, "
                "which the pod does not tolerate"
            )
    return (
        ""
        if selects(spec, name, node.metadata.labels or {})
        else f"node {name} does not have the labels that the pod requires"
    )


def node_rules(spec: PodSpec) -> bytes:
    """Return all that `closed` reads of a pod: equal for pods that the same nodes take."""
    return msgspec.json.encode((spec.node_selector, spec.affinity, spec.tolerations), enc_hook=plain)


def obstacle(
    node: Node | None,
    spec: PodSpec,
    present: Iterable[Pod],
    *,
    lagging: bool = False,
    from_devices: Container[str] = (),
) -> str:
    """Return why a node does not take a pod of this spec now; empty if it may.

    Parameters
    ----------
    node, spec, lagging
        As for `closed`.
    present
        Pods that are bound to the node, without the pod in question.
    from_devices
        Resources that devices stand for on nodes that do not report them; they are not checked there.
    """
    reason = closed(node, spec, lagging=lagging)
    if reason or node is None:
        return reason
    name = node.metadata.name
    running = [pod for pod in present if not pod.terminal]
    if (port := conflicting_port(spec, (pod.spec for pod in running))) is not None:
        return f"port {port.number}/{port.protocol} of node {name} is taken"
    try:
        short = _short(node, spec, running, from_devices)
    except InvalidRequest as error:
        return str(error)
    if short:
        return f"node {name} has too little {short} left"
    disk = conflicting_disk(spec, (pod.spec for pod in running))
    return (
        f"the disk of volume {disk!r} is in use by another pod of node {name}, and is not for two"
        if disk
        else ""
    )


def without_pin(spec: PodSpec) -> PodSpec:
    """Return the spec of a released pod as it was before the release:
    without rules about the name of its node.
    """
    required = ((spec.affinity or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = [
        {key: value for key, value in term.items() if key != "matchFields"}
        for term in required.get("nodeSelectorTerms") or ()
    ]
    kept = [term for term in terms if term]
    affinity = (
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": kept}}}
        if kept
        else None
    )
    return msgspec.structs.replace(spec, affinity=affinity)


def room_wanted(spec: PodSpec) -> dict[str, int]:
    """Return what a pod requests of a node, in the scheduler's units: millicores, bytes and pieces, and one
    of the node's pods.

    Raises
    ------
    InvalidRequest
        A quantity that cannot be read.
    """
    return {**_units(pod_requests(spec)), POD_SLOTS: 1}


def room_left(node: Node, present: Collection[Pod], resources: Iterable[str]) -> dict[str, int]:
    """Return what pods leave free of a node, in the units of `room_wanted`."""
    allocatable = node.status.allocatable or {}
    left = {resource: _capacity(resource, allocatable) for resource in resources}
    for pod in present:
        for resource, amount in _USAGE.of(pod).items():
            if resource in left:
                left[resource] -= amount
    if POD_SLOTS in left:
        left[POD_SLOTS] -= len(present)
    return left


def _short(node: Node, spec: PodSpec, present: Collection[Pod], from_devices: Container[str]) -> str:
    """Return the first resource of which bound pods leave a node less than a pod requests; empty if it has
    enough.

    Counted as NodeResourcesFit does: whole millicores, bytes and pieces. A resource that the pod does not
    request is not checked. Each pod takes one of the node's pods.
    """
    allocatable = node.status.allocatable or {}
    wanted = room_wanted(spec)
    wanted = {
        each: amount
        for each, amount in wanted.items()
        if each not in from_devices or _capacity(each, allocatable)
    }
    left = room_left(node, present, wanted)
    if left[POD_SLOTS] < 1:
        return POD_SLOTS
    return next((resource for resource, amount in sorted(wanted.items()) if amount > left[resource]), "")


def _capacity(resource: str, allocatable: Mapping[str, str | int | float]) -> int:
    """Return what a node has of a resource; a quantity that cannot be read counts as nothing."""
    try:
        return _whole(resource, parse_quantity(allocatable.get(resource, 0)))
    except InvalidQuantity:
        return 0


def _units(amounts: Mapping[str, Decimal]) -> dict[str, int]:
    return {resource: _whole(resource, amount) for resource, amount in amounts.items()}


def _whole(resource: str, amount: Decimal) -> int:
    """Return an amount in the scheduler's unit: millicores or pieces, rounded up for nodes and pods alike."""
    return int((amount * 1000 if resource == "cpu" else amount).to_integral_value(ROUND_CEILING))


class _Usage:
    """What pods hold of their nodes, computed once for each state of a pod."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, tuple[Pod, dict[str, int]]] = {}

    def of(self, pod: Pod) -> Mapping[str, int]:
        """Return what a bound pod holds."""
        uid = pod.metadata.uid
        known = self._known.get(uid)
        if known is None or known[0] is not pod:
            if len(self._known) >= self._most:
                self._known.clear()
            known = self._known[uid] = pod, _units(pod_usage(pod))
        return known[1]


_USAGE: Final = _Usage(50_000)


def _tolerated(taint: Taint, spec: PodSpec) -> bool:
    return any(tolerates(toleration, taint) for toleration in spec.tolerations or ())
