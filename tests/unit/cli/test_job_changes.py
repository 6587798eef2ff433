import time

import msgspec
import pytest
from support.plugin_server import PluginServer, event, fluxjob, fluxjobs_path

from fluxqueue.cli import job_changes
from fluxqueue.cli.api_client import ApiRefused


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_changes, "_PAUSE_S", 0.0)


def test_changes_come_in_order_and_bookmarks_do_not() -> None:
    server = PluginServer()
    server.streams[fluxjobs_path()] = [event("ADDED", fluxjob("a")), event("BOOKMARK", fluxjob()), event("DELETED", fluxjob("b"))]
    changes = job_changes.job_changes(server.client, "default", "3")
    assert [(kind, item.job.spec.object_ref.name) for kind, item in (next(changes), next(changes))] == [("ADDED", "a"), ("DELETED", "b")]


def test_an_expired_version_leads_to_a_new_list() -> None:
    server = PluginServer().has_jobs(fluxjob("a"))
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    server.streams[fluxjobs_path()] = [msgspec.json.encode(gone)]
    changes = job_changes.job_changes(server.client, "default", "3")
    kind, item = next(changes)
    assert (kind, item.job.spec.object_ref.name) == ("MODIFIED", "a")
    with pytest.raises(KeyboardInterrupt):
        next(changes)
    assert [params["resourceVersion"] for path, params in server.asked if "resourceVersion" in params] == ["3", "9"]


def test_other_errors_are_raised() -> None:
    server = PluginServer()
    server.streams[fluxjobs_path()] = [msgspec.json.encode({"type": "ERROR", "object": {"code": 403, "message": "no"}})]
    with pytest.raises(ApiRefused, match="no"):
        next(job_changes.job_changes(server.client, "default", "3"))


def test_it_ends_when_the_time_is_over() -> None:
    server = PluginServer()
    assert list(job_changes.job_changes(server.client, "default", "3", until=time.monotonic() - 1)) == []
    server.streams[fluxjobs_path()] = [event("ADDED", fluxjob("a"))]
    changes = job_changes.job_changes(server.client, "default", "3", until=time.monotonic() + 100)
    assert next(changes)[0] == "ADDED"
    assert server.asked[-1][1]["timeoutSeconds"] in ("100", "101")
