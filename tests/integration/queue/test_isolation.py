"""An object that the code or the tables cannot process affects only itself.
Store and controllers are real, the API server is fake.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_job
from support.controller_bench import subscribed
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake import object_reader
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import Allocation, NewWorkload
from fluxqueue.queue.release.object_release import ObjectReleaser
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.release.releaser import Releaser
from fluxqueue.queue.status.fluxqueue_status import queue_status
from fluxqueue.queue.status.fluxqueue_writer import FluxQueueWriter
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger


class StandIn:
    """An API server that accepts every patch."""

    def __init__(self) -> None:
        self.patched: list[str] = []

    async def patch(self, _kind: object, name: str, _body: Mapping[str, Any], **_how: object) -> None:
        self.patched.append(name)


class Ears:
    """Records Events."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []
        self._moved = asyncio.Event()

    def record(
        self, subject: Subject, reason: str, message: str, *, severity: Severity = Severity.NORMAL
    ) -> None:
        self.recorded.append((subject.name, reason, message))
        self._moved.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self._moved.clear()
                await self._moved.wait()


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    async with LocalFluxion() as fluxion, a_leader(store, nodes, fluxion) as made:
        yield made


@pytest.fixture
def caches() -> Caches:
    made = Caches(cast(Api, StandIn()))
    made.namespaces.apply(
        msgspec.convert(
            {"metadata": {"name": "default", "uid": "ns", "labels": {"fluxqueue/managed": "true"}}}, Namespace
        )
    )
    return made


def suspended(name: str) -> Job:
    return a_job(
        make_job(name).indexed(1).cpu("1").suspended().annotation("fluxqueue/suspended-by", "webhook"),
        uid=name,
    )


def ignored(_task: ControlTask) -> None:
    """Ignore a control task that is requested."""


@asynccontextmanager
async def running(work: asyncio.Task[None]) -> AsyncIterator[None]:
    yield
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def raising(name: str) -> Callable[..., NewWorkload | None]:
    """Return a function that describes Jobs and raises an error for one of them."""

    def describe(job: Job, *args: Any, **more: Any) -> NewWorkload | None:
        if job.metadata.name == name:
            raise ValueError("No closing quotation")
        return describe_job(job, *args, **more)

    return describe


def unstorable(name: str) -> Callable[..., NewWorkload | None]:
    """Return a function that describes Jobs, one of them with a value that no column can store."""

    def describe(job: Job, *args: Any, **more: Any) -> NewWorkload | None:
        described = describe_job(job, *args, **more)
        return (
            replace(described, queue="\x00")
            if described is not None and job.metadata.name == name
            else described
        )

    return describe


@pytest.mark.parametrize(
    "broken", [raising("bad"), unstorable("bad")], ids=["cannot be read", "cannot be stored"]
)
async def test_a_job_that_cannot_be_submitted_blocks_no_other_and_gets_an_event(
    broken: Callable[..., NewWorkload | None], bench: Bench, caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_reader, "describe_job", broken)
    for name in ("a", "bad", "b"):
        caches.jobs.apply(suspended(name))
    ears, ledger = Ears(), bench.ledger
    taking = IntakeController(
        cast(Api, StandIn()), caches, ledger, Trigger(ignored), cast(EventRecorder, ears)
    )
    subscribe(caches, ledger, taking)
    taking.resync()
    async with running(asyncio.create_task(taking.run())):
        await ears.until(lambda: bool(ears.recorded))
        async with asyncio.timeout(60):
            while ledger.by_uid("b") is None:
                await asyncio.sleep(0)
        assert ledger.by_uid("a") is not None
        assert ledger.by_uid("bad") is None
        name, reason, message = ears.recorded[0]
        assert (name, reason) == ("bad", "ProcessingFailed")
        assert message.startswith("Job default/bad could not be taken in: ")
        monkeypatch.setattr(object_reader, "describe_job", describe_job)
        async with asyncio.timeout(60):
            while ledger.by_uid("bad") is None:
                await asyncio.sleep(0.01)


async def test_a_release_that_fails_blocks_no_other_and_gives_its_reason(
    bench: Bench, caches: Caches
) -> None:
    for name in ("a", "bad", "b"):
        job = suspended(name)
        caches.jobs.apply(job)
        found = describe_job(job, caches.cluster_context("default"))
        assert found is not None
        await bench.submit(found)
    await bench.cycle()
    api = StandIn()

    async def prepare(job: Job, _allocation: Allocation) -> None:
        if job.metadata.name == "bad":
            raise ValueError("No closing quotation")

    caches.nodes.replace(bench.nodes.list())
    gates = PodGates(cast(Api, api), bench.ledger, caches.pods.get_by_uid)
    objects = subscribed(ObjectReleaser(cast(Api, api), caches, bench.ledger.clock, gates, prepare), caches)
    releaser = Releaser(objects, bench.ledger, Trigger(ignored), lambda _uid: None)
    await releaser.release_due()
    await bench.ledger.store_released()
    assert sorted(api.patched) == ["a", "b"]
    assert released(bench.ledger) == {"a": True, "b": True, "bad": False}
    bad = bench.row("bad")
    assert (bad.state, bad.reason) == (State.ALLOCATED, Reason.RELEASE_FAILED)
    assert bad.message == "Job default/bad could not be released: No closing quotation"
    assert not any(bench.ledger.releasing(allocation.jobid) for _, allocation in bench.ledger.live())


def released(ledger: Ledger) -> dict[str, bool]:
    return {workload.name: allocation.released_at is not None for workload, allocation in ledger.live()}


async def test_a_queue_whose_status_cannot_be_computed_blocks_no_other_status(
    bench: Bench, caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "bad", "b"):
        caches.fluxqueues.apply(
            msgspec.convert({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": {}}, FluxQueue)
        )

    def status(queue: FluxQueue, *args: Any, **options: Any) -> Any:
        if queue.metadata.name == "bad":
            raise KeyError("spec")
        return queue_status(queue, *args, **options)

    monkeypatch.setattr("fluxqueue.queue.status.fluxqueue_writer.queue_status", status)
    api, ears = StandIn(), Ears()
    writer = FluxQueueWriter(cast(Api, api), caches, bench.ledger, cast(EventRecorder, ears))
    subscribe(caches, bench.ledger, writer)
    writer.resync()
    async with running(asyncio.create_task(writer.run())):
        await ears.until(lambda: bool(ears.recorded) and len(api.patched) == 2)
    assert sorted(api.patched) == ["a", "b"]
    assert ears.recorded[0][:2] == ("bad", "ProcessingFailed")
