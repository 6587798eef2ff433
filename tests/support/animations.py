"""One animated picture from several, without a library: the frames of a WebP are pictures as they are
(https://developers.google.com/speed/webp/docs/riff_container).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_ANIMATED = 0x02


def animated(pictures: Sequence[bytes], frame_ms: int = 700, rounds: int = 2) -> bytes:
    """Return a WebP that shows pictures of the same size one after another, and stops with the last."""
    frames = [_chunks(picture) for picture in pictures]
    width, height = _size(frames[0])
    canvas = _three(width - 1) + _three(height - 1)
    parts = [_chunk(b"VP8X", bytes([_ANIMATED, 0, 0, 0]) + canvas)]
    parts.append(_chunk(b"ANIM", b"\xff\xff\xff\xff" + struct.pack("<H", rounds)))
    for frame in frames:
        (image,) = [_chunk(name, data) for name, data in frame if name in (b"VP8 ", b"VP8L")]
        parts.append(_chunk(b"ANMF", bytes(6) + canvas + _three(frame_ms) + b"\x02" + image))
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _chunks(picture: bytes) -> list[tuple[bytes, bytes]]:
    chunks, at = [], 12
    while at < len(picture):
        (size,) = struct.unpack_from("<I", picture, at + 4)
        chunks.append((picture[at : at + 4], picture[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    return chunks


def _size(chunks: list[tuple[bytes, bytes]]) -> tuple[int, int]:
    """Return width and height of a lossy picture."""
    found = dict(chunks)
    width, height = struct.unpack_from("<HH", found[b"VP8 "], 6)
    return width & 0x3FFF, height & 0x3FFF


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def _three(value: int) -> bytes:
    return value.to_bytes(3, "little")
