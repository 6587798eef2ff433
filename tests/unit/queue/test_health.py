"""Readiness of a replica."""

from __future__ import annotations

import asyncio
import socket

import pytest

from fluxqueue.queue.health import ReplicaRole, health_server


async def test_readiness_tells_any_pod_only_the_names_of_what_is_missing() -> None:
    server = health_server(
        "127.0.0.1", 0, lambda: {"postgres": "host secret.example refused"}, lambda: ReplicaRole.STARTING
    )
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        serving = group.create_task(server.serve())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        serving.cancel()
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"ready":false,"role":"starting","missing":["postgres"]}')


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_a_probe_by_ipv6_is_answered() -> None:
    server = health_server("::", 0, dict, lambda: ReplicaRole.FOLLOWER)
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        serving = group.create_task(server.serve())
        reader, writer = await asyncio.open_connection("::1", server.port)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        serving.cancel()
    assert answer.startswith(b"HTTP/1.1 200")
