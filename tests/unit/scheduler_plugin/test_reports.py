"""A refusal is written once for each assignment, and only on the pod that was checked."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from support.scheduler_processes import released

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, Conflict, NotFound, Unreachable
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.reports import PodScheduledReason, SchedulingReporter

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Server:
    """What is written, and the API server's scripted responses."""

    def __init__(self) -> None:
        self.conditions: list[dict[str, Any]] = []
        self.versions: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.answers: list[ApiError] = []

    async def patch(self, _kind: object, _name: str, body: dict[str, Any], **_options: object) -> None:
        self.versions.append(body["metadata"]["resourceVersion"])
        if self.answers:
            raise self.answers.pop(0)
        self.conditions += body["status"]["conditions"][:1]

    async def create(self, _kind: object, body: dict[str, Any], _namespace: str) -> None:
        self.events.append((body["reason"], body["message"]))


class Bench:
    def __init__(self) -> None:
        self.server = Server()
        api = cast("Api", self.server)
        self.caches = SchedulerCaches(api)
        self.busy = False
        recorder = EventRecorder(api, instance="a", now=lambda: NOW)
        self.reporter = SchedulingReporter(api, self.caches, recorder, lambda: self.busy, lambda: NOW)

    def put(self, version: int, node: str = "n1", *, bound: str = "", **fields: Any) -> Pod:
        made = (
            released("p", node).namespace("default").uid("u").with_("metadata.resourceVersion", str(version))
        )
        for path, value in fields.items():
            made = made.with_(path.replace("__", "."), value)
        pod = msgspec.convert((made.on_node(bound) if bound else made).build(), Pod)
        self.caches.pods.apply(pod)
        return pod

    def refuse(self, pod: Pod, message: str = "node n1 is full") -> None:
        self.reporter.unscheduled(pod, PodScheduledReason.UNSCHEDULABLE, message)

    async def settled(self) -> None:
        async with asyncio.timeout(60):
            while self.reporter._due or self.reporter._queue.delayed:
                await asyncio.sleep(0.01)
            await self.reporter.flush()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    running = asyncio.create_task(made.reporter.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_refusal_is_a_condition_and_then_an_event(bench: Bench) -> None:
    bench.refuse(bench.put(1))
    await bench.settled()
    (condition,) = bench.server.conditions
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "node n1 is full",
        "lastProbeTime": "2026-01-02T03:04:05Z",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    assert bench.server.events == [("FailedScheduling", "node n1 is full")]


async def test_the_same_refusal_is_written_once(bench: Bench) -> None:
    bench.refuse(bench.put(1))
    await bench.settled()
    bench.refuse(bench.put(2))
    bench.refuse(bench.put(3))
    await bench.settled()
    assert len(bench.server.conditions) == len(bench.server.events) == 1


async def test_another_sentence_or_another_placement_is_written_again(bench: Bench) -> None:
    bench.refuse(bench.put(1))
    await bench.settled()
    bench.refuse(bench.put(2), "node n1 is cordoned")
    await bench.settled()
    bench.refuse(
        bench.put(3, metadata__annotations={"fluxqueue/allocation": "8", "fluxqueue/fluxion-nodes": "n1"}),
        "node n1 is cordoned",
    )
    await bench.settled()
    assert [each["message"] for each in bench.server.conditions] == [
        "node n1 is full",
        "node n1 is cordoned",
        "node n1 is cordoned",
    ]


async def test_a_condition_that_is_false_already_keeps_the_time_of_its_transition(bench: Bench) -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "node n0 is full"}
    ]
    bench.refuse(bench.put(1, status__conditions=conditions))
    await bench.settled()
    assert "lastTransitionTime" not in bench.server.conditions[0]


async def test_a_pod_that_changed_is_written_on_as_it_is_now_if_its_node_is_the_same(bench: Bench) -> None:
    bench.server.answers = [Conflict(409, "Conflict", "changed")]
    bench.refuse(bench.put(1))
    await asyncio.sleep(0)
    bench.put(2)
    await bench.settled()
    assert bench.server.versions[-1] == "2"
    assert len(bench.server.conditions) == 1


@pytest.mark.parametrize("change", [{"node": "n2"}, {"bound": "n1"}], ids=str)
async def test_nothing_is_written_on_a_pod_that_has_another_node_meanwhile(
    bench: Bench, change: dict[str, Any]
) -> None:
    bench.server.answers = [Conflict(409, "Conflict", "changed")]
    bench.refuse(bench.put(1))
    await asyncio.sleep(0)
    bench.put(2, **change)
    await bench.settled()
    assert bench.server.conditions == []
    assert bench.server.events == []


async def test_a_report_dropped_because_the_pod_moved_is_written_when_it_returns(bench: Bench) -> None:
    bench.refuse(bench.put(1))
    bench.put(2, "n2")
    await bench.settled()
    assert bench.server.conditions == []
    bench.refuse(bench.put(3))
    await bench.settled()
    assert len(bench.server.conditions) == 1


async def test_a_failed_server_is_retried_and_a_deleted_pod_is_not(bench: Bench) -> None:
    bench.server.answers = [Unreachable("away", sent=True), Unreachable("away", sent=False)]
    bench.refuse(bench.put(1))
    await bench.settled()
    assert len(bench.server.conditions) == 1
    bench.server.answers = [NotFound(404, "NotFound", "gone")]
    bench.refuse(bench.put(2), "node n1 is cordoned")
    await bench.settled()
    assert len(bench.server.conditions) == 1


async def test_a_flush_while_events_wait_for_binds_loses_nothing(bench: Bench) -> None:
    bench.busy = True
    bench.reporter.scheduled(bench.put(1), "n1")
    await asyncio.sleep(0)
    await bench.reporter.flush()
    bench.busy = False
    await asyncio.sleep(0.1)
    bench.reporter.scheduled(bench.put(2), "n2")
    await bench.settled()
    assert [message.split()[-1] for _, message in bench.server.events] == ["n1", "n2"]


async def test_the_event_of_a_bound_pod_waits_for_the_binds_under_way(bench: Bench) -> None:
    bench.busy = True
    bench.reporter.scheduled(bench.put(1), "n1")
    await asyncio.sleep(0.1)
    assert bench.server.events == []
    bench.busy = False
    await bench.settled()
    assert bench.server.events == [("Scheduled", "Successfully assigned default/p to n1")]
    assert bench.server.conditions == []
