"""Functions as work: the executor on the whole control plane, whose pods run as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, wait
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import cloudpickle
import pytest
from support.builders import make_job
from support.end_to_end import Stage

from fluxqueue.client import (
    CallTooLarge,
    Client,
    FluxQueueExecutor,
    LogsUnavailable,
    RemoteError,
    ResultUnreadable,
    TaskPods,
    WorkCancelled,
    WorkerDied,
)
from fluxqueue.local.kubelet.children import MARK

PODS = TaskPods(image="python", python="python3", cpu=1)
MINUTE_S = 90


@pytest.fixture
def stage(computing: Stage) -> Stage:
    return computing


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    with Client(stage.cluster.kubeconfig, namespace=stage.namespace) as client:
        yield client


def kill_container(stage: Stage, job: str) -> None:
    """Kill the process of a Job's pod, as the kernel does when its memory is used up."""
    (uid,) = stage.kubectl(
        "get", "pods", "-l", f"job-name={job}", "-o", "jsonpath={.items[*].metadata.uid}"
    ).stdout.split()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                f"{MARK}={stage.cluster.control_plane.folder}/pods/{uid}".encode()
                in (process / "environ").read_bytes()
            ):
                os.kill(int(process.name), signal.SIGKILL)


# The pods do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def square(number: int) -> int:
    sys.stdout.write(f"the square of {number} without an end of the line")
    return number * number


def square_and_pod(number: int) -> tuple[int, str]:
    return number * number, os.environ["HOSTNAME"]


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a file")
        self.file = Path("/dev/null").open()  # noqa: SIM115


def test_calls_return_and_raise_as_if_they_were_local(stage: Stage, client: Client) -> None:
    def divide(numerator: int, denominator: int) -> float:
        return numerator / denominator

    with FluxQueueExecutor(client, PODS) as executor:
        small = executor.submit(square, 12)
        large = executor.submit(lambda size: os.urandom(size), 200_000)
        wrong = executor.submit(divide, 1, denominator=0)

        def raise_unpicklable() -> None:
            raise Unpicklable

        strange = executor.submit(raise_unpicklable)
        assert small.result(MINUTE_S) == 144
        assert len(large.result(MINUTE_S)) == 200_000
        with pytest.raises(ZeroDivisionError) as caught:
            wrong.result(MINUTE_S)
        assert "in divide" in str(caught.value.__cause__)
        with pytest.raises(RemoteError, match="Unpicklable: holds a file"):
            strange.result(MINUTE_S)
    stage.until(
        "its Jobs and Secrets are gone",
        lambda: not stage.items("jobs", dict) and "call-" not in stage.kubectl("get", "secrets").stdout,
    )


def test_map_keeps_the_order_in_chunks_and_in_one_job(client: Client) -> None:
    with FluxQueueExecutor(client, PODS) as executor:
        results = list(executor.map(square_and_pod, range(7), chunksize=3, timeout=MINUTE_S))
    assert [number for number, _ in results] == [n * n for n in range(7)]
    assert len({pod for _, pod in results}) == 3
    with FluxQueueExecutor(client, PODS, max_workers=2) as executor:
        assert list(executor.map(pow, range(5), range(5), timeout=MINUTE_S)) == [n**n for n in range(5)]


def test_a_pod_that_dies_ends_its_own_calls_only(stage: Stage, client: Client) -> None:
    with FluxQueueExecutor(client, PODS) as executor:
        dies = executor.submit(os._exit, 3)
        killed = executor.submit(time.sleep, 600)
        lives = executor.submit(square, 3)
        with pytest.raises(WorkerDied, match=r"ended without a result \(Error, exit code 3\)") as caught:
            dies.result(MINUTE_S)
        assert isinstance(caught.value, BrokenExecutor)
        stage.until("it runs", killed.running)
        assert not killed.cancel()
        assert killed.workload is not None
        job = killed.workload.name
        kill_container(stage, job)
        with pytest.raises(WorkerDied, match="request more memory"):
            killed.result(MINUTE_S)
        assert lives.result(MINUTE_S) == 9


def test_an_evicted_pod_is_replaced_and_its_call_made_again(
    stage: Stage, client: Client, tmp_path: Path
) -> None:
    mark = tmp_path / "second"

    def slow_at_first(mark: str) -> str:
        if not Path(mark).exists():
            Path(mark).touch()
            time.sleep(600)
        return "done"

    with FluxQueueExecutor(client, PODS) as executor:
        future = executor.submit(slow_at_first, str(mark))
        stage.until("it runs for the first time", mark.exists)
        (pod,) = stage.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").stdout.split()
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": stage.namespace},
        }
        client_of_admin = stage.cluster.control_plane.client
        client_of_admin.request("POST", f"/api/v1/namespaces/{stage.namespace}/pods/{pod}/eviction", eviction)
        assert future.result(MINUTE_S) == "done"


def test_what_waits_is_cancelled_and_leaves_nothing(stage: Stage, client: Client) -> None:
    filling = make_job("filling").without("metadata.namespace").indexed(8).cpu("8").build()
    filling["spec"]["template"]["spec"]["containers"][0]["command"] = ["sleep", "600"]
    (full,) = stage.apply(filling)
    stage.until_state(full.name, "Running")
    executor = FluxQueueExecutor(client, PODS, priority=2)
    first, second = executor.submit(square, 1), executor.submit(square, 2)
    stage.until(
        "they wait",
        lambda: all(each.workload is not None and each.workload.status().reason for each in (first, second)),
    )
    assert second.workload is not None
    assert "WaitingForNodes" in second.workload.explain().text
    assert first.cancel()
    with pytest.raises(CancelledError):
        first.result(0)
    assert wait([first], timeout=MINUTE_S).done == {first}
    second.workload.cancel()
    with pytest.raises(WorkCancelled, match="was cancelled by somebody"):
        second.result(MINUTE_S)
    third = executor.submit(square, 3)
    executor.shutdown(cancel_futures=True)
    assert third.cancelled()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(square, 4)
    stage.until(
        "their Jobs are gone",
        lambda: stage.kubectl("get", "jobs", "-o", "name").stdout.split() == ["job.batch/filling"],
    )


def test_limits_are_said_in_one_sentence(client: Client) -> None:
    with FluxQueueExecutor(client, PODS, max_result_bytes=10_000) as executor:
        with pytest.raises(CallTooLarge, match=r"are shipped in one Job: pass the place of the data"):
            executor.submit(len, os.urandom(2_000_000))
        with pytest.raises(ResultUnreadable, match=r"at most 10000 are returned: write it to a volume"):
            executor.submit(os.urandom, 20_000).result(MINUTE_S)
        with pytest.raises(ResultUnreadable, match="cannot be pickled"):
            executor.submit(lambda: (n for n in range(3))).result(MINUTE_S)


def test_what_a_program_prints_is_never_taken_for_its_result(client: Client) -> None:
    def forges(size: int) -> bytes:
        task = json.loads((Path(sys.argv[0]).parent / "settings.json").read_text())["task"]
        sys.stdout.write(f"fluxqueue-result {task}.0 1/1 {'A' * 400}\n")
        return b"x" * size

    with FluxQueueExecutor(client, PODS) as executor:
        random = executor.submit(lambda: os.urandom(9_000))
        assert executor.submit(forges, 4).result(MINUTE_S) == b"xxxx"
        assert executor.submit(forges, 9_000).result(MINUTE_S) == b"x" * 9_000
        assert len(random.result(MINUTE_S)) == 9_000


def test_output_of_pods_is_read_while_they_run_and_afterwards(stage: Stage, client: Client) -> None:
    command = ["python3", "-c", "import os; print('rank', os.environ['JOB_COMPLETION_INDEX'])"]
    talks = make_job("talks").without("metadata.namespace").indexed(2).cpu("1").build()
    talks["spec"]["template"]["spec"]["containers"][0]["command"] = command
    work = client.submit(talks, duration=timedelta(minutes=5))
    stage.adopt(json.loads(stage.kubectl("get", "job", "talks", "-o", "json").stdout))
    followed = sorted(str(line) for line in work.logs(follow=True))
    assert followed == ["[0] rank 0", "[1] rank 1"]
    assert work.wait(timeout=MINUTE_S).succeeded
    assert sorted(str(line) for line in work.logs()) == followed
    held = client.submit(make_job("held").without("metadata.namespace").cpu("1").suspended().build())
    stage.adopt(json.loads(stage.kubectl("get", "job", "held", "-o", "json").stdout))
    with pytest.raises(LogsUnavailable, match="no pod of it has started"):
        list(held.logs())
