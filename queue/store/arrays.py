"""Lists as the text of Postgres arrays.

psycopg writes a list in Python, element by element, and twice, because it first looks for the type of its
elements. That was a fifth of what a statement cost. Every list in a query has a cast (``%(ids)s::bigint[]``),
so its text without a type is enough, and a statement is prepared once and not once for each size of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

__all__ = ["array_text", "with_array_texts"]


def array_text(values: list[Any]) -> str:
    """Return a list as the text of an array.

    Parameters
    ----------
    values
        Integers, texts, truth values, times with a zone, and None.

    Raises
    ------
    TypeError
        An element is of another type.
    """
    return "{" + ",".join([_TEXT_OF.get(type(value), _other)(value) for value in values]) + "}"


def with_array_texts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a statement with each list as the text of an array."""
    return {name: array_text(value) if type(value) is list else value for name, value in parameters.items()}


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _other(value: object) -> str:
    if isinstance(value, str):
        return _quoted(str(value))  # a member of a StrEnum
    raise TypeError(
        f"an array of Postgres cannot hold {value!r}: its elements are integers, texts, truth values, "
        "times and None"
    )


_TEXT_OF: Final[Mapping[type, Callable[[Any], str]]] = {
    int: str,
    str: _quoted,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _value: "NULL",
    datetime: lambda value: _quoted(value.isoformat()),
}
