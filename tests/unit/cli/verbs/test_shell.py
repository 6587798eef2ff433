"""`shell` ends as kubectl: here a program that prints its words stands for it,
and the plugin is a program of its own.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from support.plugin_server import fluxjob, fluxjobs_path

from fluxqueue.cli import plugin

JOB = fluxjob("solver", state="Running", nodes="node-1")
POD = {
    "metadata": {"name": "solver-0-x", "namespace": "default", "uid": "p0"},
    "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
    "status": {"phase": "Running"},
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    lists = {
        fluxjobs_path(): [json.loads(msgspec.json.encode(JOB))],
        "/api/v1/namespaces/default/pods": [POD],
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            status = 200 if path in lists or path.endswith("/jobs/solver") else 404
            body = (
                {"metadata": {"name": "solver"}, "items": lists.get(path, [])}
                if status == 200
                else {"reason": "NotFound", "details": {"name": "x"}}
            )
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "ada"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "users": [{"name": "ada", "user": {"token": "t"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    yield path
    server.shutdown()
    server.server_close()


def shell(kubeconfig: Path, path: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "import sys; from fluxqueue.cli.plugin import main; sys.exit(main())",
        "shell",
        *words,
    ]
    environment = {"PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_it_becomes_kubectl_exec_and_ends_with_its_exit_code(kubeconfig: Path, tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    kubectl.chmod(0o755)
    done = shell(
        kubeconfig, f"{tmp_path}:/bin:/usr/bin", "solver", "--context", "here", "--", "nvidia-smi", "-L"
    )
    assert done.stdout == "exec -i --context here -n default solver-0-x -c main -- nvidia-smi -L\n", (
        done.stderr
    )
    assert done.stderr == "rank 0, pod solver-0-x on node-1\n"
    assert done.returncode == 7


def test_without_kubectl_it_says_so(kubeconfig: Path, tmp_path: Path) -> None:
    done = shell(kubeconfig, str(tmp_path / "nothing"), "solver")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "there is no kubectl on the PATH" in done.stderr


@pytest.mark.parametrize("rank", ["one", "-1", "1.5"])
def test_a_rank_is_a_number(rank: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plugin.main(["shell", "solver", f"--rank={rank}"])
    assert "--rank is a whole number from 0 on" in capsys.readouterr().err
