"""Large objects rest between their turns, and small ones do not."""

from __future__ import annotations

import asyncio

import pytest

from fluxqueue.queue.tasks import rests
from fluxqueue.queue.tasks.rests import Rests


@pytest.fixture(autouse=True)
def _long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rests, "_SHORT_S", 100.0)


async def test_a_large_object_has_its_turn_again_after_its_rest() -> None:
    again: list[tuple[str, float]] = []
    resting: Rests[str] = Rests(lambda key, delay_s: again.append((key, delay_s)), 10.0)
    assert not resting.rests("gang", 1_000)
    assert resting.rests("gang", 1_000)
    ((key, delay_s),) = again
    assert key == "gang"
    assert 9_000 < delay_s <= 10_000
    assert not resting.rests("another", 1_000)


async def test_a_small_object_does_not_rest() -> None:
    resting: Rests[str] = Rests(lambda _key, _delay_s: pytest.fail("it does not rest"), 10.0)
    assert not any(resting.rests("pod", 9) for _ in range(3))


async def test_what_does_not_rest_any_more_is_forgotten() -> None:
    resting: Rests[str] = Rests(lambda _key, _delay_s: None, 10.0)
    resting.rests("resting", 1_000)
    resting._until["rested"] = 0.0
    resting.prune()
    assert list(resting._until) == ["resting"]
    resting._until["resting"] = 0.0
    resting.prune()
    assert (resting._until, resting._turns) == ({}, {})


async def test_a_turn_that_took_long_is_followed_by_a_rest_some_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[float] = []
    resting: Rests[str] = Rests(lambda _key, delay_s: again.append(delay_s), 10.0)
    loop, turn_s = asyncio.get_running_loop(), 50_000.0
    began = loop.time()
    monkeypatch.setattr(rests, "_LONGEST_S", 1_000_000.0)
    assert not resting.rests("gang", 1_000)
    monkeypatch.setattr(loop, "time", lambda: began + turn_s)
    resting.over(["gang", "another"])
    assert resting.rests("gang", 1_000), "its rest of fixed length ended during its turn"
    assert again == [pytest.approx(4 * turn_s, rel=0.01)]


async def test_a_rest_is_bounded_whatever_its_turn_took(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[float] = []
    resting: Rests[str] = Rests(lambda _key, delay_s: again.append(delay_s), 0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert not resting.rests("gang", 1_000)
    monkeypatch.setattr(loop, "time", lambda: began + 50_000.0)
    resting.over(["gang"])
    assert resting.rests("gang", 1_000)
    assert again == [rests._LONGEST_S]
