"""The HTTP application of the extender: ``/v1/filter``, ``/v1/prioritize`` and ``/v1/bind``.

kube-scheduler schedules one pod after the other and waits for the extender meanwhile. So body size,
concurrent requests and time are bounded, and a request beyond a bound is answered with a sentence.
kube-scheduler shows people the ``Error`` of a response and never the body of an HTTP error. So ``filter`` and
``bind`` always respond with 200. Unexpected errors are in our log.

While the server drains, every response asks the client to close the connection (`fluxqueue.webhook.app` gives
the reason).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import structlog
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fluxqueue.scheduler_plugin.extender.metrics import REQUESTS, SECONDS
from fluxqueue.scheduler_plugin.extender.verbs import ExtenderVerbs
from fluxqueue.scheduler_plugin.extender.wire import (
    MalformedRequest,
    encode_binding,
    encode_filter,
    encode_scores,
    read_arguments,
    read_binding,
)

__all__ = [
    "LARGE_BYTES",
    "MAX_BINDING_BYTES",
    "MAX_BODY_BYTES",
    "MOST_AT_ONCE",
    "ExtenderState",
    "create_app",
]

log: Final = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 64 * 2**20
"""Limit for ``filter`` and ``prioritize``: 5,000 whole nodes of 13 KB each.
Names of 5,000 nodes are 0.3 MB."""

LARGE_BYTES: Final = 2 * 2**20
"""Larger bodies contain whole nodes; only one of them is read at a time."""

MAX_BINDING_BYTES: Final = 16 * 2**10
MOST_AT_ONCE: Final = 256

_DONE, _REFUSED, _ERROR = "done", "refused", "error"


@dataclass(frozen=True, slots=True)
class ExtenderState:
    """State of the server that the application needs.

    Attributes
    ----------
    problem
        Why this replica is not ready, as a sentence, or None. Requests that arrive nevertheless are answered.
    draining
        True once the server is stopping.
    deadline_s
        Time limit of one response in seconds; kube-scheduler's ``httpTimeout`` has to be longer.
    """

    problem: Callable[[], str | None]
    draining: Callable[[], bool]
    deadline_s: float = 4.0


class _BoundExceeded(Exception):
    """The request exceeds a bound; the message names it."""


Handler = Callable[[bytes], Awaitable[tuple[bytes, str]]]


class _BoundedRequests:
    """Reads requests within all bounds, and responds."""

    def __init__(self, state: ExtenderState) -> None:
        self._state = state
        self._in_flight = 0
        self._large = asyncio.Semaphore(1)

    async def serve(
        self,
        verb: str,
        request: Request,
        limit_bytes: int,
        handler: Handler,
        failed: Callable[[str], Response],
    ) -> Response:
        """Read a body, call its handler, and count the request."""
        started = time.perf_counter()
        self._in_flight += 1
        result = _ERROR
        try:
            async with asyncio.timeout(self._state.deadline_s), AsyncExitStack() as held:
                if self._in_flight > MOST_AT_ONCE:
                    raise _BoundExceeded(
                        f"the extender of fluxqueue has {MOST_AT_ONCE} requests in flight, which is its limit"
                    )
                body = await self._read(request, limit_bytes, held)
                answer, result = await handler(body)
            response = Response(answer, media_type="application/json")
        except ClientDisconnect:
            return Response(status_code=400)
        except (_BoundExceeded, MalformedRequest) as error:
            log.warning("extender.request_refused", verb=verb, problem=str(error))
            response = failed(str(error))
        except TimeoutError:
            log.warning("extender.deadline_passed", verb=verb, deadline_s=self._state.deadline_s)
            response = failed(
                f"the extender of fluxqueue could not answer within {self._state.deadline_s:g} s"
            )
        except Exception:
            log.exception("extender.failed", verb=verb)
            response = failed("the extender of fluxqueue could not answer this request: its log says why")
        finally:
            self._in_flight -= 1
            REQUESTS.labels(verb, result).inc()
            SECONDS.labels(verb).observe(time.perf_counter() - started)
        if self._state.draining():
            response.headers["connection"] = "close"
        return response

    async def _read(self, request: Request, limit_bytes: int, held: AsyncExitStack) -> bytes:
        """Return the whole body; stop reading as soon as it is too large."""
        declared = request.headers.get("content-length", "")
        size = int(declared) if declared.isdecimal() else limit_bytes
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if size > LARGE_BYTES:
            await held.enter_async_context(self._large)
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def create_app(verbs: ExtenderVerbs, state: ExtenderState) -> FastAPI:
    """Return the application."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    requests = _BoundedRequests(state)

    async def answer_filter(body: bytes) -> tuple[bytes, str]:
        arguments = read_arguments(body)
        result = await verbs.filter(arguments)
        if isinstance(result, str):
            return encode_filter(result), _ERROR
        return encode_filter(result, arguments), _DONE if result.kept else _REFUSED

    async def answer_prioritize(body: bytes) -> tuple[bytes, str]:
        return encode_scores(verbs.prioritize(read_arguments(body))), _DONE

    async def answer_bind(body: bytes) -> tuple[bytes, str]:
        binding = read_binding(body)
        error = await verbs.bind(binding, state.deadline_s)
        if error:
            log.info(
                "extender.bind_refused",
                pod=f"{binding.namespace}/{binding.name}",
                uid=binding.uid,
                node=binding.node,
                reason=error,
            )
        return encode_binding(error), _REFUSED if error else _DONE

    async def filter_nodes(request: Request) -> Response:
        return await requests.serve(
            "filter", request, MAX_BODY_BYTES, answer_filter, lambda why: _json(encode_filter(why))
        )

    async def prioritize(request: Request) -> Response:
        return await requests.serve("prioritize", request, MAX_BODY_BYTES, answer_prioritize, _unavailable)

    async def bind(request: Request) -> Response:
        return await requests.serve(
            "bind", request, MAX_BINDING_BYTES, answer_bind, lambda why: _json(encode_binding(why))
        )

    app.router.routes[:0] = [
        Route("/v1/filter", filter_nodes, methods=["POST"]),
        Route("/v1/prioritize", prioritize, methods=["POST"]),
        Route("/v1/bind", bind, methods=["POST"]),
    ]

    _add_probes(app, state)
    return app


def _add_probes(app: FastAPI, state: ExtenderState) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        problem = state.problem()
        return PlainTextResponse(f"{problem or 'ok'}\n", 503 if problem else 200)


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _unavailable(why: str) -> Response:
    return PlainTextResponse(f"{why}\n", 503)


def _too_large(limit_bytes: int) -> _BoundExceeded:
    return _BoundExceeded(
        f"the request is larger than {limit_bytes} bytes: set nodeCacheCapable: "
        "true in kube-scheduler's configuration"
    )
