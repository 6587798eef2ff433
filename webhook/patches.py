"""JSON Patches (RFC 6902) that change only our own fields.

The Go fluxqueue answered with the difference between the object it received and the object that its own
structs can express. So it deleted every field newer than its client library. Here a patch is never a
difference of two objects. Each function states one change at one path, reads the present value, and returns
no operation if the change is already made. So a patch is minimal, applying it twice equals applying it once,
and it cannot contain unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluxqueue.api.jsonpatches import Operation
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pods import SchedulingGate

__all__ = ["Operation", "add", "annotate", "drop", "gate", "label", "remove", "replace", "ungate"]


def add(path: str, value: object) -> Operation:
    """Return an operation that adds a member or a list element.
    RFC 6902 replaces an existing member, ``null`` included.
    """
    return Operation("add", path, value)


def replace(path: str, value: object) -> Operation:
    """Return an operation that replaces the value at ``path``."""
    return Operation("replace", path, value)


def remove(path: str) -> Operation:
    """Return an operation that removes the value at ``path``."""
    return Operation("remove", path)


def label(base: str, meta: ObjectMeta | None, wanted: Mapping[str, str]) -> list[Operation]:
    """Return operations that set labels on the metadata at ``base``.

    Parameters
    ----------
    base
        Path of the metadata, for example ``/spec/template/metadata``.
    meta
        The present metadata, or None if the member is missing.
    wanted
        Labels to be set; those that are present need no operation.

    Returns
    -------
    list of Operation
        Empty if there is nothing to do.
    """
    if meta is None:
        return [add(base, {"labels": dict(wanted)})] if wanted else []
    return _entries(f"{base}/labels", meta.labels, wanted)


def annotate(base: str, meta: ObjectMeta, wanted: Mapping[str, str]) -> list[Operation]:
    """Return operations that set annotations on the metadata at ``base``, like `label`."""
    return _entries(f"{base}/annotations", meta.annotations, wanted)


def drop(base: str, meta: ObjectMeta, keys: Iterable[str]) -> list[Operation]:
    """Return operations that remove these keys from labels and annotations."""
    keys = tuple(keys)
    return [
        remove(f"{base}/{field}/{_escaped(key)}")
        for field, entries in (("labels", meta.labels), ("annotations", meta.annotations))
        for key in keys
        if key in (entries or {})
    ]


def gate(gates: list[SchedulingGate] | None, name: str) -> list[Operation]:
    """Return operations that add a scheduling gate to a pod, after those of others."""
    if gates is None:
        return [add("/spec/schedulingGates", [{"name": name}])]
    if any(each.name == name for each in gates):
        return []
    return [add("/spec/schedulingGates/-", {"name": name})]


def ungate(gates: list[SchedulingGate] | None, name: str) -> list[Operation]:
    """Return operations that remove the scheduling gate of this name; the gates of others stay."""
    positions = [position for position, each in enumerate(gates or ()) if each.name == name]
    return [remove(f"/spec/schedulingGates/{position}") for position in reversed(positions)]


def _entries(path: str, present: Mapping[str, str] | None, wanted: Mapping[str, str]) -> list[Operation]:
    if not wanted:
        return []
    if present is None:
        return [add(path, dict(wanted))]
    return [
        (replace if key in present else add)(f"{path}/{_escaped(key)}", value)
        for key, value in wanted.items()
        if present.get(key) != value
    ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
