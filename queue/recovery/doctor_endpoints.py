"""The endpoints of `kubectl fluxqueue doctor`, answered by the leader.

An examination reads the whole cluster, so only one runs at a time: who asks while one runs gets its result. A
repair runs alone, after the examination that is running, and a second repair at the same time is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fluxqueue.api.names import OPERATOR_AUDIENCE
from fluxqueue.kube.errors import ApiError
from fluxqueue.queue.admin.access import Permission
from fluxqueue.queue.admin.server import Endpoint
from fluxqueue.queue.recovery.findings import Finding
from fluxqueue.queue.recovery.sweep import Sweeper
from fluxqueue.queue.store import DatabaseUnavailable

__all__ = ["doctor_endpoints"]

_SETTLES_S: Final = 5.0
"""How long controllers get to act on a repair before its effect is examined."""
_LONGEST_S: Final = 150.0
"""How long an examination or a repair may take."""


def doctor_endpoints(leader: Callable[[], Sweeper | None]) -> list[Endpoint]:
    """Make the endpoints ``GET /doctor`` and ``POST /doctor/repair``.

    Parameters
    ----------
    leader
        Return the sweep of this replica; None while it does not lead, or has not loaded the queue yet.
    """
    visits = _Visits()

    async def examine(request: Request) -> Response:
        sweeper = leader()
        return _not_leading() if sweeper is None else await _within(visits.examine(sweeper, _looks(request)))

    async def repair(request: Request) -> Response:
        sweeper = leader()
        return _not_leading() if sweeper is None else await _within(visits.repair(sweeper, _looks(request)))

    return [
        Endpoint(Permission("get", "/doctor", OPERATOR_AUDIENCE), examine),
        Endpoint(Permission("post", "/doctor/repair", OPERATOR_AUDIENCE), repair),
    ]


class _Visits:
    """The examination that is running, which all callers share, and the repair, which runs alone."""

    def __init__(self) -> None:
        self._alone = asyncio.Lock()
        self._running: dict[tuple[int, int], asyncio.Task[Response]] = {}
        self._repairing = False

    async def examine(self, sweeper: Sweeper, looks: int) -> Response:
        key = id(sweeper), looks
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._examine(sweeper, looks), name="examination")
            task.add_done_callback(lambda _done: self._running.pop(key, None))
        return await asyncio.shield(task)

    async def _examine(self, sweeper: Sweeper, looks: int) -> Response:
        async with self._alone:
            return _answer(await sweeper.doctor.examine(looks=looks))

    async def repair(self, sweeper: Sweeper, looks: int) -> Response:
        if self._repairing:
            return JSONResponse(
                {"error": "a repair is running: ask again when it has ended"}, status_code=409
            )
        self._repairing = True
        try:
            async with self._alone:
                return await _repair(sweeper, looks)
        finally:
            self._repairing = False


async def _repair(sweeper: Sweeper, looks: int) -> Response:
    doctor = sweeper.doctor
    findings = await doctor.examine(looks=looks)
    if not findings:
        return _answer([])
    await doctor.repair(findings)
    await sweeper.sweep()
    await asyncio.sleep(_SETTLES_S)
    remaining = await doctor.examine(looks=looks)
    return _answer(remaining, [finding for finding in findings if finding not in remaining])


async def _within(answer: Any) -> Response:
    """Wait for an answer, and make a sentence of what fails."""
    try:
        async with asyncio.timeout(_LONGEST_S):
            response: Response = await answer
            return response
    except (ApiError, DatabaseUnavailable) as error:
        return JSONResponse({"error": str(error)}, status_code=502)
    except TimeoutError:
        return JSONResponse({"error": f"this took longer than {_LONGEST_S:g} s: ask again"}, status_code=504)


def _looks(request: Request) -> int:
    text = request.query_params.get("looks", "2")
    return int(text) if text in ("1", "2", "3") else 2


def _not_leading() -> Response:
    return JSONResponse(
        {"error": "this replica of the queue does not lead, or is still starting"}, status_code=503
    )


def _answer(findings: list[Finding], repaired: list[Finding] | None = None) -> Response:
    return JSONResponse(
        {
            "findings": [_json(finding) for finding in findings],
            "repaired": [_json(finding) for finding in repaired or ()],
        }
    )


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "invariant": finding.what.invariant,
        **asdict(finding),
        "what": str(finding.what),
        "remedy": finding.what.remedy,
    }
