"""Claims, volumes, classes and the volume limits of nodes, as the watches show them.

This is a `fluxqueue.queue.noderules.volumes.Storage` that reads the caches.
`fluxqueue.queue.intake.claim_watch` decides which work is described again when one of them changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fluxqueue.api.graphnames import resource_type, volume_resource
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.kube.kinds import Key
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.noderules.volumes import claims_of, driver_of, ephemeral_drivers

__all__ = ["ClusterStorage", "claims_used"]

_FREE = "free"
_UNBOUND = "unbound"
_KEPT = "kept"


def claims_used(namespace: str, spec: PodSpec) -> list[Key]:
    """Return namespace and name of each claim that a pod uses."""
    return [(namespace, name) for name in claims_of(spec)]


class ClusterStorage:
    """The volumes of a cluster, and what depends on them.

    Attributes
    ----------
    claims, volumes, classes, csi_nodes
        The watched objects.
    drivers
        CSI drivers of which some node limits the number of volumes.
    """

    def __init__(self) -> None:
        self.claims: ObjectCache[PersistentVolumeClaim] = ObjectCache()
        self.volumes: ObjectCache[PersistentVolume] = ObjectCache()
        self.classes: ObjectCache[StorageClass] = ObjectCache()
        self.csi_nodes: ObjectCache[CSINode] = ObjectCache()
        self.drivers: frozenset[str] = frozenset()
        self._stating: Counter[str] = Counter()
        self.claims.add_index(
            _UNBOUND, lambda claim: () if claim.bound else (claim.spec.storage_class_name or "",)
        )
        self.volumes.add_index(
            _FREE,
            lambda volume: (volume.spec.storage_class_name,) if volume.status.phase == "Available" else (),
        )
        self.volumes.add_index(_KEPT, _kept_for)
        self.csi_nodes.add_handler(self._count)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim by its name."""
        return self.claims.get(namespace, name)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume by its name."""
        return self.volumes.get("", name)

    def storage_class(self, name: str | None) -> StorageClass | None:
        """Return a class by its name; for None the default class, the youngest of several."""
        if name is not None:
            return self.classes.get("", name)
        defaults = [found for found in self.classes.list() if found.default]
        return max(
            defaults,
            key=lambda found: (found.metadata.creation_timestamp or "", found.metadata.name),
            default=None,
        )

    def available(self, storage_class: str) -> Iterable[PersistentVolume]:
        """Return the volumes of a class that no claim has, in the order of their names."""
        return sorted(self.volumes.by_index(_FREE, storage_class), key=lambda volume: volume.metadata.name)

    def kept_for(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        """Return the volumes that are reserved for a claim, in the order of their names."""
        found = self.volumes.by_index(_KEPT, (claim.metadata.namespace, claim.metadata.name))
        return sorted(
            (volume for volume in found if volume.kept_for(claim)), key=lambda volume: volume.metadata.name
        )

    def limited(self, driver: str) -> bool:
        """True if some node limits the number of a driver's volumes."""
        return driver in self.drivers

    def is_exclusive(self, key: Key) -> bool:
        """True for a claim (namespace, name) that exists and is for one pod at a time."""
        claim = self.claims.get(*key)
        return claim is not None and claim.for_one_pod

    def unbound(self, storage_class: str) -> list[PersistentVolumeClaim]:
        """Return the claims of a class that have no volume yet."""
        return self.claims.by_index(_UNBOUND, storage_class)

    def limits(self, node: str) -> Mapping[str, int]:
        """Return how many volumes of each driver a node takes, by their resource type in the graph."""
        found = self.csi_nodes.get("", node)
        return (
            {resource_type(volume_resource(driver)): count for driver, count in found.limits.items()}
            if found is not None
            else {}
        )

    def drivers_on(self, node: str) -> Mapping[str, int]:
        """Return how many volumes of each driver a node takes, for drivers that state a limit."""
        found = self.csi_nodes.get("", node)
        return found.limits if found is not None else {}

    def attached(self, pods: Iterable[Pod]) -> dict[str, int]:
        """Return how many volumes of limited drivers the pods of one node have, by type.
        A claim of several pods counts once.
        """
        counts: Counter[str] = Counter()
        seen: set[Key] = set()
        for pod in pods:
            drivers = ephemeral_drivers(pod.spec, self)
            for key in claims_used(pod.metadata.namespace, pod.spec):
                if key not in seen and (claim := self.claims.get(*key)) is not None:
                    drivers.append(driver_of(claim, self))
                seen.add(key)
            counts.update(
                resource_type(volume_resource(driver)) for driver in drivers if driver in self.drivers
            )
        return dict(counts)

    def _count(self, change: Change[CSINode]) -> None:
        if change.new is not None:
            self._stating.update([*change.new.limits])
        if change.old is not None:
            self._stating.subtract([*change.old.limits])
        self.drivers = frozenset(driver for driver, nodes in self._stating.items() if nodes > 0)


def _kept_for(volume: PersistentVolume) -> Iterable[Key]:
    reserved = volume.spec.claim_ref
    return ((reserved.namespace, reserved.name),) if reserved is not None else ()
