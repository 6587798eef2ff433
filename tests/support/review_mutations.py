"""Reviews with random damage: in the document, as another API server or a person could send it,
and in its bytes.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["mutated_reviews"]

_NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**30,
    1.5,
    "",
    " ",
    "\x00",
    "\ud800",
    "ü" * 300,
    "a" * 100_000,
    "0" * 300,
    "9" * 5_000,
    "n[0-99999999]",
    "n[",
    "2100-01-01T00:00:00Z",
    "2100-99-01T00:00:00Z",
    "١٢",
    [],
    {},
    [None],
    [[]],
    {"": None},
    [{}] * 50,
    ["x"] * 2_000,
    {f"key-{number}": "x" for number in range(500)},
)
_BYTES = (
    b"",
    b"\xff",
    b"\x00",
    b"{",
    b"[" * 2_000,
    b'"',
    b"\\",
    b"1e400",
    b"-",
    b"9" * 5_000,
    b"\\ud800",
    b",",
    b'{"a":' * 1_500,
)


def mutated_reviews(reviews: Sequence[dict[str, Any]], seed: int) -> Iterator[bytes]:
    """Yield reviews without end, each with one to four changes."""
    chance = random.Random(seed)
    while True:
        document = copy.deepcopy(chance.choice(reviews))
        for _ in range(chance.randint(1, 4)):
            chance.choice(_CHANGES)(document, chance)
        body = json.dumps(document).encode()
        for _ in range(chance.choice((0, 0, 1, 2))):
            body = _damage(body, chance)
        yield body


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with one of its keys or indices."""
    pairs = list(
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    )
    for key, child in pairs:
        yield node, key
        yield from _places(child)


def _replace(document: dict[str, Any], chance: random.Random) -> None:
    holder, key = chance.choice(list(_places(document)))
    holder[key] = copy.deepcopy(chance.choice(_NASTY))


def _remove(document: dict[str, Any], chance: random.Random) -> None:
    holder, key = chance.choice(list(_places(document)))
    del holder[key]
    if not document:
        document["request"] = None


def _swap(document: dict[str, Any], chance: random.Random) -> None:
    places = list(_places(document))
    (holder, key), (other, another) = chance.choice(places), chance.choice(places)
    holder[key], other[another] = copy.deepcopy(other[another]), copy.deepcopy(holder[key])


def _rename(document: dict[str, Any], chance: random.Random) -> None:
    holder, key = chance.choice(
        [(holder, key) for holder, key in _places(document) if isinstance(holder, dict)]
    )
    holder[chance.choice((key.upper(), key + "s", "", "metadata", "spec"))] = holder.pop(key)


def _nest(document: dict[str, Any], chance: random.Random) -> None:
    holder, key = chance.choice(list(_places(document)))
    value = holder[key]
    for _ in range(chance.choice((1, 5, 150))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    holder[key] = value


_CHANGES: tuple[Callable[[dict[str, Any], random.Random], None], ...] = (
    _replace,
    _replace,
    _replace,
    _remove,
    _swap,
    _rename,
    _nest,
)


def _damage(body: bytes, chance: random.Random) -> bytes:
    at, end = sorted((chance.randrange(len(body) + 1), chance.randrange(len(body) + 1)))
    match chance.randrange(4):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + chance.choice(_BYTES) + body[at:]
        case 2:
            return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
        case _:
            return body[:at] + body[end:]
