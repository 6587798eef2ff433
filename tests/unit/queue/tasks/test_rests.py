"""Large objects rest between their turns, and small ones do not."""

from __future__ import annotations

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
