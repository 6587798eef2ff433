"""Events as they arrive on a real API server."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson
from support.tcp_proxies import TcpProxy

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.kinds import JOBS
from fluxqueue.kube.transport import Api

Through = Callable[..., AbstractAsyncContextManager[Api]]
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def a_job(room: str, name: str = "lammps") -> Subject:
    return Subject.of(JOBS, Job(metadata=ObjectMeta(name=name, namespace=room, uid=f"uid-{name}")))


@asynccontextmanager
async def recording(api: Api, **options: Any) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(api, instance="test-0", **options)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        yield recorder
        task.cancel()


async def events(api: Api, room: str) -> list[dict[str, Any]]:
    answer = orjson.loads(await api.request("GET", f"/api/v1/namespaces/{room}/events"))
    items: list[dict[str, Any]] = answer["items"]
    return items


async def test_an_event_stands_at_the_users_object_as_describe_expects_it(api: Api, room: str) -> None:
    async with recording(api, now=lambda: START) as recorder:
        recorder.record(a_job(room), "Unsatisfiable", "no node has 9 gpus", severity=Severity.WARNING)
        await asyncio.wait_for(recorder.flush(), 60)
    (event,) = await events(api, room)
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": room,
        "name": "lammps",
        "uid": "uid-lammps",
    }
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Warning",
        "Unsatisfiable",
        "no node has 9 gpus",
        1,
    )
    assert (event["reportingComponent"], event["reportingInstance"], event["source"]) == (
        "fluxqueue",
        "test-0",
        {"component": "fluxqueue"},
    )
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"


async def test_what_is_said_again_raises_the_count_of_the_same_event(api: Api, room: str) -> None:
    clock = iter(START + datetime.timedelta(minutes=minute) for minute in range(10))
    async with recording(api, now=lambda: next(clock)) as recorder:
        recorder.record(a_job(room), "Waiting", "for nodes")
        await asyncio.wait_for(recorder.flush(), 60)
        for _ in range(3):
            recorder.record(a_job(room), "Waiting", "for nodes")
        recorder.record(a_job(room, "other"), "Waiting", "for nodes")
        await asyncio.wait_for(recorder.flush(), 60)
        assert recorder.sent == 3
    counts = {
        event["involvedObject"]["name"]: (event["count"], event["lastTimestamp"])
        for event in await events(api, room)
    }
    assert counts == {"lammps": (4, "2026-01-01T00:03:00Z"), "other": (1, "2026-01-01T00:04:00Z")}


async def test_an_event_the_server_has_forgotten_is_made_anew(api: Api, room: str) -> None:
    async with recording(api) as recorder:
        recorder.record(a_job(room), "Waiting", "for nodes")
        await asyncio.wait_for(recorder.flush(), 60)
        await api.request("DELETE", f"/api/v1/namespaces/{room}/events")
        recorder.record(a_job(room), "Waiting", "for nodes")
        await asyncio.wait_for(recorder.flush(), 60)
    (event,) = await events(api, room)
    assert event["count"] == 2


async def test_no_caller_waits_while_the_server_is_away_and_the_events_arrive_later(
    api: Api, proxy: TcpProxy, through: Through, room: str
) -> None:
    async with through(proxy, timeout_s=2.0) as shaky, recording(shaky, waiting=6) as recorder:
        proxy.refuse()
        for number in range(5):
            recorder.record(a_job(room, f"job-{number}"), "Waiting", "for nodes")
            recorder.record(a_job(room, f"job-{number}"), "Waiting", "for nodes")
        assert recorder.dropped == 4
        proxy.restore()
        await asyncio.wait_for(recorder.flush(), 60)
    found = {event["involvedObject"]["name"]: event["count"] for event in await events(api, room)}
    assert found == {"job-0": 2, "job-1": 2, "job-2": 2}


async def test_what_a_namespace_refuses_is_dropped_and_counted_and_the_rest_goes_on(
    api: Api, room: str
) -> None:
    async with recording(api) as recorder:
        recorder.record(a_job("no-such-namespace"), "Waiting", "for nodes")
        recorder.record(a_job(room), "Waiting", "x" * 5_000)
        await asyncio.wait_for(recorder.flush(), 60)
        assert (recorder.dropped, recorder.sent) == (1, 1)
    (event,) = await events(api, room)
    assert len(event["message"]) == 1_024


async def test_the_memory_of_what_was_said_is_bounded(api: Api, room: str) -> None:
    async with recording(api, remembered=2) as recorder:
        for name in ("a", "b", "c", "a"):
            recorder.record(a_job(room, name), "Waiting", "for nodes")
            await asyncio.wait_for(recorder.flush(), 60)
    assert sorted(event["involvedObject"]["name"] for event in await events(api, room)) == [
        "a",
        "a",
        "b",
        "c",
    ]
