"""A JSON Patch (RFC 6902) applied to a document, by an implementation that shares nothing with the one that writes patches.

As strict as the API server's: a path whose parent is missing is an error, and so is replacing or removing what is not there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any


class PatchFailed(ValueError):
    """An operation does not apply."""


def apply_patch(document: Any, operations: Iterable[dict[str, Any]]) -> Any:
    """The document after all operations; the given one stays as it was."""
    result = copy.deepcopy(document)
    for operation in operations:
        _apply(result, operation)
    return result


def _apply(document: Any, operation: dict[str, Any]) -> None:
    *parents, last = [token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]]
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
        case _:
            raise PatchFailed(f"{operation} does not apply to {at!r}")
