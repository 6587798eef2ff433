"""Arguments of a wrong type, refused before the first request by a sentence that names the argument.

Without it Python would speak of an attribute that an int does not have, in the middle of the client, or the
API server of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fluxqueue.client.errors import InvalidWork

__all__ = ["check_mapping", "check_number", "check_text", "check_texts", "check_whole", "many", "workloads"]

W = TypeVar("W")
_SHOWN = 60


def check_whole(what: str, value: Any, least: int | None = None) -> None:
    """Raise `InvalidWork` unless a value is a whole number, of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = (
            f": write {what.rpartition(' ')[2]}={value}"
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
            else ""
        )
        raise InvalidWork(f"{what}: {_shown(value)} is not a whole number{hint}")
    if least is not None and value < least:
        raise InvalidWork(f"{what} is {value}: at least {least} is needed")


def check_number(what: str, value: Any) -> None:
    """Raise `InvalidWork` unless a value is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidWork(f"{what}: {_shown(value)} is not a number")


def check_text(what: str, value: Any, example: str) -> None:
    """Raise `InvalidWork` unless a value is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidWork(f"{what}: {_shown(value)} is not a text: write one such as {example!r}")


def check_texts(what: str, values: Any, example: str) -> None:
    """Raise `InvalidWork` unless values are texts: a list, and each of it."""
    for at, value in enumerate(many(what, values, example)):
        if not isinstance(value, str):
            raise InvalidWork(f"{what}: item {at} is {_shown(value)}, and not a text: write {str(value)!r}")


def check_mapping(what: str, value: Any) -> None:
    """Raise `InvalidWork` unless a value is a dictionary."""
    if not isinstance(value, Mapping):
        raise InvalidWork(f"{what}: {_shown(value)} is not a dictionary: write {{'NAME': 'value'}}")


def many(what: str, values: Any, example: str) -> Iterable[Any]:
    """Return values that can be iterated over; raise `InvalidWork` for one alone."""
    if isinstance(values, Iterable):
        return values
    raise InvalidWork(f"{what}: {_shown(values)} is not a list: write {example}")


def workloads(works: Any, kind: type[W]) -> list[W]:
    """Return workloads of a client; raise `InvalidWork` for something else, before the first wait begins."""
    found = [*many("works", works, "a list of workloads, such as [first, second]")]
    for work in found:
        if not isinstance(work, kind):
            raise InvalidWork(
                f"works: {type(work).__name__} is no workload: give what submit or get returned"
            )
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
