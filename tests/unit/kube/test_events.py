"""The recorder of Events: repetitions, limits and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.controller_bench import running
from support.memory_api import MemoryApi

from fluxqueue.kube import events as module
from fluxqueue.kube.errors import ServerError
from fluxqueue.kube.events import EventRecorder, Severity, Subject

JOB = Subject("batch/v1", "Job", "ns", "lammps", "uid-1")


@pytest.fixture
def server() -> MemoryApi:
    return MemoryApi()


@asynccontextmanager
async def recording(server: MemoryApi) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(server.api, instance="queue-0")
    running = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        running.cancel()
        await asyncio.wait({running})


async def flushed(recorder: EventRecorder) -> None:
    await asyncio.wait_for(recorder.flush(), 60)


def bodies(server: MemoryApi, verb: str) -> list[Any]:
    return [write.body for write in server.written(verb, "events")]


async def test_an_event_names_its_object_its_reporter_and_its_reason(server: MemoryApi) -> None:
    async with recording(server) as recorder:
        recorder.record(JOB, "Allocated", "it has 2 nodes", severity=Severity.WARNING)
        await flushed(recorder)
    (body,) = bodies(server, "create")
    assert (body["type"], body["reason"], body["message"], body["count"]) == (
        "Warning",
        "Allocated",
        "it has 2 nodes",
        1,
    )
    assert body["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "lammps",
        "uid": "uid-1",
        "namespace": "ns",
    }
    assert body["reportingInstance"] == "queue-0"


async def test_a_repetition_of_a_sent_event_patches_its_count(server: MemoryApi) -> None:
    async with recording(server) as recorder:
        recorder.record(JOB, "Requeued", "its node was lost")
        await flushed(recorder)
        recorder.record(JOB, "Requeued", "its node was lost")
        await flushed(recorder)
    assert len(bodies(server, "create")) == 1
    assert [body["count"] for body in bodies(server, "patch")] == [2]


async def test_a_repetition_of_a_queued_event_needs_no_call(server: MemoryApi) -> None:
    recorder = EventRecorder(server.api, instance="queue-0")
    for _ in range(3):
        recorder.record(JOB, "Requeued", "its node was lost")
    running = asyncio.create_task(recorder.run())
    await flushed(recorder)
    running.cancel()
    assert [body["count"] for body in bodies(server, "create")] == [3]
    assert recorder.sent == 1


async def test_an_event_that_expired_on_the_server_is_created_again(server: MemoryApi) -> None:
    async with recording(server) as recorder:
        recorder.record(JOB, "Requeued", "its node was lost")
        await flushed(recorder)
        server.fail_next("patch", "events", 404, "NotFound")
        recorder.record(JOB, "Requeued", "its node was lost")
        await flushed(recorder)
    assert [body["count"] for body in bodies(server, "create")] == [1, 2]


async def test_a_namespace_leaves_as_much_of_the_queue_to_others_as_it_has(server: MemoryApi) -> None:
    recorder = EventRecorder(server.api, instance="queue-0", waiting=4)
    assert [recorder.record(JOB, "Requeued", f"reason {number}") for number in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert recorder.record(replace(JOB, namespace="other"), "Requeued", "its node was lost")
    assert recorder.record(JOB, "Requeued", "reason 0"), "it is queued already"
    assert recorder.dropped == 3


async def test_the_event_of_a_stranger_is_among_the_first_beside_a_crowd(server: MemoryApi) -> None:
    recorder = EventRecorder(server.api, instance="queue-0")
    taken = [recorder.record(JOB, "InvalidRequest", f"reason {number}") for number in range(2_000)]
    assert recorder.record(replace(JOB, namespace="stranger"), "Requeued", "its node was lost")
    async with running(recorder.run()):
        await flushed(recorder)
    assert [body["reason"] for body in bodies(server, "create")].index("Requeued") <= 2
    assert recorder.sent == sum(taken) + 1
    assert recorder.dropped == 2_000 - sum(taken)


async def test_no_event_waits_for_another_one_that_fails_again_and_again(
    server: MemoryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []

    def note(failures: int, **_how: object) -> float:
        pauses.append(failures)
        return 0.0

    monkeypatch.setattr(module, "jittered_s", note)
    tried: list[str] = []
    call = server.call

    async def refuse(request: Any, *arguments: Any, **options: Any) -> bytes:
        tried.append(request.path.split("/")[-2])
        if tried[-1] == "ns":
            raise ServerError(500, "InternalError", "no webhook")
        return await call(request, *arguments, **options)

    server.call = refuse  # type: ignore[method-assign]
    recorder = EventRecorder(server.api, instance="queue-0")
    recorder.record(JOB, "InvalidRequest", "of the crowd")
    for number in range(3):
        recorder.record(replace(JOB, namespace="stranger"), "Requeued", f"reason {number}")
    async with running(recorder.run()):
        await flushed(recorder)
    assert tried == ["ns", "stranger"] * 3 + ["ns"] * 2
    assert pauses == [1] * 4, "the pauses do not grow while others are sent"
    assert (recorder.sent, recorder.dropped) == (3, 1)


async def test_what_is_remembered_is_bounded_while_a_crowd_waits(server: MemoryApi) -> None:
    recorder = EventRecorder(server.api, instance="queue-0", remembered=20, waiting=10)
    async with running(recorder.run()):
        for number in range(50):
            for each in range(5):
                recorder.record(JOB, "InvalidRequest", f"reason {number}.{each}")
            recorder.record(replace(JOB, namespace="stranger"), "Requeued", f"reason {number}")
            await asyncio.sleep(0)
            assert len(recorder._known) <= 20


async def test_a_refused_event_is_dropped_and_the_next_one_is_sent(server: MemoryApi) -> None:
    server.fail_next("create", "events", 403, "Forbidden")
    async with recording(server) as recorder:
        recorder.record(JOB, "First", "refused")
        recorder.record(JOB, "Second", "sent")
        await flushed(recorder)
        assert recorder.dropped == 1
    assert [body["reason"] for body in bodies(server, "create")] == ["Second"]


async def test_a_server_error_is_retried(server: MemoryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "jittered_s", lambda *_, **__: 0.0)
    server.fail_next("create", "events", 500, "InternalError")
    server.fail_next("create", "events", 503, "ServiceUnavailable")
    async with recording(server) as recorder:
        recorder.record(JOB, "Allocated", "it has 2 nodes")
        await flushed(recorder)
        assert (recorder.sent, recorder.dropped) == (1, 0)


async def test_a_long_message_is_cut_to_what_the_server_accepts(server: MemoryApi) -> None:
    async with recording(server) as recorder:
        recorder.record(JOB, "Unsatisfiable", "x" * 2_000)
        await flushed(recorder)
    (body,) = bodies(server, "create")
    assert len(body["message"]) == 1_024
    assert body["message"].endswith("…")
