"""Pods without Kubernetes: each is a directory with its volumes and a set of processes that run the rendered scripts.

The ConfigMap's files are written where a volume would be, the view's init script runs first, as its container would, and then run.sh with
the container's environment. Paths that are mounts in a pod become paths below its directory, and the names of pods become loopback: that is
all that is changed in what was rendered. Where it is permitted, each pod has a UTS namespace, and so a host name, of its own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minicluster_builders import IMAGE, certificate, one, shares

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.render import objects
from fluxqueue.minicluster.scripts import FOLDER, SECRET_FOLDER

STANDIN = Path(__file__).with_name("flux_standin.py")
WAIT_S = 30.0


class Pods:
    """The pods of one MiniCluster.

    Parameters
    ----------
    cluster
        To be rendered.
    given
        Shares; two cores each where not said.
    outcomes
        What stand-in brokers should do instead: rank -> one entry for each start.
    user
        Who runs the containers, where the test may choose.
    """

    def __init__(
        self,
        cluster: MiniCluster,
        *,
        given: Sequence[Share] | None = None,
        outcomes: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
        user: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.root = Path(tempfile.mkdtemp(prefix="mc"))
        self.root.chmod(0o777)
        self.user = user
        self.log = self.root / "log"
        self.log.touch()
        self.log.chmod(0o666)
        self.certificate = certificate(cluster.metadata.name)
        self.processes: dict[int, subprocess.Popen[str]] = {}
        rendered = objects(cluster, certificate=self.certificate, image=IMAGE, shares=given or shares(cluster.spec.size), rest_token="t")
        self.files: dict[str, str] = one(rendered, "ConfigMap")["data"]
        secret = next(each for each in rendered if each["kind"] == "Secret" and each["metadata"]["name"].endswith("-curve"))
        self.secret = base64.b64decode(secret["data"]["curve.cert"]).decode()
        self.port = _free_port()
        if outcomes:
            (self.root / "script.json").write_text(json.dumps({str(rank): list(each) for rank, each in outcomes.items()}))
        self._make_view()

    def __enter__(self) -> Pods:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.terminate()  # a leader ends its program, which is in a process group of its own
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        shutil.rmtree(self.root, ignore_errors=True)

    def directory(self, index: int) -> Path:
        """Of a pod: ``mount``, ``operator``, ``curve``, ``software`` below it are its volumes."""
        return self.root / f"p{index}"

    def make(self, index: int) -> Path:
        """The volumes of a pod, as the kubelet makes them; made again, they are as they were."""
        pod = self.directory(index)
        for volume in ("mount", "operator", "curve", "software", "work"):
            (pod / volume).mkdir(parents=True, exist_ok=True)
            (pod / volume).chmod(0o777)
        pod.chmod(0o777)
        for name, text in self.files.items():
            path = pod / "operator" / name
            path.unlink(missing_ok=True)
            path.write_text(self._moved(text, pod))
            path.chmod(0o555)
        cert = pod / "curve" / "curve.cert"
        cert.unlink(missing_ok=True)
        cert.write_text(self.secret)
        cert.chmod(0o444)
        return pod

    def init(self, index: int) -> int:
        """Run the view's container."""
        pod = self.make(index)
        command = ["/bin/sh", str(pod / "operator" / "flux-init.sh"), str(pod / "mount"), str(pod / "software"), str(self.root / "image")]
        return subprocess.run(command, timeout=WAIT_S, check=False).returncode

    def environment(self, index: int, **more: str) -> dict[str, str]:
        """Of the runner's container."""
        spec = self.cluster.spec
        declared = spec.containers[spec.runner_index or 0].environment or {}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory(index) / "work"),
            "HOSTNAME": f"{self.cluster.metadata.name}-{index}",
            "JOB_COMPLETION_INDEX": str(index),
            "FLUX_STANDIN_LOG": str(self.log),
            "FLUX_STANDIN_SCRIPT": str(self.root / "script.json"),
            **{key: str(value) for key, value in declared.items()},
            **more,
        }

    def start(self, index: int, *words: str, script: str = "run.sh", **more: str) -> subprocess.Popen[str]:
        """Run the init container, then the runner's."""
        if not (self.directory(index) / "mount" / "flux-operator-done.txt").exists():
            assert self.init(index) == 0
        pod = self.directory(index)
        command = ["/bin/bash", str(pod / "operator" / script), *words]
        process = subprocess.Popen(
            [*(_own_hostname(f"{self.cluster.metadata.name}-{index}") if self.user is None else ()), *command],
            env=self.environment(index, **more),
            cwd=pod / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            user=self.user,
        )
        if script == "run.sh":
            self.processes[index] = process
        return process

    def run(self, *words: str, **more: str) -> tuple[list[int], list[str], list[str]]:
        """Run all pods to their end; codes, outputs and errors by index."""
        for index in range(self.cluster.spec.size):
            self.start(index, *words, **more)
        ended = [self.finish(index) for index in range(self.cluster.spec.size)]
        return [code for code, _, _ in ended], [out for _, out, _ in ended], [err for _, _, err in ended]

    def finish(self, index: int) -> tuple[int, str, str]:
        """Wait for a pod to end."""
        out, err = self.processes[index].communicate(timeout=WAIT_S)
        return self.processes[index].returncode, out, err

    def stop(self, index: int) -> None:
        """SIGTERM to the container's first process, as when a pod is deleted."""
        self.processes[index].terminate()

    def ready(self, index: int) -> bool:
        """What the readiness probe says."""
        probe = ["/bin/bash", str(self.directory(index) / "operator" / "ready.sh")]
        return subprocess.run(probe, env=self.environment(index), timeout=WAIT_S, check=False).returncode == 0

    def events(self, key: str) -> list[dict[str, Any]]:
        """What the stand-ins wrote down, of one kind."""
        return [event for line in self.log.read_text().splitlines() if key in (event := json.loads(line))]

    def calls(self, *start: str) -> list[list[str]]:
        """Words of the calls of `flux` that begin so."""
        return [event["argv"] for event in self.events("argv") if event["argv"][: len(start)] == list(start)]

    def wait_for(self, key: str, count: int = 1) -> None:
        """Until so many events of a kind were written down."""
        until = time.monotonic() + WAIT_S
        while len(self.events(key)) < count:
            assert time.monotonic() < until, f"{count} events {key!r} did not come; {self._ended()}"
            time.sleep(0.02)

    def _ended(self) -> list[str]:
        return [f"{index}: {process.returncode}" for index, process in self.processes.items() if process.poll() is not None]

    def _moved(self, text: str, pod: Path) -> str:
        mount = self.cluster.spec.flux.container.mount_path
        leader = f"{self.cluster.metadata.name}-0.{self.cluster.service_name}.{self.cluster.metadata.namespace}.svc.cluster.local"
        for inside, outside in (
            (FOLDER, pod / "operator"),
            (SECRET_FOLDER, pod / "curve"),
            (mount, pod / "mount"),
            (leader, "127.0.0.1"),
            ("fq_port='8050'", f"fq_port='{self.port}'"),
            ("default_port = 8050", f"default_port = {self.port}"),
        ):
            text = text.replace(inside, str(outside))
        return text

    def _make_view(self) -> None:
        view = self.root / "image" / "views" / "._view" / "abcdef"
        (view / "bin").mkdir(parents=True)
        (view / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
        (self.root / "image" / "software").mkdir()
        (self.root / "image" / "software" / "library.so").touch()
        flux = view / "bin" / "flux"
        flux.write_text(f"#!{sys.executable} -I\n{STANDIN.read_text()}")
        flux.chmod(0o755)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _own_hostname(name: str) -> list[str]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode != 0:
        return []
    return ["unshare", "--uts", "/bin/sh", "-c", f'echo {name} >/proc/sys/kernel/hostname; exec "$@"', "sh"]
