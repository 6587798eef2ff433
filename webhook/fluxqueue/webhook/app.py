"""The HTTP side: reviews in, answers out, and what an operator asks.

``/mutate`` and ``/validate`` are plain Starlette routes in front of FastAPI's own: its per-request machinery would cost twice what the
decision does. A body that is no review gets 400 and a sentence, one that is too large 413; a failure of ours gets 500 and a sentence, and
its traceback goes to the log. All three are failures to the API server, which then applies ``failurePolicy``.

While the server drains, every answer asks the client to close the connection: the API server keeps connections for 90 seconds and does
not repeat a POST that met a closed one, so connections are handed back by the client, not cut under it.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

import structlog
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fluxqueue.webhook.decide import Decision, Settings, decide
from fluxqueue.webhook.decisions import Outcome
from fluxqueue.webhook.metrics import CONTENT_TYPE_LATEST, MALFORMED, Metrics
from fluxqueue.webhook.readiness import Readiness
from fluxqueue.webhook.reviews import MalformedReview, Review, encode_answer, read_review
from fluxqueue.webhook.validation import validate

__all__ = ["MAX_BODY_BYTES", "create_app"]

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 3 * 2**20 + 2**18
"""The API server takes objects of 3 MiB; a quarter MiB is room for the review around one."""


class _TooLarge(Exception):
    """The body is larger than any object can be."""


def create_app(settings: Settings, readiness: Readiness, metrics: Metrics, clock: Callable[[], dt.datetime]) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    settings
        Of the decision.
    readiness
        What ``/readyz`` says.
    metrics
        What ``/metrics`` shows.
    clock
        The time, with a zone.

    Returns
    -------
    FastAPI
        Serving ``/mutate``, ``/validate``, ``/healthz``, ``/readyz`` and ``/metrics``.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    async def answer(request: Request, decide_review: Callable[[Review], Decision]) -> Response:
        begun = time.perf_counter()
        headers = {"connection": "close"} if readiness.draining else None
        try:
            review = read_review(await _body(request))
            decision = decide_review(review)
        except MalformedReview as problem:
            metrics.review("other", MALFORMED, time.perf_counter() - begun)
            log.warning("malformed review", problem=str(problem))
            return PlainTextResponse(f"{problem}\n", 400, headers)
        except _TooLarge:
            metrics.review("other", MALFORMED, time.perf_counter() - begun)
            return PlainTextResponse(f"the review is larger than {MAX_BODY_BYTES} bytes\n", 413, {"connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)
        metrics.review(review.kind, decision.outcome, time.perf_counter() - begun)
        _tell(review, decision)
        return Response(encode_answer(review.uid, decision), 200, headers, "application/json")

    async def mutate(request: Request) -> Response:
        return await answer(request, lambda review: decide(review, settings))

    async def judge(request: Request) -> Response:
        return await answer(request, validate)

    app.router.routes[:0] = [Route("/mutate", mutate, methods=["POST"]), Route("/validate", judge, methods=["POST"])]

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        problem = readiness.problem(clock())
        return PlainTextResponse(f"{problem or 'ok'}\n", 503 if problem else 200)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(Exception)
    async def fail(_request: Request, _error: Exception) -> Response:
        # The traceback is logged by the server, which gets the exception after this answer.
        return PlainTextResponse("fluxqueue could not answer this request: its log says why\n", 500, {"connection": "close"})

    return app


async def _body(request: Request) -> bytes:
    """The whole body, given up as soon as it is too large."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > MAX_BODY_BYTES:
        raise _TooLarge
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _TooLarge
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _tell(review: Review, decision: Decision) -> None:
    """Refusals and warnings are worth a line each; what goes well is counted, not told."""
    if decision.outcome is Outcome.REFUSED and decision.refusal is not None:
        log.info("refused", object=review.describe(), requester=review.requester, review=review.uid, why=decision.refusal.message)
    elif decision.warnings:
        log.info("warned", object=review.describe(), requester=review.requester, review=review.uid, warnings=decision.warnings)
    else:
        log.debug("answered", object=review.describe(), outcome=decision.outcome, operations=len(decision.operations), review=review.uid)
