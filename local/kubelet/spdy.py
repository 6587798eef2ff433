"""The frames of SPDY/3.1, as far as Kubernetes uses them between the API server and a kubelet.

The API server translates the WebSockets of kubectl into SPDY streams (KEP-4006), and port-forwarding is SPDY
all the way. Only what a kubelet needs is here: it answers streams that the other side opens. As spdystream,
which is at the other end, it has no flow control. The source of the form is "SPDY Protocol - Draft 3.1".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Data", "Decoder", "Encoder", "Frame", "GoAway", "InvalidFrame", "Open", "Ping", "Reset"]

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = (
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    9,
)
_FIN = 1
_VERSION = 3
_MOST_CONTROL = 64 << 10
_MOST_DATA = 4 << 20
_PART = 32 << 10

_COUNTED = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges "
    "age allow authorization"
    " cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range"
    " content-type"
    " date etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified"
    " location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server "
    "te trailer transfer-encoding"
    " upgrade user-agent vary via warning www-authenticate method get status|200 OK|version|HTTP/1.1|url "
    "public"
    " set-cookie keep-alive origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 "
    "Non-Authoritative Information"
    "204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    "Internal Server Error"
    "501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    "Mon, Tue, Wed, Thu, Fri, Sat, Sun, "
    "GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,public"
    "privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_WORDS = [word for part in _COUNTED.split("|") for word in ([part] if part == "200 OK" else part.split())]
DICTIONARY = b"".join(struct.pack(">I", len(word)) + word.encode() for word in _WORDS) + _REST.encode()
"""What the compression of headers begins with; both sides know it."""


class InvalidFrame(Exception):
    """The other side does not speak SPDY/3.1, or sends more than is accepted."""


@dataclass(frozen=True)
class Open:
    """The other side opens a stream."""

    stream: int
    headers: Mapping[str, str]
    fin: bool


@dataclass(frozen=True)
class Data:
    """Bytes of a stream; ``fin`` says that no more follow."""

    stream: int
    data: bytes
    fin: bool


@dataclass(frozen=True)
class Reset:
    """A stream is given up."""

    stream: int


@dataclass(frozen=True)
class Ping:
    """The other side wants the same number back."""

    number: int


@dataclass(frozen=True)
class GoAway:
    """The other side opens no more streams."""


Frame = Open | Data | Reset | Ping | GoAway


class Decoder:
    """Makes frames of bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield the frames that are complete.

        Raises
        ------
        InvalidFrame
            Nothing after it can be understood.
        """
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length, control = second & 0xFFFFFF, bool(first & 0x80000000)
            if length > (_MOST_CONTROL if control else _MOST_DATA):
                raise InvalidFrame(f"a frame has {length} bytes")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            fin = bool(second >> 24 & _FIN)
            frame = self._control(first, body, fin=fin) if control else Data(first & 0x7FFFFFFF, body, fin)
            if frame is not None:
                yield frame

    def _control(self, first: int, body: bytes, *, fin: bool) -> Frame | None:
        if first >> 16 & 0x7FFF != _VERSION:
            raise InvalidFrame(f"a frame is of version {first >> 16 & 0x7FFF}")
        kind = first & 0xFFFF
        try:
            if kind == _SYN_STREAM:
                return Open(
                    struct.unpack_from(">I", body)[0] & 0x7FFFFFFF, self._decode_headers(body[10:]), fin
                )
            if kind in (_SYN_REPLY, _HEADERS):
                self._decode_headers(body[4:])  # the state of the decompression is one for all headers
            elif kind == _RST_STREAM:
                return Reset(struct.unpack_from(">I", body)[0] & 0x7FFFFFFF)
            elif kind == _PING:
                return Ping(struct.unpack_from(">I", body)[0])
            elif kind == _GOAWAY:
                return GoAway()
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise InvalidFrame(str(error)) from None
        return None  # settings and windows, which change nothing here

    def _decode_headers(self, block: bytes) -> dict[str, str]:
        text = self._headers.decompress(block, _MOST_CONTROL)
        (count,) = struct.unpack_from(">I", text)
        position, headers = 4, {}
        for _ in range(min(count, _MOST_CONTROL)):
            words = []
            for _ in range(2):
                (length,) = struct.unpack_from(">I", text, position)
                words.append(text[position + 4 : position + 4 + length].decode())
                position += 4 + length
            headers[words[0].lower()] = words[1]
        return headers


class Encoder:
    """Makes bytes of frames."""

    def __init__(self) -> None:
        self._headers = zlib.compressobj(zdict=DICTIONARY)

    def reply(self, stream: int) -> bytes:
        """Accept a stream."""
        block = self._headers.compress(struct.pack(">I", 0)) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        return self._control(_SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """Send bytes, in parts of the size that others send."""
        parts = [data[at : at + _PART] for at in range(0, len(data), _PART)] or [b""]
        flags = [_FIN if fin and part is parts[-1] else 0 for part in parts]
        return b"".join(
            struct.pack(">II", stream, flag << 24 | len(part)) + part
            for flag, part in zip(flags, parts, strict=True)
        )

    def reset(self, stream: int) -> bytes:
        """Give a stream up (status CANCEL)."""
        return self._control(_RST_STREAM, struct.pack(">II", stream, 5))

    def ping(self, number: int) -> bytes:
        """Answer a ping."""
        return self._control(_PING, struct.pack(">I", number))

    def go_away(self, last_stream: int) -> bytes:
        """Say that the connection ends."""
        return self._control(_GOAWAY, struct.pack(">II", last_stream, 0))

    def _control(self, kind: int, body: bytes) -> bytes:
        return struct.pack(">HHI", 0x8000 | _VERSION, kind, len(body)) + body
