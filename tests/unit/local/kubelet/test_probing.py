"""What a probe says of its failure."""

import asyncio

from fluxqueue.local.kubelet.probing import Prober
from fluxqueue.local.kubelet.specs import Container, ExecAction, HttpGet, Probe, TcpSocket


def prober(code: int = 0) -> Prober:
    async def run(_: list[str]) -> int:
        return code

    return Prober(Container(), "127.0.0.1", run)


async def test_a_command_passes_with_zero() -> None:
    probe = Probe(exec=ExecAction(["check"]))
    assert await prober(0).problem(probe) == ""
    assert await prober(3).problem(probe) == "its command ended with 3"


async def test_a_command_that_takes_too_long_fails() -> None:
    async def run(_: list[str]) -> int:
        await asyncio.Event().wait()
        return 0

    assert (
        await Prober(Container(), "127.0.0.1", run).problem(Probe(exec=ExecAction([]), timeout_seconds=1))
        == "it took more than 1 s"
    )


async def test_an_answer_passes_by_its_status_and_a_port_by_a_connection() -> None:
    statuses = iter(("204 No Content", "302 Found", "503 Service Unavailable"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            writer.write(
                f"HTTP/1.1 {next(statuses)}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connected, asked = (
            Probe(tcp_socket=TcpSocket(port=port), timeout_seconds=60),
            Probe(http_get=HttpGet(port=port), timeout_seconds=60),
        )
        assert await prober().problem(connected) == ""
        assert [await prober().problem(asked) for _ in range(3)] == ["", "", "the answer was 503"]
    assert "Connect call failed" in await prober().problem(connected)
