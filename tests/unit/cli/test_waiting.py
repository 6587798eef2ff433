import io
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from support.plugin_server import PluginServer, event, fluxjob, fluxjobs_path

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import job_changes
from fluxqueue.cli.api_client import ApiRefused, ClusterError
from fluxqueue.cli.waiting import FINISHED, STARTED, Progress, wait_for

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
WAITING = fluxjob("solver", state="Pending", reason="WaitingForNodes", position=2)
RUNNING = fluxjob("solver", state="Running", nodes="node-[1-2]", startedAt="2026-03-02T11:59:00Z")
DONE = fluxjob(
    "solver",
    state="Completed",
    outcome="Succeeded",
    startedAt="2026-03-02T11:58:00Z",
    finishedAt="2026-03-02T11:59:00Z",
)
# nobody saw it run
SHORT = fluxjob("solver", state="Completed", outcome="Succeeded", finishedAt="2026-03-02T11:59:00Z")
FAILED = fluxjob(
    "solver", state="Failed", outcome="Failed", message="exit 3", startedAt="2026-03-02T11:58:00Z"
)
CANCELLED = fluxjob("solver", state="Cancelled")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_changes, "_PAUSE_S", 0.0)


def waited(first: FluxJob, goal: str, *later: FluxJob, timeout_s: float | None = 60) -> tuple[int, str, str]:
    server = PluginServer().has_jobs(first)
    server.streams[fluxjobs_path()] = [event("MODIFIED", job) for job in later]
    out, notes = io.StringIO(), io.StringIO()
    code = wait_for(server.client, [first], goal, timeout_s, Progress(out, notes, lambda: NOW))
    return code, out.getvalue(), notes.getvalue()


@pytest.mark.parametrize(
    ("goal", "end", "code", "said"),
    [
        (STARTED, RUNNING, 0, "job/solver started on node-[1-2]\n"),
        (STARTED, DONE, 0, "job/solver started on its nodes\n"),
        (STARTED, SHORT, 0, "job/solver started on its nodes\n"),
        (STARTED, CANCELLED, 1, "job/solver was cancelled\n"),
        (FINISHED, DONE, 0, "job/solver completed after 60s\n"),
        (FINISHED, FAILED, 1, "job/solver failed after 2m: exit 3\n"),
        (FINISHED, CANCELLED, 1, "job/solver was cancelled\n"),
    ],
)
def test_waits_for_the_goal_and_says_what_became_of_it(goal: str, end: FluxJob, code: int, said: str) -> None:
    assert waited(end, goal)[:2] == (code, said)
    assert waited(WAITING, goal, WAITING, end) == (
        code,
        said,
        "job/solver waits: WaitingForNodes, position 2\n",
    )


def test_running_is_not_finished() -> None:
    assert waited(RUNNING, FINISHED, RUNNING, DONE)[0] == 0


def test_what_is_deleted_does_not_come_to_its_end() -> None:
    server = PluginServer().has_jobs(WAITING)
    server.streams[fluxjobs_path()] = [event("DELETED", WAITING)]
    with pytest.raises(ClusterError, match="job/solver was deleted before it ended"):
        wait_for(server.client, [WAITING], FINISHED, 60, Progress(io.StringIO(), io.StringIO(), lambda: NOW))


def test_a_fluxjob_that_somebody_deletes_comes_back() -> None:
    server = PluginServer().has_jobs(WAITING)
    server.objects["/apis/batch/v1/namespaces/default/jobs/solver"] = {"metadata": {"uid": "solver"}}
    server.streams[fluxjobs_path()] = [event("DELETED", WAITING), event("ADDED", DONE)]
    assert (
        wait_for(server.client, [WAITING], FINISHED, 60, Progress(io.StringIO(), io.StringIO(), lambda: NOW))
        == 0
    )


def test_what_is_deleted_while_nobody_looks_ends_the_wait_too() -> None:
    progress = Progress(io.StringIO(), io.StringIO(), lambda: NOW)
    server = PluginServer().has_jobs()  # it was found by its name, and is gone when all are listed
    with pytest.raises(ClusterError, match="job/solver was deleted before it ended"):
        wait_for(server.client, [WAITING], FINISHED, 60, progress)
    server = PluginServer().has_jobs()
    assert wait_for(server.client, [DONE], FINISHED, 60, progress) == 0

    class Expires(PluginServer):
        """It is deleted, and the deletion is older than what the server remembers."""

        def watch(self, *_: object, **__: object) -> Iterator[bytes]:
            self.has_jobs()
            raise ApiRefused(410, "Expired", "too old")

    with pytest.raises(ClusterError, match="job/solver was deleted before it started"):
        wait_for(Expires().has_jobs(WAITING).client, [WAITING], STARTED, 60, progress)


def test_another_object_of_the_same_name_is_not_waited_for() -> None:
    server = PluginServer().has_jobs(WAITING)
    server.objects["/apis/batch/v1/namespaces/default/jobs/solver"] = {"metadata": {"uid": "another"}}
    server.streams[fluxjobs_path()] = [event("DELETED", WAITING)]
    with pytest.raises(ClusterError, match="job/solver was deleted before it ended"):
        wait_for(server.client, [WAITING], FINISHED, 60, Progress(io.StringIO(), io.StringIO(), lambda: NOW))


def test_the_end_of_the_time_says_how_to_find_out_why() -> None:
    with pytest.raises(
        ClusterError,
        match="has not started within 0 s: kubectl fluxqueue explain job/solver -n default says why",
    ):
        waited(WAITING, STARTED, timeout_s=0)
