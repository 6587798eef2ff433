"""What people do with work in a terminal: submit, wait, requeue, select, look at nodes and reservations."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import make_job
from support.end_to_end import Stage
from support.statement_pictures import seconds_at

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.hostlists import decode
from fluxqueue.local.inprocess import RELEASE
from fluxqueue.local.operator_requests import write_queue_authority

RUN_SECONDS = "fluxqueue.local/run-seconds"
IMAGE = "registry.example.com/solver"


def submitted(stage: Stage, *words: str) -> str:
    """Submit a Job by the plugin, and return its name."""
    done = stage.plugin("submit", "--image", IMAGE, "-o", "name", *words)
    assert done.returncode == 0, done.stderr
    kind, _, name = done.stdout.splitlines()[0].partition("/")
    assert kind == "job.batch"
    stage.adopt(json.loads(stage.kubectl("get", "job", name, "-o", "json").stdout))
    return name


def test_a_command_on_several_nodes_runs_on_so_many(stage: Stage) -> None:
    name = submitted(stage, "-N", "3", "-c", "2", "-t", "5m", "--", "solve", "input.dat")
    done = stage.plugin("wait", f"job/{name}", "--timeout", "2m")
    assert (done.returncode, done.stdout.split(" after ")[0]) == (0, f"job/{name} completed"), done.stderr
    job = stage.row(name).fluxjob
    assert job is not None
    assert (job.spec.pods, job.spec.duration_seconds, job.status.outcome) == (3, 300, "Succeeded")
    assert len(set(decode(job.status.nodes))) == 3


def test_a_script_waits_for_its_end_and_returns_how_it_ended(stage: Stage, tmp_path: Path) -> None:
    script = tmp_path / "steps.sh"
    script.write_text(f"#!/bin/sh\n#FQ -N 2 -c 1 --image {IMAGE} --name steps\nhostname\n")
    done = stage.plugin("submit", str(script), "--wait")
    stage.adopt(json.loads(stage.kubectl("get", "job", "steps", "-o", "json").stdout))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "job.batch/steps created\n"
    assert "job/steps completed" in done.stderr


def test_a_namespace_that_is_not_managed_gets_no_job(stage: Stage) -> None:
    program = Path(sys.executable).with_name("kubectl-fluxqueue")
    command = [
        str(program),
        "submit",
        "--image",
        IMAGE,
        "-n",
        "default",
        "--kubeconfig",
        str(stage.cluster.kubeconfig),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: fluxqueue does not manage namespace default, so nothing in it waits for its turn"
    )
    assert stage.cluster.kubectl("-n", "default", "get", "jobs", "-o", "name").stdout == ""


def test_what_the_webhook_refuses_is_not_submitted(stage: Stage) -> None:
    done = stage.plugin("submit", "--image", IMAGE, "--label", f"{names.SCHEDULER_LABEL}=ours")
    assert done.returncode == 1
    assert f"label {names.SCHEDULER_LABEL}: 'ours' is no scheduler" in done.stderr
    assert stage.kubectl("get", "jobs", "-o", "name").stdout == ""


def test_a_job_that_is_requeued_waits_and_runs_again(stage: Stage) -> None:
    stage.apply(make_job("long").cpu("2").indexed(2).pod_annotation(RUN_SECONDS, "forever").build())
    first = stage.until_state("long", State.RUNNING).fluxjob
    assert first is not None
    done = stage.plugin("requeue", "long", "--timeout", "2m")
    assert (done.returncode, done.stdout) == (0, "job/long requeued\n"), done.stderr

    def runs_again() -> bool:
        job = stage.row("long").fluxjob
        return (
            job is not None and job.status.state == State.RUNNING and job.status.jobid != first.status.jobid
        )

    stage.until("it runs again, in another allocation", runs_again)
    again = stage.row("long").fluxjob
    assert again is not None
    assert again.status.submitted_at == first.status.submitted_at
    done = stage.plugin("requeue", "long", "--hold")
    assert done.stdout == "job/long requeued and held\n", done.stderr
    stage.until(
        "it is held", lambda: (job := stage.row("long").fluxjob) is not None and job.status.reason == "Held"
    )
    assert stage.plugin("release", "long").stdout == "job/long released\n"
    stage.until_state("long", State.RUNNING)
    stage.kubectl("delete", "job", "long")


@pytest.fixture
def night(stage: Stage) -> Iterator[str]:
    """A queue that is made by the plugin."""
    name = f"night-{stage.namespace}"
    done = stage.plugin("queue", "create", name, "--policy", "fcfs", "--max-duration", "1h")
    assert (done.returncode, done.stdout) == (0, f"fluxqueue/{name} created\n"), done.stderr
    yield name
    stage.kubectl("delete", "fluxqueue", name)


def test_a_held_queue_starts_nothing_and_a_selection_moves_what_waits(stage: Stage, night: str) -> None:
    assert (
        stage.plugin("queue", "hold", night).stdout
        == f"queue {night} is held: it accepts work and starts none\n"
    )
    first, second = submitted(stage, "-q", night, "--label", "app=md"), submitted(stage, "-q", night)
    for name in (first, second):
        stage.until(f"{name} waits", lambda name=name: _reason(stage, name) == "QueueHeld")  # type: ignore[misc]  # name is bound
    refused = stage.plugin("cancel", "-q", night)
    assert (
        refused.stderr == "error: this would cancel 2 workloads: add --yes, since nobody can be asked here\n"
    )
    assert (
        stage.plugin("jobs", "-l", "app=md", "--format", "{object}", "--no-headers").stdout
        == f"job/{first}\n"
    )
    assert (
        stage.plugin("move", "-l", "app=md", "-q", "default").stdout
        == f"job/{first} moved to queue default\n"
    )
    stage.until_state(first, State.COMPLETED)
    assert stage.plugin("queue", "resume", night).stdout == f"queue {night} is open\n"
    stage.until_state(second, State.COMPLETED)


def _reason(stage: Stage, name: str) -> str:
    job = stage.row(name).fluxjob
    return job.status.reason if job is not None else ""


def test_nodes_show_who_uses_them_and_the_picture_shows_when(stage: Stage) -> None:
    busy_job = make_job("busy").cpu("3").indexed(2).annotation(names.DURATION_ANNOTATION, "2h")
    stage.apply(busy_job.pod_annotation(RUN_SECONDS, "forever").build())
    shown = stage.until_state("busy", State.RUNNING).fluxjob
    assert shown is not None
    nodes = stage.plugin("nodes", "--each", "--no-headers").stdout.splitlines()
    busy = [line.split() for line in nodes if f"{stage.namespace}/job/busy" in line]
    assert sum(float(line[2].split("/")[0]) for line in busy) >= 6
    assert all(line[1] in ("mixed", "allocated") for line in busy)
    stage.kubectl("cordon", "node-8")
    try:
        grouped = stage.plugin("nodes", "--state", "drained,draining").stdout
        assert "cordoned" in grouped
        assert "node-8" in grouped
    finally:
        stage.kubectl("uncordon", "node-8")
    graph = stage.plugin("graph", "--ascii").stdout
    assert graph.splitlines()[1].startswith("cluster")
    assert "`- " in graph
    picture = stage.plugin("reservations", "--gantt", "--ascii", "--hours", "4h").stdout
    (line,) = [line for line in picture.splitlines() if "job/busy" in line]
    assert "####" in line
    stage.kubectl("delete", "job", "busy")


def test_statistics_count_what_ran(stage: Stage, tmp_path: Path) -> None:
    name = submitted(stage, "-c", "1")
    stage.until_state(name, State.COMPLETED)
    authority = write_queue_authority(stage.cluster.control_plane.client, tmp_path / "ca.crt", RELEASE)
    url = f"https://127.0.0.1:{stage.cluster.programs['queue'].metrics_port}"
    environ = {"FLUXQUEUE_QUEUE_URL": url, "FLUXQUEUE_QUEUE_CA": str(authority)}
    done = stage.plugin("stats", "-A", "-o", "json", "--since", "1h", "--step", "1h", environ=environ)
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)
    assert sum(step["completed"] for step in steps) >= 1
    assert all(step["use"] is not None for step in steps)
    table = stage.plugin("stats", "-A", "--ascii", environ=environ).stdout.splitlines()
    assert table[1].split()[:2] == ["TIME", "SUBMITTED"]
    assert table[-1].split()[0] == "all"


def test_a_job_that_is_only_tested_starts_when_and_where_it_was_told(stage: Stage) -> None:
    holder = make_job("holder").cpu("8").indexed(7).annotation(names.DURATION_ANNOTATION, "30m")
    stage.apply(holder.pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("holder", State.RUNNING)
    waits = ("-N", "2", "-c", "8", "-t", "10m")
    now, later = forecast_of(stage, "-c", "8", "-t", "10m"), forecast_of(stage, *waits)
    assert now["start"] <= now["now"]
    assert 0 < later["start"] - later["now"] <= 30 * 60
    assert [each.example.name for each in stage.rows()] == ["holder"], "a Job was created"
    name = submitted(stage, *waits)
    stage.until(
        "the queue expects the same start",
        lambda: (eta := expected(stage, name)) is not None and abs(eta - later["start"]) < 60,
    )
    said = stage.plugin("submit", "--image", IMAGE, "--test-only", *waits).stdout
    assert "would start at " in said
    assert "1 waits ahead of it in the queue default" in said
    stage.kubectl("delete", "job", "holder", name)


def test_a_job_that_would_never_start_is_told_so(stage: Stage) -> None:
    done = stage.plugin("submit", "--image", IMAGE, "--test-only", "-N", "100", "-c", "1")
    assert (done.returncode, done.stdout.partition(":")[0].partition(" ")[2]) == (
        1,
        "has no start that is known",
    ), done.stderr
    assert "wants 100 pods" in done.stdout
    refused = stage.plugin("submit", "--image", IMAGE, "--test-only", "--wait")
    assert (
        refused.stderr
        == "error: --test-only creates no Job, so --wait cannot be beside it: give one of them\n"
    )


def forecast_of(stage: Stage, *words: str) -> dict[str, int]:
    """Return the forecast of a Job that is not submitted."""
    done = stage.plugin("submit", "--image", IMAGE, "--test-only", "-o", "json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def expected(stage: Stage, name: str) -> int | None:
    """Return the start that the queue expects of waiting work, in Unix seconds."""
    job = stage.row(name).fluxjob
    at = seconds_at(job.status.eta) if job is not None else None
    return int(at.timestamp()) if at is not None else None
