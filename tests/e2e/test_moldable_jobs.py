"""Jobs that start with fewer pods than they ask for, and grow, on a real control plane."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import JobBuilder, make_account, make_job
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.pods import Pod

RUN_SECONDS = "fluxqueue.local/run-seconds"


def job(name: str, pods: int, duration: str, cpu: str = "5") -> JobBuilder:
    """A Job with a pod on each node that runs until the test ends it."""
    wanted = make_job(name).indexed(pods).cpu(cpu).pod_annotation(RUN_SECONDS, "forever")
    return wanted.annotation(names.DURATION_ANNOTATION, duration)


def moldable(pods: int = 8, least: int = 2, cpu: str = "5") -> JobBuilder:
    return job("moldable", pods, "10m", cpu).annotation(names.MIN_PODS_ANNOTATION, str(least))


def pods_of(stage: Stage, name: str = "moldable") -> list[Pod]:
    uid = stage.job(name).metadata.uid
    owned = [
        pod for pod in stage.items("pods", Pod) if (owner := pod.metadata.controller) and owner.uid == uid
    ]
    return [pod for pod in owned if pod.active]


def running(stage: Stage, name: str = "moldable") -> list[Pod]:
    return [pod for pod in pods_of(stage, name) if pod.status.phase == "Running"]


def until_running(stage: Stage, pods: int) -> list[Pod]:
    stage.until(f"{pods} pods run", lambda: len(running(stage)) == len(pods_of(stage)) == pods)
    return running(stage)


def outcome(stage: Stage) -> str:
    """Return how the moldable Job ended, once it has."""
    fluxjob = stage.until_state("moldable", State.COMPLETED).fluxjob
    return fluxjob.status.outcome if fluxjob is not None else ""


def small_start(stage: Stage, before: str = "1h") -> None:
    """Start the moldable Job with two of its eight pods, for 40 minutes,
    beside a Job that says how long it takes.
    """
    stage.apply(job("before", 6, before).build())
    stage.until_state("before", State.RUNNING)
    stage.apply(moldable().build())
    stage.until_state("moldable", State.RUNNING)
    assert stage.job("moldable").spec.parallelism == 2
    until_running(stage, 2)


def test_a_job_starts_with_fewer_pods_where_that_ends_it_sooner_and_grows_when_nodes_are_free(
    stage: Stage,
) -> None:
    small_start(stage)
    stage.until_consistent()
    started = stage.job("moldable")
    assert (started.spec.completions, started.metadata.annotation(names.STARTED_PODS_ANNOTATION)) == (8, "2")
    explained = stage.plugin("explain", "job/moldable").stdout
    assert re.search(r"^ +Pods +2 of 8", explained, re.MULTILINE), explained
    stage.succeed("before")
    nodes = {pod.spec.node_name for pod in until_running(stage, 8)}
    assert len(nodes) == 8
    stage.until_consistent()
    events = stage.kubectl("get", "events", "-o", "json").stdout
    said = {item["message"] for item in json.loads(events)["items"] if item["reason"] == "Grown"}
    assert any(
        re.fullmatch(rf"Job {stage.namespace}/moldable grows from \d to 8 pods: nodes are free", each)
        for each in said
    ), said
    for pod in pods_of(stage):
        stage.end_pod(pod.metadata.name)
    assert outcome(stage) == Outcome.SUCCEEDED


def test_a_job_passes_the_slots_of_its_small_start_on_to_its_later_indexes(stage: Stage) -> None:
    stage.apply(job("before", 6, "1h").build())
    stage.until_state("before", State.RUNNING)
    stage.apply(moldable(4).pod_annotation(RUN_SECONDS, "1").build())
    assert outcome(stage) == Outcome.SUCCEEDED
    ended = stage.job("moldable")
    assert (ended.spec.parallelism, ended.status.succeeded) == (2, 4)


def test_work_that_waits_comes_before_the_growth_of_a_running_job(stage: Stage) -> None:
    small_start(stage, "35m")
    stage.apply(job("waits", 6, "1h").build())
    stage.until_reason("waits", "WaitingForNodes")
    stage.succeed("before")
    stage.until_state("waits", State.RUNNING)
    assert [len(pods_of(stage, name)) for name in ("waits", "moldable")] == [6, 2]
    stage.until_consistent()
    stage.succeed("waits")
    until_running(stage, 8)


def test_a_suspended_job_starts_again_with_as_many_pods_as_fit_then(stage: Stage) -> None:
    small_start(stage)
    stage.kubectl("patch", "job", "moldable", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    stage.until_reason("moldable", "UserSuspended")
    stage.until("its pods are gone", lambda: not pods_of(stage))
    stage.until_consistent()
    stage.kubectl("patch", "job", "moldable", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    until_running(stage, 2)
    stage.kubectl("patch", "job", "moldable", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    stage.until("its pods are gone", lambda: not pods_of(stage))
    stage.succeed("before")
    stage.until_state("before", State.COMPLETED)
    stage.kubectl("patch", "job", "moldable", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    until_running(stage, 8)
    assert stage.job("moldable").metadata.annotation(names.STARTED_PODS_ANNOTATION) is None
    stage.until_consistent()


def test_a_job_that_grew_goes_on_after_the_queue_was_killed(stage: Stage) -> None:
    small_start(stage)
    stage.kill("queue")
    stage.succeed("before")
    stage.until_ready("queue")
    until_running(stage, 8)
    stage.until_consistent()


def test_pods_that_find_no_node_are_given_up(stage: Stage) -> None:
    small_start(stage)
    stage.kubectl("patch", "job", "moldable", "--type=merge", "-p", '{"spec": {"parallelism": 8}}')
    stage.until("eight pods are there", lambda: len(pods_of(stage)) == 8)
    stage.until("the Job is back at two", lambda: stage.job("moldable").spec.parallelism == 2)
    assert len(until_running(stage, 2)) == 2
    stage.until_consistent()


def test_a_small_job_that_is_deleted_frees_its_nodes(stage: Stage) -> None:
    small_start(stage)
    stage.succeed("before")
    until_running(stage, 8)
    stage.kubectl("delete", "job", "moldable")
    stage.apply(job("after", 8, "1h").build())
    stage.until_state("after", State.RUNNING)
    stage.until_consistent()


@pytest.fixture
def team(stage: Stage) -> Iterator[str]:
    name = f"team-{stage.namespace}"
    limits = {"resources": {"cpu": 60}}
    stage.kubectl(
        "apply", "-f", "-", stdin=json.dumps(make_account(name, namespaces=[stage.namespace], limits=limits))
    )
    yield name
    stage.kubectl("delete", "fluxaccount", name, "--ignore-not-found")


def test_the_limit_of_an_account_counts_the_pods_that_a_job_was_started_with(stage: Stage, team: str) -> None:
    stage.apply(job("before", 6, "1h", "6").build())
    stage.until_state("before", State.RUNNING)
    stage.apply(moldable(4, 1, "6").build())
    until_running(stage, 2)
    stage.apply(job("beside", 6, "1h", "2").build())
    stage.until_state("beside", State.RUNNING)
    stage.succeed("before")
    until_running(stage, 4)
    stage.apply(job("more", 5, "1h", "5").build())
    words = f"the account '{team}' may use 60 cores at once: it uses 36, and this wants 25 more"
    assert stage.until_reason("more", "AccountLimit").status.message == words


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"metadata.annotations": {names.MIN_PODS_ANNOTATION: "9"}},
            "'9' is not a number of its pods: write a whole number from 1 to 8",
        ),
        (
            {"metadata.annotations": {names.MIN_PODS_ANNOTATION: "-1"}},
            "'-1' is not a number of its pods: write a whole number from 1 to 8",
        ),
        (
            {"spec.parallelism": 3},
            (
                "is for Indexed Jobs whose pods run together: set completionMode: Indexed, "
                "parallelism the same as"
            ),
        ),
        (
            {"spec.completionMode": "NonIndexed"},
            "is for Indexed Jobs whose pods run together: set completionMode: Indexed, parallelism",
        ),
    ],
)
def test_what_cannot_be_moldable_is_refused_with_one_sentence(
    stage: Stage, change: dict[str, Any], sentence: str
) -> None:
    wanted = moldable()
    for path, value in change.items():
        wanted = wanted.with_(path, value)
    done = stage.kubectl(
        "apply", "-f", "-", stdin=json.dumps(wanted.namespace(stage.namespace).build()), check=False
    )
    assert done.returncode != 0
    assert f"annotation {names.MIN_PODS_ANNOTATION}" in done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
