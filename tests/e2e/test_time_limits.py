"""Work that is ended at the end of its duration, and work that will miss its deadline,
on the whole control plane.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from support.builders import JobBuilder, Json, make_job, make_minicluster, make_pod, make_queue
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State

RUN_SECONDS = "fluxqueue.local/run-seconds"
FOREVER = "forever"


@pytest.fixture
def short(stage: Stage) -> Iterator[str]:
    """A FluxQueue that ends work at the end of its duration."""
    name = f"short-{stage.namespace}"
    put(stage, name, enforceDuration={"enabled": True, "graceSeconds": 2})
    yield name
    stage.kubectl("delete", "fluxqueue", name)


def put(stage: Stage, name: str, **spec: Any) -> None:
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(name, **spec)))


def job(name: str, queue: str, duration: str = "5s", seconds: str = FOREVER) -> JobBuilder:
    builder = make_job(name).indexed(2).cpu("1").label(names.QUEUE_LABEL, queue)
    return builder.annotation(names.DURATION_ANNOTATION, duration).pod_annotation(RUN_SECONDS, seconds)


def members(group: str, queue: str, size: int) -> list[Json]:
    return [
        make_pod(f"{group}-{number}")
        .cpu("1")
        .with_("spec.restartPolicy", "Never")
        .label(names.QUEUE_LABEL, queue)
        .label(names.POD_GROUP_LABEL, group)
        .annotation(names.POD_GROUP_SIZE_ANNOTATION, str(size))
        .annotation(names.DURATION_ANNOTATION, "5s")
        .annotation(RUN_SECONDS, FOREVER)
        .build()
        for number in range(size)
    ]


def limited(stage: Stage, name: str) -> None:
    """Wait until a workload failed at its time limit."""
    status = stage.until_state(name, State.FAILED, 60).fluxjob
    assert status is not None
    assert status.status.outcome == Outcome.TIME_LIMIT, status.status
    assert "reached its time limit of 5 s and was ended" in status.status.message


def events(stage: Stage, name: str) -> set[str]:
    found = json.loads(stage.kubectl("get", "events", "-o", "json").stdout)["items"]
    return {each["reason"] for each in found if each["involvedObject"]["name"] == name}


def test_a_job_is_warned_and_fails_at_its_limit_and_its_controller_makes_no_new_pods(
    stage: Stage, short: str
) -> None:
    other = job("other", "default").without(f"metadata.annotations.{names.DURATION_ANNOTATION}")
    stage.apply(job("over", short).build(), job("in-time", short, "1h", "1").build(), other.build())
    limited(stage, "over")
    stage.until("both Events", lambda: {"TimeLimitNear", "TimeLimit"} <= events(stage, "over"))
    assert any(
        each.type == "Failed" and each.reason == "DeadlineExceeded"
        for each in stage.job("over").status.conditions or ()
    )
    pods = json.loads(
        stage.kubectl("get", "pods", "-l", f"{names.JOB_NAME_LABEL}=over", "-o", "json").stdout
    )["items"]
    assert [each for each in pods if each["status"].get("phase") in ("Pending", "Running")] == []
    stage.until_state("in-time", State.COMPLETED)
    assert stage.row("other").state == State.RUNNING, (
        "it states no duration, and its queue ends only work that does"
    )
    assert "TimeLimit: Job" in stage.plugin("explain", "job/over").stdout


def test_bare_pods_and_all_pods_of_a_group_are_ended(stage: Stage, short: str) -> None:
    pod = (
        make_pod("bare").cpu("1").label(names.QUEUE_LABEL, short).annotation(names.DURATION_ANNOTATION, "5s")
    )
    stage.apply_all(pod.annotation(RUN_SECONDS, FOREVER).build(), *members("mesh", short, 3))
    stage.until(
        "the tables say so of both",
        lambda: {outcome(stage, name) for name in ("bare", "mesh")} == {Outcome.TIME_LIMIT},
        90,
    )
    assert stage.kubectl("get", "pods", "-o", "name").stdout.strip() == ""


def outcome(stage: Stage, name: str) -> str:
    """Return the outcome in the tables: a bare pod's FluxJob goes with it."""
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT outcome FROM fluxqueue.jobs WHERE namespace = %s AND name = %s", (stage.namespace, name)
        ).fetchone()
    return str(found[0]) if found is not None else ""


def test_a_minicluster_is_ended_with_its_job(stage: Stage, short: str) -> None:
    cluster = make_minicluster(
        "flux", 2, queue=short, duration="5s", pod={"annotations": {RUN_SECONDS: FOREVER}}
    )
    stage.apply(cluster)
    stage.until(
        "its FluxJob says so",
        lambda: Outcome.TIME_LIMIT in {each.status.outcome for each in stage.fluxjobs()},
        90,
    )


def test_a_queue_that_is_edited_ends_what_already_runs(stage: Stage, short: str) -> None:
    put(stage, short, enforceDuration={"enabled": False})
    stage.apply(job("runs", short, "1s").build())
    stage.until_state("runs", State.RUNNING)
    put(stage, short, enforceDuration={"enabled": True, "graceSeconds": 0})
    stage.until_state("runs", State.FAILED, 60)


def test_a_queue_killed_at_the_limit_ends_every_sibling_when_it_is_back(stage: Stage, short: str) -> None:
    stage.apply_all(*members("mesh", short, 3), job("over", short).build())
    stage.until_state("over", State.RUNNING)
    stage.kill("queue")
    stage.until_ready("queue")
    limited(stage, "over")
    stage.until("the tables say so", lambda: outcome(stage, "mesh") == Outcome.TIME_LIMIT, 90)
    stage.until_consistent()


def test_work_that_will_miss_its_deadline_says_so_and_starts_all_the_same(stage: Stage) -> None:
    blocking = (
        make_job("blocking")
        .indexed(8)
        .cpu("8")
        .annotation(names.DURATION_ANNOTATION, "2h")
        .pod_annotation(RUN_SECONDS, FOREVER)
    )
    stage.apply(blocking.build())
    stage.until_state("blocking", State.RUNNING)
    late = (
        make_job("late")
        .cpu("8")
        .annotation(names.DURATION_ANNOTATION, "30m")
        .pod_annotation(RUN_SECONDS, "0")
    )
    stage.apply(late.annotation(names.DEADLINE_ANNOTATION, "+1h").build())
    assert "is expected to start at" in stage.until_reason("late", "DeadlineUnreachable").status.message
    stage.until("an Event", lambda: "DeadlineUnreachable" in events(stage, "late"))
    assert "Why          DeadlineUnreachable" in stage.plugin("explain", "job/late").stdout
    stage.kubectl("annotate", "--overwrite", "job", "late", f"{names.DEADLINE_ANNOTATION}=+9h")
    stage.until_reason("late", "WaitingForNodes")
    stage.kubectl("delete", "job", "blocking", "--wait=false")
    stage.until_state("late", State.COMPLETED)


def test_a_deadline_that_is_known_to_be_impossible_is_warned_of_at_once(stage: Stage) -> None:
    late = (
        make_job("late")
        .namespace(stage.namespace)
        .cpu("1")
        .annotation(names.DURATION_ANNOTATION, "2h")
        .annotation(names.DEADLINE_ANNOTATION, "+1h")
        .suspended()
    )
    done = stage.kubectl("apply", "-f", "-", stdin=json.dumps(late.build()))
    stage.kubectl("delete", "job", "late")
    assert "annotation fluxqueue/deadline: by its duration it ends at" in done.stderr


BAD_QUEUES: list[tuple[dict[str, Any], str]] = [
    ({"enforceDuration": {"enabled": "yes"}}, "spec.enforceDuration.enabled"),
    ({"enforceDuration": {"enabled": True, "graceSeconds": -1}}, "spec.enforceDuration.graceSeconds"),
    ({"enforceDuration": {"enabled": True, "graceSeconds": 86401}}, "spec.enforceDuration.graceSeconds"),
    ({"enforceDuration": {"enable": True}}, 'unknown field "spec.enforceDuration.enable"'),
    ({"preemptionRules": {"minRunSeconds": -1}}, "spec.preemptionRules.minRunSeconds"),
    ({"preemptionRules": {"graceSeconds": 3601}}, "spec.preemptionRules.graceSeconds"),
    ({"preemptionRules": {"graceSeconds": "a while"}}, "spec.preemptionRules.graceSeconds"),
]


def test_a_queue_that_cannot_be_meant_is_refused_with_its_field(stage: Stage) -> None:
    answers = []
    for spec, words in BAD_QUEUES:
        document = json.dumps(make_queue(f"odd-{stage.namespace}", **spec))
        done = stage.kubectl("create", "--validate=strict", "-f", "-", stdin=document, check=False)
        if done.returncode == 0 or words not in done.stderr:
            answers.append((spec, done.stdout + done.stderr))
    assert answers == []


def test_rules_without_effect_are_warned_of(stage: Stage, short: str) -> None:
    for spec, words in (
        ({"enforceDuration": {"graceSeconds": 5}}, "spec.enforceDuration is not enabled"),
        ({"preemptionRules": {"graceSeconds": 5}}, "spec.preemptionRules has no effect"),
    ):
        done = stage.kubectl(
            "apply", "--dry-run=server", "-f", "-", stdin=json.dumps(make_queue(short, **spec))
        )
        assert words in done.stderr
