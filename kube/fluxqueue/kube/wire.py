"""One HTTP exchange with the API server, and when to try it again.

Every call has a deadline that covers waiting for a free slot, all tries and all pauses. What is tried again, and what is not:

* Connecting failed: nothing was sent, so any call is tried again.
* The connection broke later: a read is tried again. A write is not, because it may have been carried out; the caller gets
  :class:`Unreachable` with ``sent`` true and must look. This includes DELETE, which RFC 9110 calls idempotent: a second one answers
  404, and the caller would take its own success for somebody else's.
* 429: the server did nothing and says when to come again; tried again while the deadline allows. 5xx with Retry-After: the same for
  reads.
* 401: the credentials are read again, once, and the call repeated if they changed.

Writes can be made to depend on something (:attr:`Wire.may_write`): it is asked immediately before each is sent, repetitions included, so
a process that was paused for longer than its lease lasts sends nothing when it wakes up.

Responses are asked for uncompressed: inside a cluster the CPU for gzip costs more than the bytes.
"""

from __future__ import annotations

import asyncio
import builtins
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.credentials import Credentials
from fluxqueue.kube.errors import ApiError, NotLeading, Silent, Unauthorized, Unreachable, decode_error

__all__ = ["Call", "Request", "Wire"]

TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 10.0
KEEPALIVE_S: Final = 30.0
"""How long an idle connection is kept: well below the 90 s after which the API server closes it, so the two do not race."""

TRIES: Final = 5
READ_BUFFER: Final = 1 << 18
"""Bytes; bounds how many watch events arrive in one piece and so how long the event loop is kept."""


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, for metrics: verb as RBAC calls it, plural of the kind, status (0: no answer), seconds."""

    verb: str
    kind: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be asked, and how messages (``doing``) and metrics (``verb``, ``kind``) call it."""

    verb: str
    kind: str
    doing: str
    method: str
    path: str
    query: dict[str, str] | None = None
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def reads(self) -> bool:
        """Whether sending it twice is the same as once."""
        return self.method in ("GET", "HEAD")


class Wire:
    """Connections to one API server.

    Attributes
    ----------
    calls
        HTTP requests sent so far by (verb, plural), repeated ones included.
    on_call
        Told of each request when its answer begins or fails to come; for metrics, so it must be quick and must not raise.
    may_write
        Whether anything but reads may be sent at this moment; None: always.
    """

    def __init__(self, credentials: Credentials, session: aiohttp.ClientSession, *, timeout_s: float, max_in_flight: int) -> None:
        self._credentials = credentials
        self._session = session
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(max_in_flight)
        self._proxy = credentials.proxy
        self.calls: Counter[tuple[str, str]] = Counter()
        self.on_call: Callable[[Call], None] | None = None
        self.may_write: Callable[[], bool] | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, credentials: Credentials, *, user_agent: str, timeout_s: float, max_in_flight: int) -> AsyncIterator[Wire]:
        """Make the connection pool; parameters as in :meth:`fluxqueue.kube.transport.Api.connect`."""
        connector = aiohttp.TCPConnector(limit=0, ssl=credentials.tls, keepalive_timeout=KEEPALIVE_S, socket_factory=_watchful_socket)
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            read_bufsize=READ_BUFFER,
        )
        # aiohttp would repeat DELETE by itself when a kept connection breaks, unseen by us; and its own retry of reads adds nothing.
        session._retry_connection = False
        async with session:
            yield cls(credentials, session, timeout_s=timeout_s, max_in_flight=max_in_flight)

    async def call(self, request: Request, timeout_s: float | None = None) -> bytes:
        """Send, and send again where that is right, within one deadline.

        Raises
        ------
        ApiError
            The last one, when trying again is wrong or useless.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        deadline = clock() + limit_s
        rejected: str | None = None
        failures = 0
        while True:
            header = await self._credentials.authorization()
            try:
                async with asyncio.timeout_at(deadline), self._slots:
                    return await self._exchange(request, header, read_timeout_s=limit_s / 3 if request.reads else None)
            except Unauthorized:
                if rejected is not None or not await self._credentials.renew(header):
                    raise
                rejected = header
                continue
            except ApiError as error:
                wait_s = _pause_s(error, request, failures)
                failures += 1
                if wait_s is None or failures >= TRIES or clock() + wait_s >= deadline:
                    raise
            except TimeoutError as error:
                raise Unreachable(f"{request.doing}: no answer from {self._credentials.host} within {limit_s:g} s", sent=True) from error
            await asyncio.sleep(wait_s)

    async def stream(self, request: Request, *, silence_s: float) -> AsyncGenerator[builtins.list[bytes], None]:
        """Follow an answer that does not end, as lists of whole lines.

        Parameters
        ----------
        request
            Sent once.
        silence_s
            After how many seconds without a byte the connection is taken for dead.

        Yields
        ------
        list of bytes
            First an empty list when the server has accepted, then lines as they come.

        Raises
        ------
        Silent, ApiError
            The stream's normal end is the end of the iteration.
        """
        try:
            for last_try in (False, True):
                header = await self._credentials.authorization()
                started = time.monotonic()
                async with asyncio.timeout(self._timeout_s) as opening:
                    response = await self._open(request, header, read_timeout_s=silence_s)
                    opening.reschedule(None)
                async with response:
                    self._count(request, response.status, started)
                    if response.status == 200:
                        with _leaving_at_once(response):
                            yield []
                            async for lines in _whole_lines(response.content):
                                yield lines
                        return
                    if response.status == 401 and not last_try and await self._credentials.renew(header):
                        continue
                    raise await _refusal(response, request.doing)
        except aiohttp.SocketTimeoutError as error:
            raise Silent(f"{request.doing}: not a word for {silence_s:g} s, the connection is taken for dead") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{request.doing}: {_cause(error)}", sent=True) from error

    async def _exchange(self, request: Request, header: str | None, *, read_timeout_s: float | None) -> bytes:
        if not request.reads and self.may_write is not None and not self.may_write():
            raise NotLeading(f"{request.doing}: not sent, for this process does not lead (any more)")
        started = time.monotonic()
        status = 0
        try:
            async with await self._open(request, header, read_timeout_s=read_timeout_s) as response:
                status = response.status
                if status >= 300:
                    raise await _refusal(response, request.doing)
                return await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(f"{request.doing}: cannot connect to {self._credentials.host}: {_cause(error)}", sent=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{request.doing}: connection to {self._credentials.host} lost: {_cause(error)}", sent=True) from error
        finally:
            self._count(request, status, started)

    async def _open(self, request: Request, header: str | None, *, read_timeout_s: float | None) -> aiohttp.ClientResponse:
        headers = {"Authorization": header} if header else {}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return await self._session.request(
            request.method,
            self._credentials.host + request.path,
            params=request.query,
            data=request.body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=read_timeout_s),
            proxy=self._proxy,
            server_hostname=self._credentials.server_hostname,
            allow_redirects=False,
        )

    def _count(self, request: Request, status: int, started: float) -> None:
        self.calls[request.verb, request.kind] += 1
        if self.on_call is not None:
            self.on_call(Call(request.verb, request.kind, status, time.monotonic() - started))


def _pause_s(error: ApiError, request: Request, failures: int) -> float | None:
    """Seconds until the next try, or None when there must be none."""
    if isinstance(error, Unreachable):
        certificate = isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError)
        if certificate or (error.sent and not request.reads):
            return None
        return jittered_s(failures, base_s=0.05, cap_s=2.0, random=random.random)
    if error.retry_after_s is not None and (error.status == 429 or (request.reads and error.status >= 500)):
        return max(error.retry_after_s, 0.05) * (1 + 0.25 * random.random())
    return None


async def _whole_lines(content: aiohttp.StreamReader) -> AsyncGenerator[builtins.list[bytes], None]:
    """Cut pieces of any length at newlines; what follows the last one waits for its rest."""
    waiting: builtins.list[bytes] = []
    async for piece in content.iter_any():
        *lines, tail = piece.split(b"\n")
        if lines:
            lines[0] = b"".join((*waiting, lines[0]))
            waiting = []
            yield [line for line in lines if line]
        if tail:
            waiting.append(tail)


@contextmanager
def _leaving_at_once(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Reset the connection of a stream that is left before its end: a TLS farewell would wait up to 30 s for one that is dead."""
    try:
        yield
    finally:
        if response.connection is not None and response.connection.transport is not None and not response.content.at_eof():
            response.connection.transport.abort()


async def _refusal(response: aiohttp.ClientResponse, doing: str) -> ApiError:
    return decode_error(response.status, await response.read(), doing=doing, retry_after=response.headers.get("Retry-After"))


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _watchful_socket(address: tuple[Any, ...]) -> socket.socket:
    """A TCP socket whose kernel asks an idle peer for life signs, so that a host that vanished is noticed in about 30 s."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
