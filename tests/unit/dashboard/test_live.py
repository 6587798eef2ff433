import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from support.dashboard_site import LISTS_ALL, InProcess, Stage, job

from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.live import (
    MOST_STREAMS,
    HtmlUpdates,
    JobUpdates,
    Streams,
    stream,
    updates_of,
)
from fluxqueue.dashboard.loop_shares import LoopShares, TooMany
from fluxqueue.dashboard.pages.job_page import job_page
from fluxqueue.dashboard.pages.queue_page import queue_page
from fluxqueue.dashboard.people import Person
from fluxqueue.dashboard.sessions import Session
from fluxqueue.dashboard.site import Asked, Content, NoSuchPage, Site, render


async def asked(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> Asked:
    viewer = await stage.viewer("alice", *(rights or (LISTS_ALL,)))
    return Asked(viewer, await stage.site.visible(viewer), parameters)


def updates(stage: Stage, question: Asked) -> Any:
    return updates_of("queue", queue_page, question, stage.state.version)


def data(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    found: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return found


async def test_a_stream_begins_with_what_the_browser_does_not_have() -> None:
    stage = Stage()
    stage.show(job("a"), job("b"))
    question = await asked(stage, version="old")
    events = stream(stage.site, question, updates(stage, question), gather_s=0)
    assert await anext(events) == b"retry: 2000\n\n"
    first = data(await anext(events))
    assert set(first["rows"]) == {"blue-a", "blue-b"}
    assert first["order"] == ["blue-a", "blue-b"]
    stage.show(job("b", version=2, state="Running"))
    second = data(await anext(events))
    assert set(second["rows"]) == {"blue-b"}
    assert second["order"] == ["blue-b", "blue-a"]
    stage.state.jobs.remove(job("a"))
    third = data(await anext(events))
    assert (third["rows"], third["order"]) == ({}, ["blue-b"])


async def test_a_page_that_is_current_gets_nothing_at_first() -> None:
    stage = Stage()
    stage.show(job("a"))
    question = await asked(stage, version=str(stage.state.version))
    following = updates(stage, question)
    shown = following.update
    first = shown(stage.site, question)
    assert (await first)["rows"] == {}
    stage.show(job("a", version=2, state="Running"))
    assert set((await shown(stage.site, question))["rows"]) == {"blue-a"}
    assert await shown(stage.site, question) is None


async def test_a_right_that_is_taken_away_empties_the_page() -> None:
    stage = Stage()
    stage.show(job("a"))
    question = await asked(stage, ("list", "fluxjobs", "blue"), version="old")
    events = stream(stage.site, question, updates(stage, question), gather_s=0)
    await anext(events)
    assert data(await anext(events))["order"] == ["blue-a"]
    stage.api.rights.clear()
    stage.clock.now += 20
    stage.show(job("b"))
    assert data(await anext(events))["order"] == []


@pytest.mark.parametrize("name", ["queue", "job"])
async def test_while_the_api_server_does_not_answer_the_page_stays_as_it_is(name: str) -> None:
    stage = Stage()
    stage.show(job("a"))
    question = replace(await asked(stage), path={"namespace": "blue", "name": job("a").metadata.name})
    make = queue_page if name == "queue" else job_page
    events = stream(stage.site, question, updates_of(name, make, question, stage.state.version), gather_s=0)
    await anext(events)
    await anext(events)
    stage.api.failing = True
    stage.clock.now += 20
    stage.show(job("b"))
    assert data(await anext(events)) == {"stale": "The API server does not answer"}
    assert await anext(events) == b": nothing new\n\n"
    stage.api.failing = False
    stage.clock.now += 20
    assert "gone" not in data(await anext(events))


async def test_while_no_changes_arrive_the_page_says_so() -> None:
    stage = Stage()
    old = True
    site = replace(stage.site, stale=lambda: old)
    question = await asked(stage)
    events = stream(site, question, updates(stage, question), gather_s=0)
    await anext(events)
    assert "what is shown may be old" in data(await anext(events))["stale"]
    stage.show(job("a"))
    assert "what is shown may be old" in data(await anext(events))["stale"]
    old = False
    stage.show(job("b"))
    assert data(await anext(events))["stale"] == ""
    stage.show(job("c"))
    assert "stale" not in data(await anext(events))


async def test_a_session_that_is_over_ends_the_stream() -> None:
    stage = Stage()
    question = await asked(stage)
    events = stream(stage.site, question, updates(stage, question), gather_s=0)
    await anext(events)
    await anext(events)
    stage.sessions.end(question.viewer.session)
    stage.show(job("a"))
    assert await anext(events) == b"event: over\ndata: {}\n\n"
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_token_that_was_revoked_ends_the_stream() -> None:
    stage = Stage()
    question = await asked(stage)
    events = stream(stage.site, question, updates(stage, question), gather_s=0)
    await anext(events)
    await anext(events)
    stage.api.tokens.clear()
    stage.clock.now += 61
    stage.show(job("a"))
    assert (await anext(events)).startswith(b"event: over")


async def test_other_pages_are_sent_whole_when_they_differ() -> None:
    stage = Stage()
    question = await asked(stage)
    texts = ["one", "one", "two"]

    async def make(_site: Site, _asked: Asked) -> Content:
        return Content("Page", render("message.html", sentence=texts.pop(0)))

    following = HtmlUpdates(make, fresh=True)
    assert await following.update(stage.site, question) is None
    assert await following.update(stage.site, question) is None
    changed = await following.update(stage.site, question)
    assert changed is not None
    assert "two" in changed["html"]


async def test_a_page_that_is_gone_says_so_and_ends() -> None:
    stage = Stage()
    question = replace(await asked(stage), path={"namespace": "blue", "name": "x"})

    async def make(_site: Site, _asked: Asked) -> Content:
        raise NoSuchPage("it is gone")

    events = stream(stage.site, question, HtmlUpdates(make, fresh=False), gather_s=0)
    await anext(events)
    assert data(await anext(events)) == {"gone": "it is gone"}
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_stream_that_is_left_makes_room() -> None:
    stage = Stage()
    client = InProcess(stage)
    await client.sign_in("alice", LISTS_ALL)
    for _ in range(30):
        answer = await client.get("/live/queue?version=old")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_the_page_of_a_job_is_made_again_when_its_job_changes_and_from_time_to_time() -> None:
    stage = Stage()
    stage.show(job("a"))
    question = replace(await asked(stage), path={"namespace": "blue", "name": job("a").metadata.name})
    made = 0

    async def make(_site: Site, _asked: Asked) -> Content:
        nonlocal made
        made += 1
        return Content("Page", render("message.html", sentence=str(made)))

    following = JobUpdates(HtmlUpdates(make, fresh=False), stage.clock)
    assert await following.update(stage.site, question) is not None
    stage.show(job("another"))
    assert await following.update(stage.site, question) is None
    stage.show(job("a", version=2))
    assert await following.update(stage.site, question) is not None
    assert made == 2
    stage.clock.now += 11
    assert await following.update(stage.site, question) is not None
    refused = replace(question, visible=Visible())
    assert await following.update(stage.site, refused) is not None


async def test_the_pages_of_one_person_wait_in_proportion_to_what_they_cost() -> None:
    stage = Stage()
    used = 0.0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))
        stage.clock.now += seconds

    async def make(_site: Site, _asked: Asked) -> Content:
        nonlocal used
        used += 0.06
        return Content("Page", render("message.html", sentence=str(used)))

    site = replace(stage.site, shares=LoopShares(stage.clock, lambda: used, sleep))
    question = await asked(stage)
    for number in range(60):
        question = replace(question, parameters={"q": f"n{number}"})
        events = stream(site, question, HtmlUpdates(make, fresh=False), gather_s=0)
        await anext(events)
        assert "html" in data(await anext(events))
    assert waits == [0.6] * 59
    viewer = await stage.viewer("bob", LISTS_ALL)
    question = Asked(viewer, await stage.site.visible(viewer))
    events = stream(site, question, HtmlUpdates(make, fresh=False), gather_s=0)
    await anext(events)
    await anext(events)
    assert len(waits) == 59, "others do not wait for him"


async def test_a_page_whose_turn_another_one_took_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    used = 0.0

    async def make(_site: Site, _asked: Asked) -> Content:
        nonlocal used
        used += 0.001
        return Content("Page", render("message.html", sentence=str(used)))

    async def holds(_session: Session) -> bool:
        await asyncio.sleep(0)
        return True

    site = replace(stage.site, shares=LoopShares(stage.clock, lambda: used))
    question = await asked(stage)
    made: list[bytes] = []

    async def first() -> None:
        events = stream(site, question, HtmlUpdates(make, fresh=False), gather_s=0)
        await anext(events)
        made.append(await anext(events))

    monkeypatch.setattr(stage.door, "holds", holds)
    tasks = [asyncio.create_task(first()) for _ in range(5)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(made) == 1
    for task in tasks:
        task.cancel()


def _session(key: str, username: str) -> Session:
    return Session(key, Person(username), "token", "csrf", 0.0)


def test_streams_are_bounded_in_all_and_for_each_session() -> None:
    streams = Streams()
    alice = _session("alice", "alice")
    for _ in range(12):
        streams.enter(alice)
    with pytest.raises(TooMany, match="too many pages are open"):
        streams.enter(alice)
    streams.leave(alice)
    streams.enter(alice)
    for number in range(MOST_STREAMS - 12):
        streams.enter(_session(f"session-{number}", f"person-{number}"))
    with pytest.raises(TooMany):
        streams.enter(_session("one more", "one more"))


def test_one_person_does_not_have_the_streams_of_all_by_many_sessions() -> None:
    streams = Streams()
    sessions = [_session(f"session-{number}", "alice") for number in range(60)]
    for session in sessions:
        streams.enter(session)
    with pytest.raises(TooMany):
        streams.enter(_session("another", "alice"))
    streams.enter(_session("of bob", "bob"))
    streams.leave(sessions[0])
    streams.enter(_session("another", "alice"))


def test_one_caller_leaves_as_many_streams_as_he_has_to_others() -> None:
    streams = Streams()
    for number in range(MOST_STREAMS // 2):
        streams.enter(_session(f"session-{number}", f"system:serviceaccount:evil:sa{number % 101}"))
    with pytest.raises(TooMany):
        streams.enter(_session("too many", "system:serviceaccount:evil:another"))
    for number in range(40):
        streams.enter(_session(f"of-alice-{number}", "alice"))
    streams.enter(_session("of bob", "bob"))
