from __future__ import annotations

import asyncio
import base64
import io
import pickle
import zipfile
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from typing import Any

import pytest

from fluxqueue.client import (
    CallTooLarge,
    Flux,
    FluxExecutor,
    FluxTaskStatus,
    InvalidWork,
    NoCluster,
    WorkCancelled,
    WorkerDied,
)
from fluxqueue.client import flux_executor as module
from fluxqueue.client.frames import log_lines, sealed
from fluxqueue.client.portals import Portal


class Task:
    """A job of the instance below."""

    def __init__(self, instance: Instance, jobid: str, command: list[str]) -> None:
        self.instance, self.id = instance, jobid
        content = zipfile.ZipFile(io.BytesIO(base64.b64decode("".join(command[3:]))))
        self.files = {name: content.read(name) for name in content.namelist()}
        self.result, self.code = "COMPLETED", 0
        self.state = instance.first_state

    async def status(self) -> FluxTaskStatus:
        ended = self.state == "INACTIVE"
        return FluxTaskStatus(
            self.id, "", self.state, self.result if ended else "", self.code if ended else None, {}
        )

    async def cancel(self) -> None:
        self.instance.cancelled.append(self.id)

    async def output(self) -> Any:
        if self.result == "COMPLETED":
            function, calls = pickle.loads(self.files["task-0"])
            task = pickle.dumps(
                [("returned", pickle.dumps(function(*args, **kwargs)), "") for args, kwargs in calls]
            )
            name = f"{__import__('json').loads(self.files['settings.json'])['task']}.0"
            for line in log_lines(sealed(task, self.files["key"], name), name):
                yield line


class Instance:
    """A Flux instance in memory, where the test plays Flux."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.cancelled: list[str] = []
        self.options: list[dict[str, Any]] = []
        self.listings = 0
        self.first_state = "INACTIVE"
        self.failures: list[Exception] = []

    async def submit(self, command: list[str], **options: Any) -> Task:
        self.options.append(options)
        self.tasks.append(Task(self, f"f{len(self.tasks) + 2}".replace("0", "z"), command))
        return self.tasks[-1]

    async def jobs(self, *, active: bool, limit: int) -> list[FluxTaskStatus]:
        assert active
        assert limit > 1_000
        self.listings += 1
        if self.failures:
            raise self.failures.pop()
        open_tasks = [task for task in self.tasks if task.state != "INACTIVE"]
        return [
            FluxTaskStatus(each.id, "", each.state, "", None, {"id": module._number(each.id)})
            for each in open_tasks
        ]


@pytest.fixture
def instance() -> Instance:
    return Instance()


@pytest.fixture
def flux(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flux]:
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    portal = Portal()
    yield Flux(portal, instance)  # type: ignore[arg-type]
    portal.close()


def until(condition: Any) -> None:
    async def hold() -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    asyncio.run(hold())


def test_results_are_in_order_and_each_chunk_is_a_job(flux: Flux, instance: Instance) -> None:
    with FluxExecutor(flux, cores_per_task=2) as executor:
        assert list(executor.map(pow, range(5), [2] * 9, chunksize=2)) == [0, 1, 4, 9, 16]
        future = executor.submit(divmod, 7, 2)
        assert future.result(60) == (3, 1)
        assert future.task is not None
    assert len(instance.tasks) == 4
    assert instance.options == [{"cores_per_task": 2}] * 4


def test_many_calls_share_a_listing(flux: Flux, instance: Instance) -> None:
    instance.first_state = "SCHED"
    with FluxExecutor(flux) as executor:
        results = executor.map(abs, range(40))
        until(lambda: len(instance.tasks) == 40)
        instance.listings = 0
        for task in instance.tasks:
            task.state = "INACTIVE"
        assert sum(results) == 780
    assert instance.listings <= 3


def test_a_call_is_cancelled_until_it_runs(flux: Flux, instance: Instance) -> None:
    instance.first_state = "SCHED"
    with FluxExecutor(flux) as executor:
        waits, runs = executor.submit(abs, -1), executor.submit(abs, -2)
        until(lambda: len(instance.tasks) == 2)
        runs_task = next(
            task for task in instance.tasks if pickle.loads(task.files["task-0"])[1][0][0] == (-2,)
        )
        runs_task.state = "RUN"
        until(runs.running)
        assert waits.cancel()
        assert not runs.cancel()
        assert wait([waits], 60).done == {waits}
        runs_task.state = "INACTIVE"
        assert runs.result(60) == 2
        with pytest.raises(CancelledError):
            waits.result()
    assert instance.cancelled == [next(task.id for task in instance.tasks if task is not runs_task)]


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [
        ("FAILED", WorkerDied, "ended as FAILED, exit code 9, without a result"),
        ("TIMEOUT", WorkerDied, "ran longer than its duration"),
        ("CANCELED", WorkCancelled, "was cancelled by somebody"),
    ],
)
def test_a_job_without_a_result_says_why(
    flux: Flux, instance: Instance, result: str, error: type[Exception], says: str
) -> None:
    instance.first_state = "SCHED"
    with FluxExecutor(flux) as executor:
        future = executor.submit(abs, -1)
        until(lambda: instance.tasks)
        task = instance.tasks[0]
        task.result, task.code, task.state = result, 9, "INACTIVE"
        with pytest.raises(error, match=says):
            future.result(60)


def test_an_instance_that_is_silent_for_a_moment_is_asked_again(flux: Flux, instance: Instance) -> None:
    instance.failures = [NoCluster("away")] * 3
    with FluxExecutor(flux) as executor:
        assert executor.submit(abs, -1).result(60) == 1


def test_an_instance_that_stays_silent_ends_the_calls(
    flux: Flux, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SILENT_S", 0.0)
    instance.failures = [NoCluster("away")]
    with FluxExecutor(flux) as executor, pytest.raises(NoCluster):
        executor.submit(abs, -1).result(60)


def test_what_cannot_be_right_is_refused_before_any_request(flux: Flux, instance: Instance) -> None:
    with pytest.raises(InvalidWork, match="nodes: a call is one task"):
        FluxExecutor(flux, nodes=2)
    with pytest.raises(InvalidWork, match="max_result_bytes is 1"):
        FluxExecutor(flux, max_result_bytes=1)
    with FluxExecutor(flux) as executor:
        with pytest.raises(InvalidWork, match="chunksize is 0"):
            executor.map(abs, [1], chunksize=0)
        with pytest.raises(CallTooLarge, match="characters with its arguments"):
            executor.submit(len, __import__("os").urandom(700_000))
    with pytest.raises(RuntimeError, match="is shut down"):
        executor.submit(abs, 1)
    assert instance.tasks == []


@pytest.mark.parametrize(
    ("jobid", "number"), [("f1", 0), ("f2", 1), ("f21", 58), ("ƒ2ABC", 58**3 + 9 * 58**2 + 10 * 58 + 11)]
)
def test_ids_are_numbers_in_base_58(jobid: str, number: int) -> None:
    assert module._number(jobid) == number
