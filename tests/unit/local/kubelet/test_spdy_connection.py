"""A connection whose other side has gone away."""

import asyncio
from typing import cast

import pytest

from fluxqueue.local.kubelet.spdy_connection import SpdyConnection


class Closing:
    """The writer of a TLS connection that was lost."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        raise AttributeError("'NoneType' object has no attribute '_write_appdata'")

    def close(self) -> None:
        pass


async def test_a_connection_that_closes_is_gone() -> None:
    connection = SpdyConnection(asyncio.StreamReader(), cast(asyncio.StreamWriter, Closing()))
    with pytest.raises(ConnectionResetError):
        await connection.send_data(1, b"text", fin=False)
    await connection.close()
