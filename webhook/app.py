"""The HTTP application of the webhook: admission reviews, probes and metrics.

``/mutate`` and ``/validate`` are routes of FastAPI that take the body as bytes and respond with bytes, so
there is no model to validate or to serialize. A body that is not a review gets 400 and a sentence; the API
server treats that as a failure and applies ``failurePolicy``. A review during which an internal error occurs
is refused with a sentence, and its traceback is logged: with ``failurePolicy: Ignore`` a failure would let
the object pass unqueued. Bodies that are too large or too slow never arrive here
(`fluxqueue.serving.guarded_http`).

While the server drains, every response asks the client to close the connection. The API server keeps
connections for 90 seconds and does not repeat a POST that met a closed one. So the client has to close
connections, not the server.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

import structlog
from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response

from fluxqueue.serving.readiness import Readiness
from fluxqueue.webhook.decide import AdmissionSettings, Decision, decide
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionRefusal
from fluxqueue.webhook.metrics import CONTENT_TYPE_LATEST, FAILED, MALFORMED, WebhookMetrics
from fluxqueue.webhook.reviews import MalformedReview, Review, encode_answer, read_review
from fluxqueue.webhook.validation import validate

__all__ = ["MAX_BODY_BYTES", "create_app"]

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 3 * 2**20 + 2**18
"""The API server accepts objects of 3 MiB; a quarter MiB is for the review around one."""

_CLOSE = {"connection": "close"}


def create_app(
    settings: AdmissionSettings,
    readiness: Readiness,
    metrics: WebhookMetrics,
    clock: Callable[[], dt.datetime],
) -> FastAPI:
    """Return the application.

    Returns
    -------
    FastAPI
        Serving ``/mutate``, ``/validate``, ``/healthz``, ``/readyz`` and ``/metrics``.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    reviews = _Reviews(settings, readiness, metrics, clock)
    app.post("/mutate")(reviews.mutate)
    app.post("/validate")(reviews.validate)

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        problem = readiness.problem(clock())
        return PlainTextResponse(f"{problem or 'ok'}\n", 503 if problem else 200)

    @app.get("/metrics")
    async def export_metrics() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(Exception)
    async def fail(_request: Request, _error: Exception) -> Response:
        # The server logs the traceback: it gets the exception after this response.
        return PlainTextResponse("fluxqueue could not answer this request: its log says why\n", 500, _CLOSE)

    return app


class _Reviews:
    """Reads reviews, decides, responds, counts and logs."""

    def __init__(
        self,
        settings: AdmissionSettings,
        readiness: Readiness,
        metrics: WebhookMetrics,
        clock: Callable[[], dt.datetime],
    ) -> None:
        self._settings = settings
        self._readiness = readiness
        self._metrics = metrics
        self._clock = clock

    async def mutate(self, request: Request) -> Response:
        return await self._respond(request, lambda review: decide(review, self._settings, self._clock()))

    async def validate(self, request: Request) -> Response:
        return await self._respond(request, lambda review: validate(review, self._settings))

    async def _respond(self, request: Request, decide_review: Callable[[Review], Decision]) -> Response:
        started = time.perf_counter()
        headers = _CLOSE if self._readiness.draining else None
        try:
            review = read_review(await request.body())
            decision = _decide(review, decide_review)
        except MalformedReview as problem:
            self._metrics.review("other", MALFORMED, time.perf_counter() - started)
            log.warning("review.malformed", problem=str(problem))
            return PlainTextResponse(f"{problem}\n", 400, headers)
        except ClientDisconnect:
            return Response(status_code=400)
        failed = decision.refusal is not None and decision.refusal.reason == "InternalError"
        self._metrics.review(
            review.kind, FAILED if failed else decision.outcome, time.perf_counter() - started
        )
        _log(review, decision)
        return Response(encode_answer(review.uid, decision), 200, headers, "application/json")


def _decide(review: Review, decide_review: Callable[[Review], Decision]) -> Decision:
    """Decide; refuse the object if that fails."""
    try:
        return decide_review(review)
    except MalformedReview:
        raise
    except Exception as error:
        log.exception(
            "review.failed",
            object=review.describe(),
            requester=review.requester,
            review=review.uid,
            error=type(error).__name__,
        )
        sentence = (
            f"{review.describe()}: fluxqueue could not decide about it: the webhook's log says why, "
            f"review {review.uid}"
        )
        return Decision(AdmissionOutcome.REFUSED, refusal=AdmissionRefusal("InternalError", sentence))


def _log(review: Review, decision: Decision) -> None:
    """Log refusals and warnings; other reviews are only counted."""
    if decision.outcome is AdmissionOutcome.REFUSED and decision.refusal is not None:
        log.info(
            "review.refused",
            object=review.describe(),
            requester=review.requester,
            review=review.uid,
            why=decision.refusal.message,
        )
    elif decision.warnings:
        log.info(
            "review.warned",
            object=review.describe(),
            requester=review.requester,
            review=review.uid,
            warnings=decision.warnings,
        )
    else:
        log.debug(
            "review.passed",
            object=review.describe(),
            outcome=decision.outcome,
            operations=len(decision.operations),
            review=review.uid,
        )
