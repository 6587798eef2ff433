"""Refusals before the body of a request is read, and a time for it to arrive.

FastAPI reads a body into memory before it checks anything else. So the token and the declared length are
checked here, from the head of the request: a client without the token makes the service hold nothing, and one
with it at most `MAX_BODY_BYTES` for a few seconds.

Many clients read the answer only after they have sent the body. If the service closed the connection earlier,
the kernel would reset it and the client would report a broken pipe instead of the sentence. So the body of a
refused request is received and discarded, within limits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fluxqueue.serving.connections import ConnectionLimits

__all__ = ["LIMITS", "MAX_BODY_BYTES", "MAX_DISCARDED_BYTES", "BoundedRequests"]

MAX_BODY_BYTES: Final = 2**20
MAX_DISCARDED_BYTES: Final = 2**25
_ARRIVAL_S = 10.0
_TIME_OUT: Final = 408
LIMITS: Final = ConnectionLimits(
    connections=256, request_s=10.0, response_s=86_400.0, idle_s=30.0, whole_requests=False
)
"""Of the server: output may be followed for a day. Bodies are bounded here."""

Refusal = tuple[int, str, dict[str, str]]
"""Code, sentence and headers of an answer."""


class BoundedRequests:
    """The application behind the checks.

    Parameters
    ----------
    app
        The application.
    refusal
        Returns why a request with these headers is refused; None if it is not. It is asked for every path
        under ``/v1``.
    arrival_s
        Seconds within which a body must arrive.
    """

    def __init__(
        self, app: ASGIApp, refusal: Callable[[Headers], Refusal | None], arrival_s: float = _ARRIVAL_S
    ) -> None:
        self._app = app
        self._refusal = refusal
        self._arrival_s = arrival_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].startswith("/v1"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(headers) or _too_large(scope["method"], headers)
        if refusal is None and scope["method"] == "POST":
            try:
                receive = await self._arrived(receive)
            except TimeoutError:
                sentence = f"the body did not arrive within {self._arrival_s:g} s: send the request again"
                refusal = (_TIME_OUT, sentence, {"connection": "close"})
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await self._refuse(JSONResponse({"detail": refusal[1]}, refusal[0], refusal[2]), receive, send)

    async def _refuse(self, answer: JSONResponse, receive: Receive, send: Send) -> None:
        """Send the answer, discard what arrives of the body within the limits, then end the response."""
        await send(
            {"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers}
        )
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        discarded_bytes, more = 0, answer.status_code != _TIME_OUT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._arrival_s):
                while more and discarded_bytes <= MAX_DISCARDED_BYTES:
                    message = await receive()
                    discarded_bytes += len(message.get("body", b""))
                    more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})

    async def _arrived(self, receive: Receive) -> Receive:
        """Wait for the body; return a function that gives it, and then what follows."""
        messages: list[Message] = []
        async with asyncio.timeout(self._arrival_s):
            while not messages or messages[-1].get("more_body", False):
                messages.append(await receive())

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        return again


def _too_large(method: str, headers: Headers) -> Refusal | None:
    length = headers.get("content-length", "")
    if method != "POST" or (length.isdecimal() and int(length[:20]) <= MAX_BODY_BYTES):
        return None
    return (
        413,
        f"a request must have a Content-Length of at most {MAX_BODY_BYTES} bytes",
        {"connection": "close"},
    )
