"""Parts that many objects have in common, kept once.

Decoding makes each object of values of its own. But the Jobs of a namespace have the same containers and
annotations, a Job has its uid in its labels and its FluxJob twice more, and every FluxJob has the same few
words in its status. So what was decoded lately is remembered, and what is equal to it is replaced by it
(docs/capacity.md). A kind of objects names what is worth it:

- ``shared_parts``: paths of values that are kept once as a whole.
- ``shared_texts``: paths of structs, or of lists of them, each of whose texts is kept once.
- ``shared_labels``: paths of labels that are kept once in one object, with texts that are kept once.

Nothing may change what was decoded, so nobody sees that it is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from operator import attrgetter
from sys import intern
from typing import Any, Final, cast

import msgspec

from fluxqueue.api.storedjson import plain

__all__ = ["one_text", "share"]

_MOST_TEXTS: Final = 4_096
_LONGEST_TEXT: Final = 512
_MOST_PARTS: Final = 512
_LONGEST_PART: Final = 1_024
"""Bytes of its JSON: with these numbers, what is remembered has some megabytes at most."""

_texts: Final[dict[str, str]] = {}
_parts: Final[dict[tuple[str, bytes], Any]] = {}


def share(obj: object) -> None:
    """Have an object that has just been decoded refer to equal parts of those before it."""
    parts, structs, labels = _paths(cast("Hashable", type(obj)))
    for owner, name in parts:
        parent = owner(obj)
        if value := getattr(parent, name):
            msgspec.structs.force_setattr(parent, name, _part(name, value))
    for path in structs:
        found = path(obj)
        for struct in found if isinstance(found, list) else (found,):
            _share_texts(struct)
    first: dict[str, str] | None = None
    for owner, name in labels:
        parent = owner(obj)
        if not (value := getattr(parent, name)):
            continue
        if value != first:
            first = {intern(key): one_text(text) for key, text in value.items()}
        msgspec.structs.force_setattr(parent, name, first)


def _share_texts(struct: Any) -> None:
    for name in struct.__struct_fields__ if struct is not None else ():
        value = getattr(struct, name)
        if type(value) is str and value:
            msgspec.structs.force_setattr(struct, name, one_text(value))


def one_text(text: str) -> str:
    """Return an equal text of lately, or the same; a long one is not remembered."""
    if len(text) > _LONGEST_TEXT:
        return text
    if len(_texts) >= _MOST_TEXTS:
        _texts.clear()
    return _texts.setdefault(text, text)


def _part(name: str, value: Any) -> Any:
    text = msgspec.json.encode(value, enc_hook=plain)
    if len(text) > _LONGEST_PART:
        return value
    if len(_parts) >= _MOST_PARTS:
        _parts.clear()
    return _parts.setdefault((name, text), value)


_Field = tuple[Callable[[Any], Any], str]


@cache
def _paths(of: Hashable) -> tuple[list[_Field], list[Callable[[Any], Any]], list[_Field]]:
    return (
        _fields(of, "shared_parts"),
        [attrgetter(path) for path in getattr(of, "shared_texts", ())],
        _fields(of, "shared_labels"),
    )


def _fields(of: Hashable, name: str) -> list[_Field]:
    parts = [path.rpartition(".") for path in getattr(of, name, ())]
    return [(attrgetter(owner), field) for owner, _, field in parts]
