from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from fluxqueue.client import AsyncFlux, NoCluster, WaitTimeout, WorkFailed
from fluxqueue.client import flux_instances as module


class Instance:
    """Answers in turn; the last answer stays."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.bodies: list[Any] = []

    async def call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None
    ) -> bytes:
        del method, path, query
        self.bodies.append(body)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        del path
        for piece in (b"on", b"e\ntw", b"o"):
            yield piece

    async def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.001)


async def test_a_job_is_awaited_and_its_end_has_code_and_result() -> None:
    ended = {"state": "INACTIVE", "result": "FAILED", "returncode": 3, "name": "n"}
    flux = AsyncFlux(Instance({"state": "RUN", "returncode": ""}, ended))
    status = await flux.job("f1").wait(timeout=60)
    assert (status.id, status.result, status.exit_code, status.succeeded) == ("f1", "FAILED", 3, False)
    with pytest.raises(WorkFailed, match="Flux job f1 ended as FAILED, exit code 3: read its output"):
        await flux.job("f1").wait(check=True)


async def test_a_running_job_has_no_result_yet() -> None:
    status = (
        await AsyncFlux(Instance({"state": "RUN", "result": "COMPLETED", "returncode": 0})).job("f1").status()
    )
    assert (status.result, status.exit_code, status.ended) == ("", None, False)


async def test_durations_are_seconds_for_the_service() -> None:
    instance = Instance({"id": "f1"})
    await AsyncFlux(instance).submit(["a"], duration=timedelta(minutes=2), environment={"A": 1})  # type: ignore[dict-item]
    assert instance.bodies == [{"command": ["a"], "duration_s": 120.0, "environment": {"A": "1"}}]


async def test_lines_are_whole_whatever_the_pieces() -> None:
    assert [line async for line in AsyncFlux(Instance({})).job("f1").output()] == ["one", "two"]


async def test_a_piece_may_end_within_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance()

    async def pieces(path: str) -> AsyncIterator[bytes]:
        del path
        for at in range(len(text)):
            yield text[at : at + 1]

    text = "größer\n→ 20 µm".encode() + b"\xe2"
    monkeypatch.setattr(instance, "pieces", pieces)
    assert [line async for line in AsyncFlux(instance).job("f1").output()] == ["größer", "→ 20 µm\ufffd"]


async def test_readiness_is_awaited() -> None:
    await AsyncFlux(Instance(NoCluster("not yet"), NoCluster("not yet"), {})).ready(timeout=60)
    with pytest.raises(WaitTimeout, match="brokers"):
        await AsyncFlux(Instance(NoCluster("no brokers"))).ready(timeout=0)
