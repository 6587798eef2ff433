"""Which existing volumes a claim could be bound to, as the stock scheduler chooses them (FindMatchingVolume).

A volume that names the claim is reserved for it, if it fits. Otherwise it is any free volume that is large
enough, of the same class and mode, with the access modes that the claim requests, and selected by its labels.
From which nodes a volume can be reached is checked in `fluxqueue.queue.noderules.volumes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final, Protocol

from fluxqueue.api.metadata import LabelSelector
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.api.storage import PersistentVolume, PersistentVolumeClaim
from fluxqueue.queue.noderules.pod_rules import Requirement

__all__ = ["MOST_REQUIREMENTS", "claim_size", "free_volumes", "kept_volume", "requirements"]

MOST_REQUIREMENTS: Final = 64
"""Of the selector of a claim, which is compared with the labels of each free volume."""

_FILESYSTEM: Final = "Filesystem"


class _Volumes(Protocol):
    def available(self, storage_class: str) -> Iterable[PersistentVolume]: ...

    def kept_for(self, claim: PersistentVolumeClaim) -> Iterable[PersistentVolume]: ...


def kept_volume(claim: PersistentVolumeClaim, volumes: _Volumes) -> PersistentVolume | None:
    """Return the volume that is reserved for an unbound claim; None if there is none that fits."""
    wanted = claim.spec.storage_class_name or ""
    return next(
        (
            each
            for each in _large_enough(claim, volumes.kept_for(claim))
            if each.spec.storage_class_name == wanted
        ),
        None,
    )


def free_volumes(claim: PersistentVolumeClaim, volumes: _Volumes) -> list[PersistentVolume]:
    """Return the free volumes that a claim could be bound to, the smallest first."""
    modes, selected = {*(claim.spec.access_modes or ())}, [*_requirements(claim.spec.selector)]
    found = [
        each
        for each in _large_enough(claim, volumes.available(claim.spec.storage_class_name or ""))
        if each.spec.claim_ref is None
        and modes <= {*(each.spec.access_modes or ())}
        and all(requirement.met_by(each.metadata.labels or {}) for requirement in selected)
    ]
    return sorted(found, key=lambda volume: (_capacity(volume), volume.metadata.name))


def requirements(claim: PersistentVolumeClaim) -> int:
    """Return how much the selector of a claim requires of labels: requirements and their values."""
    return sum(max(len(each.values), 1) for each in _requirements(claim.spec.selector))


def claim_size(claim: PersistentVolumeClaim) -> Decimal:
    """Return how many bytes a claim requests."""
    return _amount((claim.spec.resources.requests or {}).get("storage", 0))


def _large_enough(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]
) -> Iterator[PersistentVolume]:
    """Yield the volumes that are of the mode and the attributes that a claim requests, and large enough."""
    size, mode, attributes = (
        claim_size(claim),
        claim.spec.volume_mode or _FILESYSTEM,
        claim.spec.volume_attributes_class_name or "",
    )
    for volume in volumes:
        if (
            not volume.metadata.deletion_timestamp
            and (volume.spec.volume_mode or _FILESYSTEM) == mode
            and (volume.spec.volume_attributes_class_name or "") == attributes
            and _capacity(volume) >= size
        ):
            yield volume


def _requirements(selector: LabelSelector | None) -> Iterator[Requirement]:
    if selector is None:
        return
    for key, value in (selector.match_labels or {}).items():
        yield Requirement(key, "In", (value,))
    for each in selector.match_expressions or ():
        yield Requirement(each.key, each.operator, tuple(each.values or ()))


def _capacity(volume: PersistentVolume) -> Decimal:
    return _amount((volume.spec.capacity or {}).get("storage", 0))


def _amount(text: str | int | float) -> Decimal:
    try:
        return parse_quantity(text)
    except InvalidQuantity:
        return Decimal()
