"""JSON Patches (RFC 6902) that touch only what is ours.

The Go fluxqueue answered with the difference between the object it received and the object it could express in its own structs, and
so deleted every field newer than its client library. Here a patch is never a difference of two objects: each function below states one
change at one path, looks at what stands there, and returns no operation where the change is already true. An answer is therefore
minimal, applying it twice equals applying it once, and fields we have never heard of cannot appear in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluxqueue.api.jsonpatches import Operation
from fluxqueue.api.objects import ObjectMeta, SchedulingGate

__all__ = ["Operation", "add", "annotate", "drop", "gate", "label", "remove", "replace", "ungate"]


def add(path: str, value: object) -> Operation:
    """Add a member or a list element; RFC 6902 replaces a member that exists, ``null`` included."""
    return Operation("add", path, value)


def replace(path: str, value: object) -> Operation:
    """Replace what stands at ``path``."""
    return Operation("replace", path, value)


def remove(path: str) -> Operation:
    """Remove what stands at ``path``."""
    return Operation("remove", path)


def label(base: str, meta: ObjectMeta | None, wanted: Mapping[str, str]) -> list[Operation]:
    """Make these labels stand on the metadata at ``base``.

    Parameters
    ----------
    base
        Path of the metadata, for example ``/spec/template/metadata``.
    meta
        What stands there, or None where the member is missing.
    wanted
        Labels to be set; those that stand already cost no operation.

    Returns
    -------
    list of Operation
        Empty when nothing is to do.
    """
    if meta is None:
        return [add(base, {"labels": dict(wanted)})] if wanted else []
    return _entries(f"{base}/labels", meta.labels, wanted)


def annotate(base: str, meta: ObjectMeta, wanted: Mapping[str, str]) -> list[Operation]:
    """Make these annotations stand on the metadata at ``base``; as `label`."""
    return _entries(f"{base}/annotations", meta.annotations, wanted)


def drop(base: str, meta: ObjectMeta, keys: Iterable[str]) -> list[Operation]:
    """Remove these keys from labels and annotations alike, wherever they stand."""
    keys = tuple(keys)
    return [
        remove(f"{base}/{field}/{_escaped(key)}")
        for field, entries in (("labels", meta.labels), ("annotations", meta.annotations))
        for key in keys
        if key in (entries or {})
    ]


def gate(gates: list[SchedulingGate] | None, name: str) -> list[Operation]:
    """Put the scheduling gate on a pod, behind the gates of others."""
    if gates is None:
        return [add("/spec/schedulingGates", [{"name": name}])]
    if any(each.name == name for each in gates):
        return []
    return [add("/spec/schedulingGates/-", {"name": name})]


def ungate(gates: list[SchedulingGate] | None, name: str) -> list[Operation]:
    """Take the scheduling gate of this name off; the gates of others stay where they are."""
    places = [place for place, each in enumerate(gates or ()) if each.name == name]
    return [remove(f"/spec/schedulingGates/{place}") for place in reversed(places)]


def _entries(path: str, standing: Mapping[str, str] | None, wanted: Mapping[str, str]) -> list[Operation]:
    if not wanted:
        return []
    if standing is None:
        return [add(path, dict(wanted))]
    return [
        (replace if key in standing else add)(f"{path}/{_escaped(key)}", value)
        for key, value in wanted.items()
        if standing.get(key) != value
    ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
