"""What the volumes of a pod require of its node, and whether the pod has to wait for them.

The scheduler binds a pod only to a node from which all its volumes can be reached, so the match must know the
same: the node affinity of a bound volume (and the zone in its labels); for a claim whose volume is
provisioned once its pod has a node, the topologies that its StorageClass allows, or the nodes from which an
existing volume of that class can be reached; and a driver's limit of volumes per node, as a resource. A claim
that is missing, or that is unbound although it is bound without a pod, says nothing about nodes. Its work
waits, with the claim in the reason.

A generic ephemeral volume gets a claim of its own when its pod exists. Only its StorageClass counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol

from fluxqueue.api import names
from fluxqueue.api.graphnames import label_property, volume_resource
from fluxqueue.api.pods import PersistentVolumeClaimSpec, PodSpec
from fluxqueue.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.queue.model.constraints import InexpressibleConstraint, node_terms
from fluxqueue.queue.noderules.ready_volumes import MOST_REQUIREMENTS, free_volumes, kept_volume, requirements

__all__ = [
    "NO_STORAGE",
    "NO_VOLUMES",
    "ZONES_BETWEEN",
    "ZONE_LABELS",
    "Storage",
    "VolumeNeeds",
    "claims_of",
    "driver_of",
    "ephemeral_drivers",
    "shared_claims",
    "volume_needs",
]

_REGION: Final = "topology.kubernetes.io/region"
ZONE_LABELS: Final[Mapping[str, str]] = {
    names.ZONE_LABEL: names.ZONE_LABEL,
    _REGION: _REGION,
    "failure-domain.beta.kubernetes.io/zone": names.ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": _REGION,
}
"""Label of a volume -> the label that nodes have today."""
ZONES_BETWEEN: Final = "__"
MOST_CLAIMS: Final = 64
"""Claims and ephemeral volumes of one pod: each unbound one is compared with all free volumes of its
class."""
_MAX_VOLUMES: Final = 200
"""Existing volumes that are read for one claim."""
_MAX_OF_POD: Final = 800
"""Existing volumes that are read for all claims of one pod: each becomes a part of its request."""


class Storage(Protocol):
    """The volumes of a cluster, and what depends on them."""

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim by its name."""

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume by its name."""

    def storage_class(self, name: str | None) -> StorageClass | None:
        """Return a class by its name; the default class for None."""

    def available(self, storage_class: str) -> Iterable[PersistentVolume]:
        """Return the volumes of a class that no claim has."""

    def kept_for(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        """Return the volumes that are reserved for a claim, bound or not."""

    def limited(self, driver: str) -> bool:
        """True if some node limits the number of a driver's volumes."""

    def drivers_on(self, node: str) -> Mapping[str, int]:
        """Return how many volumes of each driver a node takes, for drivers that state a limit."""


class _NoStorage:
    """A cluster without claims, volumes and classes."""

    def claim(self, _namespace: str, _name: str) -> PersistentVolumeClaim | None:
        return None

    def volume(self, _name: str) -> PersistentVolume | None:
        return None

    def storage_class(self, _name: str | None) -> StorageClass | None:
        return None

    def available(self, _storage_class: str) -> Iterable[PersistentVolume]:
        return ()

    def kept_for(self, _claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        return ()

    def limited(self, _driver: str) -> bool:
        return False

    def drivers_on(self, _node: str) -> Mapping[str, int]:
        return {}


NO_STORAGE: Final[Storage] = _NoStorage()


@dataclass(frozen=True, slots=True)
class VolumeNeeds:
    """What the volumes of one pod require.

    Attributes
    ----------
    rules
        RFC 31 constraints on its node, all of which must hold.
    requests
        Number of volumes of each limited driver, by the resource name under which they are requested.
    waits
        Why the pod cannot be placed yet, in a sentence that names the claim; empty if it can.
    for_one_pod
        Claims that no other pod may use at the same time.
    of_claims
        Resource name of the volume of each named claim whose driver is limited. Pods that share such a claim
        on a node have one volume.
    """

    rules: tuple[Mapping[str, Any], ...] = ()
    requests: Mapping[str, Decimal] = field(default_factory=dict)
    waits: str = ""
    for_one_pod: tuple[str, ...] = ()
    of_claims: Mapping[str, str] = field(default_factory=dict)

    def without(self, claims: Collection[str]) -> Mapping[str, Decimal]:
        """Return what it requests beside the volumes of these claims."""
        shared = Counter(self.of_claims[claim] for claim in claims if claim in self.of_claims)
        return {name: left for name, amount in self.requests.items() if (left := amount - shared[name])}


NO_VOLUMES: Final = VolumeNeeds()


def claims_of(spec: PodSpec) -> list[str]:
    """Return the names of the claims that a pod uses, each once."""
    return list(
        dict.fromkeys(
            each.persistent_volume_claim.claim_name
            for each in spec.volumes or ()
            if each.persistent_volume_claim
        )
    )


def volume_needs(spec: PodSpec, namespace: str, storage: Storage) -> VolumeNeeds:
    """Return what the volumes of a pod require.

    Raises
    ------
    InexpressibleConstraint
        The node affinity of a volume cannot be checked, there are too many claims, or the selector of one is
        too long.
    """
    claims, ephemeral = claims_of(spec), [each for each in spec.volumes or () if each.ephemeral]
    if (number := len(claims) + len(ephemeral)) > MOST_CLAIMS:
        raise InexpressibleConstraint(
            f"spec.volumes: a pod has {number} claims and ephemeral volumes, the most is {MOST_CLAIMS}: put "
            "what belongs together into one"
        )
    most = min(_MAX_VOLUMES, _MAX_OF_POD // max(len(claims), 1))
    needs = [_claimed(namespace, name, storage, most) for name in claims]
    needs += [
        _ephemeral(each.ephemeral.volume_claim_template.spec, each.name, storage)
        for each in ephemeral
        if each.ephemeral
    ]
    if not needs:
        return NO_VOLUMES
    requests: dict[str, Decimal] = {}
    for each in needs:
        for name, amount in each.requests.items():
            requests[name] = requests.get(name, Decimal()) + amount
    return VolumeNeeds(
        tuple(rule for each in needs for rule in each.rules),
        requests,
        next((each.waits for each in needs if each.waits), ""),
        tuple(name for each in needs for name in each.for_one_pod),
        {claim: name for each in needs for claim, name in each.of_claims.items()},
    )


def shared_claims(needs: Sequence[VolumeNeeds]) -> Mapping[str, str]:
    """Return the claims that pods of all these needs share and whose driver is limited,
    with the resource names of their volumes.
    """
    return {
        claim: name
        for claim, name in needs[0].of_claims.items()
        if all(claim in each.of_claims for each in needs)
    }


def driver_of(claim: PersistentVolumeClaim, storage: Storage) -> str:
    """Return the CSI driver of a claim's volume; empty if it has none."""
    if claim.bound:
        volume = storage.volume(claim.spec.volume_name)
        return volume.spec.csi.driver if volume is not None and volume.spec.csi is not None else ""
    storage_class = (
        storage.storage_class(claim.spec.storage_class_name) if claim.spec.storage_class_name else None
    )
    return storage_class.provisioner if storage_class is not None and storage_class.provisions else ""


def ephemeral_drivers(spec: PodSpec, storage: Storage) -> list[str]:
    """Return the driver of each ephemeral volume of a pod."""
    templates = [each.ephemeral.volume_claim_template.spec for each in spec.volumes or () if each.ephemeral]
    classes = [storage.storage_class(template.storage_class_name) for template in templates]
    return [each.provisioner for each in classes if each is not None and each.provisions]


def _claimed(namespace: str, name: str, storage: Storage, most: int) -> VolumeNeeds:
    claim = storage.claim(namespace, name)
    where = f"PersistentVolumeClaim {namespace}/{name}"
    if claim is None:
        return VolumeNeeds(waits=f"{where} does not exist: create it and the work can start")
    if claim.metadata.deletion_timestamp:
        return VolumeNeeds(waits=f"{where} is being deleted: create it again and the work can start")
    if claim.status.phase == "Lost":
        return VolumeNeeds(
            waits=(
                f"{where} has lost its volume {claim.spec.volume_name}: "
                "create it again and the work can start"
            )
        )
    rules, waits = (
        _of_bound(claim, where, storage) if claim.bound else _of_unbound(claim, where, storage, most)
    )
    attached = _attached(driver_of(claim, storage), storage)
    of_claims = {name: next(iter(attached))} if attached else {}
    return VolumeNeeds(rules, attached, waits, (name,) if claim.for_one_pod else (), of_claims)


def _attached(driver: str, storage: Storage) -> dict[str, Decimal]:
    return {volume_resource(driver): Decimal(1)} if driver and storage.limited(driver) else {}


Rules = tuple[Mapping[str, Any], ...]


def _of_bound(claim: PersistentVolumeClaim, where: str, storage: Storage) -> tuple[Rules, str]:
    volume = storage.volume(claim.spec.volume_name)
    if volume is None:
        return (), f"{where} is bound to the volume {claim.spec.volume_name}, which does not exist"
    return (*_affinity_of(volume), *_zones_of(volume)), ""


def _of_unbound(claim: PersistentVolumeClaim, where: str, storage: Storage, most: int) -> tuple[Rules, str]:
    name = claim.spec.storage_class_name
    storage_class = storage.storage_class(name) if name else None
    if name and storage_class is None:
        return (
            (),
            f"{where} is of the StorageClass {name}, which does not exist: create it and the work can start",
        )
    if storage_class is None or not storage_class.waits:
        return (), f"{where} has no volume yet: the work can start when it is bound"
    if claim.selected_node:
        return (
            {"hostlist": [claim.selected_node]},
            *(_allowed(storage_class) if storage_class.provisions else ()),
        ), ""
    if storage_class.provisions:
        return _allowed(storage_class), ""
    if (length := requirements(claim)) > MOST_REQUIREMENTS:
        raise InexpressibleConstraint(
            f"{where}: its selector has {length} requirements, the most is {MOST_REQUIREMENTS}: use fewer"
        )
    kept = kept_volume(claim, storage)
    ready = [kept] if kept is not None else free_volumes(claim, storage)[:most]
    if not ready:
        return (
            (),
            (
                f"{where} finds no free volume of the StorageClass {name} that is large enough: "
                "the work can start when there is one"
            ),
        )
    rules = {repr(rule): rule for volume in ready for rule in [_all(_affinity_of(volume))]}
    return _any([*rules.values()]), ""


def _ephemeral(template: PersistentVolumeClaimSpec, volume: str, storage: Storage) -> VolumeNeeds:
    name = template.storage_class_name
    storage_class = storage.storage_class(name)
    if storage_class is None:
        if name == "" or name is None:
            return VolumeNeeds(
                waits=f"the ephemeral volume {volume!r} names no StorageClass, and there is no default one"
            )
        return VolumeNeeds(
            waits=(
                f"the ephemeral volume {volume!r} is of the StorageClass {name}, "
                "which does not exist: create it"
            )
        )
    return VolumeNeeds(
        _allowed(storage_class),
        _attached(storage_class.provisioner if storage_class.provisions else "", storage),
    )


def _affinity_of(volume: PersistentVolume) -> Rules:
    affinity = volume.spec.node_affinity
    return (
        (node_terms(affinity.required.get("nodeSelectorTerms") or ()),)
        if affinity is not None and affinity.required
        else ()
    )


def _zones_of(volume: PersistentVolume) -> Rules:
    """Return what the zones in the labels of a bound volume require;
    a node without any such label reaches every volume.
    """
    parts: list[Mapping[str, Any]] = []
    for key, today in ZONE_LABELS.items():
        zones = [each.strip() for each in (volume.metadata.label(key) or "").split(ZONES_BETWEEN)]
        if all(zones):
            parts.append(
                _one_of(key, zones) if key == today else {"or": [_one_of(key, zones), _one_of(today, zones)]}
            )
    without = {"not": [{"or": [{"properties": [key]} for key in ZONE_LABELS]}]}
    return ({"or": [_all(parts), without]},) if parts else ()


def _allowed(storage_class: StorageClass) -> Rules:
    terms = [term.match_label_expressions or () for term in storage_class.allowed_topologies or ()]
    return _any([_all([_one_of(each.key, each.values) for each in term]) for term in terms])


def _any(rules: Sequence[Mapping[str, Any] | None]) -> Rules:
    """Return a rule that one of these holds; None stands for a rule that always holds."""
    stated = [rule for rule in rules if rule is not None]
    if len(stated) < len(rules) or not stated:
        return ()
    return ({"or": stated} if len(stated) > 1 else stated[0],)


def _one_of(key: str, values: Sequence[str]) -> dict[str, Any]:
    parts = [{"properties": [label_property(key, value)]} for value in values]
    return parts[0] if len(parts) == 1 else {"or": parts}


def _all(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"and": [*parts]}
