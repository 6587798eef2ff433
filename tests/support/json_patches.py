"""Application of a JSON Patch (RFC 6902) to a document, with no code in common with the writer of patches.

It is as strict as the API server: a path whose parent is missing is an error, and so is a replacement or
removal of a missing member.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any


class PatchFailed(ValueError):
    """An operation does not apply."""


def apply_patch(document: Any, operations: Iterable[dict[str, Any]]) -> Any:
    """Return the document after all operations. The given document is not changed."""
    result = copy.deepcopy(document)
    for operation in operations:
        _apply(result, operation)
    return result


def _apply(document: Any, operation: dict[str, Any]) -> None:
    *parents, last = [
        token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]
    ]
    at = document
    for token in parents:
        try:
            at = at[int(token)] if isinstance(at, list) else at[token]
        except (KeyError, IndexError, TypeError) as error:
            raise PatchFailed(f"{operation}: {token!r} is not there") from error
    match at, operation["op"]:
        case dict(), "add":
            at[last] = copy.deepcopy(operation["value"])
        case list(), "add":
            at.insert(len(at) if last == "-" else int(last), copy.deepcopy(operation["value"]))
        case dict(), "replace" if last in at:
            at[last] = copy.deepcopy(operation["value"])
        case dict(), "remove" if last in at:
            del at[last]
        case list(), "replace" if int(last) < len(at):
            at[int(last)] = copy.deepcopy(operation["value"])
        case list(), "remove" if int(last) < len(at):
            del at[int(last)]
        case dict(), "test" if at.get(last) == operation["value"]:
            pass
        case list(), "test" if int(last) < len(at) and at[int(last)] == operation["value"]:
            pass
        case _:
            raise PatchFailed(f"{operation} does not apply to {at!r}")
