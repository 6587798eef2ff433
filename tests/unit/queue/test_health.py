"""The server of health and metrics leaves signals to its program."""

import asyncio
import signal
import socket

import pytest

from fluxqueue.local.ports import free_port
from fluxqueue.queue.health import ReplicaRole, make_server


async def test_a_termination_signal_reaches_the_program_once() -> None:
    """A second signal would cancel what the first one started: the release of the Lease."""
    received = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: received.append("SIGTERM"))
    server = make_server("127.0.0.1", free_port(), dict, lambda: ReplicaRole.FOLLOWER)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(60):
            while not server.started:
                await asyncio.sleep(0.01)
            signal.raise_signal(signal.SIGTERM)
            while not received:
                await asyncio.sleep(0.01)
            ended = server.should_exit
            server.should_exit = True
            await serving
        await asyncio.sleep(0)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    assert (received, ended) == (["SIGTERM"], False)


async def test_readiness_tells_any_pod_only_the_names_of_what_is_missing() -> None:
    port = free_port()
    server = make_server("127.0.0.1", port, lambda: {"postgres": "host secret.example refused"}, lambda: ReplicaRole.STARTING)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"ready":false,"role":"starting","missing":["postgres"]}')


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_a_probe_by_ipv6_is_answered() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as found:
        port = found.getsockname()[1]
    server = make_server("::", port, dict, lambda: ReplicaRole.FOLLOWER)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
    assert answer.startswith(b"HTTP/1.1 200")
