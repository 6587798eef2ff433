"""The difference of two decoded JSON values as a JSON Patch (RFC 6902) that names only what differs.

Both values come from the same raw object, so that nothing can be lost that a library does not know: what is equal is not mentioned.
Lists are compared as injection changes them: grown at their end, grown at their front, or changed in place.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["Operation", "difference"]


class Operation(msgspec.Struct, frozen=True):
    """One operation, encoded as it stands."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = msgspec.UNSET


def difference(path: str, old: Any, new: Any) -> list[Operation]:
    """What makes ``new`` out of ``old``.

    Parameters
    ----------
    path
        JSON Pointer of ``old`` in the object that is patched.
    old, new
        Decoded JSON.

    Returns
    -------
    list of Operation
        Empty where they are equal.
    """
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        return _members(path, old, new)
    if isinstance(old, list) and isinstance(new, list) and old:
        return _elements(path, old, new)
    return [Operation("replace", path, new)]


def _members(path: str, old: dict[str, Any], new: dict[str, Any]) -> list[Operation]:
    operations = [Operation("remove", f"{path}/{_escaped(key)}") for key in old if key not in new]
    for key, value in new.items():
        place = f"{path}/{_escaped(key)}"
        operations += difference(place, old[key], value) if key in old else [Operation("add", place, value)]
    return operations


def _elements(path: str, old: list[Any], new: list[Any]) -> list[Operation]:
    grown = len(new) - len(old)
    if grown < 0:
        return [Operation("replace", path, new)]
    front = _front(old, new)
    operations = [Operation("add", f"{path}/{place}", new[place]) for place in range(front)]
    for place, value in enumerate(old):
        operations += difference(f"{path}/{place + front}", value, new[place + front])
    return operations + [Operation("add", f"{path}/-", value) for value in new[front + len(old) :]]


def _front(old: list[Any], new: list[Any]) -> int:
    """How many elements were put in front, where others may have been put behind."""
    wanted = _named(old)
    for front in range(len(new) - len(old) + 1):
        if _named(new[front : front + len(old)]) == wanted:
            return front
    return 0


def _named(values: list[Any]) -> list[Any]:
    return [value.get("name", value) if isinstance(value, dict) else value for value in values]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
