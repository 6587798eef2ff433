"""Pods whose containers run as processes of this machine, on the nodes of a local cluster, which have none.

kwok shows a bound pod as running. Here the first container of each such pod of a namespace is started with its own command, and the end of
the process becomes the phase of the pod; kwok must not end any (`running_stages`). So a client that waits for the result of its pods gets
one. Images, volumes and networks are those of this machine: a container's programs come from ``PATH``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fluxqueue import local
from fluxqueue.local.apiserver_client import ApiServerClient, ApiServerError

__all__ = ["ProcessPods", "running_stages"]

_POLL_S: Final = 0.2
_ENDING: Final = ("pod-complete.yaml", "pod-fail.yaml")


class ProcessPods:
    """Runs the pods of a namespace; a context manager.

    Parameters
    ----------
    client
        The API server, as administrator.
    namespace
        Whose pods are run.
    folder
        Gets a folder for each pod, in which its process runs and whose ``log`` is its output.
    environment
        Of the processes, besides what the containers say.

    Attributes
    ----------
    ran
        Names of the pods that were started.
    """

    def __init__(self, client: ApiServerClient, namespace: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.ran: list[str] = []
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._folder = folder
        self._environment = environment
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="process-pods", daemon=True)

    def __enter__(self) -> ProcessPods:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join(60)
        for _, process in self._running.values():
            _kill(process)

    def logs(self) -> str:
        """Return the ends of the outputs of all pods."""
        return "\n".join(f"{log.parent.name}: {log.read_text(errors='replace')[-2_000:]}" for log in sorted(self._folder.glob("*/log")))

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            with suppress(OSError, ApiServerError):  # it is tried again; a test that gets nothing runs out of time
                self._look()

    def _look(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self._client.get(self._path)["items"]}
        for uid, pod in pods.items():
            name = pod["metadata"]["name"]
            if uid not in self._running and pod["status"].get("phase") == "Running" and name not in self.ran:
                self.ran.append(name)
                self._running[uid] = name, self._start(name, pod["spec"]["containers"][0])
        for uid, (name, process) in [*self._running.items()]:
            if uid not in pods or pods[uid]["metadata"].get("deletionTimestamp"):
                _kill(process)
                del self._running[uid]
            elif (code := process.poll()) is not None:
                self._end(name, pods[uid], code)
                del self._running[uid]

    def _start(self, name: str, container: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        folder = self._folder / name
        folder.mkdir(parents=True)
        given = {each["name"]: each.get("value", "") for each in container.get("env") or ()}
        command = [*(container.get("command") or ()), *(container.get("args") or ())]
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **self._environment, **given},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, name: str, pod: Mapping[str, Any], code: int) -> None:
        container = pod["spec"]["containers"][0]
        ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0, "state": ended}
        body = {"status": {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [status]}}
        try:
            self._client.request("PATCH", f"{self._path}/{name}/status", body)
        except ApiServerError as error:
            if error.status != 404:
                raise


def running_stages(folder: Path) -> Path:
    """Write the stages of kwok's pods but those that end them to a folder, and return it."""
    shutil.copytree(Path(local.__path__[0]) / "stages", folder, ignore=shutil.ignore_patterns(*_ENDING))
    return folder


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
