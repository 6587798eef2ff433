"""Idle work on the whole control plane, beside a stand-in for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import make_job
from support.end_to_end import Stage, managed_namespace
from support.prometheus_standin import PrometheusStandin, prometheus_standin

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"


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
        "then": "end",
        "graceSeconds": 6,
        "everySeconds": 1,
    }
    options = ClusterOptions(nodes=4, durable=False, values={"queue": {"config": {"idle": idle}}})
    made = InProcessCluster(service_folder / "idle", options)
    made.start()
    yield made
    made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage


def start(stage: Stage, standin: PrometheusStandin, name: str, *use: float) -> None:
    """Start a Job, with the use of each of its pods."""
    stage.apply(make_job(name).indexed(len(use)).cpu("1").pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state(name, State.RUNNING)
    pods = [each for each in stage.items("pods", Pod) if each.metadata.label(names.JOB_NAME_LABEL) == name]
    standin.use |= {(stage.namespace, pod.metadata.name): value for pod, value in zip(pods, use, strict=True)}


def events(stage: Stage, name: str) -> dict[str, str]:
    """Return the messages of the Events about a Job, by reason."""
    found = json.loads(stage.kubectl("get", "events", "-o", "json").stdout)["items"]
    return {each["reason"]: each["message"] for each in found if each["involvedObject"]["name"] == name}


def test_an_idle_job_is_told_and_ended_and_a_used_one_is_not(
    stage: Stage, standin: PrometheusStandin
) -> None:
    start(stage, standin, "idle", 0, 0)
    start(stage, standin, "used", 0, 80)
    stage.until("the Event", lambda: "Idle" in events(stage, "idle"), 60)
    assert "it is ended from " in events(stage, "idle")["Idle"]
    stage.until("explain says so", lambda: "Idle  " in stage.plugin("explain", "job/idle").stdout, 30)
    row = stage.until_state("idle", State.FAILED, 60)
    assert row.fluxjob is not None
    assert row.fluxjob.status.outcome == Outcome.TIME_LIMIT
    assert "(use below 5) and was ended" in row.fluxjob.status.message
    assert stage.row("used").state == State.RUNNING
    assert "Idle" not in events(stage, "used")
    assert set(standin.queries) == {"max by (namespace, pod) (use\n)"}


def test_nothing_is_ended_while_prometheus_does_not_answer(stage: Stage, standin: PrometheusStandin) -> None:
    start(stage, standin, "idle", 0)
    stage.until("the Event", lambda: "Idle" in events(stage, "idle"), 60)
    standin.status = 503
    before = len(standin.queries)
    stage.until("it was asked in vain for twice the grace", lambda: len(standin.queries) > before + 12, 60)
    assert stage.row("idle").state == State.RUNNING
    stage.until(
        "its FluxJob says so",
        lambda: "is not ended while that is so" in stage.plugin("explain", "job/idle").stdout,
        30,
    )
    standin.status = 200
    standin.use = dict.fromkeys(standin.use, 90)
    stage.until("nothing is said", lambda: "Idle  " not in stage.plugin("explain", "job/idle").stdout, 30)
    assert stage.row("idle").state == State.RUNNING
