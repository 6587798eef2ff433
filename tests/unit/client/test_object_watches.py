from __future__ import annotations

import asyncio

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import NoCluster, NotPermitted
from fluxqueue.client import object_watches as module
from fluxqueue.client.object_watches import watch_fluxjobs, watch_pods


async def test_a_fluxjob_is_found_by_uid_and_by_the_name_of_its_object() -> None:
    server = WatchedApi()
    server.show("Job", "a", "u", state="Pending")
    watch = watch_fluxjobs(server.api, "team")
    await watch.open()
    await watch.open()
    (found,) = watch.all("u")
    assert watch.all(("Job", "a")) == [found]
    assert watch.all("other") == []
    await watch.close()


async def test_listeners_hear_of_their_own_objects_only() -> None:
    server = WatchedApi()
    watch = watch_fluxjobs(server.api, "team")
    await watch.open()
    with watch.listening("u") as mine, watch.listening("v") as others:
        server.show("Job", "a", "u", state="Pending")
        async with asyncio.timeout(60):
            await mine.wait()
        assert not others.is_set()
    assert not watch._listeners
    await watch.close()


async def test_only_an_end_is_remembered_after_the_deletion_and_only_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 4)
    server = WatchedApi()
    watch = watch_fluxjobs(server.api, "team")
    await watch.open()
    for number in range(5):
        server.show("Job", f"j{number}", f"u{number}", state="Completed")
    server.show("Job", "waits", "w", state="Pending")
    for key in [key for key in server._objects if key[0] == "fluxjobs"]:
        server.remove("fluxjobs", key[2], "team")
    async with asyncio.timeout(60):
        while watch.all("w") or watch.last_seen("u4") is None:
            await asyncio.sleep(0)
    assert watch.last_seen("w") is None
    assert watch.last_seen("u0") is None
    await watch.close()


async def test_a_refusal_is_raised_and_a_broken_connection_only_when_it_lasts() -> None:
    server = WatchedApi()
    server.fail_next("list", "pods", 403, "Forbidden")
    watch = watch_pods(server.api, "team", "a=b")
    with pytest.raises(NotPermitted, match="lists and watches pods in namespace team"):
        await watch.open()
    await watch.close()
    server.fail_next("list", "pods", 429, "TooManyRequests")
    watch = watch_pods(server.api, "team", "a=b")
    opening = asyncio.create_task(watch.open())
    async with asyncio.timeout(60):
        while watch._reflector.last_error is None:
            await asyncio.sleep(0)
    watch.check()
    with pytest.raises(NoCluster, match="overloaded"):
        watch.check(late=True)
    await opening
    await watch.close()


async def test_a_watch_that_has_ended_is_an_error_and_no_endless_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = WatchedApi()
    watch = watch_pods(server.api, "team", "a=b")
    await watch.open()
    watch.check()
    await watch.close()
    with pytest.raises(
        NoCluster,
        match=r"the watch of pods of namespace team has ended \(the client is closed\): open another client",
    ):
        watch.check()

    async def breaks() -> None:
        raise RuntimeError("Session is closed")

    watch = watch_pods(server.api, "team", "a=b")
    monkeypatch.setattr(watch._reflector, "run", breaks)
    async with asyncio.timeout(60):
        with pytest.raises(NoCluster, match="RuntimeError: Session is closed"):
            await watch.open()
    await watch.close()


async def test_a_list_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SYNC_S", 0.0)
    watch = watch_pods(WatchedApi().api, "team", "a=b")
    monkeypatch.setattr(watch._reflector, "run", asyncio.Event().wait)
    async with asyncio.timeout(60):
        with pytest.raises(NoCluster, match="has not listed the pods of namespace team within 0 s"):
            await watch.open()
    await watch.close()


async def test_a_cancellation_at_the_moment_of_the_event_is_not_lost() -> None:
    watch = watch_pods(WatchedApi().api, "team", "a=b")
    opening = asyncio.create_task(watch.open())
    async with asyncio.timeout(60):
        while not watch._reflector.synced.is_set():
            await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await watch.close()
