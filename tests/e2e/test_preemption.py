"""What work is granted before it is preempted, on the whole control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.end_to_end import Stage
from support.preempting_queue import PreemptingQueue

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State


@pytest.fixture
def queue(stage: Stage) -> Iterator[PreemptingQueue]:
    made = PreemptingQueue(stage)
    made.grants()
    yield made
    stage.kubectl("delete", "fluxqueue", made.name)


def pods_of(stage: Stage, job: str) -> list[Any]:
    return list(
        json.loads(stage.kubectl("get", "pods", "-l", f"{names.JOB_NAME_LABEL}={job}", "-o", "json").stdout)[
            "items"
        ]
    )


def told(stage: Stage, job: str) -> set[str]:
    return {
        each["metadata"].get("annotations", {}).get(names.PREEMPT_AT_ANNOTATION, "")
        for each in pods_of(stage, job)
    }


def until_told(stage: Stage, job: str) -> set[str]:
    """Wait until every pod of a Job is told when it is preempted, and return the times."""
    return stage.until("every pod is told", lambda: set() if "" in told(stage, job) else told(stage, job))


def test_a_victim_is_told_and_goes_on_for_its_grace(stage: Stage, queue: PreemptingQueue) -> None:
    queue.grants(graceSeconds=8)
    stage.apply(queue.job("victim", 8).build())
    stage.until_state("victim", State.RUNNING)
    stage.apply(queue.job("urgent", 8, priority=10, seconds="1").build())
    (at,) = until_told(stage, "victim")
    assert at.endswith("Z")
    assert not stage.job("victim").spec.suspend, "its grace is not over"
    notices = json.loads(stage.kubectl("get", "events", "-o", "json").stdout)["items"]
    assert any(
        each["reason"] == "PreemptionNotice" and each["involvedObject"]["name"] == "victim"
        for each in notices
    )
    stage.until_state("urgent", State.COMPLETED, 60)
    assert stage.until_state("victim", State.RUNNING, 60).state == State.RUNNING
    assert told(stage, "victim") == {""}, "the pods of its next start are told nothing"


def test_a_victim_that_ends_within_its_grace_has_completed(stage: Stage, queue: PreemptingQueue) -> None:
    queue.grants(graceSeconds=60)
    stage.apply(queue.job("victim", 8, seconds="6").build())
    stage.until_state("victim", State.RUNNING)
    stage.apply(queue.job("urgent", 8, priority=10, seconds="0").build())
    stage.until_state("victim", State.COMPLETED)
    stage.until_state("urgent", State.COMPLETED)


def test_a_leader_that_is_killed_in_the_grace_keeps_its_time(stage: Stage, queue: PreemptingQueue) -> None:
    queue.grants(graceSeconds=12)
    stage.apply(queue.job("victim", 8).build())
    stage.until_state("victim", State.RUNNING)
    stage.apply(queue.job("urgent", 8, priority=10, seconds="0").build())
    before = until_told(stage, "victim")
    stage.kill("queue")
    stage.until_ready("queue")
    assert told(stage, "victim") in (before, {""}), "the same time, or the pods of the next start"
    stage.until_state("urgent", State.COMPLETED, 60)
    stage.until_state("victim", State.RUNNING, 60)


def test_a_victim_goes_on_if_the_other_is_deleted_in_its_grace(stage: Stage, queue: PreemptingQueue) -> None:
    queue.grants(graceSeconds=600)
    stage.apply(queue.job("victim", 8).build())
    stage.until_state("victim", State.RUNNING)
    uids = {each["metadata"]["uid"] for each in pods_of(stage, "victim")}
    stage.apply(queue.job("urgent", 8, priority=10, seconds="1").build())
    until_told(stage, "victim")
    stage.kubectl("delete", "job", "urgent")
    stage.until("no pod is told any more", lambda: told(stage, "victim") == {""})
    found = stage.until_state("victim", State.RUNNING).fluxjob
    assert found is not None
    assert (found.status.reason, found.status.message, found.status.requeues) == ("", "", 0)
    assert {each["metadata"]["uid"] for each in pods_of(stage, "victim")} == uids, "it goes on as it was"
    stage.until(
        "an Event says so",
        lambda: (
            "goes on: the work that it was to make room for is gone" in stage.kubectl("get", "events").stdout
        ),
    )
    assert "Preempted" not in stage.plugin("explain", "job/victim").stdout
    stage.until_consistent()
    stage.apply(queue.job("later", 8, priority=10, seconds="0").build())
    until_told(stage, "victim")
    queue.grants(graceSeconds=0)
    stage.kubectl("delete", "job", "later")
    stage.until("no pod is told any more", lambda: told(stage, "victim") == {""})


def test_work_runs_for_its_least_time_before_it_is_preempted(stage: Stage, queue: PreemptingQueue) -> None:
    queue.grants(minRunSeconds=3600)
    stage.apply(queue.job("victim", 8).build())
    stage.until_state("victim", State.RUNNING)
    stage.apply(queue.job("urgent", 8, priority=10, seconds="0").build())
    held = (
        f"nothing is preempted for it: nodes that it needs are held by Job {stage.namespace}/victim (in its "
        "minimum run time until "
    )
    stage.until(
        "the waiting Job is told why",
        lambda: held in stage.until_reason("urgent", "WaitingForNodes").status.message,
    )
    assert held in " ".join(stage.plugin("explain", "job/urgent").stdout.split())
    assert stage.row("victim").state == State.RUNNING
    queue.grants(minRunSeconds=1)
    stage.until_state("urgent", State.COMPLETED, 60)


def test_the_job_that_saved_what_it_has_is_preempted_before_a_younger_one(
    stage: Stage, queue: PreemptingQueue
) -> None:
    stage.apply(queue.job("saves", 4).build())
    stage.until_state("saves", State.RUNNING)
    stage.apply(queue.job("younger", 4).build())
    stage.until_state("younger", State.RUNNING)
    stage.kubectl("annotate", "job", "saves", f"{names.CHECKPOINTED_ANNOTATION}=2099-01-01T00:00:00Z")
    stage.apply(queue.job("urgent", 4, priority=10, seconds="2").build())
    stage.until_state("urgent", State.COMPLETED, 60)
    assert stage.row("younger").state == State.RUNNING
    found = stage.row("saves").fluxjob
    assert found is not None
    assert found.status.requeues == 1
