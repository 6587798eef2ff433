from __future__ import annotations

from support.watched_api import WatchedApi

from fluxqueue.client.connections import Connection


async def test_each_namespace_has_one_watch() -> None:
    server = WatchedApi()
    connection = Connection(server.api)
    assert await connection.watch("a") is await connection.watch("a")
    assert await connection.watch("a") is not await connection.watch("b")
    await connection.close()
