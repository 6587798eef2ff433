import time
from collections.abc import Iterator

import msgspec
import pytest
from support.plugin_server import PluginServer, event, fluxjob, fluxjobs_path

from fluxqueue.cli import job_changes
from fluxqueue.cli.api_client import ApiRefused, ServerUnreachable


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_changes, "_PAUSE_S", 0.0)


def test_changes_come_in_order_and_bookmarks_do_not() -> None:
    server = PluginServer()
    server.streams[fluxjobs_path()] = [
        event("ADDED", fluxjob("a")),
        event("BOOKMARK", fluxjob()),
        event("DELETED", fluxjob("b")),
    ]
    changes = job_changes.job_changes(server.client, "default", "3")
    assert [(kind, item.job.spec.object_ref.name) for kind, item in (next(changes), next(changes))] == [
        ("ADDED", "a"),
        ("DELETED", "b"),
    ]


def test_an_expired_version_leads_to_a_new_list() -> None:
    server = PluginServer().has_jobs(fluxjob("a"))
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    server.streams[fluxjobs_path()] = [msgspec.json.encode(gone)]
    changes = job_changes.job_changes(server.client, "default", "3")
    kind, item = next(changes)
    assert (kind, item.job.spec.object_ref.name) == ("MODIFIED", "a")
    with pytest.raises(KeyboardInterrupt):
        next(changes)
    assert [params["resourceVersion"] for path, params in server.asked if "resourceVersion" in params] == [
        "3",
        "9",
    ]


def test_other_errors_are_raised() -> None:
    server = PluginServer()
    server.streams[fluxjobs_path()] = [
        msgspec.json.encode({"type": "ERROR", "object": {"code": 403, "message": "no"}})
    ]
    with pytest.raises(ApiRefused, match="no"):
        next(job_changes.job_changes(server.client, "default", "3"))


def test_a_broken_connection_is_replaced_and_one_that_stays_broken_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_changes, "_BREAK_S", 0.0)
    waits: list[float | None] = []

    class Breaks(PluginServer):
        left = 3

        def watch(self, path: str, params: object = None, timeout_s: float | None = None) -> Iterator[bytes]:
            waits.append(timeout_s)
            self.left -= 1
            if self.left == 0:
                yield event("ADDED", fluxjob("a"))
            raise ServerUnreachable("away")

    changes = job_changes.job_changes(Breaks().client, "default", "3")
    assert next(changes)[0] == "ADDED"
    with pytest.raises(ServerUnreachable):
        next(changes)
    assert len(waits) == 3 + job_changes._BREAKS
    assert None not in waits  # a connection that is only apparently open is noticed


def test_it_ends_when_the_time_is_over() -> None:
    server = PluginServer()
    assert list(job_changes.job_changes(server.client, "default", "3", until=time.monotonic() - 1)) == []
    server.streams[fluxjobs_path()] = [event("ADDED", fluxjob("a"))]
    changes = job_changes.job_changes(server.client, "default", "3", until=time.monotonic() + 100)
    assert next(changes)[0] == "ADDED"
    assert server.asked[-1][1]["timeoutSeconds"] in ("100", "101")
