"""Trials of Jobs by several people at once, and what ends one (`fluxqueue.dashboard.submissions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.builders import make_job, make_node, make_queue
from support.memory_api import MemoryApi

from fluxqueue.api import names
from fluxqueue.dashboard import submissions
from fluxqueue.dashboard.forecast_process import ForecastFailed, forecast_apart
from fluxqueue.dashboard.submissions import Trials, create_job
from fluxqueue.dashboard.verbs import Refused
from fluxqueue.queue.simulator.job_forecasts import JobForecast

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_SUSPENDED = (names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
MANIFEST = (
    make_job("mine")
    .cpu("1")
    .suspended()
    .annotation(*_SUSPENDED)
    .label(names.SEEN_LABEL, names.SEEN_VALUE)
    .build()
)


def a_server() -> MemoryApi:
    server = MemoryApi()
    server.put("namespaces", {"metadata": {"name": "default"}})
    server.put("nodes", make_node("n0").build())
    return server


async def tried(
    trials: Trials, server: MemoryApi, who: str = "alice", manifest: Any = MANIFEST, work: int = 0
) -> submissions.Trial:
    return await trials.run(who, server.api, manifest, NOW, work)


def forecasting(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Awaitable[JobForecast]]) -> None:
    async def forecast(*_: object) -> JobForecast:
        return await answer()

    monkeypatch.setattr(submissions, "forecast_apart", forecast)


async def test_a_person_has_one_trial_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    going, over = asyncio.Event(), asyncio.Event()

    async def answer() -> JobForecast:
        going.set()
        await over.wait()
        return JobForecast(1, start=2)

    forecasting(monkeypatch, answer)
    trials = Trials()
    first = asyncio.create_task(tried(trials, a_server()))
    await asyncio.wait_for(going.wait(), 30)
    with pytest.raises(Refused, match="another trial of yours"):
        await tried(trials, a_server())
    monkeypatch.setattr(submissions, "_TURN_S", 0.01)
    assert "Others try Jobs at this moment" in (await tried(trials, a_server(), "bob")).problem
    over.set()
    assert (await first).forecast == JobForecast(1, start=2)
    assert (await tried(trials, a_server())).forecast is not None


async def test_what_ends_a_forecast_is_said_and_leaves_the_turn_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails() -> JobForecast:
        raise ForecastFailed("it ended with -9")

    async def lasts() -> JobForecast:
        await asyncio.Event().wait()
        raise AssertionError

    trials = Trials()
    forecasting(monkeypatch, fails)
    assert "The forecast failed" in (await tried(trials, a_server())).problem
    monkeypatch.setattr(submissions, "_FORECAST_S", 0.05)
    forecasting(monkeypatch, lasts)
    assert "takes too long" in (await tried(trials, a_server())).problem
    server = a_server()
    server.fail_next("list", "nodes", 503, "ServiceUnavailable", "not now")
    assert "cannot be read now" in (await tried(trials, server)).problem
    assert "too much work" in (await tried(trials, a_server(), work=10_000)).problem


async def test_a_job_that_admission_leaves_alone_is_refused() -> None:
    unmanaged = make_job("mine").build()
    with pytest.raises(Refused, match="does not manage namespace default"):
        await tried(Trials(), a_server(), manifest=unmanaged)
    with pytest.raises(Refused, match="keep it out of the queue"):
        await tried(
            Trials(), a_server(), manifest=make_job("mine").label(names.MANAGED_LABEL, "false").build()
        )


async def test_a_process_that_ends_without_an_answer_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ForecastFailed):
        await forecast_apart(None, None, NOW)  # type: ignore[arg-type]  # it does not get that far


async def test_a_queue_that_does_not_exist_is_refused_with_those_that_do() -> None:
    server = a_server()
    server.put("fluxqueues", make_queue("night"))
    typed = {
        **MANIFEST,
        "metadata": {
            **MANIFEST["metadata"],
            "labels": {**MANIFEST["metadata"]["labels"], names.QUEUE_LABEL: "nigth"},
        },
    }
    sentence = r"^job/mine: there is no queue 'nigth': did you mean night\? there are default, night$"
    with pytest.raises(Refused, match=sentence):
        await tried(Trials(), server, manifest=typed)
    with pytest.raises(Refused, match=sentence):
        await create_job(server.api, typed)
    assert server.written("create", "jobs") == []


async def test_a_button_that_is_pressed_twice_creates_one_job() -> None:
    server = a_server()
    meta = {key: value for key, value in MANIFEST["metadata"].items() if key != "name"}
    unnamed = {**MANIFEST, "metadata": {**meta, "generateName": f"{'solve' * 12}-"}}
    first = await create_job(server.api, unnamed, "page-1")
    again = await create_job(server.api, unnamed, "page-1")
    (job,) = server.written("create", "jobs")
    name = job.name
    assert len(name) <= 63
    assert first == f"job/{name} in default is submitted."
    assert (
        again
        == f"job/{name} in default is submitted, once from this page: open Submit again for another one."
    )
    await create_job(server.api, unnamed, "page-2")
    await create_job(server.api, {**unnamed, "spec": {**unnamed["spec"], "backoffLimit": 3}}, "page-1")
    assert len(server.written("create", "jobs")) == 3
    with pytest.raises(Refused, match="already exists"):
        await create_job(
            server.api, {**MANIFEST, "metadata": {**MANIFEST["metadata"], "name": name}}, "page-1"
        )


async def test_a_warning_of_admission_is_told() -> None:
    server = a_server()
    server.warnings = [
        "Job default/mine: label fluxqueue/queu is unknown and has no effect: did you mean fluxqueue/queue?"
    ]
    said = await create_job(server.api, MANIFEST)
    assert said == f"job/mine in default is submitted. Warning: {server.warnings[0]}."
