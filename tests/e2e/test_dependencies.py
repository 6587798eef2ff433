"""Work that waits for other work or for a time, on the whole control plane."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.builders import JobBuilder, Json, make_job, make_minicluster, make_pod
from support.end_to_end import Stage, wrong

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.kubectl import KubectlError

RUN_SECONDS = "fluxqueue.local/run-seconds"
WAITS = "WaitingForDependency"
NEVER = "DependencyNeverSatisfied"


def job(name: str, after: str = "", seconds: str = "0") -> JobBuilder:
    """A Job of one pod that runs for some seconds."""
    builder = make_job(name).cpu("1").pod_annotation(RUN_SECONDS, seconds)
    return builder.annotation("fluxqueue/after", after) if after else builder


def finished(stage: Stage, name: str) -> datetime:
    """Return when a workload ended."""
    fluxjob = stage.until_state(name, State.COMPLETED).fluxjob
    assert fluxjob is not None
    assert fluxjob.status.finished_at is not None
    return datetime.fromisoformat(fluxjob.status.finished_at)


CLOCKS_DIFFER = timedelta(seconds=1)
"""The leader decides by its own clock, and Postgres stamps the allocation; the status has whole seconds."""


def allocated(stage: Stage, name: str) -> datetime:
    """Return when a workload got its nodes."""
    fluxjob = stage.row(name).fluxjob
    assert fluxjob is not None
    assert fluxjob.status.allocated_at is not None
    return datetime.fromisoformat(fluxjob.status.allocated_at)


def test_a_pipeline_runs_in_its_order_whatever_the_order_of_its_creation(stage: Stage) -> None:
    stage.apply_all(
        job("report", "any:job/analysis").build(),
        job("analysis", "ok:job/solver-1, ok:job/solver-2").build(),
        job("solver-1", "ok:job/prepare", "1").build(),
        job("solver-2", "ok:job/prepare").indexed(2).build(),
        job("prepare").build(),
    )
    rows = [
        stage.until_state(name, State.COMPLETED)
        for name in ("prepare", "solver-1", "solver-2", "analysis", "report")
    ]
    assert wrong(rows) == []
    for before, after in (
        ("prepare", "solver-1"),
        ("prepare", "solver-2"),
        ("solver-1", "analysis"),
        ("analysis", "report"),
    ):
        assert finished(stage, before) <= allocated(stage, after)


def test_what_can_never_start_says_so_and_starts_after_an_edit(stage: Stage) -> None:
    stage.apply(job("solver", seconds="forever").build())
    stage.apply(job("analysis", "ok:job/solver").build(), job("alert", "fail:job/solver").build())
    stage.until_state("solver", State.RUNNING)
    assert "waits for Job" in stage.until_reason("analysis", WAITS).status.message
    stage.kubectl("delete", "job", "solver", "--wait=false")
    assert "solver ended as Cancelled" in stage.until_reason("analysis", NEVER).status.message
    stage.until_state("alert", State.COMPLETED)
    explained = stage.plugin("explain", "job/analysis").stdout
    assert "edit the annotation fluxqueue/after, or delete the object" in explained
    stage.kubectl("annotate", "--overwrite", "job", "analysis", "fluxqueue/after=any:job/alert")
    assert wrong([stage.until_state("analysis", State.COMPLETED)]) == []


def test_a_workload_waits_for_the_start_of_another_one_across_kinds(stage: Stage) -> None:
    server = make_minicluster("server", 2)
    server["spec"]["pod"] = {"annotations": {RUN_SECONDS: "forever"}}
    members = [
        make_pod(f"mesh-{number}")
        .cpu("1")
        .with_("spec.restartPolicy", "Never")
        .label("fluxqueue/pod-group", "mesh")
        .annotation("fluxqueue/pod-group-size", "2")
        .annotation("fluxqueue/after", "start:minicluster/server")
        .annotation(RUN_SECONDS, "1")
        .build()
        for number in range(2)
    ]
    stage.apply_all(*members, job("client", "ok:pod-group/mesh").build())
    stage.until_reason("client", WAITS)
    stage.apply(server)
    stage.until_state("server", State.RUNNING, 60)
    assert wrong([stage.until_state("client", State.COMPLETED, 60)]) == []
    assert stage.row("server").state == State.RUNNING


def test_a_minicluster_waits_and_its_annotation_can_be_edited(stage: Stage) -> None:
    stage.apply(job("first", seconds="forever").build())
    waiting: Json = make_minicluster("flux", 2)
    waiting["metadata"]["annotations"] = {"fluxqueue/after": "ok:job/first"}
    stage.apply(waiting)
    stage.until_reason("flux", WAITS)
    stage.kubectl("annotate", "minicluster", "flux", "fluxqueue/after-")
    stage.until_state("flux", State.RUNNING, 60)


def test_work_does_not_begin_before_its_time_and_singletons_run_one_by_one(stage: Stage) -> None:
    begin = (datetime.now(UTC) + timedelta(seconds=15)).replace(microsecond=0)
    stage.apply(job("later").annotation("fluxqueue/begin", begin.isoformat().replace("+00:00", "Z")).build())
    assert "may begin from" in stage.until_reason("later", "WaitingForBegin").status.message
    names = [f"step-{number}" for number in range(3)]
    for name in names:
        stage.apply(job(name, seconds="1").annotation("fluxqueue/singleton", "train").build())
    ended = [finished(stage, name) for name in names]
    assert ended == sorted(ended)
    assert all(end <= allocated(stage, name) for end, name in zip(ended, names[1:], strict=False))
    stage.until_state("later", State.COMPLETED)
    assert allocated(stage, "later") >= begin - CLOCKS_DIFFER


def test_estimates_follow_the_chain(stage: Stage) -> None:
    stage.apply(job("first", seconds="forever").annotation("fluxqueue/duration", "1h").build())
    stage.apply(
        job("second", "ok:job/first").annotation("fluxqueue/duration", "30m").build(),
        job("third", "any:job/second+10m").build(),
    )

    def etas() -> list[datetime]:
        shown = [
            fluxjob.status.eta
            for name in ("second", "third")
            if (fluxjob := stage.row(name).fluxjob) is not None
        ]
        return [datetime.fromisoformat(eta) for eta in shown if eta is not None]

    stage.until("both have an estimate", lambda: len(etas()) == 2)
    second, third = etas()
    started = stage.until_state("first", State.RUNNING).fluxjob
    assert started is not None
    assert abs(
        second - datetime.fromisoformat(started.status.allocated_at or "") - timedelta(hours=1)
    ) < timedelta(seconds=5)
    assert third - second == timedelta(minutes=40)


def test_a_queue_that_is_killed_starts_what_its_dead_predecessor_ended(stage: Stage) -> None:
    stage.apply(job("first", seconds="forever").build())
    stage.apply(job("second", "ok:job/first").build())
    stage.until_state("first", State.RUNNING)
    stage.until_reason("second", WAITS)
    stage.succeed("first")
    stage.kill("queue")
    assert wrong([stage.until_state("second", State.COMPLETED, 60)]) == []


@pytest.mark.parametrize(
    ("annotation", "text", "sentence"),
    [
        ("after", "afterok:job/a", "'afterok' is no condition: write ok, any, fail or start"),
        ("after", "ok:job/odd", "is the object itself, so it would wait for ever"),
        ("begin", "2026-12-24T18:00:00", "has no time zone"),
        ("singleton", "a b", "is not a name"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(
    stage: Stage, annotation: str, text: str, sentence: str
) -> None:
    with pytest.raises(KubectlError, match=sentence):
        stage.apply(job("odd").annotation(f"fluxqueue/{annotation}", text).build())
