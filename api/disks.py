"""Disks that a pod names itself, without a claim: two pods on one node must not use the same one.

These are the volume types from before PersistentVolumeClaims. The scheduler does not place two pods with the
same disk on one node, unless both mount it read-only. For an EBS volume it does not even then
(``isVolumeConflict`` in the plugin VolumeRestrictions).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluxqueue.api.pods import PodSpec, PodVolume

__all__ = ["conflicting_disk"]

Json = dict[str, Any]


def conflicting_disk(spec: PodSpec, present: Iterable[PodSpec]) -> str:
    """Return the name of a volume whose disk is used by another pod on the node; empty if there is none."""
    wanted = [volume for volume in spec.volumes or () if _names_a_disk(volume)]
    if not wanted:
        return ""
    used = [volume for other in present for volume in other.volumes or () if _names_a_disk(volume)]
    return next((volume.name for volume in wanted if any(_conflict(volume, other) for other in used)), "")


def _names_a_disk(volume: PodVolume) -> bool:
    return bool(volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi or volume.rbd)


def _conflict(one: PodVolume, other: PodVolume) -> bool:
    return (
        _same(one.gce_persistent_disk, other.gce_persistent_disk, "pdName")
        or _same(
            one.aws_elastic_block_store, other.aws_elastic_block_store, "volumeID", shared_for_reading=False
        )
        or _same(one.iscsi, other.iscsi, "iqn")
        or (
            _same(one.rbd, other.rbd, "image", "pool")
            and bool({*_monitors(one.rbd)} & {*_monitors(other.rbd)})
        )
    )


def _same(one: Json | None, other: Json | None, *fields: str, shared_for_reading: bool = True) -> bool:
    if not one or not other or any(one.get(field) != other.get(field) for field in fields):
        return False
    return not (shared_for_reading and one.get("readOnly") and other.get("readOnly"))


def _monitors(disk: Json | None) -> Iterable[str]:
    return (disk or {}).get("monitors") or ()
