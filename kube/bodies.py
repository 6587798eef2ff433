"""Reads bodies of answers that may be longer than anybody wants to have in memory."""

from __future__ import annotations

import aiohttp

__all__ = ["read_body"]


async def read_body(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Return the body of an answer; of one that is longer than so many bytes, one byte more than these. Its
    connection is closed then, so that the rest is not read.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > most_bytes:
            response.close()
            break
    return b"".join(chunks)[: most_bytes + 1]
