"""The reflector against a scripted server: what it lists, what it watches, and how it recovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest
from structlog.testing import capture_logs

from fluxqueue.api.pods import Pod
from fluxqueue.kube import reflector as module
from fluxqueue.kube.errors import ApiError, Expired, Forbidden, TooLong, Unreachable, WatchTimeout
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.object_cache import ObjectCache, PassingCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.transport import Api
from fluxqueue.kube.wire import Request, Wire

Json = dict[str, Any]


def pod(name: str, version: int, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)},
        "spec": spec,
    }


def event(kind: str, body: Json) -> bytes:
    return orjson.dumps({"type": kind, "object": body})


class ScriptedWire:
    """Lists and watches in the order of a script; a watch after its end stays open."""

    def __init__(self, lists: list[list[Json] | ApiError], watches: list[list[bytes] | ApiError]) -> None:
        self.lists = lists
        self.watches = watches
        self.watched_from: list[str] = []

    async def call(self, _request: Request) -> bytes:
        answer = self.lists.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        version = max((int(each["metadata"]["resourceVersion"]) for each in answer), default=1)
        return orjson.dumps({"metadata": {"resourceVersion": str(version)}, "items": answer})

    async def stream(self, request: Request, *, idle_s: float) -> AsyncGenerator[list[bytes], None]:
        del idle_s
        assert request.query is not None
        self.watched_from.append(request.query["resourceVersion"])
        if not self.watches:
            yield []
            await asyncio.Event().wait()
        answer = self.watches.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        yield []
        yield answer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BASE_S", 0.0)
    monkeypatch.setattr(module, "CAP_S", 0.0)


@asynccontextmanager
async def reflecting(
    wire: ScriptedWire, cache: ObjectCache[Pod] | None = None
) -> AsyncIterator[tuple[Reflector[Pod], ObjectCache[Pod]]]:
    """A reflector that has used up its script and watches on."""
    cache = ObjectCache() if cache is None else cache
    reflector = Reflector(Api(cast("Wire", wire)), PODS, cache)
    running = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(60):
            while wire.lists or wire.watches or not wire.watched_from:
                await asyncio.sleep(0)
            settled = len(wire.watched_from)
            while len(wire.watched_from) == settled and not reflector.synced.is_set():
                await asyncio.sleep(0)
        yield reflector, cache
    finally:
        running.cancel()
        await asyncio.wait({running})


async def until_watched(wire: ScriptedWire, count: int) -> None:
    async with asyncio.timeout(60):
        while len(wire.watched_from) < count:
            await asyncio.sleep(0)


async def test_it_lists_and_then_applies_the_events_of_the_watch() -> None:
    events = [
        event("ADDED", pod("b", 6)),
        event("MODIFIED", pod("a", 7, nodeName="n1")),
        event("DELETED", pod("b", 8)),
    ]
    wire = ScriptedWire([[pod("a", 5)]], [events])
    async with reflecting(wire) as (reflector, cache):
        await until_watched(wire, 2)
        (only,) = cache.list()
        assert (only.metadata.name, only.spec.node_name) == ("a", "n1")
        assert wire.watched_from == ["5", "8"]
        assert reflector.relists == 1
        assert reflector.healthy


async def test_a_bookmark_advances_the_version_of_the_next_watch() -> None:
    wire = ScriptedWire([[pod("a", 5)]], [[event("BOOKMARK", {"metadata": {"resourceVersion": "41"}})]])
    async with reflecting(wire):
        await until_watched(wire, 2)
        assert wire.watched_from == ["5", "41"]


async def test_a_broken_connection_continues_at_the_same_version() -> None:
    wire = ScriptedWire([[pod("a", 5)]], [Unreachable("reset", sent=True), Unreachable("reset", sent=True)])
    async with reflecting(wire) as (reflector, _):
        await until_watched(wire, 3)
        assert wire.watched_from == ["5", "5", "5"]
        assert reflector.relists == 1


@pytest.mark.parametrize(
    "expired",
    [
        Expired(410, "Expired", "too old"),
        [event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})],
    ],
    ids=["as a response", "as an event"],
)
async def test_an_expired_version_makes_it_list_again(expired: ApiError | list[bytes]) -> None:
    wire = ScriptedWire([[pod("a", 5)], [pod("b", 9)]], [expired])
    async with reflecting(wire) as (reflector, cache):
        await until_watched(wire, 2)
        assert [each.metadata.name for each in cache.list()] == ["b"]
        assert wire.watched_from == ["5", "9"]
        assert reflector.relists == 2


async def test_one_timeout_makes_it_watch_again_and_two_make_it_list_again() -> None:
    wire = ScriptedWire([[pod("a", 5)], [pod("a", 5)]], [WatchTimeout("idle"), WatchTimeout("idle")])
    async with reflecting(wire) as (reflector, _):
        await until_watched(wire, 3)
        assert wire.watched_from == ["5", "5", "5"]
        assert reflector.relists == 2


async def test_a_forbidden_list_is_retried_and_its_error_is_kept_until_a_watch_works() -> None:
    wire = ScriptedWire([Forbidden(403, "Forbidden", "no"), Forbidden(403, "Forbidden", "no"), []], [])
    async with reflecting(wire) as (reflector, _):
        await until_watched(wire, 1)
        await asyncio.sleep(0)
        assert reflector.synced.is_set()
        assert reflector.last_error is None


async def test_an_object_that_does_not_fit_is_left_out_and_named() -> None:
    odd = {**pod("odd", 6), "spec": {"containers": 1}}
    wire = ScriptedWire(
        [[pod("a", 5), odd]], [[event("MODIFIED", {**pod("a", 7), "spec": {"containers": 1}})]]
    )
    async with reflecting(wire) as (reflector, cache):
        await until_watched(wire, 2)
        assert cache.list() == []
        assert reflector.undecodable.keys() == {("ns", "odd"), ("ns", "a")}


async def test_an_object_that_never_fits_is_logged_once_however_often_it_changes() -> None:
    def odd(version: int) -> Json:
        return {**pod("odd", version), "spec": {"containers": 1}}

    wire = ScriptedWire(
        [[odd(1)], [odd(9)]],
        [[event("MODIFIED", odd(version)) for version in range(2, 8)], Expired(410, "Expired", "old")],
    )
    with capture_logs() as logs:
        async with reflecting(wire) as (reflector, _):
            await until_watched(wire, 3)
            assert reflector.undecodable.keys() == {("ns", "odd")}
    assert [line["event"] for line in logs].count("reflector.undecodable") == 1


class PagedWire(ScriptedWire):
    """Answers one page after the other, and keeps what was asked: the limit and the token of each."""

    def __init__(self, *answers: Json | ApiError) -> None:
        super().__init__([], [])
        self.answers = [*answers]
        self.asked: list[tuple[str, str]] = []

    async def call(self, request: Request) -> bytes:
        assert request.query is not None
        self.asked.append((request.query["limit"], request.query.get("continue", "")))
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return orjson.dumps(answer)


async def test_the_pages_behind_one_that_was_too_long_grow_again() -> None:
    too_long = TooLong(200, "TooLong", "list pods: too long")
    first = {"metadata": {"continue": "next"}, "items": [pod("a", 1)]}
    wire = PagedWire(too_long, first, {"metadata": {"resourceVersion": "2"}, "items": []})
    async with reflecting(wire) as (_, cache):
        assert [each.metadata.name for each in cache.list()] == ["a"]
    assert wire.asked == [("500", ""), ("62", ""), ("124", "next")]


async def test_a_list_that_expires_between_two_pages_is_read_again_in_pages() -> None:
    first = {"metadata": {"continue": "next"}, "items": [pod("a", 1)]}
    expired = Expired(410, "Expired", "the continue token is too old")
    wire = PagedWire(
        first, expired, first, expired, first, {"metadata": {"resourceVersion": "2"}, "items": [pod("b", 2)]}
    )
    async with reflecting(wire) as (_, cache):
        assert sorted(each.metadata.name for each in cache.list()) == ["a", "b"]
    assert wire.asked == [("500", ""), ("500", "next")] * 3


async def test_the_objects_of_a_list_that_nobody_keeps_are_not_collected() -> None:
    class Noting(PassingCache[Pod]):
        listed: list[Pod] | None = None

        def replacing(self, objects: Iterable[Pod]) -> Iterator[None]:
            self.listed = [*objects]
            return super().replacing(self.listed)

    cache = Noting()
    first = {"metadata": {"continue": "next"}, "items": [pod("a", 1)]}
    wire = PagedWire(first, {"metadata": {"resourceVersion": "2"}, "items": [pod("b", 2)]})
    async with reflecting(wire, cache):
        assert cache.listed == []
    assert len(wire.asked) == 2
