"""The difference of two decoded JSON values, as a JSON Patch (RFC 6902) of only what differs.

Both values are derived from the same raw object, and equal parts are not mentioned. So fields that no struct
knows are not lost. Lists are compared in the ways in which admission changes them: extended at the end,
extended at the front, or changed in place.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["Operation", "difference"]


class Operation(msgspec.Struct, frozen=True):
    """One operation of a JSON Patch."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = msgspec.UNSET


def difference(path: str, old: Any, new: Any) -> list[Operation]:
    """Return the operations that turn ``old`` into ``new``.

    Parameters
    ----------
    path
        JSON Pointer of ``old`` in the patched object.
    old, new
        Decoded JSON.

    Returns
    -------
    list of Operation
        Empty if the values are equal.
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
        pointer = f"{path}/{_escaped(key)}"
        operations += (
            difference(pointer, old[key], value) if key in old else [Operation("add", pointer, value)]
        )
    return operations


def _elements(path: str, old: list[Any], new: list[Any]) -> list[Operation]:
    grown = len(new) - len(old)
    if grown < 0:
        return [Operation("replace", path, new)]
    front = _front(old, new)
    operations = [Operation("add", f"{path}/{index}", new[index]) for index in range(front)]
    for index, value in enumerate(old):
        operations += difference(f"{path}/{index + front}", value, new[index + front])
    return operations + [Operation("add", f"{path}/-", value) for value in new[front + len(old) :]]


def _front(old: list[Any], new: list[Any]) -> int:
    """Return how many elements were added at the front; others may have been added at the end."""
    names = _names(old)
    for front in range(len(new) - len(old) + 1):
        if _names(new[front : front + len(old)]) == names:
            return front
    return 0


def _names(values: list[Any]) -> list[Any]:
    return [value.get("name", value) if isinstance(value, dict) else value for value in values]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
