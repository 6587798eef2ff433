import io
import json
from datetime import UTC, datetime

import msgspec
import pytest
from support.builders import make_queue
from support.plugin_server import PluginServer, event, fluxjob, fluxjobs_path

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import job_changes
from fluxqueue.cli.api_client import ApiRefused, ClusterError
from fluxqueue.cli.custom_columns import read_custom_columns
from fluxqueue.cli.job_fields import read_template
from fluxqueue.cli.job_listing import JobsQuery, jobs
from fluxqueue.cli.job_selection import WorkloadSelection
from fluxqueue.cli.submitted_by import SELF

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
RUNNING = fluxjob("solver", state="Running", nodes="node-[4,4]", startedAt="2026-03-02T11:55:00Z")
USERS = (("solver", "ada"), ("waiting", "bob"))
WAITING = fluxjob("waiting", state="Pending", reason="WaitingForNodes", position=1, message="needs 24 cpu")


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(job_changes, "_PAUSE_S", 0.0)


def with_version(job: FluxJob, version: str) -> FluxJob:
    return msgspec.structs.replace(
        job, metadata=msgspec.structs.replace(job.metadata, resource_version=version)
    )


def wide_table(server: PluginServer) -> str:
    out = io.StringIO()
    jobs(server.client, JobsQuery(output="wide"), out, lambda: NOW)
    return out.getvalue()


def printed(query: JobsQuery, *known: FluxJob) -> str:
    out = io.StringIO()
    assert jobs(PluginServer().has_jobs(*known).client, query, out, lambda: NOW) == 0
    return out.getvalue()


def test_columns_that_are_empty_vanish_where_titles_say_so() -> None:
    assert printed(JobsQuery(), WAITING).split("\n")[0].split() == [
        "OBJECT",
        "QUEUE",
        "STATE",
        "PODS",
        "WAIT",
        "POS",
        "INFO",
    ]
    assert printed(JobsQuery(titles=False), WAITING).split()[5] == "-"
    assert "RUN" in printed(JobsQuery(), WAITING, RUNNING).split("\n")[0]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_wraps(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    many = fluxjob(
        "a-workload-with-a-name-that-nobody-can-remember",
        state="Running",
        nodes=",".join(f"a{i}x" for i in range(30)),
    )
    text = printed(JobsQuery(), WAITING, RUNNING, many)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) == 4


def test_place_and_start_are_there_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    soon = fluxjob(
        "a-solver-with-a-name-of-some-length",
        state="Pending",
        reason="BlockedByReservation",
        position=12,
        eta="2026-03-02T14:00:00Z",
    )
    title, *lines = printed(JobsQuery(), RUNNING, soon).splitlines()
    assert {"POS", "START"} <= set(title.split())
    assert "5m left" in lines[0]
    assert "12" in lines[1].split()
    assert "in 120m" in lines[1]


def test_the_name_of_the_fluxjob_is_in_the_wide_table() -> None:
    assert "job-solver-1a2b3" in printed(JobsQuery(output="wide"), RUNNING)
    assert "job-solver-1a2b3" not in printed(JobsQuery(), RUNNING)


def test_the_work_of_one_user_is_found() -> None:
    server = PluginServer().has_jobs(
        *(fluxjob(name, state="Pending", submittedBy=user) for name, user in USERS)
    )
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    server.objects[f"POST {reviews}"] = {"status": {"userInfo": {"username": "ada"}}}
    for user, found in (("bob", "job/waiting"), (SELF, "job/solver"), ("eve", "")):
        out = io.StringIO()
        jobs(
            server.client,
            JobsQuery(WorkloadSelection(user=user), output="wide", titles=False),
            out,
            lambda: NOW,
        )
        assert out.getvalue().split(" ")[0] == found
    assert "USER" in wide_table(server)
    assert " ada " in wide_table(server)


def test_who_may_not_list_jobs_sees_no_users() -> None:
    server = PluginServer().has_jobs(RUNNING)
    server.refusals["/jobs"] = ApiRefused(403, "Forbidden", "cannot list")
    assert "USER" not in wide_table(server)


def test_an_empty_list_says_that_the_namespace_is_not_managed(capsys: pytest.CaptureFixture[str]) -> None:
    server = PluginServer().has_jobs()
    server.objects["/api/v1/namespaces/default"] = {"metadata": {"labels": {"fluxqueue/managed": "false"}}}
    assert jobs(server.client, JobsQuery(), io.StringIO(), lambda: NOW) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first == "No resources found in default namespace."
    assert second.startswith("fluxqueue does not manage namespace default")


def test_a_list_of_a_queue_that_does_not_exist_is_refused() -> None:
    server = (
        PluginServer()
        .has_jobs(WAITING)
        .has("/apis/jobs.converged-computing.org/v1alpha1/fluxqueues", make_queue("night"))
    )
    with pytest.raises(ClusterError, match=r"there is no queue 'nigth': did you mean night\?"):
        jobs(server.client, JobsQuery(selection=WorkloadSelection(queue="nigth")), io.StringIO(), lambda: NOW)


def test_a_line_of_fields_and_columns_by_paths() -> None:
    assert (
        printed(JobsQuery(template=read_template("{object} {nodes}")), RUNNING)
        == "OBJECT NODES\njob/solver node-4 (2)\n"
    )
    found = printed(
        JobsQuery(columns=read_custom_columns("NAME:.spec.objectRef.name,ETA:.status.eta"), titles=False),
        RUNNING,
    )
    assert found.split() == ["solver", "<none>"]


def test_json_of_one_name_is_one_document_also_if_two_kinds_have_it() -> None:
    query = JobsQuery(selection=WorkloadSelection(names=("solver",)), output="json")
    assert json.loads(printed(query, RUNNING))["spec"]["objectRef"]["kind"] == "Job"
    pod = fluxjob("solver", kind="Pod", state="Pending")
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="another"))
    both = json.loads(printed(query, RUNNING, pod))
    assert [item["spec"]["objectRef"]["kind"] for item in both["items"]] == ["Job", "Pod"]


def test_sorted_and_as_names() -> None:
    query = JobsQuery(output="name", sort=(("pods", True),))
    names = printed(query, fluxjob("a", pods=1), fluxjob("b", pods=9)).split()
    assert [name.split("/")[1] for name in names] == ["job-b-1a2b3", "job-a-1a2b3"]


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(ClusterError, match='"nobody" not found'):
        printed(JobsQuery(WorkloadSelection(names=("nobody",))), RUNNING)


def test_a_watch_goes_on_with_changes_of_what_is_selected() -> None:
    server = PluginServer().has_jobs(
        fluxjob("waiting", state="Pending", reason="WaitingForNodes", position=1, submittedBy="ada")
    )
    server.objects["POST /apis/authentication.k8s.io/v1/selfsubjectreviews"] = {
        "status": {"userInfo": {"username": "ada"}}
    }
    moved = fluxjob("waiting", state="Pending", reason="WaitingForNodes", position=2, submittedBy="ada")
    started = fluxjob("solver", state="Running", nodes="node-1", submittedBy="ada")
    of_another = fluxjob("waiting", state="Pending", submittedBy="bob")
    changes = [event("MODIFIED", with_version(job, "7")) for job in (moved, started, of_another)]
    server.streams[fluxjobs_path()] = [
        event("MODIFIED", WAITING),
        *changes,
        event("DELETED", with_version(moved, "8")),
    ]
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        jobs(
            server.client,
            JobsQuery(WorkloadSelection(states=frozenset({"pending"}), user=SELF), watch=True),
            out,
            lambda: NOW,
        )
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[2].split()[6] == "2"
