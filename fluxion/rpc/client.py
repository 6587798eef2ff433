"""The clients that reach the matcher over gRPC.

`AsyncFluxionClient` is for asyncio, `FluxionClient` for threads. They also work with the Go service, whose
three RPCs they share; all other calls end there in `Unsupported`.

Every call has a deadline, which all of its attempts share. A call is attempted again only if no answer
arrived (UNAVAILABLE) and it is idempotent. The pause before an attempt doubles and is drawn at random below
its bound, so that many callers do not return at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.rpc.blocking import BlockingFluxion
from fluxqueue.fluxion.rpc.failures import DeadlinePassed, FluxionUnavailable
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.fluxion.rpc.requests import Answer, Rpc
from fluxqueue.fluxion.rpc.statuses import failure_of

__all__ = ["MAX_MESSAGE_BYTES", "AsyncFluxionClient", "Deadlines", "FluxionClient", "Tls"]

MAX_MESSAGE_BYTES = 256 * 2**20
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.05
_UNCONNECTED_S = 3.0
# A Go server takes pings more often than every five minutes for an attack and closes the connection.
_KEEPALIVE_MS = 310_000


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds after which a call without an answer fails;
    ``init_s`` for Init, which loads the graph, ``call_s`` for all others.
    """

    init_s: float = 300.0
    call_s: float = 30.0

    def of(self, method: str) -> float:
        """Return the deadline of this RPC."""
        return self.init_s if method == "Init" else self.call_s


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for an encrypted connection.

    Attributes
    ----------
    ca
        Certificates that may have signed the server's; the system's if None.
    cert, key
        The client's own, where the server requires one.
    server_name
        Name in the server's certificate, if it is not the host of the address.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def credentials(self) -> Any:
        """Read the files."""
        return grpc.ssl_channel_credentials(
            *(path.read_bytes() if path else None for path in (self.ca, self.key, self.cert))
        )


class AsyncFluxionClient(Fluxion):
    """The matcher behind gRPC. It belongs to one event loop; several of its tasks may use it.

    Parameters
    ----------
    target
        ``host:port``.
    tls
        Files for an encrypted connection; plain text if None.
    deadlines
        How long calls may take.
    """

    def __init__(self, target: str, *, tls: Tls | None = None, deadlines: Deadlines | None = None) -> None:
        self.target = target
        self._deadlines = deadlines or Deadlines()
        options = _options(tls)
        self._channel = (
            grpc.aio.secure_channel(target, tls.credentials(), options)
            if tls
            else grpc.aio.insecure_channel(target, options)
        )
        self._stubs: dict[str, Any] = {}
        self._loss: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        if self._loss is not None:
            self._loss.cancel()
            await asyncio.wait({self._loss})
        await self._channel.close()

    async def wait_for_loss(self, within_s: float) -> None:
        """Return at once when the connection ends; without one, after a few seconds."""
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            await asyncio.sleep(min(within_s, _UNCONNECTED_S))
            return
        if self._loss is None or self._loss.done():
            self._loss = asyncio.create_task(
                self._channel.wait_for_state_change(grpc.ChannelConnectivity.READY), name="fluxion connection"
            )
        await asyncio.wait({self._loss}, timeout=within_s)

    async def wait_reachable(self, timeout_s: float) -> None:
        """Return once a connection exists; `DeadlinePassed` after ``timeout_s``."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_s)
        except TimeoutError:
            raise _unreachable(self.target, timeout_s) from None

    async def _send(self, rpc: Rpc[Answer]) -> Answer:
        request = rpc.checked_request()
        stub = self._stubs.get(rpc.method) or self._stubs.setdefault(
            rpc.method, _stub(self._channel, rpc, request)
        )
        deadline = time.monotonic() + self._deadlines.of(rpc.method)
        pauses = _pauses(rpc)
        while True:
            try:
                response = await stub(request, timeout=max(deadline - time.monotonic(), 0.0))
            except grpc.aio.AioRpcError as error:
                failure = _failure(rpc, self.target, error)
                pause = next(pauses, None) if type(failure) is FluxionUnavailable else None
                if pause is None or time.monotonic() + pause >= deadline:
                    raise failure from None
                await asyncio.sleep(pause)
            else:
                return rpc.read_response(response)


class FluxionClient(BlockingFluxion):
    """The matcher behind gRPC, without asyncio; several threads may use it.
    Parameters as for `AsyncFluxionClient`.
    """

    def __init__(self, target: str, *, tls: Tls | None = None, deadlines: Deadlines | None = None) -> None:
        self.target = target
        self._deadlines = deadlines or Deadlines()
        options = _options(tls)
        self._channel = (
            grpc.secure_channel(target, tls.credentials(), options)
            if tls
            else grpc.insecure_channel(target, options)
        )
        self._stubs: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connection; calls under way fail."""
        self._channel.close()

    def wait_reachable(self, timeout_s: float) -> None:
        """Return once a connection exists; `DeadlinePassed` after ``timeout_s``."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise _unreachable(self.target, timeout_s) from None

    def _send(self, rpc: Rpc[Answer]) -> Answer:
        request = rpc.checked_request()
        stub = self._stubs.get(rpc.method) or self._stubs.setdefault(
            rpc.method, _stub(self._channel, rpc, request)
        )
        deadline = time.monotonic() + self._deadlines.of(rpc.method)
        pauses = _pauses(rpc)
        while True:
            try:
                response = stub(request, timeout=max(deadline - time.monotonic(), 0.0))
            except grpc.RpcError as error:
                failure = _failure(rpc, self.target, error)
                pause = next(pauses, None) if type(failure) is FluxionUnavailable else None
                if pause is None or time.monotonic() + pause >= deadline:
                    raise failure from None
                time.sleep(pause)
            else:
                return rpc.read_response(response)


def _options(tls: Tls | None) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.enable_retries", 0),
        # the service is in the cluster, and a proxy of the environment is for the internet
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]
    if tls and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options


def _stub(channel: Any, rpc: Rpc[Any], request: Message) -> Any:
    return channel.unary_unary(
        rpc.path(),
        request_serializer=type(request).SerializeToString,
        response_deserializer=rpc.response_type.FromString,
    )


def _pauses(rpc: Rpc[Any]) -> Iterator[float]:
    """Yield the pause before each further attempt, in seconds; nothing for calls that are sent once."""
    if rpc.idempotent:
        for attempt in range(1, _ATTEMPTS):
            yield random.uniform(0.5, 1.0) * _FIRST_PAUSE_S * 2**attempt


def _failure(rpc: Rpc[Any], target: str, error: Any) -> FluxionError:
    metadata = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}
    return failure_of(rpc, target, error.code(), error.details() or "", metadata)


def _unreachable(target: str, timeout_s: float) -> DeadlinePassed:
    return DeadlinePassed(f"no Fluxion service answered at {target} within {timeout_s:g} s")
