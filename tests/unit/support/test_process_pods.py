"""Pods as processes: a container's end is the phase of its pod."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

from support.process_pods import ProcessPods, running_stages

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.processes import wait_until


class _Server:
    """The pods of a namespace; a status patch is kept."""

    def __init__(self, **commands: list[str]) -> None:
        self.pods = {name: _pod(name, command) for name, command in commands.items()}

    def get(self, _path: str) -> dict[str, Any]:
        return {"items": copy.deepcopy([*self.pods.values()])}

    def request(self, _method: str, path: str, body: dict[str, Any]) -> None:
        name = path.removesuffix("/status").rpartition("/")[2]
        for part, values in body.items():
            self.pods[name][part].update(values)

    def phase(self, name: str) -> str:
        return str(self.pods[name]["status"]["phase"])


def _pod(name: str, command: list[str]) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": command[:1], "args": command[1:], "env": [{"name": "GIVEN", "value": "7"}]}
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}, "status": {"phase": "Running"}}


def test_pods_end_as_their_processes_do(tmp_path: Path) -> None:
    server = _Server(good=["sh", "-c", 'test "$GIVEN$MORE" = 78 && echo fine'], bad=["sh", "-c", "exit 3"])
    with ProcessPods(cast(ApiServerClient, server), "ns", tmp_path, {"MORE": "8"}) as pods:
        wait_until(lambda: "Running" not in (server.phase("good"), server.phase("bad")), "both have ended", 60)
        assert sorted(pods.ran) == ["bad", "good"]
        assert "good: fine" in pods.logs()
    assert (server.phase("good"), server.phase("bad")) == ("Succeeded", "Failed")
    assert server.pods["bad"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_deleted_pod_takes_its_process_along(tmp_path: Path) -> None:
    server = _Server(long=["sleep", "600"])
    with ProcessPods(cast(ApiServerClient, server), "ns", tmp_path, {}) as pods:
        wait_until(lambda: bool(pods._running), "it runs", 60)
        (process,) = (each for _, each in pods._running.values())
        server.pods.clear()
        wait_until(lambda: process.poll() is not None, "it was killed", 60)


def test_the_stages_that_end_pods_are_left_out(tmp_path: Path) -> None:
    stages = {stage.name for stage in running_stages(tmp_path / "stages").iterdir()}
    assert "pod-ready.yaml" in stages
    assert stages.isdisjoint({"pod-complete.yaml", "pod-fail.yaml"})
