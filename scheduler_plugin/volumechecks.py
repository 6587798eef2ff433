"""What has to be done about the volumes of a pod before it can run on one particular node.

These are pure functions that follow VolumeBinding, VolumeZone and NodeVolumeLimits of kube-scheduler
(Kubernetes 1.30 to 1.36), for one node. For claims that have their volume they check whether it is reachable
from the node. Claims of a StorageClass with ``WaitForFirstConsumer`` are decided now: the smallest free
volume that fits, or a volume to be provisioned for the node. Obstacles that another node would not remove (a
claim that is missing, or unbound with immediate binding) are waited for. All others refuse the node.

The free capacity of a storage system (CSIStorageCapacity) and VolumeAttachments without a pod are not read. A
provisioner without capacity removes the selected node from the claim again, and the kubelet waits for the
attachment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod, PodVolume
from fluxqueue.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.kube.kinds import Key
from fluxqueue.queue.noderules.node_selection import meets_terms
from fluxqueue.queue.noderules.ready_volumes import claim_size, free_volumes, kept_volume
from fluxqueue.queue.noderules.volumes import ZONE_LABELS, ZONES_BETWEEN, Storage

__all__ = ["ClaimPlan", "claim_keys", "full_driver", "plan_claims"]

_SHARED_MODES: Final = ("ReadWriteMany", "ReadOnlyMany")


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """The steps for the claims of a pod on one node.

    Attributes
    ----------
    refused
        Why this node cannot be used, in a sentence; empty if it can.
    waits
        What others have to do first, in a sentence; empty if there is nothing to wait for.
    bindings
        Claims and the volumes chosen for them, also volumes whose ``claimRef`` names the claim already.
    provisions
        Claims for which a volume has to be provisioned there.
    provisioning
        Claims for which a volume is being provisioned there.
    """

    refused: str = ""
    waits: str = ""
    bindings: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provisions: tuple[PersistentVolumeClaim, ...] = ()
    provisioning: tuple[PersistentVolumeClaim, ...] = ()

    @property
    def done(self) -> bool:
        """True if every claim has a reachable volume."""
        return not (self.refused or self.waits or self.bindings or self.provisions or self.provisioning)


def claim_keys(pod: Pod) -> list[Key]:
    """Return namespace and name of each claim of a pod, those of ephemeral volumes included."""
    found = [_claim_name(pod, volume) for volume in pod.spec.volumes or ()]
    return [(pod.metadata.namespace, name) for name in dict.fromkeys(found) if name]


def plan_claims(pod: Pod, node: Node, storage: Storage, taken: Collection[str] = ()) -> ClaimPlan:
    """Plan the steps for the claims of a pod.

    Parameters
    ----------
    pod
        Not bound yet.
    node
        The node on which it is to run.
    storage
        Claims, volumes and StorageClasses.
    taken
        Names of volumes that are taken for other claims.
    """
    claims: dict[str, PersistentVolumeClaim] = {}
    waits = ""
    for volume in pod.spec.volumes or ():
        name = _claim_name(pod, volume)
        if not name or name in claims:
            continue
        claim = storage.claim(pod.metadata.namespace, name)
        problem = _unusable(claim, name, pod, volume)
        if claim is not None and not problem:
            claims[name] = claim
        waits = waits or problem
    if waits:
        return ClaimPlan(waits=waits)
    plans = [_of_bound(claim, node, storage) for claim in claims.values() if claim.bound]
    unbound = sorted(
        (claim for claim in claims.values() if not claim.bound),
        key=lambda claim: (claim_size(claim), claim.metadata.name),
    )
    used = {*taken}
    for claim in unbound:
        plan = _of_unbound(claim, node, storage, used)
        used.update(volume.metadata.name for _, volume in plan.bindings)
        plans.append(plan)
    return ClaimPlan(
        next((plan.refused for plan in plans if plan.refused), ""),
        next((plan.waits for plan in plans if plan.waits), ""),
        tuple(each for plan in plans for each in plan.bindings),
        tuple(each for plan in plans for each in plan.provisions),
        tuple(each for plan in plans for each in plan.provisioning),
    )


def full_driver(pod: Pod, node: str, present: Iterable[Pod], storage: Storage) -> str:
    """Return a CSI driver whose volume limit on a node the pod would exceed; empty if there is none."""
    limits = storage.drivers_on(node)
    if not limits:
        return ""
    wanted = {*_attached(pod, storage)}
    if not any(driver in limits for driver, _ in wanted):
        return ""
    attached = {each for other in present for each in _attached(other, storage)}
    for driver in sorted({driver for driver, _ in wanted - attached}):
        count = sum(1 for each in attached | wanted if each[0] == driver)
        if driver in limits and count > limits[driver]:
            return driver
    return ""


def _claim_name(pod: Pod, volume: PodVolume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def _unusable(claim: PersistentVolumeClaim | None, name: str, pod: Pod, volume: PodVolume) -> str:
    where = f"PersistentVolumeClaim {pod.metadata.namespace}/{name}"
    if claim is None:
        if volume.ephemeral is not None:
            return f"{where} does not exist yet for the ephemeral volume {volume.name!r}"
        return f"{where} does not exist: create it and the pod is bound"
    if claim.metadata.deletion_timestamp:
        return f"{where} is being deleted: create it again and the pod is bound"
    if claim.status.phase == "Lost":
        return f"{where} has lost its volume {claim.spec.volume_name}: create it again and the pod is bound"
    owner = claim.metadata.controller
    if volume.ephemeral is not None and (owner is None or owner.uid != pod.metadata.uid):
        return (
            f"{where} was not made for the ephemeral volume {volume.name!r} of this pod: "
            "delete the claim, so that its own is created"
        )
    return ""


def _of_bound(claim: PersistentVolumeClaim, node: Node, storage: Storage) -> ClaimPlan:
    volume = storage.volume(claim.spec.volume_name)
    if volume is None:
        return ClaimPlan(
            waits=f"{_described(claim)} is bound to the volume {claim.spec.volume_name}, which does not exist"
        )
    if not _reaches(volume, node):
        return ClaimPlan(
            f"volume {volume.metadata.name} of {_described(claim)} cannot be reached from node "
            f"{node.metadata.name}"
        )
    if key := _differing_zone(volume, node):
        return ClaimPlan(
            f"volume {volume.metadata.name} of {_described(claim)} is in another zone than node "
            f"{node.metadata.name}, by the label {key}"
        )
    return ClaimPlan()


def _of_unbound(
    claim: PersistentVolumeClaim, node: Node, storage: Storage, taken: Collection[str]
) -> ClaimPlan:
    name = claim.spec.storage_class_name
    found = storage.storage_class(name) if name else None
    if name and found is None:
        return ClaimPlan(
            waits=f"{_described(claim)} is of the StorageClass {name}, which does not exist: create it"
        )
    if found is None or not found.waits or claim.spec.volume_name:
        return ClaimPlan(waits=f"{_described(claim)} has no volume yet")
    if claim.selected_node:
        return _of_selected(claim, found, node)
    ready = _free_volume(claim, node, storage, taken)
    if ready is not None:
        return ClaimPlan(bindings=((claim, ready),))
    where = f"node {node.metadata.name}"
    if not found.provisions:
        return ClaimPlan(
            f"{_described(claim)} finds no free volume of the StorageClass {name} that fits and can be "
            f"reached from {where}"
        )
    if not _allowed(found, node):
        return ClaimPlan(
            f"the StorageClass {name} of {_described(claim)} allows no volumes for {where} "
            "(allowedTopologies)"
        )
    return ClaimPlan(provisions=(claim,))


def _of_selected(claim: PersistentVolumeClaim, found: StorageClass, node: Node) -> ClaimPlan:
    """Plan a claim that has a selected node already."""
    name, chosen = node.metadata.name, claim.selected_node
    if chosen != name:
        in_progress = f"the volume of {_described(claim)} is being made for node {chosen}"
        if any(mode in _SHARED_MODES for mode in claim.spec.access_modes or ()):
            return ClaimPlan(waits=in_progress)
        return ClaimPlan(f"{in_progress}, not for node {name}")
    if not found.provisions or not _allowed(found, node):
        return ClaimPlan(
            f"the StorageClass {found.metadata.name} of {_described(claim)} allows no volumes to be made "
            f"for node {name}"
        )
    return ClaimPlan(provisioning=(claim,))


def _free_volume(
    claim: PersistentVolumeClaim, node: Node, storage: Storage, taken: Collection[str]
) -> PersistentVolume | None:
    """Return the volume reserved for a claim, else the smallest free one;
    None if there is none that the node reaches.
    """
    if (kept := kept_volume(claim, storage)) is not None:
        return kept if _reaches(kept, node) else None
    return next(
        (
            each
            for each in free_volumes(claim, storage)
            if each.metadata.name not in taken and _reaches(each, node)
        ),
        None,
    )


def _reaches(volume: PersistentVolume, node: Node) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return meets_terms(
        affinity.required.get("nodeSelectorTerms") or (), node.metadata.name, node.metadata.labels or {}
    )


def _differing_zone(volume: PersistentVolume, node: Node) -> str:
    """Return the zone or region label in which volume and node differ.
    A node without such labels can use every volume.
    """
    labels = node.metadata.labels or {}
    if not any(key in labels for key in ZONE_LABELS):
        return ""
    for key, today in ZONE_LABELS.items():
        text = volume.metadata.label(key)
        zones: Sequence[str] = (
            [each.strip() for each in text.split(ZONES_BETWEEN)] if text is not None else ()
        )
        if zones and all(zones) and labels.get(key, labels.get(today)) not in zones:
            return key
    return ""


def _allowed(found: StorageClass, node: Node) -> bool:
    labels, terms = node.metadata.labels or {}, found.allowed_topologies
    if not terms:
        return True
    allowed = [term.match_label_expressions or () for term in terms]
    return any(each and all(labels.get(one.key) in one.values for one in each) for each in allowed)


def _attached(pod: Pod, storage: Storage) -> Iterator[tuple[str, str]]:
    """Yield driver and handle of each volume that is attached for a pod;
    for a volume that does not exist yet, its claim.
    """
    for namespace, name in claim_keys(pod):
        claim = storage.claim(namespace, name)
        if claim is None:
            continue
        volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            if volume.spec.csi is not None:
                yield volume.spec.csi.driver, volume.spec.csi.volume_handle
            continue
        found = (
            storage.storage_class(claim.spec.storage_class_name) if claim.spec.storage_class_name else None
        )
        if found is not None:
            yield found.provisioner, f"{namespace}/{name}"


def _described(claim: PersistentVolumeClaim) -> str:
    return f"PersistentVolumeClaim {claim.metadata.namespace}/{claim.metadata.name}"
