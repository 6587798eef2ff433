"""One examination at a time, whoever asks, and a repair alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request

from fluxqueue.kube.errors import ApiError
from fluxqueue.queue.recovery.doctor_endpoints import doctor_endpoints


class _Doctor:
    """Finds nothing, and waits for ``go`` before it says so."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running = self.most = self.examined = 0
        self.error: Exception | None = None

    async def examine(self, *, looks: int) -> list[Any]:
        self.examined += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
            if self.error is not None:
                raise self.error
            return []
        finally:
            self.running -= 1


class _Sweeper:
    def __init__(self) -> None:
        self.doctor = _Doctor()


def request(query: bytes = b"") -> Request:
    return Request({"type": "http", "query_string": query, "headers": []})


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_callers_share_the_running_examination() -> None:
    sweeper: Any = _Sweeper()
    examine, _ = doctor_endpoints(lambda: sweeper)
    answers = [asyncio.create_task(examine.answer(request())) for _ in range(50)]
    await settled()
    sweeper.doctor.go.set()
    assert {(await answer).status_code for answer in answers} == {200}
    assert sweeper.doctor.examined == 1
    await examine.answer(request())
    assert sweeper.doctor.examined == 2, "the next one looks again"


async def test_a_caller_that_goes_does_not_end_the_examination_of_the_others() -> None:
    sweeper: Any = _Sweeper()
    examine, _ = doctor_endpoints(lambda: sweeper)
    first, second = (asyncio.create_task(examine.answer(request())) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    sweeper.doctor.go.set()
    assert (await second).status_code == 200


async def test_a_repair_runs_alone_and_a_second_one_is_refused() -> None:
    sweeper: Any = _Sweeper()
    examine, repair = doctor_endpoints(lambda: sweeper)
    looking = asyncio.create_task(examine.answer(request()))
    await settled()
    repairing = asyncio.create_task(repair.answer(request()))
    await settled()
    refused = await repair.answer(request())
    assert (refused.status_code, json.loads(bytes(refused.body))["error"]) == (
        409,
        "a repair is running: ask again when it has ended",
    )
    sweeper.doctor.go.set()
    assert ((await looking).status_code, (await repairing).status_code, sweeper.doctor.most) == (200, 200, 1)
    assert (await repair.answer(request())).status_code == 200


async def test_a_failure_is_a_sentence_and_does_not_stay() -> None:
    sweeper: Any = _Sweeper()
    examine, _ = doctor_endpoints(lambda: sweeper)
    sweeper.doctor.go.set()
    sweeper.doctor.error = ApiError(0, "", "list pods: no answer")
    failed = await examine.answer(request())
    assert (failed.status_code, json.loads(bytes(failed.body))) == (502, {"error": "list pods: no answer"})
    sweeper.doctor.error = None
    assert (await examine.answer(request())).status_code == 200


async def test_a_replica_that_does_not_lead_says_so() -> None:
    examine, repair = doctor_endpoints(lambda: None)
    assert {(await each.answer(request())).status_code for each in (examine, repair)} == {503}
