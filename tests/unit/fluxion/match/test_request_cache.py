"""Requests are read once while work of them waits, and forgotten afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest
from support.fluxion_builders import NOW, ask, engine, jobspec, node, slot

from fluxqueue.fluxion.changes import CancelJobs, SetProperties
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match import request_cache
from fluxqueue.fluxion.match.jobspec import Jobspec, read_jobspec
from fluxqueue.fluxion.match.request_cache import RequestCache
from fluxqueue.fluxion.messages import CallContext, MatchVerdict


def text_of(number: int, values: int = 1) -> str:
    return jobspec(
        slot(1, cpu=number), constraints={"in": ["zone", *(f"zone-{value}" for value in range(values))]}
    )


def test_a_text_is_read_once_and_equal_requests_are_one() -> None:
    cache = RequestCache()
    one = cache.read(text_of(100), 0)
    assert cache.read(text_of(100), 0) is one
    assert cache.read(text_of(100).replace('"cpu"', ' "cpu"'), 0) is one
    assert cache.read(text_of(200), 0) is not one
    assert cache.read(text_of(200), 0).constraint is one.constraint, "equal constraints are shared too"


def test_beyond_its_size_the_request_goes_that_was_not_used_for_longest() -> None:
    cache = RequestCache(most_characters=3 * len(text_of(100, values=200)))
    large = [text_of(number, values=200) for number in (100, 200, 300, 400)]
    for text in (*large[:3], large[0], large[3]):
        cache.read(text, 0)
    assert len(cache) == 3
    for text in (large[0], large[2], large[3]):
        cache.read(text, 0)
    assert len(cache) == 3, "the second was forgotten"


def test_what_nobody_asks_for_is_forgotten_after_a_while() -> None:
    cache = RequestCache(idle_s=600)
    for number in (100, 200):
        cache.read(text_of(number), 1_000)
    cache.read(text_of(100), 1_500)
    cache.forget_idle(1_700)
    assert len(cache) == 1
    cache.forget_idle(2_200)
    assert len(cache) == 0


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Jobspec]]:
    """Weak references to all requests that are read."""
    seen: list[weakref.ref[Jobspec]] = []
    real = read_jobspec

    def noted(text: str) -> Jobspec:
        found = real(text)
        seen.append(weakref.ref(found))
        return found

    monkeypatch.setattr(request_cache, "read_jobspec", noted)
    return seen


def ask_all(made: Engine) -> list[MatchVerdict]:
    large = {"in": ["zone", "z", *(f"zone-{value}" for value in range(500))]}
    wanted = [
        jobspec(slot(1, cpu=cpu), duration=duration, constraints=large)
        for cpu in (400, 800)
        for duration in (60, 600)
    ]
    return [
        ask(made, text, number, reserve=number == 2).verdict for number, text in enumerate(wanted, start=1)
    ]


def test_nothing_of_a_request_is_kept_once_its_work_is_gone(read: list[weakref.ref[Jobspec]]) -> None:
    made = engine(node("a", cpu=400))
    made.apply([SetProperties({"a": {"zone": "z"}})], NOW)
    verdicts = ask_all(made)
    assert verdicts == [
        MatchVerdict.GRANTED,
        MatchVerdict.RESERVED,
        MatchVerdict.UNSATISFIABLE,
        MatchVerdict.UNSATISFIABLE,
    ]
    made.apply([CancelJobs([1, 2, 3, 4])], CallContext(now=1_100))
    gc.collect()
    assert all(each() is not None for each in read), "work may ask again soon"
    made.list_jobs(CallContext(now=2_000))
    gc.collect()
    assert [each() for each in read] == [None] * 4
