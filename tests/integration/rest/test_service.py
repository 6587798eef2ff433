"""`fluxqueue rest` as it runs next to a leader: a process, a token, and a stand-in `flux` that records its arguments."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

STAND_IN = """#!/bin/sh
here=${0%/*}
printf '%s ' "$@" >>"$here/calls"; echo >>"$here/calls"
[ ! -e "$here/broken" ] || { echo "ModuleNotFoundError: No module named '_cffi_backend'" >&2; exit 1; }
case "$1 $2" in
"submit refuse") echo "flux-submit: ERROR: unsatisfiable request" >&2; exit 1 ;;
submit*) echo f2ABC ;;
"jobs -a")
    for word in "$@"; do last=$word; done
    case $last in
    f9) echo "flux-jobs: ERROR: JobID f9 unknown" >&2; exit 1 ;;
    f2ABC) echo '{"id": 7, "state": "RUN"}' ;;
    *) echo '{"jobs": [{"id": 7, "state": "RUN"}]}' ;;
    esac ;;
"job attach")
    echo one
    while [ ! -e "$here/ended" ]; do sleep 0.05; done
    echo two ;;
"job eventlog") echo '{"name": "data", "context": {"data": "so far"}}' ;;
"resource list") printf 'free\\t2\\t8\\t0\\tflux-[0-1]\\n' ;;
esac
"""


@dataclass
class Service:
    """A running service, and the arguments of its `flux`."""

    folder: Path
    port: int

    def call(self, method: str, path: str, body: Any = None, token: str | None = "right") -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if "json" in answer.headers["content-type"] else content.decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("rest")
    (folder / "bin").mkdir()
    flux = folder / "bin" / "flux"
    flux.write_text(STAND_IN)
    flux.chmod(0o755)
    (folder / "token").write_text("right\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["rest", "--host", "127.0.0.1", "--port", str(port), "--token-file", str(folder / "token")]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("fluxqueue")), *words], env={**os.environ, "FLUX_VIEW": str(folder)}, stdout=log, stderr=log
    )
    running = Service(folder / "bin", port)
    try:
        _await(running, process, folder / "log")
        yield running
    finally:
        process.terminate()
        ended = process.wait(20)
        log.close()
    assert ended == 0, (folder / "log").read_text()


def _await(service: Service, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if service.call("GET", "/healthz", token=None)[0] == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(log.read_text())


def test_a_job_is_submitted_listed_shown_and_cancelled(service: Service) -> None:
    assert service.call("POST", "/v1/jobs", {"command": ["hostname"], "nodes": 2}) == (201, {"id": "f2ABC"})
    assert service.calls()[-1].split() == ["submit", "--nodes=2", "hostname"]
    assert service.call("GET", "/v1/jobs") == (200, [{"id": 7, "state": "RUN"}])
    assert service.call("GET", "/v1/jobs/f2ABC") == (200, {"id": 7, "state": "RUN"})
    assert service.call("DELETE", "/v1/jobs/f2ABC")[0] == 202
    assert service.calls()[-1].split() == ["cancel", "f2ABC"]


def test_nodes_are_listed_by_state(service: Service) -> None:
    assert service.call("GET", "/v1/nodes") == (200, [{"state": "free", "nodes": ["flux-0", "flux-1"], "cores": 8, "gpus": 0}])


@pytest.mark.parametrize("token", [None, "", "wrong", "right but longer"])
def test_without_the_token_nothing_is_revealed_and_nothing_runs(service: Service, token: str | None) -> None:
    before = (service.folder / "calls").exists() and service.calls()
    for method, path in (("GET", "/v1/jobs"), ("GET", "/v1/nodes"), ("DELETE", "/v1/jobs/f2ABC"), ("GET", "/v1/jobs/f2ABC/output")):
        status, content = service.call(method, path, token=token)
        assert status == 401
        assert "bearer token" in content["detail"]
    assert ((service.folder / "calls").exists() and service.calls()) == before


@pytest.mark.parametrize(
    ("body", "code", "content"),
    [
        ({"command": ["--flags", "x"]}, 422, "cannot be empty or begin with a dash"),
        ({"command": []}, 422, "command"),
        ({"command": ["x"], "nodes": 0}, 422, "nodes"),
        ({"command": ["x"], "shell": "rm"}, 422, "shell"),
        ({"command": ["refuse"]}, 409, "unsatisfiable request"),
        ({"command": ["x" * 2**21]}, 413, "bytes"),
    ],
)
def test_bad_requests_are_answered_with_a_sentence(service: Service, body: Any, code: int, content: str) -> None:
    status, answer = service.call("POST", "/v1/jobs", body)
    assert status == code
    assert content in json.dumps(answer)


@pytest.mark.parametrize(("token", "code", "content"), [("right", 413, "bytes"), (None, 401, "bearer token")])
def test_a_client_that_sends_its_whole_body_first_reads_the_refusal(service: Service, token: str | None, code: int, content: str) -> None:
    status, answer = service.call("POST", "/v1/jobs", {"command": ["x" * 2**24]}, token=token)
    assert status == code
    assert content in answer["detail"]


def test_an_unknown_job_is_not_found(service: Service) -> None:
    for path in ("/v1/jobs/f9", "/v1/jobs/f9/output", "/v1/jobs/f9/output?follow=true", "/v1/jobs/--help"):
        assert service.call("GET", path)[0] == 404, path


def test_output_is_streamed_while_the_job_runs(service: Service) -> None:
    assert service.call("GET", "/v1/jobs/f2ABC/output") == (200, "so far")
    request = urllib.request.Request(
        f"http://127.0.0.1:{service.port}/v1/jobs/f2ABC/output?follow=true", headers={"Authorization": "Bearer right"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.readline() == b"one\n"  # the job has not ended
        threading.Timer(0.1, (service.folder / "ended").touch).start()
        assert answer.read() == b"two\n"


def test_it_serves_its_openapi_description(service: Service) -> None:
    status, described = service.call("GET", "/openapi.json", token=None)
    assert status == 200
    assert set(described["paths"]) >= {"/v1/jobs", "/v1/jobs/{jobid}", "/v1/jobs/{jobid}/output", "/v1/nodes"}
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_readiness_means_that_a_command_of_flux_works(service: Service) -> None:
    (service.folder / "broken").touch()
    try:
        status, answer = service.call("GET", "/v1/jobs")
        assert status == 503
        assert "flux cannot load its Python modules" in answer["detail"]
        until = time.monotonic() + 30
        while (ready := service.call("GET", "/readyz", token=None))[0] != 503 and time.monotonic() < until:
            time.sleep(0.1)
        assert ready[0] == 503
        assert "No module named '_cffi_backend'" in ready[1]["status"]
    finally:
        (service.folder / "broken").unlink()
