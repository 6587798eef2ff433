"""Idle work is preempted by work of lower priority, on a control plane beside a stand-in for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.end_to_end import Stage, managed_namespace
from support.preempting_queue import PreemptingQueue
from support.prometheus_standin import PrometheusStandin, prometheus_standin

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster


@pytest.fixture(scope="module")
def standin() -> Iterator[PrometheusStandin]:
    with prometheus_standin() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(standin: PrometheusStandin, service_folder: Path) -> Iterator[InProcessCluster]:
    idle = {
        "prometheus": {"url": standin.url},
        "query": "use",
        "forSeconds": 4,
        "then": "preemptible",
        "graceSeconds": 4,
        "everySeconds": 1,
    }
    options = ClusterOptions(nodes=2, durable=False, values={"queue": {"config": {"idle": idle}}})
    made = InProcessCluster(service_folder / "idle", options)
    made.start()
    yield made
    made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage


@pytest.fixture
def queue(stage: Stage) -> Iterator[PreemptingQueue]:
    made = PreemptingQueue(stage)
    made.grants(graceSeconds=4)
    yield made
    stage.kubectl("delete", "jobs", "--all", "--timeout=60s")
    stage.kubectl("delete", "fluxqueue", made.name)


def use(stage: Stage, standin: PrometheusStandin, name: str, value: float) -> None:
    pods = [each for each in stage.items("pods", Pod) if each.metadata.label(names.JOB_NAME_LABEL) == name]
    standin.use |= {(stage.namespace, pod.metadata.name): value for pod in pods}


def explained(stage: Stage, name: str) -> str:
    return " ".join(stage.plugin("explain", f"job/{name}").stdout.split())


def preemptible(stage: Stage, standin: PrometheusStandin, queue: PreemptingQueue) -> None:
    """Start a Job of high priority on all nodes, and have it idle for so long."""
    stage.apply(queue.job("idle", 2, priority=10).build())
    stage.until_state("idle", State.RUNNING)
    use(stage, standin, "idle", 0)
    stage.until(
        "explain says so",
        lambda: (
            "(use below 5); work of any priority may preempt it, unless it is used"
            in explained(stage, "idle")
        ),
        60,
    )


def test_work_of_lower_priority_preempts_idle_work_also_after_a_takeover(
    stage: Stage, standin: PrometheusStandin, queue: PreemptingQueue
) -> None:
    preemptible(stage, standin, queue)
    stage.kill("queue")
    stage.until_ready("queue")
    stage.apply(queue.job("first", 1).build())
    stage.until_state("first", State.RUNNING, 60)
    stage.until_state("idle", State.PENDING)
    stage.until_consistent()
    said = json.loads(stage.kubectl("get", "events", "-o", "json").stdout)["items"]
    messages = [each["message"] for each in said if each["involvedObject"]["name"] == "idle"]
    form = (
        f"Job {stage.namespace}/idle (priority 10) was preempted by Job {stage.namespace}/first (priority 0)"
    )
    assert any(
        each.startswith(form) and "so it is requeued behind all other work" in each for each in messages
    ), messages
    stage.apply(queue.job("second", 1, priority=-5).build())
    stage.until_state("second", State.RUNNING)
    assert stage.row("idle").state == State.PENDING, "it waits behind work of lower priority too"
    assert stage.row("first").state == State.RUNNING, "and preempts nothing"
    for name in ("first", "second"):
        stage.succeed(name)
    stage.until_state("idle", State.RUNNING)
    stage.until_consistent()


def test_work_that_is_used_in_its_grace_is_not_preempted(
    stage: Stage, standin: PrometheusStandin, queue: PreemptingQueue
) -> None:
    queue.grants(graceSeconds=30)
    preemptible(stage, standin, queue)
    stage.apply(queue.job("first", 1).build())
    stage.until("it is told", lambda: stage.row("idle").state == State.DRAINING, 30)
    use(stage, standin, "idle", 80)
    stage.until("it goes on", lambda: stage.row("idle").state == State.RUNNING, 20)
    assert stage.row("first").state == State.PENDING
    stage.until_consistent()
