"""The probes and hooks of a container, executed as the kubelet does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

import aiohttp

from fluxqueue.local.kubelet.specs import Container, Handler, HttpGet, Probe

__all__ = ["Prober"]

_LONGEST_PROBLEM = 500
RunCommand = Callable[[list[str]], Awaitable[int]]


class Prober:
    """Executes the probes of one container.

    Parameters
    ----------
    container
        Its ports have the names.
    address
        The address of its pod, which is where connections go by default.
    run
        Runs a command in the container, and returns its exit code.
    """

    def __init__(self, container: Container, address: str, run: RunCommand) -> None:
        self._ports = {port.name: port.container_port for port in container.ports or () if port.name}
        self._address = address
        self._run = run

    async def problem(self, probe: Probe) -> str:
        """Execute a probe once; return why it failed, or nothing if it passed."""
        timeout_s = max(1, probe.timeout_seconds)
        try:
            async with asyncio.timeout(timeout_s):
                if probe.exec is not None:
                    code = await self._run(probe.exec.command or [])
                    return f"its command ended with {code}" if code else ""
                if probe.http_get is not None:
                    answer = await self._get(probe.http_get)
                    return "" if 200 <= answer < 400 else f"the answer was {answer}"
                if probe.tcp_socket is not None:
                    await self._connect(
                        probe.tcp_socket.host or self._address, self._port(probe.tcp_socket.port)
                    )
                elif probe.grpc is not None:
                    # whether it serves is not asked: a connection says that the program has started
                    await self._connect(self._address, probe.grpc.port)
                return ""
        except TimeoutError:
            return f"it took more than {timeout_s} s"
        except (OSError, aiohttp.ClientError, ValueError) as error:
            return (str(error) or type(error).__name__)[:_LONGEST_PROBLEM]

    async def hook(self, handler: Handler) -> None:
        """Execute a hook; its result is ignored."""
        with contextlib.suppress(OSError, aiohttp.ClientError, ValueError):
            if handler.exec is not None:
                await self._run(handler.exec.command or [])
            elif handler.http_get is not None:
                await self._get(handler.http_get)
            elif handler.sleep is not None:
                await asyncio.sleep(handler.sleep.seconds)

    def _port(self, port: int | str) -> int:
        number = port if isinstance(port, int) else self._ports.get(port, port)
        return int(number)

    async def _connect(self, host: str, port: int) -> None:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()

    async def _get(self, request: HttpGet) -> int:
        host, port = request.host or self._address, self._port(request.port)
        url = f"{request.scheme.lower()}://{host}:{port}/{request.path.lstrip('/')}"
        headers = {header.name: header.value for header in request.http_headers or ()}
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=_unverified(), force_close=True)
            ) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            return answer.status


def _unverified() -> ssl.SSLContext:
    """Return what the kubelet uses: it does not verify the certificates of pods."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
