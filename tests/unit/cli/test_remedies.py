"""Every command against a cluster that is not there, refuses, has no fluxqueue, has no such name, or whose
service is down.

Each says one sentence with what helps. The table has a line for each command, so a new command without a line
fails here.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fluxqueue.api import names
from fluxqueue.cli import plugin
from fluxqueue.cli.api_client import (
    ApiRefused,
    ClusterError,
    NoSuchResource,
    ObjectNotFound,
    ServerUnreachable,
)
from fluxqueue.cli.remedies import described

COMMANDS = {
    "submit": ["submit", "--image", "busybox", "--", "true"],
    "jobs": ["jobs"],
    "top": ["top"],
    "explain": ["explain", "nobody"],
    "efficiency": ["efficiency", "nobody"],
    "wait": ["wait", "nobody"],
    "logs": ["logs", "nobody"],
    "shell": ["shell", "nobody"],
    "nodes": ["nodes"],
    "graph": ["graph"],
    "queues": ["queues"],
    "queue": ["queue", "hold", "nobody"],
    "reservations": ["reservations"],
    "shares": ["shares"],
    "priority": ["priority"],
    "hold": ["hold", "nobody"],
    "release": ["release", "nobody"],
    "cancel": ["cancel", "nobody"],
    "prioritize": ["prioritize", "nobody", "5"],
    "move": ["move", "nobody", "-q", "default"],
    "requeue": ["requeue", "nobody"],
    "history": ["history"],
    "report": ["report"],
    "stats": ["stats"],
    "doctor": ["doctor"],
    "uninstall": ["uninstall", "--release-held", "--dry-run"],
    "completion": ["completion", "bash"],
    "version": ["version"],
}
NO_CLUSTER = {"completion"}
"""They ask no cluster."""
OF_SERVICE = ("history", "report", "stats", "doctor")
NAMED = [name for name, words in COMMANDS.items() if "nobody" in words] + ["jobs", "nodes"]
Answer = tuple[int, dict[str, object]]
Scenario = Callable[[str, str], Answer]


def refusal(code: int, reason: str, message: str, **details: str) -> Answer:
    return code, {"kind": "Status", "reason": reason, "message": message, "details": details}


def forbidden(method: str, path: str) -> Answer:
    verb = {"GET": "list", "POST": "create"}.get(method, "patch")
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    where = (
        f'in the namespace "{parts[parts.index("namespaces") + 1]}"'
        if "namespaces" in parts[:-1]
        else "at the cluster scope"
    )
    resource = next(
        (part for part in reversed(parts) if part in ("fluxjobs", "fluxqueues", "nodes", "pods", "jobs")),
        parts[-1],
    )
    message = (
        f'{resource} is forbidden: User "ada" cannot {verb} resource "{resource}" in API group "{group}" '
        f"{where}"
    )
    return refusal(403, "Forbidden", message)


def without_fluxqueue(method: str, path: str) -> Answer:
    if names.GROUP in path or "flux" in path:
        return refusal(404, "NotFound", "the server could not find the requested resource")
    return empty(method, path)


def empty(method: str, path: str) -> Answer:
    """Answer as a cluster with fluxqueue, one managed namespace and nothing else."""
    if path.endswith("/namespaces/default"):
        return 200, {"metadata": {"name": "default", "labels": {names.MANAGED_LABEL: "true"}}}
    last = path.rsplit("/", 1)[-1]
    if last == "nobody":
        resource = path.rsplit("/", 2)[-2]
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        return refusal(
            404, "NotFound", f'{resource}{f".{group}" if group else ""} "nobody" not found', name="nobody"
        )
    if "/services/" in path:
        return refusal(
            404, "NotFound", 'services "https:fluxqueue-queue:metrics" not found', name="fluxqueue-queue"
        )
    if path.endswith("/token"):
        return 201, {"status": {"token": "t"}}
    if method == "GET":
        return 200, {"metadata": {"resourceVersion": "1"}, "items": [], "rows": [], "columnDefinitions": []}
    return 200, {"metadata": {"name": "x"}}


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def point_to(server: str) -> None:
        document = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "ada"}}],
            "clusters": [{"name": "here", "cluster": {"server": server}}],
            "users": [{"name": "ada", "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(json.dumps(document))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        for name in ("FLUXQUEUE_QUEUE_URL", "FLUXQUEUE_QUEUE_CA"):
            monkeypatch.delenv(name, raising=False)

    return point_to


@pytest.fixture
def run(kubeconfig: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command against an API server that answers by a scenario;
    return its exit code and what it said of errors.
    """
    running: list[ThreadingHTTPServer] = []

    def against(scenario: Scenario, words: list[str]) -> tuple[int, str]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = scenario(self.command, self.path.split("?")[0])
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815  (http.server's names)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        running.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        kubeconfig(f"http://127.0.0.1:{server.server_address[1]}")
        code = plugin.main(words)
        return code, capsys.readouterr().err

    yield against
    for server in running:
        server.shutdown()
        server.server_close()


def test_every_command_is_in_the_table() -> None:
    assert list(COMMANDS) == list(plugin.VERBS)


@pytest.mark.parametrize("verb", sorted(set(COMMANDS) - NO_CLUSTER - {"top"}))
def test_without_a_cluster(
    verb: str, kubeconfig: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        kubeconfig(f"http://127.0.0.1:{taken.getsockname()[1]}")
        code = plugin.main(COMMANDS[verb])
    said = capsys.readouterr().err
    assert code == 1
    assert said.count("\n") == 1, said
    assert "was refused" in said or "cannot connect" in said
    assert "kubectl cluster-info asks the same server" in said


@pytest.mark.parametrize("verb", sorted(set(COMMANDS) - NO_CLUSTER - {"top", "version"}))
def test_without_the_right(verb: str, run: Run) -> None:
    code, said = run(forbidden, COMMANDS[verb])
    assert code == 1
    assert said.count("\n") == 1, said
    assert any(
        remedy in said for remedy in ("an administrator", "ask an administrator", "--system-namespace")
    ), said


@pytest.mark.parametrize(
    "verb", sorted(set(COMMANDS) - NO_CLUSTER - {"top", "version", "nodes", "graph", "uninstall"})
)
def test_where_fluxqueue_is_not_installed(verb: str, run: Run) -> None:
    code, said = run(without_fluxqueue, COMMANDS[verb])
    assert code == 1
    assert said.count("\n") == 1, said
    assert "is fluxqueue installed" in said


@pytest.mark.parametrize("verb", NAMED)
def test_a_name_that_is_not_there(verb: str, run: Run) -> None:
    words = COMMANDS[verb] if verb not in ("jobs", "nodes") else [verb, "nobody"]
    code, said = run(empty, words)
    assert code == 1
    assert said.count("\n") == 1, said
    assert '"nobody" not found' in said
    assert "lists" in said


@pytest.mark.parametrize("verb", OF_SERVICE)
def test_while_the_service_is_down(verb: str, run: Run) -> None:
    """There is no pod of the queue, or it does not answer."""
    code, said = run(empty, COMMANDS[verb])
    assert code == 1
    assert said.count("\n") == 1, said
    assert "is fluxqueue installed" in said

    def down(method: str, path: str) -> Answer:
        labels = {"app.kubernetes.io/component": "queue"}
        pod = {
            "metadata": {"name": "queue-0", "namespace": "fluxqueue-system", "labels": labels},
            "spec": {"containers": []},
        }
        if path.endswith("/pods"):
            return 200, {"metadata": {}, "items": [pod]}
        if "/proxy" in path:
            return refusal(
                503, "ServiceUnavailable", "error trying to reach service: dial tcp: connection refused"
            )
        return empty(method, path)

    code, said = run(down, COMMANDS[verb])
    assert code == 1
    assert said.count("\n") == 1, said
    if verb == "doctor":
        assert "it is stopped or cannot be reached" in said
    else:
        assert "nothing of it is lost" in said
        assert "kubectl fluxqueue version shows the replicas" in said


def test_a_version_is_said_also_where_the_service_cannot_be_asked(run: Run) -> None:
    assert run(forbidden, ["version"])[0] == 1
    assert run(empty, ["version"]) == (0, "")


NO_RIGHT = 'fluxjobs is forbidden: User "ada" cannot {} resource "{}" in API group "{}" {}'


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (ServerUnreachable("The connection was refused"), "kubectl cluster-info asks the same server"),
        (NoSuchResource(404, "NotFound", "x"), "Helm chart"),
        (
            ObjectNotFound(404, "NotFound", 'fluxqueues.jobs.converged-computing.org "x" not found'),
            "kubectl fluxqueue queues lists",
        ),
        (ObjectNotFound(404, "NotFound", 'jobs.batch "x" not found'), "kubectl fluxqueue jobs lists"),
        (ApiRefused(401, "Unauthorized", "x"), "log in to the cluster again"),
        (
            ApiRefused(
                403, "Forbidden", NO_RIGHT.format("list", "fluxjobs", names.GROUP, 'in the namespace "lab"')
            ),
            "kubectl create rolebinding NAME -n lab --clusterrole=view --user=YOU",
        ),
        (
            ApiRefused(403, "Forbidden", NO_RIGHT.format("patch", "jobs", "batch", 'in the namespace "lab"')),
            "--clusterrole=edit",
        ),
        (
            ApiRefused(
                403, "Forbidden", NO_RIGHT.format("list", "fluxjobs", names.GROUP, "at the cluster scope")
            ),
            "without -A",
        ),
        (
            ApiRefused(
                403, "Forbidden", NO_RIGHT.format("list", "fluxqueues", names.GROUP, "at the cluster scope")
            ),
            "fluxqueues-view",
        ),
        (
            ApiRefused(
                403, "Forbidden", NO_RIGHT.format("update", "fluxqueues", names.GROUP, "at the cluster scope")
            ),
            "fluxqueue-operator",
        ),
    ],
)
def test_an_error_of_the_server_has_its_remedy(error: ClusterError, helps: str) -> None:
    assert described(error).startswith(f"{error} (")
    assert helps in described(error)


@pytest.mark.parametrize(
    "error",
    [
        ClusterError("error: say --yes"),
        ApiRefused(403, "Forbidden", "denied the request: no"),
        ApiRefused(500, "", "x"),
    ],
)
def test_what_says_itself_what_helps_is_unchanged(error: ClusterError) -> None:
    assert described(error) == str(error)
