"""Bounded connections for servers that any pod of the cluster may reach.

Each connection carries one request, whose head must arrive within a few seconds, and ends within a few minutes. If there are too many, the
one that has waited longest without sending a request is closed in favour of the new one. So a client that opens connections and sends
nothing cannot keep a probe or a scrape out, and the memory of the server is bounded.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BoundedConnection", "bounded_config"]

HEAD_S: Final = 10.0
"""Seconds within which the head of a request must have arrived."""
LIFETIME_S: Final = 300.0
"""Seconds after which a connection is closed, whatever it does."""
MOST_CONNECTIONS: Final = 64
_LARGEST_HEAD: Final = 16_384


class BoundedConnection(H11Protocol):
    """One connection of `bounded_config`."""

    head_s = HEAD_S
    lifetime_s = LIFETIME_S
    most = MOST_CONNECTIONS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadlines: tuple[asyncio.TimerHandle, ...] = ()
        self._since = 0.0

    @property
    def waits_for_request(self) -> bool:
        """True until the head of the request has arrived."""
        return self.cycle is None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Close the connection that has waited longest if there are too many, and start the deadlines of this one."""
        waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each.waits_for_request]
        crowded = len(self.connections) >= self.most
        self._since = self.loop.time()
        super().connection_made(transport)
        self._deadlines = (self.loop.call_later(self.head_s, self._no_head), self.loop.call_later(self.lifetime_s, transport.abort))
        if crowded:
            victim = min(waiting, key=lambda each: each._since, default=self)
            victim.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadlines."""
        for deadline in self._deadlines:
            deadline.cancel()
        super().connection_lost(exc)

    def _no_head(self) -> None:
        if self.waits_for_request:
            self.transport.abort()


def bounded_config(app: ASGIApp, host: str, port: int) -> uvicorn.Config:
    """Return the settings of a server with bounded connections, heads and bodies; nothing of a request is logged."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=[("connection", "close")],
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        timeout_graceful_shutdown=2,
    )
