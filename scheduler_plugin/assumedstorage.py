"""Claims and volumes as they will be once the decisions about them are written and observed.

The cache shows a decision only when the watch has delivered it. A decision made in between would be based on
old data: two claims would choose the same volume, or two pods of a gang would have one claim provisioned for
two nodes. So a decision counts at once. It counts until the watch shows that object in another state than the
one on which the decision was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from fluxqueue.api.storage import (
    SELECTED_NODE,
    ClaimRef,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from fluxqueue.kube.kinds import Key
from fluxqueue.queue.noderules.volumes import Storage

__all__ = ["AssumedStorage"]

MOST: Final = 1_000
"""Number of assumed claims at which those that the watch has shown since are dropped."""


class AssumedStorage:
    """A `Storage` that adds decisions to another one.

    Parameters
    ----------
    seen
        The storage that the watches show.
    """

    def __init__(self, seen: Storage) -> None:
        self._seen = seen
        self._claims: dict[Key, tuple[str, PersistentVolumeClaim]] = {}
        self._volumes: dict[str, tuple[str, PersistentVolume]] = {}

    def bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Assume that a volume belongs to a claim."""
        meta = claim.metadata
        spec = msgspec.structs.replace(
            volume.spec, claim_ref=ClaimRef(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        )
        self._volumes[volume.metadata.name] = (
            volume.metadata.resource_version,
            msgspec.structs.replace(volume, spec=spec),
        )

    def provision(self, claim: PersistentVolumeClaim, node: str) -> None:
        """Assume that a volume for a claim is being provisioned for a node."""
        annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node}
        metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
        key = claim.metadata.namespace, claim.metadata.name
        if len(self._claims) >= MOST:
            for each in [*self._claims]:
                self.claim(*each)
        self._claims[key] = claim.metadata.resource_version, msgspec.structs.replace(claim, metadata=metadata)

    def drop(self, volume: PersistentVolume) -> None:
        """Forget a decision about a volume that could not be written."""
        self._volumes.pop(volume.metadata.name, None)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim by its name."""
        found = self._seen.claim(namespace, name)
        assumed = self._claims.get((namespace, name))
        if assumed is None:
            return found
        if found is not None and found.metadata.resource_version == assumed[0]:
            return assumed[1]
        del self._claims[namespace, name]
        return found

    def volume(self, name: str) -> PersistentVolume | None:
        """Return a volume by its name."""
        found = self._seen.volume(name)
        return self._as_assumed(found) if found is not None else None

    def storage_class(self, name: str | None) -> StorageClass | None:
        """Return a StorageClass by its name; the default one for None."""
        return self._seen.storage_class(name)

    def available(self, storage_class: str) -> Iterable[PersistentVolume]:
        """Return the volumes of a class that no claim has."""
        return map(self._as_assumed, self._seen.available(storage_class))

    def kept_for(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]:
        """Return the volumes whose ``claimRef`` names a claim, bound or not."""
        yield from self._seen.kept_for(claim)
        for name in [*self._volumes]:
            volume = self.volume(name)
            if volume is not None and name in self._volumes and volume.kept_for(claim):
                yield volume

    def limited(self, driver: str) -> bool:
        """Return True if some node limits the number of volumes of a driver."""
        return self._seen.limited(driver)

    def drivers_on(self, node: str) -> Mapping[str, int]:
        """Return how many volumes of each driver a node takes, for drivers with a limit."""
        return self._seen.drivers_on(node)

    def _as_assumed(self, found: PersistentVolume) -> PersistentVolume:
        assumed = self._volumes.get(found.metadata.name)
        if assumed is None:
            return found
        if found.metadata.resource_version == assumed[0]:
            return assumed[1]
        del self._volumes[found.metadata.name]
        return found
