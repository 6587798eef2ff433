import threading
from typing import Any

import pytest
from support.live_queues import NOW
from support.plugin_server import PluginServer, event, fluxjob, fluxjobs_path

from fluxqueue.api import names
from fluxqueue.cli import job_changes
from fluxqueue.cli.api_client import ApiRefused, ClusterError, ServerUnreachable
from fluxqueue.cli.live_queue import LiveQueue

WAITING = fluxjob("waiting", state="Pending")
RUNNING = fluxjob("running", state="Running", nodes="n1")
QUEUES = f"/apis/{names.API_VERSION}/{names.FLUXQUEUES}"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_changes, "_PAUSE_S", 0.0)


def live_queue(server: PluginServer, namespace: str | None = "default") -> LiveQueue:
    return LiveQueue(lambda: server.client, namespace, "default")


def titles(live: LiveQueue) -> set[str]:
    return {job.spec.object_ref.name for job in live.view().jobs}


def follow(live: LiveQueue, server: PluginServer) -> None:
    """Read until the watch has no more events, which the server reports as an interrupt."""
    with pytest.raises(KeyboardInterrupt):
        live._watch(server.client)


def test_changes_are_applied_as_they_come() -> None:
    server = PluginServer().has_jobs(WAITING)
    server.streams[fluxjobs_path()] = [event("ADDED", RUNNING), event("DELETED", WAITING)]
    live = live_queue(server)
    follow(live, server)
    assert titles(live) == {"running"}
    assert live.view().version == 3


def test_who_may_not_see_all_sees_one_namespace_and_reads_why() -> None:
    server = PluginServer().has_jobs(WAITING)
    server.refusals[f"GET {fluxjobs_path(None)}"] = ApiRefused(403, "Forbidden", "no")
    live = live_queue(server, None)
    follow(live, server)
    assert titles(live) == {"waiting"}
    assert live.view().notes == ("Only the work of namespace default: you may not list that of all.",)


def test_a_server_that_does_not_answer_is_asked_again_and_the_last_state_stays() -> None:
    server, asked = PluginServer().has_jobs(WAITING), threading.Event()
    live = live_queue(server)
    follow(live, server)

    def refuse(*_: Any, **__: Any) -> bytes:
        asked.set()
        live.stop()
        raise ServerUnreachable("Unable to connect")

    server.get = refuse  # type: ignore[method-assign]
    live._follow_jobs()
    assert asked.is_set()
    assert titles(live) == {"waiting"}
    assert live.view().notes == (
        (
            "Unable to connect (kubectl cluster-info asks the same server; "
            "--context or --kubeconfig choose another)"
        ),
    )


def test_an_answer_that_cannot_be_read_is_shown_and_ends_nothing() -> None:
    server = PluginServer()
    server.objects[fluxjobs_path()] = b"<html>"
    live = live_queue(server)
    reader = threading.Thread(target=live._follow_jobs, daemon=True)
    reader.start()
    for _ in range(600):
        if live.view().notes:
            break
        reader.join(0.1)
    assert reader.is_alive()
    live.stop()
    reader.join(60)
    assert live.view().notes[0].startswith("DecodeError: ")


def test_nodes_and_queues_that_may_not_be_read_leave_a_note() -> None:
    server = PluginServer().has("/api/v1/nodes")
    server.refusals[f"GET {QUEUES}"] = ApiRefused(403, "Forbidden", "no")
    live = live_queue(server)
    live._read_nodes(server.client)
    live.stop()
    live._ended.clear()
    reader = threading.Thread(target=live._read_others, daemon=True)
    reader.start()
    for _ in range(600):
        if live.view().notes:
            break
        reader.join(0.1)
    live.stop()
    reader.join(60)
    assert live.view().notes == ("You may not list queues.",)


def test_an_edit_is_written_or_refused_with_the_reason() -> None:
    server = PluginServer().has_jobs(WAITING)
    live = live_queue(server)
    assert live.edit("hold", WAITING) == "job/waiting held"
    assert [change["spec"] for _, _, change in server.written] == [{"hold": True}]
    with pytest.raises(ClusterError, match="job/running runs: only what waits can be held"):
        live.edit("hold", RUNNING)
    assert live.edit("release", WAITING) == "job/waiting released already"


def test_the_explanation_is_that_of_explain() -> None:
    pod = fluxjob("probe", kind="Pod", state="Pending", reason="WaitingForNodes")
    assert live_queue(PluginServer()).explain(pod, NOW).startswith("pod/probe in namespace default waits")
