"""How a response that goes on is split into lines."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fluxqueue.kube.wire import _lines


class Chunks:
    """A body that arrives in these pieces."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


async def lines(*chunks: bytes, **options: Any) -> list[bytes]:
    content = cast("Any", Chunks(*chunks))
    return [line async for some in _lines(content, **options) for line in some]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"whole": True}, [b"one", b"two"]),
        ({"whole": False}, [b"one", b"two", b"three"]),
        ({"whole": False, "longest": 99}, [b"one", b"", b"two", b"three"]),
    ],
)
async def test_a_log_keeps_what_a_watch_does_not(options: dict[str, Any], expected: list[bytes]) -> None:
    assert await lines(b"on", b"e\n\ntw", b"o\nth", b"ree", **options) == expected


async def test_a_line_without_an_end_is_not_kept_as_a_whole() -> None:
    assert await lines(*[b"x" * 10] * 5, whole=False, longest=20) == [b"x" * 20, b"x" * 20, b"x" * 10]
