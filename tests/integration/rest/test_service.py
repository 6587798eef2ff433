"""`fluxqueue rest` as it runs next to a leader:
a process, a token, and a stand-in `flux` that records its arguments.
"""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.rest_services import RestService, rest_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestService]:
    with rest_service(tmp_path_factory.mktemp("rest")) as service:
        yield service


def test_a_job_is_submitted_listed_shown_and_cancelled(service: RestService) -> None:
    assert service.call("POST", "/v1/jobs", {"command": ["hostname"], "nodes": 2}) == (201, {"id": "f2ABC"})
    assert service.calls()[-1].split() == ["submit", "--nodes=2", "hostname"]
    assert service.call("GET", "/v1/jobs") == (200, [{"id": 7, "state": "RUN"}])
    assert service.call("GET", "/v1/jobs/f2ABC") == (200, {"id": 7, "state": "RUN"})
    assert service.call("DELETE", "/v1/jobs/f2ABC")[0] == 202
    assert service.calls()[-1].split() == ["cancel", "f2ABC"]


def test_nodes_are_listed_by_state(service: RestService) -> None:
    assert service.call("GET", "/v1/nodes") == (
        200,
        [{"state": "free", "nodes": ["flux-0", "flux-1"], "cores": 8, "gpus": 0}],
    )


@pytest.mark.parametrize("token", [None, "", "wrong", "right but longer"])
def test_without_the_token_nothing_is_revealed_and_nothing_runs(
    service: RestService, token: str | None
) -> None:
    before = (service.folder / "calls").exists() and service.calls()
    for method, path in (
        ("GET", "/v1/jobs"),
        ("GET", "/v1/nodes"),
        ("DELETE", "/v1/jobs/f2ABC"),
        ("GET", "/v1/jobs/f2ABC/output"),
    ):
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
def test_bad_requests_are_answered_with_a_sentence(
    service: RestService, body: Any, code: int, content: str
) -> None:
    status, answer = service.call("POST", "/v1/jobs", body)
    assert status == code
    assert content in json.dumps(answer)


@pytest.mark.parametrize(("token", "code", "content"), [("right", 413, "bytes"), (None, 401, "bearer token")])
def test_a_client_that_sends_its_whole_body_first_reads_the_refusal(
    service: RestService, token: str | None, code: int, content: str
) -> None:
    status, answer = service.call("POST", "/v1/jobs", {"command": ["x" * 2**24]}, token=token)
    assert status == code
    assert content in answer["detail"]


def test_an_unknown_job_is_not_found(service: RestService) -> None:
    for path in ("/v1/jobs/f9", "/v1/jobs/f9/output", "/v1/jobs/f9/output?follow=true", "/v1/jobs/--help"):
        assert service.call("GET", path)[0] == 404, path


def test_output_is_streamed_while_the_job_runs(service: RestService) -> None:
    assert service.call("GET", "/v1/jobs/f2ABC/output") == (200, "so far")
    request = urllib.request.Request(
        f"http://127.0.0.1:{service.port}/v1/jobs/f2ABC/output?follow=true",
        headers={"Authorization": "Bearer right"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.readline() == b"one\n"  # the job has not ended
        threading.Timer(0.1, (service.folder / "ended").touch).start()
        assert answer.read() == b"two\n"


def test_it_serves_its_openapi_description(service: RestService) -> None:
    status, described = service.call("GET", "/openapi.json", token=None)
    assert status == 200
    assert set(described["paths"]) >= {"/v1/jobs", "/v1/jobs/{jobid}", "/v1/jobs/{jobid}/output", "/v1/nodes"}
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_readiness_means_that_a_command_of_flux_works(service: RestService) -> None:
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
