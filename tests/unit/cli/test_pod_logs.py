import io
from collections.abc import Iterator, Mapping

import pytest
from support.plugin_server import PluginServer, fluxjob, fluxjobs_path

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import pod_logs
from fluxqueue.cli.api_client import ApiRefused, ClusterError
from fluxqueue.cli.pod_logs import LogOptions, follow_logs, print_logs

PODS = "/api/v1/namespaces/default/pods"
RUNNING = fluxjob("solver", state="Running", nodes="node-[1-2]")
DONE = fluxjob("solver", state="Completed", nodes="node-[1-2]")


def pod(rank: int, phase: str = "Running") -> dict[str, object]:
    return {
        "metadata": {
            "name": f"solver-{rank}-x",
            "namespace": "default",
            "uid": f"p{rank}",
            "annotations": {names.COMPLETION_INDEX_ANNOTATION: str(rank)},
        },
        "spec": {"nodeName": f"node-{rank + 1}", "containers": [{"name": "main"}]},
        "status": {"phase": phase},
    }


def server_with(job: FluxJob, *pods: dict[str, object]) -> PluginServer:
    server = PluginServer().has_jobs(job).has(PODS, *pods)
    for rank in range(2):
        server.streams[f"{PODS}/solver-{rank}-x/log"] = [f"hello {rank}\n".encode(), b"bye"]
    return server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_POLL_S", 0.01)


def test_each_line_begins_with_its_rank() -> None:
    out, notes = io.StringIO(), io.StringIO()
    server = server_with(RUNNING, pod(1), pod(0))
    assert print_logs(server.client, [RUNNING], LogOptions(tail=5, since_s=60), out, notes) == 0
    assert out.getvalue() == "0: hello 0\n0: bye\n1: hello 1\n1: bye\n"
    asked = [params for path, params in server.asked if path.endswith("/log")]
    assert asked == [{"tailLines": "5", "sinceSeconds": "60", "container": "main"}] * 2


def test_some_ranks_without_prefix() -> None:
    out = io.StringIO()
    options = LogOptions(ranks=frozenset({1}), prefix=False, container="other")
    assert (
        print_logs(server_with(RUNNING, pod(0), pod(1)).client, [RUNNING], options, out, io.StringIO()) == 0
    )
    assert out.getvalue() == "hello 1\nbye\n"


def test_a_pod_without_a_log_is_said_and_does_not_hide_the_others() -> None:
    out, notes = io.StringIO(), io.StringIO()
    server = server_with(RUNNING, pod(0, "Pending"), pod(1))
    server.refusals["solver-0-x/log"] = ApiRefused(400, "BadRequest", "ContainerCreating")
    assert print_logs(server.client, [RUNNING], LogOptions(), out, notes) == 0
    assert out.getvalue().startswith("1: hello 1")
    assert notes.getvalue() == "0: solver-0-x has no log yet (Pending).\n"


def test_a_pod_that_never_started_has_no_log_and_gets_none() -> None:
    notes = io.StringIO()
    server = server_with(DONE, pod(0, "Failed"))
    server.refusals["solver-0-x/log"] = ApiRefused(400, "BadRequest", "container is waiting to start")
    assert print_logs(server.client, [DONE], LogOptions(), io.StringIO(), notes) == 1
    assert follow_logs(server.client, DONE, LogOptions(), io.StringIO(), notes) == 0
    first, *_ = notes.getvalue().splitlines()
    assert first == "0: solver-0-x has no log (Failed): container is waiting to start."
    assert notes.getvalue() == f"{first}\n0: solver-0-x has no log (Failed).\n"


def test_a_pod_without_a_node_has_no_log_yet() -> None:
    """The API server answers with an empty log."""
    notes = io.StringIO()
    gated = {
        **pod(0, "Pending"),
        "spec": {"containers": [{"name": "main"}], "schedulingGates": [{"name": names.GATE}]},
    }
    server = server_with(fluxjob("solver", state="Pending"), gated)
    server.streams.clear()
    assert (
        print_logs(server.client, [fluxjob("solver", state="Pending")], LogOptions(), io.StringIO(), notes)
        == 1
    )
    assert notes.getvalue() == f"0: solver-0-x has no log yet (Gated by {names.GATE}).\n"


def on_simulated_nodes(job: FluxJob) -> PluginServer:
    """The API server cannot reach kubelets that do not exist."""
    server = server_with(job, pod(0))
    server.refusals["/log"] = ApiRefused(
        500, "InternalError", "dial tcp 10.128.0.1:10250: connect: connection refused"
    )
    server.objects["/api/v1/nodes/node-1"] = {
        "status": {"nodeInfo": {"containerRuntimeVersion": "kwok://0.8"}}
    }
    return server


def test_simulated_pods_print_nothing_and_it_says_so() -> None:
    with pytest.raises(ClusterError, match=r"^error: node node-1 is simulated \(kwok\)"):
        print_logs(on_simulated_nodes(RUNNING).client, [RUNNING], LogOptions(), io.StringIO(), io.StringIO())
    with pytest.raises(ClusterError, match="is simulated"):
        follow_logs(on_simulated_nodes(RUNNING).client, RUNNING, LogOptions(), io.StringIO(), io.StringIO())


def test_without_pods_it_says_so() -> None:
    notes = io.StringIO()
    waiting = fluxjob("solver", state="Pending")
    assert print_logs(server_with(waiting).client, [waiting], LogOptions(), io.StringIO(), notes) == 1
    assert notes.getvalue() == "job/solver has no pods now (Pending).\n"


def test_following_ends_when_the_workload_and_its_logs_have_ended() -> None:
    out = io.StringIO()
    server = server_with(DONE, pod(0, "Succeeded"), pod(1, "Succeeded"))
    assert follow_logs(server.client, RUNNING, LogOptions(), out, io.StringIO()) == 0
    assert sorted(out.getvalue().splitlines()) == ["0: bye", "0: hello 0", "1: bye", "1: hello 1"]


def test_following_ends_also_if_nothing_is_left() -> None:
    notes = io.StringIO()
    assert follow_logs(server_with(DONE).client, DONE, LogOptions(), io.StringIO(), notes) == 0
    assert "has ended (Completed), and no pod has a log any more" in notes.getvalue()


def test_a_pod_that_is_deleted_meanwhile_does_not_hide_the_others() -> None:
    out, notes = io.StringIO(), io.StringIO()
    server = server_with(RUNNING, pod(0), pod(1))
    server.refusals["solver-0-x/log"] = ApiRefused(404, "NotFound", "gone")
    assert print_logs(server.client, [RUNNING], LogOptions(), out, notes) == 0
    assert (out.getvalue(), notes.getvalue()) == ("1: hello 1\n1: bye\n", "0: solver-0-x was deleted.\n")


def test_a_container_that_starts_late_is_followed_when_it_does() -> None:
    class Late(PluginServer):
        refused = 0

        def lines(
            self, path: str, params: Mapping[str, str] | None = None, timeout_s: float | None = None
        ) -> Iterator[bytes]:
            if self.refused < 7:
                self.refused += 1
                raise ApiRefused(400, "BadRequest", "container is waiting to start: PodInitializing")
            self.has_jobs(DONE)
            return super().lines(path, params, timeout_s)

    out, server = io.StringIO(), Late().has_jobs(RUNNING).has(PODS, pod(0))
    server.streams[f"{PODS}/solver-0-x/log"] = [b"late\n"]
    assert follow_logs(server.client, RUNNING, LogOptions(), out, io.StringIO()) == 0
    assert out.getvalue() == "0: late\n"


def test_too_many_pods_are_not_followed() -> None:
    many = fluxjob("solver", state="Running", nodes="node-[1-70]", pods=70)
    server = PluginServer().has_jobs(many).has(PODS, *(pod(rank) for rank in range(70)))
    with pytest.raises(
        ClusterError, match="has 70 pods, and 64 can be followed at once: choose some with --rank 0-63"
    ):
        follow_logs(server.client, many, LogOptions(), io.StringIO(), io.StringIO())


def test_a_refused_log_is_an_error() -> None:
    server = server_with(RUNNING, pod(0))
    server.refusals["solver-0-x/log"] = ApiRefused(403, "Forbidden", "no")
    with pytest.raises(ApiRefused, match="no"):
        follow_logs(server.client, RUNNING, LogOptions(), io.StringIO(), io.StringIO())
    assert fluxjobs_path() in server.objects
