"""Pods without Kubernetes: each is a directory with its volumes and a set of processes that run the rendered
scripts.

The ConfigMap's files are written where a volume would be, the view's init script runs first, as its container
would, and then run.sh with the container's environment. Only two things of the rendered objects change: mount
paths become paths below the pod's directory, and names of pods become the loopback address. Where permitted,
each pod has its own UTS namespace, and so its own host name.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.minicluster_builders import IMAGE, certificate, minicluster, one, shares

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.render import objects
from fluxqueue.minicluster.scripts import FOLDER, SECRET_FOLDER

STANDIN = Path(__file__).with_name("flux_standin.py")
WAIT_S = 60.0
_HANGUP = ("env", "--default-signal=HUP")
"""A container's programs start with the default action of SIGHUP;
a terminal's `nohup` would pass on that it is ignored."""


class Pods:
    """The pods of one MiniCluster.

    Parameters
    ----------
    cluster
        Rendered into files.
    given
        Shares of the brokers; two cores each by default.
    outcomes
        The outcomes of stand-in brokers: rank -> one entry for each start.
    user
        User id that runs the containers, if the test may choose it.
    flux
        The command of a real Flux, which runs instead of the stand-in; the spec says
        ``flux.container.disable``.
    """

    def __init__(
        self,
        cluster: MiniCluster,
        *,
        given: Sequence[Share] | None = None,
        outcomes: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
        user: int | None = None,
        flux: Path | None = None,
    ) -> None:
        self.cluster = cluster
        self.root = Path(tempfile.mkdtemp(prefix="mc"))
        self.root.chmod(0o777)
        self.user = user
        self.paths = _paths_of(flux)
        self.log = self.root / "log"
        self.log.touch()
        self.log.chmod(0o666)
        self.certificate = certificate(cluster.metadata.name)
        self.processes: dict[int, subprocess.Popen[str]] = {}
        rendered = objects(
            cluster,
            certificate=self.certificate,
            image=IMAGE,
            shares=given or shares(cluster.spec.size),
            rest_token="t",
        )
        self.files: dict[str, str] = one(rendered, "ConfigMap")["data"]
        secret = next(
            each
            for each in rendered
            if each["kind"] == "Secret" and each["metadata"]["name"].endswith("-curve")
        )
        self.secret = base64.b64decode(secret["data"]["curve.cert"]).decode()
        self.port = _free_port()
        self.set(fq_patience=10, fq_names_s=0)
        if outcomes:
            (self.root / "script.json").write_text(
                json.dumps({str(rank): list(each) for rank, each in outcomes.items()})
            )
        self._make_view()

    def __enter__(self) -> Pods:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.terminate()  # a leading broker ends its program, which has its own process group
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        shutil.rmtree(self.root, ignore_errors=True)

    def set(self, **settings: int) -> None:
        """Replace settings of the scripts, such as times."""
        for name, value in settings.items():
            text, replaced = re.subn(
                rf"^{name}=.*$", f"{name}='{value}'", self.files["settings.sh"], flags=re.MULTILINE
            )
            assert replaced == 1, name
            self.files["settings.sh"] = text

    def hold(self, index: int, held: bool = True) -> None:
        """Let a stand-in broker stay in its last state, `finalize`, or leave it."""
        file = self.log.with_suffix(f".hold-{index}")
        if held:
            file.touch()
        else:
            file.unlink()

    def flux(self, index: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Flux in a pod, as a person does by `kubectl exec`."""
        script = f'. "{self.directory(index)}/mount/flux-view.sh" && exec flux "$@"'
        command = ["/bin/bash", "-c", script, "flux", *words]
        return subprocess.run(
            command, env=self.environment(index), capture_output=True, text=True, timeout=WAIT_S, check=False
        )

    def directory(self, index: int) -> Path:
        """Return the directory of a pod; ``mount``, ``operator``, ``curve``,
        ``software`` below it are its volumes.
        """
        return self.root / f"p{index}"

    def make(self, index: int) -> Path:
        """Make the volumes of a pod as the kubelet does; a second call restores them."""
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
        """Run the init container of the view."""
        self.make(index)
        return self.start_init(index).wait(WAIT_S)

    def start_init(self, index: int, **environment: str) -> subprocess.Popen[str]:
        """Start the init container of the view in volumes that exist, with more variables."""
        pod = self.directory(index)
        command = [
            "/bin/sh",
            str(pod / "operator" / "flux-init.sh"),
            str(pod / "mount"),
            str(pod / "software"),
            str(self.root / "image"),
        ]
        return subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], **environment}, user=self.user, text=True
        )

    def reason(self, index: int) -> str:
        """Return the termination message that a container of the pod wrote; empty if none."""
        file = self.directory(index) / "reason"
        return file.read_text() if file.exists() else ""

    def environment(self, index: int, **more: str) -> dict[str, str]:
        """Return the environment of the runner's container."""
        spec = self.cluster.spec
        declared = spec.containers[spec.runner_index or 0].environment or {}
        return {
            **self.paths,
            "HOME": str(self.directory(index) / "work"),
            "HOSTNAME": f"{self.cluster.metadata.name}-{index}",
            "JOB_COMPLETION_INDEX": str(index),
            "FLUX_STANDIN_LOG": str(self.log),
            "FLUX_STANDIN_SCRIPT": str(self.root / "script.json"),
            **{key: str(value) for key, value in declared.items()},
            **more,
        }

    def start(self, index: int, *words: str, script: str = "run.sh", **more: str) -> subprocess.Popen[str]:
        """Run the init container, then the runner's container."""
        if self.cluster.spec.flux.container.disable:
            self.make(index)
        elif not (self.directory(index) / "mount" / "flux-operator-done.txt").exists():
            assert self.init(index) == 0
        pod = self.directory(index)
        command = ["/bin/bash", str(pod / "operator" / script), *words]
        process = subprocess.Popen(
            [*_HANGUP, *_own_hostname(f"{self.cluster.metadata.name}-{index}", self.user), *command],
            env=self.environment(index, **more),
            cwd=pod / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if script == "run.sh":
            self.processes[index] = process
        return process

    def run(self, *words: str, **more: str) -> tuple[list[int], list[str], list[str]]:
        """Run all pods to their end; return codes, outputs and errors by index."""
        for index in range(self.cluster.spec.size):
            self.start(index, *words, **more)
        ended = [self.finish(index) for index in range(self.cluster.spec.size)]
        return [code for code, _, _ in ended], [out for _, out, _ in ended], [err for _, _, err in ended]

    def finish(self, index: int) -> tuple[int, str, str]:
        """Wait for a pod to end."""
        out, err = self.processes[index].communicate(timeout=WAIT_S)
        return self.processes[index].returncode, out, err

    def stop(self, index: int) -> None:
        """Send SIGTERM to the container's first process, as the kubelet does when a pod is deleted."""
        self.processes[index].terminate()

    def ready(self, index: int) -> bool:
        """True if the readiness probe succeeds."""
        probe = ["/bin/bash", str(self.directory(index) / "operator" / "ready.sh")]
        return subprocess.run(probe, env=self.environment(index), timeout=WAIT_S, check=False).returncode == 0

    def events(self, key: str) -> list[dict[str, Any]]:
        """Return the events of one kind that stand-ins logged."""
        return [event for line in self.log.read_text().splitlines() if key in (event := json.loads(line))]

    def calls(self, *start: str) -> list[list[str]]:
        """Return the arguments of the calls of `flux` that start with these."""
        return [event["argv"] for event in self.events("argv") if event["argv"][: len(start)] == list(start)]

    def wait_for(self, key: str, count: int = 1) -> None:
        """Wait until this many events of a kind were logged."""
        wait_until(
            lambda: len(self.events(key)) >= count, lambda: f"{count} events {key!r} came; {self._ended()}"
        )

    def _ended(self) -> list[str]:
        return [
            f"{index}: {process.returncode}"
            for index, process in self.processes.items()
            if process.poll() is not None
        ]

    def _moved(self, text: str, pod: Path) -> str:
        mount = self.cluster.spec.flux.container.mount_path
        domain = f"{self.cluster.service_name}.{self.cluster.metadata.namespace}.svc.cluster.local"
        for inside, outside in (
            (FOLDER, pod / "operator"),
            (SECRET_FOLDER, pod / "curve"),
            (mount, pod / "mount"),
            ("/dev/termination-log", pod / "reason"),
            (f"{self.cluster.metadata.name}-0.{domain}", "127.0.0.1"),
            (f"%h.{domain}", "127.0.0.1"),
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
        (self.root / "image" / "software" / "._hidden").mkdir()
        (self.root / "image" / "software" / "._hidden" / "._file").touch()
        flux = view / "bin" / "flux"
        flux.write_text(f"#!{sys.executable} -I\n{STANDIN.read_text()}")
        flux.chmod(0o755)


def wait_until(condition: Callable[[], bool], what: Callable[[], str] | str) -> None:
    """Wait until a condition holds; ``what`` says which one, if it does not in time."""
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, (
            f"not within {WAIT_S:g} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(0.02)


def pods(
    command: str = "",
    size: int = 3,
    *,
    commands: dict[str, str] | None = None,
    harness: dict[str, Any] | None = None,
    **spec: Any,
) -> Pods:
    """Return the pods of a MiniCluster with one container;
    fields of that container and of the spec are keyword arguments.
    """
    container = {"image": "app:1", "command": command, "commands": commands or {}, "resources": {}}
    for field in ("launcher", "batch", "batchRaw", "logs", "environment"):
        if field in spec:
            container[field] = spec.pop(field)
    return Pods(
        minicluster(size=size, containers=[container], formTimeoutSeconds=10, **spec), **(harness or {})
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def has_hostnames() -> bool:
    """True if processes can get host names of their own here,
    without which a real broker does not find its rank.
    """
    return bool(_namespace())


def _paths_of(flux: Path | None) -> dict[str, str]:
    """Return the paths by which a real Flux is found, and its Python modules if they are in its own tree."""
    if flux is None:
        return {"PATH": os.environ["PATH"]}
    modules = sorted(flux.parent.parent.glob("lib/python3*/site-packages"))
    return {
        "PATH": f"{flux.parent}:{os.environ['PATH']}",
        **({"PYTHONPATH": str(modules[0])} if modules else {}),
    }


@functools.cache
def _namespace() -> tuple[str, ...]:
    unshare = shutil.which("unshare") or "unshare"
    for words in ((unshare, "--uts"), (unshare, "--user", "--map-root-user", "--uts")):
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
    return ()


def _own_hostname(name: str, user: int | None) -> list[str]:
    switch = (
        [shutil.which("setpriv") or "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        if user is not None
        else []
    )
    if not _namespace():
        return switch
    # only root may write the file
    rename = f"hostname {name} 2>/dev/null || echo {name} >/proc/sys/kernel/hostname"
    return [*_namespace(), "/bin/sh", "-c", f'{rename}; exec "$@"', "sh", *switch]
