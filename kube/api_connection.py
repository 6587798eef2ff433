"""The connection to the API server that all calls share, and requests of any form over it.

Configuration, authentication and TLS are in :mod:`fluxqueue.kube.credentials`, deadlines and retries in
:mod:`fluxqueue.kube.wire`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

import orjson

from fluxqueue.kube.credentials import Credentials
from fluxqueue.kube.decoding import ServerVersion, decode
from fluxqueue.kube.errors import Forbidden
from fluxqueue.kube.wire import TIMEOUT_S, TRIES, CompletedCall, Request, Wire

__all__ = ["ApiConnection"]


class ApiConnection:
    """A connection to one API server; created by :meth:`connect`.

    Each call raises an :class:`~fluxqueue.kube.errors.ApiError` of the class that the answer stands for.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        user_agent: str = "fluxqueue/queue",
        *,
        timeout_s: float = TIMEOUT_S,
        max_in_flight: int = 32,
    ) -> AsyncIterator[Self]:
        """Open a connection pool; the first call connects.

        Parameters
        ----------
        kubeconfig, context
            See :meth:`Credentials.load`.
        user_agent
            Appears in audit logs and in flow control.
        timeout_s
            Deadline of each call that does not set its own.
        max_in_flight
            Maximum number of concurrent calls; others wait. Watches do not count.

        Raises
        ------
        NoConfiguration
            There is no configuration for an API server.
        """
        credentials = await Credentials.load(kubeconfig, context)
        async with Wire.open(
            credentials, user_agent=user_agent, timeout_s=timeout_s, max_in_flight=max_in_flight
        ) as wire:
            yield cls(wire)

    def with_limits(self, *, timeout_s: float, max_in_flight: int) -> Self:
        """Return another Api with its own deadline, limit and hooks,
        which shares the connections of this one and closes with it.
        """
        return type(self)(self._wire.with_limits(timeout_s=timeout_s, max_in_flight=max_in_flight))

    def with_headers(self, headers: Sequence[tuple[str, str]]) -> Self:
        """Return another Api that sends these headers with each request,
        which shares the connections of this one and closes with it.
        """
        return type(self)(self._wire.with_headers(headers, timeout_s=TIMEOUT_S, max_in_flight=32))

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Number of HTTP requests so far by (verb, plural), with retries; the verbs are those of RBAC."""
        return self._wire.calls

    @property
    def on_call(self) -> Callable[[CompletedCall], None] | None:
        """Hook that is called after each request, for metrics; it must be fast and must not raise."""
        return self._wire.on_call

    @on_call.setter
    def on_call(self, hook: Callable[[CompletedCall], None] | None) -> None:
        self._wire.on_call = hook

    @property
    def may_write(self) -> Callable[[], bool] | None:
        """Hook that is called before each write; if it returns false,
        :class:`~fluxqueue.kube.errors.NotLeading` is raised instead.
        """
        return self._wire.may_write

    @may_write.setter
    def may_write(self, allowed: Callable[[], bool] | None) -> None:
        self._wire.may_write = allowed

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        tries: int = TRIES,
        most_bytes: int = 0,
    ) -> bytes:
        """Send any other request: other subresources, discovery, ``/readyz``.

        Parameters
        ----------
        method, path, query
            Of the HTTP request.
        body
            Bytes are sent as they are; anything else is encoded as JSON.
        content_type
            Content type of the body.
        timeout_s
            Deadline; None is the default of this Api.
        headers
            More headers, for a program behind the server's proxy.
        tries
            How often it is sent at most; it is repeated only where that is safe.
        most_bytes
            Of the response, else `TooLong`; 0: any.
        """
        payload = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        verb = method.lower()
        request = Request(
            verb,
            "raw",
            f"{verb} {path}",
            method.upper(),
            path,
            query,
            payload,
            content_type,
            _pairs(headers),
            most_bytes,
        )
        return await self._wire.call(request, timeout_s, tries=tries)

    def lines(
        self,
        path: str,
        *,
        query: dict[str, str] | None = None,
        idle_s: float,
        headers: Mapping[str, str] | None = None,
        longest: int = 0,
    ) -> AsyncGenerator[list[bytes], None]:
        """Read text that goes on, such as a followed log, as `watch` reads events;
        an incomplete last line is yielded too. For ``longest`` see `Wire.stream`.
        """
        request = Request("get", "raw", f"get {path}", "GET", path, query, headers=_pairs(headers))
        return self._wire.stream(request, idle_s=idle_s, whole=False, longest=longest)

    async def version(self) -> str:
        """Return the server's version, for example ``v1.36.3``."""
        return decode(await self.request("GET", "/version"), ServerVersion, "get /version").git_version

    async def time(self) -> datetime | None:
        """Return the time by the server's clock, which it tells in whole seconds; None if it does not."""
        with contextlib.suppress(Forbidden):  # it has a date too
            await self.version()
        try:
            # HTTP knows no other zone
            return parsedate_to_datetime(self._wire.date or "").replace(tzinfo=UTC) + timedelta(seconds=0.5)
        except ValueError:
            return None


def _pairs(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(headers.items()) if headers else ()
