import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.local.kubelet.spdy import (
    DICTIONARY,
    Data,
    Decoder,
    Encoder,
    GoAway,
    InvalidFrame,
    Open,
    Ping,
    Reset,
)


class Client:
    """The other side, which opens streams."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(zdict=DICTIONARY)

    def open(self, stream: int, **headers: str) -> bytes:
        text = struct.pack(">I", len(headers))
        for name, value in headers.items():
            text += (
                struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
            )
        block = self._compressor.compress(text) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        body = struct.pack(">IIH", stream, 0, 0) + block
        return struct.pack(">HHI", 0x8003, 1, len(body)) + body


def control(kind: int, body: bytes, version: int = 3) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, len(body)) + body


def test_the_dictionary_is_the_one_of_the_protocol() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 3821447106)


def test_streams_are_opened_with_headers_that_are_compressed_together() -> None:
    client = Client()
    data = client.open(1, streamtype="error", port="8080") + client.open(3, streamtype="data", port="8080")
    frames = [*Decoder().feed(data)]
    assert frames == [
        Open(1, {"streamtype": "error", "port": "8080"}, False),
        Open(3, {"streamtype": "data", "port": "8080"}, False),
    ]


@given(cuts=st.lists(st.integers(0, 200), max_size=5))
def test_frames_are_the_same_however_they_arrive(cuts: list[int]) -> None:
    encoder = Encoder()
    data = (
        Client().open(1, streamtype="stdin")
        + encoder.data(1, b"text", fin=True)
        + encoder.reset(1)
        + encoder.ping(7)
        + encoder.go_away(1)
    )
    decoder, frames, at = Decoder(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        frames += [*decoder.feed(data[at:cut])]
        at = max(at, cut)
    assert frames == [
        Open(1, {"streamtype": "stdin"}, False),
        Data(1, b"text", True),
        Reset(1),
        Ping(7),
        GoAway(),
    ]


def test_long_data_is_sent_in_parts_and_the_end_once() -> None:
    frames = [*Decoder().feed(Encoder().data(1, b"x" * 100_000, fin=True))]
    assert b"".join(frame.data for frame in frames if isinstance(frame, Data)) == b"x" * 100_000
    assert [frame.fin for frame in frames if isinstance(frame, Data)] == [False] * (len(frames) - 1) + [True]


def test_an_accepted_stream_is_answered_with_headers_that_can_be_read() -> None:
    first, second = Encoder(), Encoder()
    reply = first.reply(1)
    assert reply == second.reply(1)
    assert zlib.decompressobj(zdict=DICTIONARY).decompress(reply[12:]) == struct.pack(">I", 0)


def test_settings_and_windows_change_nothing() -> None:
    assert [*Decoder().feed(control(4, struct.pack(">I", 0)) + control(9, struct.pack(">II", 1, 10)))] == []


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 1, 5 << 20),
        struct.pack(">HHI", 0x8003, 1, 1 << 20),
        control(6, b"1234", version=2),
        control(1, struct.pack(">IIH", 1, 0, 0) + b"no zlib"),
        control(3, b""),
    ],
)
def test_what_is_no_frame_or_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidFrame):
        [*Decoder().feed(data)]


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidFrame):
        [*Decoder().feed(data)]
