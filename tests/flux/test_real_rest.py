"""The REST service beside a real leader."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.minicluster_pods import Pods, wait_until

MakePods = Callable[..., Pods]


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer right"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if "json" in answer.headers[
                "content-type"
            ] else content.decode()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_job_is_submitted_listed_and_its_output_read(brokers: MakePods, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("right")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        brokers(size=2, interactive=True, restful={"enabled": True}) as cluster,
        contextlib.ExitStack() as ending,
    ):
        pod = cluster.directory(0)
        for index in range(2):
            cluster.start(index)
        words = ["rest", "--host", "127.0.0.1", "--port", str(port), "--token-file", str(tmp_path / "token")]
        words += [
            "--settings",
            str(pod / "operator" / "settings.sh"),
            "--environment",
            str(pod / "mount" / "config" / "environment"),
        ]
        environment = cluster.environment(0, FLUX_URI=f"local://{pod}/mount/config/run/flux/local")
        service = subprocess.Popen(
            [str(Path(sys.executable).with_name("fluxqueue")), *words],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        ending.callback(service.wait, 30)
        ending.callback(service.terminate)

        def ready() -> bool:
            with contextlib.suppress(OSError):
                return call(port, "GET", "/readyz")[0] == 200
            return False

        wait_until(ready, "the service is ready")
        status, submitted = call(
            port,
            "POST",
            "/v1/jobs",
            {"command": ["bash", "-c", "echo $WORD"], "environment": {"WORD": "heard"}},
        )
        assert status == 201
        job = f"/v1/jobs/{submitted['id']}"
        assert call(port, "GET", f"{job}/output?follow=true") == (200, "heard\n")
        wait_until(lambda: call(port, "GET", job)[1].get("result") == "COMPLETED", "the job has completed")
        assert [each["id"] for each in call(port, "GET", "/v1/jobs")[1]] == [call(port, "GET", job)[1]["id"]]
        assert sum(group["cores"] for group in call(port, "GET", "/v1/nodes")[1]) == 4
