from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import (
    ExecutorBroken,
    NotPermitted,
    OutcomeUnknown,
    ResultUnreadable,
    WorkCancelled,
    WorkerDied,
    task_jobs,
)
from fluxqueue.client.calls import packed
from fluxqueue.client.connections import Connection
from fluxqueue.client.frames import log_lines, sealed
from fluxqueue.client.object_watches import watch_pods
from fluxqueue.client.task_jobs import TaskJob
from fluxqueue.client.task_manifests import (
    KEPT_S,
    TaskPods,
    job_manifest,
    job_name,
)

PODS = TaskPods(image="python:3.11", cpu=2, memory="1Gi", gpus=1, duration=timedelta(minutes=10))


class Run:
    """A task job that runs on a server in memory, where the test plays the cluster."""

    def __init__(self, tasks: int = 1) -> None:
        self.server = WatchedApi()
        self.connection = Connection(self.server.api)
        self.calls = packed(len, [[((), {})]] * tasks, 100_000)
        self.futures: list[list[Future[Any]]] = [[Future()] for _ in range(tasks)]
        manifest = job_manifest(PODS, "call-len", "executor", tasks, tasks)
        manifest["metadata"]["namespace"] = "team"
        self.job = TaskJob(self.connection, manifest, self.calls, self.futures, 100_000, self.check)

    async def check(self, manifest: dict[str, Any]) -> None:
        assert manifest["metadata"]["name"] == "call-len"

    @asynccontextmanager
    async def started(self) -> AsyncIterator[asyncio.Task[None]]:
        pods = watch_pods(self.server.api, "team", "fluxqueue/executor=executor")
        running = asyncio.create_task(self.job.run(pods, asyncio.Semaphore(4)))
        try:
            while self.job.workload is None and not running.done():
                await asyncio.sleep(0)
            yield running
            if not running.cancelled():
                await asyncio.wait_for(running, 60)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await pods.close()
            await self.connection.close()

    def pod(
        self,
        phase: str,
        index: int = 0,
        *,
        message: str = "",
        disrupted: bool = False,
        name: str = "",
        code: int = 0,
    ) -> None:
        """Show a pod of the Job."""
        labels = {
            "batch.kubernetes.io/controller-uid": self.server.uid_of("jobs", "call-len"),
            "fluxqueue/executor": "executor",
        }
        meta = {
            "name": name or f"pod-{index}",
            "namespace": "team",
            "labels": labels,
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        }
        ended = (
            {"name": "call", "state": {"terminated": {"exitCode": code, "message": message}}}
            if phase != "Running"
            else {"name": "call"}
        )
        conditions = [{"type": "DisruptionTarget", "status": "True"}] if disrupted else []
        status = {"phase": phase, "containerStatuses": [ended], "conditions": conditions}
        self.server.put("pods", {"metadata": meta, "spec": {}, "status": status})

    def sealed(self, value: Any, index: int = 0) -> str:
        payload = pickle.dumps([("returned", pickle.dumps(value), "")])
        return sealed(payload, self.calls.key, f"{self.calls.task}.{index}")

    def show(self, state: str) -> None:
        self.server.show("Job", "call-len", self.server.uid_of("jobs", "call-len"), state=state)

    @property
    def future(self) -> Future[Any]:
        return self.futures[0][0]


async def test_a_result_arrives_as_message_and_everything_is_deleted() -> None:
    run = Run()
    async with run.started() as running:
        (secret,) = run.server.written("create", "secrets")
        assert secret.body["metadata"]["ownerReferences"][0]["uid"] == run.server.uid_of("jobs", "call-len")
        assert secret.body["immutable"]
        run.pod("Running")
        while not run.future.running():
            await asyncio.sleep(0)
        run.pod("Succeeded", message=run.sealed(7))
        await running
    assert run.future.result(0) == 7
    assert run.server.get("jobs", "call-len", "team") is None


async def test_a_large_result_is_read_from_the_log() -> None:
    run = Run()
    async with run.started():
        text = run.sealed(bytes(range(256)) * 300)
        run.server.logs["pod-0"] = "\n".join(["noise", *log_lines(text, f"{run.calls.task}.0")])
        run.pod("Succeeded")
    assert run.future.result(0) == bytes(range(256)) * 300


@pytest.mark.parametrize("log", ["nothing of ours", 403, 404])
async def test_a_result_that_cannot_be_read_is_an_error_with_its_remedy(log: str | int) -> None:
    run = Run()
    async with run.started():
        run.server.logs["pod-0"] = log
        run.pod("Succeeded")
    expected = {403: (NotPermitted, "pods/log"), 404: (WorkerDied, "submit it again")}.get(
        log if isinstance(log, int) else 0, (ResultUnreadable, "have it print less")
    )
    with pytest.raises(expected[0], match=expected[1]):
        run.future.result(0)


async def test_a_result_is_not_lost_because_a_node_is_silent_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_jobs, "_LOOK_S", 0.01)
    run = Run()
    async with run.started():
        run.server.logs["pod-0"] = 500
        run.pod("Succeeded")
        run.show("Completed")
        while 0 not in run.job._silent:
            await asyncio.sleep(0)
        run.server.logs["pod-0"] = "\n".join(log_lines(run.sealed("kept"), f"{run.calls.task}.0"))
    assert run.future.result(0) == "kept"


async def test_a_node_that_stays_silent_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_jobs, "_PATIENCE_S", 0.0)
    run = Run()
    async with run.started():
        run.server.logs["pod-0"] = 500
        run.pod("Succeeded")
    with pytest.raises(OutcomeUnknown):
        run.future.result(0)


async def test_a_message_that_somebody_else_wrote_is_not_unpickled() -> None:
    run = Run()
    async with run.started():
        run.pod("Succeeded", message=sealed(b"evil", b"x" * 32, f"{run.calls.task}.0"))
    with pytest.raises(ResultUnreadable, match="signature"):
        run.future.result(0)


async def test_a_disrupted_pod_is_awaited_again_and_a_dead_one_is_not() -> None:
    run = Run(tasks=2)
    async with run.started():
        run.pod("Failed", 0, disrupted=True, name="first")
        run.pod("Failed", 1, code=3)
        run.pod("Succeeded", 0, message=run.sealed("again"))
    assert run.futures[0][0].result(0) == "again"
    with pytest.raises(WorkerDied, match="task 1: Pod pod-1 ended without a result"):
        run.futures[1][0].result(0)


async def test_a_job_that_ends_without_pods_ends_its_calls() -> None:
    run = Run()
    async with run.started():
        run.show("Failed")
    with pytest.raises(WorkerDied, match="its pod was deleted"):
        run.future.result(0)


async def test_a_cancelled_job_is_called_cancelled() -> None:
    run = Run()
    async with run.started():
        run.show("Cancelled")
    with pytest.raises(WorkCancelled, match="cancelled by somebody"):
        run.future.result(0)


async def test_a_cancelled_future_deletes_its_job() -> None:
    run = Run()
    async with run.started():
        assert run.future.cancel()
        run.job.changed.set()
    assert run.server.get("jobs", "call-len", "team") is None


async def test_a_job_whose_secret_is_refused_is_deleted_at_once() -> None:
    run = Run()
    run.server.fail_next("create", "secrets", 403, "Forbidden", "secrets is forbidden")
    async with run.started():
        pass
    with pytest.raises(NotPermitted, match="secrets is forbidden"):
        run.future.result(0)
    assert run.server.get("jobs", "call-len", "team") is None


async def test_the_cause_is_said_also_if_the_job_cannot_be_deleted() -> None:
    run = Run()
    run.server.fail_next("create", "secrets", 403, "Forbidden", "secrets is forbidden")
    run.server.fail_next("delete", "jobs", 403, "Forbidden", "jobs is forbidden")
    async with run.started():
        pass
    with pytest.raises(NotPermitted, match="secrets is forbidden"):
        run.future.result(0)


async def test_a_call_that_was_cancelled_before_is_never_submitted() -> None:
    run = Run()
    run.future.cancel()
    async with run.started():
        pass
    assert run.server.writes == []


async def test_the_end_of_the_client_ends_its_futures_and_leaves_the_job() -> None:
    run = Run()
    async with run.started() as running:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert run.server.get("jobs", "call-len", "team") is not None
        with pytest.raises(ExecutorBroken, match="their Jobs go on"):
            run.future.result(0)


async def test_a_cancelled_call_is_done_for_who_waits_also_if_nothing_can_be_submitted() -> None:
    run = Run(tasks=2)
    run.server.fail_next("list", "pods", 403, "Forbidden", "pods is forbidden")
    assert run.future.cancel()
    async with run.started():
        pass
    assert wait([run.future], timeout=0).done == {run.future}
    with pytest.raises(NotPermitted):
        run.futures[1][0].result(0)


async def test_a_call_that_is_cancelled_as_its_pod_starts_breaks_no_other() -> None:
    class CancelledNow(Future[Any]):
        """Somebody cancels it after the executor looked whether it is done."""

        def set_running_or_notify_cancel(self) -> bool:
            self.cancel()
            return super().set_running_or_notify_cancel()

    run = Run(tasks=2)
    run.futures[0][0] = CancelledNow()
    async with run.started():
        run.pod("Running", 0)
        while not wait([run.future], timeout=0).done:
            await asyncio.sleep(0)
        run.pod("Succeeded", 1, message=run.sealed(5, 1))
    assert run.futures[1][0].result(0) == 5


def test_the_job_ends_by_itself_whatever_happens_to_the_client() -> None:
    job = job_manifest(PODS, "call-a", "executor", tasks=5, at_once=2)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["ttlSecondsAfterFinished"]) == (5, 2, KEPT_S)
    assert spec["activeDeadlineSeconds"] == 3 * 600
    assert spec["backoffLimitPerIndex"] == 0
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_more_fields_of_the_pods_are_kept() -> None:
    more = {
        "volumes": [{"name": "data"}],
        "volumeMounts": [{"name": "data"}],
        "nodeSelector": {"disk": "ssd"},
    }
    pod = job_manifest(TaskPods(image="i", pod=more), "call-a", "e", 1, 1)["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["volumes"]] == ["fluxqueue-call", "data"]
    assert [each["name"] for each in pod["containers"][0]["volumeMounts"]] == ["fluxqueue-call", "data"]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert "volumeMounts" not in pod


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("simulate_All", "call-simulate-all-0123456789"),
        ("<lambda>", "call-lambda-0123456789"),
        ("ß", "call-function-0123456789"),
    ],
)
def test_jobs_are_named_after_what_they_call(function: str, name: str) -> None:
    assert job_name(function, "0123456789abcdef") == name
    assert len(job_name("x" * 300, "0123456789abcdef")) < 52
