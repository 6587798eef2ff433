from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import (
    AsyncClient,
    CallTooLarge,
    Client,
    FluxQueueExecutor,
    InvalidWork,
    NotManaged,
    TaskPods,
)
from fluxqueue.client import executor as module
from fluxqueue.client.calls import PackedCalls
from fluxqueue.client.object_watches import ObjectWatch
from fluxqueue.client.portals import Portal
from fluxqueue.client.task_jobs import TaskJob

PODS = TaskPods(image="python:3.11")


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a server in memory."""
    client = Client.__new__(Client)
    client.portal = Portal()
    client.asynchronous = AsyncClient(WatchedApi().api, "team")
    yield client
    client.portal.close()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[TaskJob]:
    """The Jobs that an executor made; instead of being submitted, their calls are made here,
    except those of `waits`.
    """
    made: list[TaskJob] = []

    async def run(self: TaskJob, *_: Any) -> None:
        made.append(self)
        for index, futures in enumerate(self._futures):
            function, calls = pickle.loads(self._calls.data[f"task-{index}"])
            for future, (args, kwargs) in zip(futures, calls, strict=True):
                if function is waits or future.cancelled():
                    continue
                try:
                    future.set_result(function(*args, **kwargs))
                except Exception as error:
                    future.set_exception(error)

    monkeypatch.setattr(TaskJob, "run", run)
    return made


def waits(*_: Any) -> None:
    """Stand for a call that never returns."""


def test_results_are_in_order_and_each_chunk_is_a_job(client: Client, jobs: list[TaskJob]) -> None:
    with FluxQueueExecutor(client, PODS, queue="night") as executor:
        assert list(executor.map(pow, range(5), [2] * 9, chunksize=2)) == [0, 1, 4, 9, 16]
        assert executor.submit(divmod, 7, 2).result(60) == (3, 1)
    assert len(jobs) == 4
    assert {job._manifest["metadata"]["labels"]["fluxqueue/queue"] for job in jobs} == {"night"}
    assert {job._manifest["metadata"]["namespace"] for job in jobs} == {"team"}


def test_workers_of_one_map_are_pods_of_one_job(client: Client, jobs: list[TaskJob]) -> None:
    with FluxQueueExecutor(client, PODS, max_workers=3) as executor:
        assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        assert list(executor.map(abs, [])) == []
    (job,) = jobs
    assert (job._manifest["spec"]["parallelism"], job._manifest["spec"]["completions"]) == (3, 5)


def test_a_map_that_is_too_large_for_one_secret_is_divided(client: Client, jobs: list[TaskJob]) -> None:
    with FluxQueueExecutor(client, PODS, max_workers=3) as executor:
        assert list(executor.map(len, [os.urandom(300_000) for _ in range(6)])) == [300_000] * 6
        assert len(jobs) > 1
        with pytest.raises(CallTooLarge):
            executor.map(len, [os.urandom(2_000_000)])


def test_an_exception_ends_the_iteration_and_cancels_the_rest(client: Client, jobs: list[TaskJob]) -> None:
    executor = FluxQueueExecutor(client, PODS)
    with pytest.raises(ZeroDivisionError):
        list(executor.map(divmod, [1, 2], [0, 1]))
    waiting = executor.submit(waits)
    with pytest.raises(TimeoutError):
        next(executor.map(waits, [()], timeout=0.01))
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waiting.result(0)
    with pytest.raises(RuntimeError, match="the executor is shut down"):
        executor.submit(abs, 1)


def test_the_call_for_which_the_time_was_over_is_cancelled_too(client: Client, jobs: list[TaskJob]) -> None:
    executor = FluxQueueExecutor(client, PODS)
    with pytest.raises(TimeoutError):
        next(executor.map(waits, [(), ()], timeout=0.01))
    assert all(future.cancelled() for job in jobs for futures in job._futures for future in futures)
    executor.shutdown()


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"max_workers": 0}, "max_workers is 0"),
        ({"max_result_bytes": 10}, "max_result_bytes is 10"),
        ({"max_result_bytes": 1 << 30}, "since logs are limited"),
        ({"duration": "1h"}, r"TaskPods\(duration=\)"),
    ],
)
def test_parameters_that_cannot_be_right_are_refused(
    client: Client, parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidWork, match=sentence):
        FluxQueueExecutor(client, PODS, **parameters)


def test_a_chunk_has_at_least_one_call(client: Client, jobs: list[TaskJob]) -> None:
    with FluxQueueExecutor(client, PODS) as executor, pytest.raises(InvalidWork, match="chunksize is 0"):
        executor.map(abs, [1], chunksize=0)


def test_no_call_starts_past_the_queue(client: Client) -> None:
    server: Any = client.asynchronous.api._wire
    server.managed = False
    with (
        FluxQueueExecutor(client, PODS) as executor,
        pytest.raises(NotManaged, match="does not queue jobs of namespace team"),
    ):
        executor.submit(abs, 1).result(60)
    assert server.writes == []


def test_its_watch_ends_with_its_last_call_also_if_nobody_waits(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, closed = asyncio.Event(), threading.Event()

    async def run(self: TaskJob, pods: ObjectWatch[Any], slots: asyncio.Semaphore) -> None:
        close = pods.close

        async def noticed() -> None:
            await close()
            closed.set()

        monkeypatch.setattr(pods, "close", noticed)
        await pods.open()
        await goes_on.wait()

    monkeypatch.setattr(TaskJob, "run", run)
    executor = FluxQueueExecutor(client, PODS)
    executor.submit(abs, -1)
    executor.shutdown(wait=False)
    assert not closed.is_set()
    client.portal.wake(goes_on)
    assert closed.wait(60)


def test_it_can_be_shut_down_after_its_client(client: Client, jobs: list[TaskJob]) -> None:
    executor = FluxQueueExecutor(client, PODS)
    assert executor.submit(abs, -1).result(60) == 1
    client.close()
    executor.shutdown()
    executor.shutdown()


def test_division_ends_with_one_chunk() -> None:
    def parts(sizes: list[int]) -> list[int]:
        chunks: Any = [[((os.urandom(size),), {})] for size in sizes]
        return [
            len(part) for part, calls in module._fitting(len, chunks, 1_000) if isinstance(calls, PackedCalls)
        ]

    assert parts([400_000] * 4) == [2, 2]
    assert parts([900_000, 10, 10, 10]) == [4]
