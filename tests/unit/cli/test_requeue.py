import io

import pytest
from support.plugin_server import PluginServer, event, fluxjob, fluxjobs_path

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import job_changes
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.requeue import RequeueOptions, objection, requeue

JOB = "/apis/batch/v1/namespaces/default/jobs/solver"
RUNNING = fluxjob("solver", state="Running", nodes="n1")
DRAINING = fluxjob("solver", state="Draining")
STOPPED = fluxjob("solver", state="Pending", reason="UserSuspended")
DONE = fluxjob("solver", state="Completed")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_changes, "_PAUSE_S", 0.0)


def server_with(job: FluxJob, *later: FluxJob, suspended: bool = False) -> PluginServer:
    server = PluginServer().has_jobs(job)
    server.objects[JOB] = {"metadata": {"name": "solver"}, "spec": {"suspend": suspended}}
    server.streams[fluxjobs_path()] = [event("MODIFIED", each) for each in later]
    return server


def test_a_job_is_suspended_and_resumed_when_it_has_stopped() -> None:
    out, server = io.StringIO(), server_with(RUNNING, DRAINING, STOPPED)
    assert requeue(server.client, [RUNNING], RequeueOptions(), out) == 0
    assert [(path, body["spec"]) for _, path, body in server.written] == [
        (JOB, {"suspend": True}),
        (JOB, {"suspend": False}),
    ]
    assert out.getvalue() == "job/solver requeued\n"


def test_a_job_that_was_left_suspended_is_resumed() -> None:
    server = server_with(STOPPED, suspended=True)
    requeue(server.client, [STOPPED], RequeueOptions(hold=True), io.StringIO())
    assert [body["spec"] for _, _, body in server.written] == [{"hold": True}, {"suspend": False}]


def test_a_job_that_ends_meanwhile_stays_as_it_is() -> None:
    out, server = io.StringIO(), server_with(RUNNING, DONE)
    requeue(server.client, [RUNNING], RequeueOptions(), out)
    assert [body["spec"] for _, _, body in server.written] == [{"suspend": True}]
    assert out.getvalue() == "job/solver ended meanwhile (Completed)\n"


def test_the_job_is_the_one_that_was_found_and_not_another_of_its_name() -> None:
    server = server_with(RUNNING, STOPPED)
    requeue(server.client, [RUNNING], RequeueOptions(), io.StringIO())
    assert [body["metadata"] for _, _, body in server.written] == [{"uid": "solver"}] * 2


def test_a_failure_on_the_way_names_the_jobs_that_stay_suspended() -> None:
    other = fluxjob("other", state="Running")
    server = server_with(RUNNING)
    with pytest.raises(
        ClusterError,
        match=r"(?s)jobs/other not found.*error: job/solver was not requeued, and is suspended: kubectl",
    ):
        requeue(server.client, [RUNNING, other], RequeueOptions(), io.StringIO())
    with pytest.raises(ClusterError) as caught:
        requeue(server.client, [other], RequeueOptions(), io.StringIO())
    assert "suspended" not in str(caught.value)


def test_a_job_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    out, server = io.StringIO(), server_with(RUNNING)
    server.streams[fluxjobs_path()] = [event("DELETED", RUNNING)]
    server.objects[JOB]["metadata"]["uid"] = "another"
    assert requeue(server.client, [RUNNING], RequeueOptions(), out) == 0
    assert out.getvalue() == "job/solver was deleted meanwhile\n"


def test_what_does_not_stop_in_time_or_is_interrupted_is_named_with_the_remedy() -> None:
    remedy = "and is suspended: kubectl fluxqueue requeue job/solver resumes it when it has stopped"
    with pytest.raises(ClusterError, match=f"has not stopped within 0 s, {remedy}"):
        requeue(server_with(RUNNING).client, [RUNNING], RequeueOptions(timeout_s=0), io.StringIO())
    with pytest.raises(ClusterError, match=f"was interrupted, {remedy}"):
        requeue(server_with(RUNNING).client, [RUNNING], RequeueOptions(), io.StringIO())


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (RUNNING, ""),
        (STOPPED, ""),
        (fluxjob("x", state="Pending"), "waits already"),
        (DONE, "has ended (Completed): create it again"),
        (fluxjob("x", kind="Pod", state="Running"), "is a pod, which cannot stop without being deleted"),
        (fluxjob("x", kind="PodGroup", state="Running"), "is a PodGroup: only Jobs can be requeued"),
    ],
)
def test_only_jobs_that_run_are_requeued(job: FluxJob, why: str) -> None:
    assert objection(job).startswith(why) if why else not objection(job)
