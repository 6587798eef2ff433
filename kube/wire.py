"""HTTP requests to the API server, with deadlines and retries.

Every call has a deadline, which includes the time to wait for a free slot, all tries and all pauses. The
rules of retries:

* Connecting failed: nothing was sent, so every request is retried.
* The connection broke later: a read is retried. A write is not, because it may have been carried out. The
  caller gets :class:`Unreachable` with ``sent`` true and must read the object. This includes DELETE, although
  RFC 9110 calls it idempotent: the second one would return 404, and the caller would not know that its own
  request succeeded.
* 429: the server did nothing and says when to retry; retried within the deadline. 5xx with Retry-After: the
  same, for reads.
* 401: the credentials are read again, once, and the request is repeated if they have changed.

Writes may depend on a condition (:attr:`Wire.may_write`). It is checked before a connection is looked for,
and again when the bytes are written (:mod:`fluxqueue.kube.sessions`).
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from multidict import CIMultiDict

from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.bodies import read_body
from fluxqueue.kube.credentials import Credentials
from fluxqueue.kube.errors import (
    ApiError,
    NotLeading,
    TooLong,
    Unauthorized,
    Unreachable,
    WatchTimeout,
    decode_error,
)
from fluxqueue.kube.server_warnings import warnings_in
from fluxqueue.kube.sessions import check_write, open_session

__all__ = ["CompletedCall", "Request", "Wire"]

TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 10.0
TRIES: Final = 5
_MOST_OF_REFUSAL: Final = 1 << 20
"""Bytes of the body of an error: more than the API server says of the largest object."""


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A completed HTTP request, for metrics: RBAC verb, plural of the kind, HTTP status (0: no response),
    duration in seconds.
    """

    verb: str
    kind: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, with its name in messages (``action``) and in metrics (``verb``, ``kind``)."""

    verb: str
    kind: str
    action: str
    method: str
    path: str
    query: dict[str, str] | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    most_bytes: int = 0
    """Of the response; 0: any."""
    warned: Callable[[str], object] | None = None
    """Gets each warning beside the answer."""

    @property
    def reads(self) -> bool:
        """True if the request is a read, which may be repeated."""
        return self.method in ("GET", "HEAD")


class Wire:
    """Connections to one API server.

    Attributes
    ----------
    calls
        Number of HTTP requests so far by (verb, plural), with retries.
    on_call
        Hook that is called when the response of a request begins or fails, for metrics; it must be fast and
        must not raise.
    may_write
        Returns true if writes may be sent now; None: always.
    date
        The time by the server's clock, of the last response; None if it did not say.
    """

    def __init__(
        self,
        credentials: Credentials,
        session: aiohttp.ClientSession,
        *,
        timeout_s: float,
        max_in_flight: int,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._credentials = credentials
        self._session = session
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(max_in_flight)
        self._proxy = credentials.proxy
        self._headers = tuple(headers)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.on_call: Callable[[CompletedCall], None] | None = None
        self.may_write: Callable[[], bool] | None = None
        self.date: str | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, credentials: Credentials, *, user_agent: str, timeout_s: float, max_in_flight: int
    ) -> AsyncIterator[Wire]:
        """Open a connection pool; for the parameters see :meth:`fluxqueue.kube.transport.Api.connect`."""
        async with open_session(credentials.tls, user_agent) as session:
            yield cls(credentials, session, timeout_s=timeout_s, max_in_flight=max_in_flight)

    def with_limits(self, *, timeout_s: float, max_in_flight: int) -> Wire:
        """Return another Wire that shares the connections."""
        return Wire(
            self._credentials,
            self._session,
            timeout_s=timeout_s,
            max_in_flight=max_in_flight,
            headers=self._headers,
        )

    def with_headers(
        self, headers: Sequence[tuple[str, str]], *, timeout_s: float, max_in_flight: int
    ) -> Wire:
        """Return another Wire that shares the connections and sends these headers with each request."""
        return Wire(
            self._credentials,
            self._session,
            timeout_s=timeout_s,
            max_in_flight=max_in_flight,
            headers=headers,
        )

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = TRIES) -> bytes:
        """Send a request, with retries where they are safe, at most ``tries`` times within one deadline.

        Raises
        ------
        ApiError
            The last error, if there is no further retry.
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
                    return await self._exchange(
                        request, header, read_timeout_s=limit_s / 3 if request.reads else None
                    )
            except Unauthorized:
                if rejected is not None or not await self._credentials.renew(header):
                    raise
                rejected = header
                continue
            except ApiError as error:
                wait_s = _pause_s(error, request, failures)
                failures += 1
                if wait_s is None or failures >= tries or clock() + wait_s >= deadline:
                    raise
            except TimeoutError as error:
                raise Unreachable(
                    f"{request.action}: no answer from {self._credentials.host} within {limit_s:g} s",
                    sent=True,
                ) from error
            await asyncio.sleep(wait_s)

    async def stream(
        self, request: Request, *, idle_s: float, whole: bool = True, longest: int = 0
    ) -> AsyncGenerator[builtins.list[bytes], None]:
        """Read a response that does not end, as lists of complete lines.

        Parameters
        ----------
        request
            The request; it is not retried.
        idle_s
            Seconds without a byte after which the connection counts as broken.
        whole
            False: what follows the last newline is a line too, as in a log. In a watch it is an event that
            was cut off.
        longest
            Bytes of a line after which it is yielded without its end, and empty lines are yielded too;
            0: lines are of any length, and empty ones left out.

        Yields
        ------
        list of bytes
            First an empty list, when the server has accepted; then lines as they arrive.

        Raises
        ------
        WatchTimeout, ApiError
            Any end of the stream except by the server, which ends the iteration.
        """
        try:
            for last_try in (False, True):
                header = await self._credentials.authorization()
                started = time.monotonic()
                async with asyncio.timeout(self._timeout_s) as opening:
                    response = await self._open(request, header, read_timeout_s=idle_s)
                    opening.reschedule(None)
                async with response:
                    self._count(request, response.status, started)
                    if response.status == 200:
                        with _aborted_on_exit(response):
                            yield []
                            async for lines in _lines(response.content, whole=whole, longest=longest):
                                yield lines
                        return
                    if response.status == 401 and not last_try and await self._credentials.renew(header):
                        continue
                    raise await _refusal(response, request.action)
        except aiohttp.SocketTimeoutError as error:
            raise WatchTimeout(
                f"{request.action}: nothing received for {idle_s:g} s, the connection counts as broken"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{request.action}: {_cause(error)}", sent=True) from error

    async def _exchange(self, request: Request, header: str | None, *, read_timeout_s: float | None) -> bytes:
        if not request.reads:
            self._check_write(request)
        started = time.monotonic()
        status = 0
        try:
            async with await self._open(request, header, read_timeout_s=read_timeout_s) as response:
                status, self.date = response.status, response.headers.get("Date")
                if (warned := request.warned) is not None:
                    for text in warnings_in(response.headers.getall("Warning", ())):
                        warned(text)
                if status >= 300:
                    raise await _refusal(response, request.action)
                return await _read(response, request)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(
                f"{request.action}: cannot connect to {self._credentials.host}: {_cause(error)}", sent=False
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                f"{request.action}: connection to {self._credentials.host} lost: {_cause(error)}", sent=True
            ) from error
        finally:
            self._count(request, status, started)

    def _check_write(self, request: Request) -> None:
        """Raise NotLeading if the request must not be sent now."""
        if self.may_write is not None and not self.may_write():
            raise NotLeading(f"{request.action}: not sent, because this process does not lead (any more)")

    async def _open(
        self, request: Request, header: str | None, *, read_timeout_s: float | None
    ) -> aiohttp.ClientResponse:
        check_write.set(None if request.reads else functools.partial(self._check_write, request))
        headers = CIMultiDict([*self._headers, *request.headers])
        if header:
            headers["Authorization"] = header
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
            self.on_call(CompletedCall(request.verb, request.kind, status, time.monotonic() - started))


async def _read(response: aiohttp.ClientResponse, request: Request) -> bytes:
    """Read a response; one that is too long is not read to its end."""
    if not request.most_bytes:
        return await response.read()
    body = await read_body(response, request.most_bytes)
    if len(body) > request.most_bytes:
        raise TooLong(
            response.status,
            "TooLong",
            f"{request.action}: the response has more than {request.most_bytes} bytes",
        )
    return body


def _pause_s(error: ApiError, request: Request, failures: int) -> float | None:
    """Return the seconds until the next try, or None if there must be none."""
    if isinstance(error, Unreachable):
        certificate = isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError)
        if certificate or (error.sent and not request.reads):
            return None
        return jittered_s(failures, base_s=0.05, cap_s=2.0, random=random.random)
    if error.retry_after_s is not None and (error.status == 429 or (request.reads and error.status >= 500)):
        return max(error.retry_after_s, 0.05) * (1 + 0.25 * random.random())
    return None


async def _lines(
    content: aiohttp.StreamReader, *, whole: bool, longest: int = 0
) -> AsyncGenerator[builtins.list[bytes], None]:
    """Split chunks of any length into lines; an incomplete line is kept until the rest arrives,
    and dropped at the end if `whole`. No more than ``longest`` bytes and a chunk are kept, if it is not 0.
    """
    incomplete: builtins.list[bytes] = []
    async for chunk in content.iter_any():
        *lines, tail = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*incomplete, lines[0]))
            incomplete = []
            yield [line for line in lines if line or longest]
        if tail:
            incomplete.append(tail)
        if longest and sum(map(len, incomplete)) >= longest:
            yield [b"".join(incomplete)]
            incomplete = []
    if incomplete and not whole:
        yield [b"".join(incomplete)]


@contextmanager
def _aborted_on_exit(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Reset the connection if the stream is left before its end;
    a TLS close would wait up to 30 s for a broken one.
    """
    try:
        yield
    finally:
        if (
            response.connection is not None
            and response.connection.transport is not None
            and not response.content.at_eof()
        ):
            response.connection.transport.abort()


async def _refusal(response: aiohttp.ClientResponse, action: str) -> ApiError:
    """Return the exception for an error; of a body that is too long only the beginning is read."""
    body = await read_body(response, _MOST_OF_REFUSAL)
    return decode_error(
        response.status,
        body[:_MOST_OF_REFUSAL],
        action=action,
        retry_after=response.headers.get("Retry-After"),
    )


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__
