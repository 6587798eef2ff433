"""A complete fluxqueue whose nodes are chosen by a service with the three calls of the original,
which also ends and starts again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.builders import JobBuilder, make_job
from support.end_to_end import Stage
from support.statements import statements_checked

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import JobInfo
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.ports import free_port

RUN_SECONDS = "fluxqueue.local/run-seconds"
TESTS = Path(__file__).resolve().parents[1]


class Standin:
    """The process of the stand-in; its graph is lost with it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(TESTS)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.foreign_standin", str(self.port)], env=environment
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)


class ForeignStage(Stage):
    """A stage on which nobody can ask the matcher what it holds."""

    def fluxion_jobs(self) -> Sequence[JobInfo]:
        return ()


@pytest.fixture(scope="module")
def standin() -> Iterator[Standin]:
    made = Standin(free_port())
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def cluster(standin: Standin, service_folder: Path) -> Iterator[InProcessCluster]:
    values = {
        "queue": {"config": {"matcher": "foreign", "pinWindowSeconds": 2}},
        "fluxion": {"foreign": {"address": f"127.0.0.1:{standin.port}"}},
    }
    made = InProcessCluster(service_folder / "foreign", ClusterOptions(nodes=4, durable=False, values=values))
    made.start()
    yield made
    made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    client = cluster.control_plane.client
    name = "foreign"
    if client.find(f"/api/v1/namespaces/{name}") is None:
        client.request(
            "POST",
            "/api/v1/namespaces",
            {"metadata": {"name": name, "labels": {"fluxqueue/managed": "true"}}},
        )
    stage = ForeignStage(cluster, name)
    stage.until(
        "the default service account is there",
        lambda: client.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
    )
    with statements_checked(cluster, name):
        yield stage
        stage.clear()


def job(name: str, pods: int, cpu: str = "8") -> JobBuilder:
    return make_job(name).indexed(pods).cpu(cpu).pod_annotation(RUN_SECONDS, "forever")


def cores_by_node(stage: Stage) -> Counter[str]:
    """Cores of running pods on each node; the fake nodes have eight."""
    cores: Counter[str] = Counter()
    for pod in stage.items("pods", Pod):
        if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
            cores[pod.spec.node_name] += int((pod.spec.containers[0].resources.requests or {})["cpu"])
    return cores


def test_a_gang_runs_and_what_does_not_fit_waits_and_follows(stage: Stage) -> None:
    stage.apply(job("first", 3).build())
    stage.until_state("first", State.RUNNING)
    stage.apply(job("second", 2).build())
    assert "free now: 1" in stage.until_reason("second", Reason.WAITING_FOR_NODES).status.message
    stage.apply(job("never", 5).build())
    stage.until_reason("never", Reason.UNSATISFIABLE)
    assert max(cores_by_node(stage).values()) == 8
    stage.succeed("first")
    stage.until_state("second", State.RUNNING)


def test_what_is_lost_is_said_by_the_queue_and_by_explain(stage: Stage) -> None:
    stage.apply(job("alone", 1).build())
    stage.until_state("alone", State.RUNNING)

    def condition() -> str:
        queue = json.loads(stage.kubectl("get", "fluxqueue", "default", "-o", "json").stdout)
        return next(
            (
                each["message"]
                for each in queue.get("status", {}).get("conditions", ())
                if each["type"] == "PolicyInForce"
            ),
            "",
        )

    assert "spec.policy easy" in stage.until("the queue says it", condition)
    explained = stage.plugin("explain", "alone").stdout
    assert "Matcher" in explained
    assert "without backfill" in explained


def test_after_the_service_started_again_running_work_keeps_its_nodes(stage: Stage, standin: Standin) -> None:
    stage.apply(job("keeps", 2).build())
    stage.until_state("keeps", State.RUNNING)
    standin.kill()
    stage.apply(job("waits", 2).build())
    assert stage.until_missed("fluxion")
    standin.start()
    stage.until_state("waits", State.RUNNING)
    assert cores_by_node(stage) == dict.fromkeys(cores_by_node(stage), 8)
    assert len(cores_by_node(stage)) == 4


def test_after_the_queue_was_killed_nothing_is_booked_twice(stage: Stage) -> None:
    stage.apply(job("before", 3).build())
    stage.until_state("before", State.RUNNING)
    stage.kill("queue")
    stage.apply(*(job(f"after-{number}", 1, "4").build() for number in range(3)))
    stage.until(
        "it and two of three run", lambda: [row for row in stage.rows() if row.state == State.RUNNING][2:]
    )
    assert all(cores <= 8 for cores in cores_by_node(stage).values())
    stage.succeed("before")
    for number in range(3):
        stage.until_state(f"after-{number}", State.RUNNING)
    assert all(cores <= 8 for cores in cores_by_node(stage).values())
