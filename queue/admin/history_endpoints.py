"""The accounting over HTTPS: ``GET /history`` is one page of workloads, ``GET /report`` what they used
(docs/accounting.md).

Who may list the FluxJobs of a namespace sees its history, and who may list them in all namespaces sees
everything: the API server decides (`fluxqueue.queue.admin.access`). Every replica answers, because all is in
Postgres. Two questions run at a time in a replica, of the accounts of different namespaces, each has a time
limit in Postgres, and an answer has a limited number of rows. See docs/decisions/0027.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fluxqueue.api.names import OPERATOR_AUDIENCE
from fluxqueue.api.turns import CallerTurns, party_of
from fluxqueue.queue.admin.access import ListsFluxJobs, Permission, Right
from fluxqueue.queue.admin.server import BadRequest, Endpoint
from fluxqueue.queue.model.accounting_queries import (
    InvalidQuery,
    namespace_of,
    read_history_query,
    read_report_query,
)
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.store.accounting import Accounting, TakesTooLong

__all__ = ["history_endpoints"]

_AT_ONCE: Final = 2
_PATIENCE_S: Final = 10.0
"""How long a question waits until it may run."""
_BUSY: Final = (
    "the history is busy, because two questions are answered at a time, and one of a namespace: "
    "ask again in a few seconds"
)


def history_endpoints(
    accounting: Callable[[], Accounting | None], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> list[Endpoint]:
    """Make the endpoints ``GET /history`` and ``GET /report``.

    Parameters
    ----------
    accounting
        Return what reads the records; None while this replica starts.
    clock
        The present time, with a zone.
    """
    turns = CallerTurns(_AT_ONCE, of_one=1)

    async def history(request: Request) -> Response:
        return await _answered(turns, request, accounting(), lambda reader: _page(reader, request, clock()))

    async def report(request: Request) -> Response:
        return await _answered(turns, request, accounting(), lambda reader: _report(reader, request, clock()))

    return [
        Endpoint(Permission("get", "/history", OPERATOR_AUDIENCE), history, _right),
        Endpoint(Permission("get", "/report", OPERATOR_AUDIENCE), report, _right),
    ]


def _right(request: Request) -> Right:
    try:
        return ListsFluxJobs(request.url.path, namespace_of(request.query_params.multi_items()))
    except InvalidQuery as error:
        raise BadRequest(str(error)) from None


async def _page(reader: Accounting, request: Request, now: datetime) -> dict[str, Any]:
    query = read_history_query(request.query_params.multi_items(), now)
    page = await reader.jobs(query, now)
    return {
        "since": _text(query.filters.since),
        "until": _text(query.filters.until),
        "jobs": [
            {name: _text(value) if isinstance(value, datetime) else value for name, value in row.items()}
            for row in page.jobs
        ],
        "next": None if page.after is None else str(page.after),
        **_currency(reader),
    }


async def _report(reader: Accounting, request: Request, now: datetime) -> dict[str, Any]:
    query = read_report_query(request.query_params.multi_items(), now)
    rows = await reader.report(query, now)
    return {
        "since": _text(query.filters.since),
        "until": _text(query.filters.until),
        "by": [str(group) for group in query.by],
        "rows": rows,
        **_currency(reader),
    }


def _currency(reader: Accounting) -> dict[str, str]:
    return {"currency": reader.currency} if reader.currency else {}


async def _answered(
    turns: CallerTurns,
    request: Request,
    reader: Accounting | None,
    answer: Callable[[Accounting], Awaitable[dict[str, Any]]],
) -> Response:
    """Return an answer, or a sentence of why there is none."""
    if reader is None:
        return _refused(503, "this replica of the queue is still starting: ask again")
    async with AsyncExitStack() as turn:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await turn.enter_async_context(turns.turn(party_of(request.state.caller)))
        except TimeoutError:
            return _refused(429, _BUSY)
        try:
            return JSONResponse(await answer(reader))
        except InvalidQuery as error:
            return _refused(400, str(error))
        except TakesTooLong as error:
            return _refused(504, str(error))
        except DatabaseUnavailable as error:
            return _refused(502, str(error))


def _refused(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status_code=status)


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
