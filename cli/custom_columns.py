"""``-o custom-columns=TITLE:PATH,...``: columns of the fields of an object, as kubectl prints them.

A path is one of kubectl's without filters: ``.metadata.name``, ``.status.requeueReasons[0].reason``,
``.spec.items[*].name``. A dot inside a name has a backslash before it.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["PREFIX", "CustomColumn", "cell", "read_custom_columns"]

PREFIX = "custom-columns="
_STEP = re.compile(r"\.?((?:[^.\[\]\\]|\\.)+)|\[(\*|-?[0-9]{1,6})\]")
_NONE = "<none>"
_EXAMPLE = "custom-columns=NAME:.metadata.name,STATE:.status.state"


@dataclass(frozen=True)
class CustomColumn:
    """A title, and the steps of a path: names, indexes, or None for each item of a list."""

    title: str
    path: tuple[str | int | None, ...]


def read_custom_columns(text: str) -> tuple[CustomColumn, ...]:
    """Read what follows ``custom-columns=``.

    Raises
    ------
    argparse.ArgumentTypeError
        It has another form; the message has an example.
    """
    found = []
    for part in text.split(","):
        title, colon, path = part.partition(":")
        if not (title and colon and path.strip("{}")):
            raise argparse.ArgumentTypeError(
                f"-o custom-columns has pairs of title and path, such as {_EXAMPLE}: {part!r} is none"
            )
        found.append(CustomColumn(title, _steps(path.strip("{}"))))
    return tuple(found)


def _steps(path: str) -> tuple[str | int | None, ...]:
    steps: list[str | int | None] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise argparse.ArgumentTypeError(
                f"-o custom-columns: {path!r} is no path such as .metadata.name or .items[0].name"
            )
        name, index = match.groups()
        steps.append(
            re.sub(r"\\(.)", r"\1", name) if name is not None else None if index == "*" else int(index)
        )
        at = match.end()
    return tuple(steps)


def cell(document: Any, path: tuple[str | int | None, ...]) -> str:
    """Return the text at a path of an object; ``<none>`` if there is nothing."""
    found = [document]
    for step in path:
        following: list[Any] = []
        for value in found:
            match value, step:
                case list(), None:
                    following += value
                case dict(), str() if step in value:
                    following.append(value[step])
                case list(), int() if -len(value) <= step < len(value):
                    following.append(value[step])
        found = following
    return ",".join(_text(value) for value in found) or _NONE


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return _NONE
    if isinstance(value, dict | list):
        import json

        return json.dumps(value)
    return str(value)
