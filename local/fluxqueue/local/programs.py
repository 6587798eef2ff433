"""A container of the chart as a process: its environment, volumes and ServiceAccount made real, its probes asked.

See `chart` for the rules. A program's volumes are looked after as long as it runs, and its environment is resolved anew at every
start, as the kubelet does.
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from fluxqueue.local.chart import ChartError, Container, Pod, Variable, expand, relocate
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import Process
from fluxqueue.local.volumes import MirroredVolume

__all__ = ["Program"]

_REFRESH_S = 2.0
_REFRESH_MISSING_S = 0.25  # while a Secret is awaited, everybody is


class Program:
    """One container of one replica, run as a process on this machine.

    Parameters
    ----------
    pod, container
        What the chart says.
    replica
        Counted from 0; replicas beyond the first carry it in their name.
    folder
        Volumes, home and the like; made if missing.
    log
        File of its output.
    plane
        The control plane it works with.
    extra_environment
        Variables beyond the container's (coverage of tests, debugging).
    """

    def __init__(
        self,
        pod: Pod,
        container: Container,
        replica: int,
        folder: Path,
        log: Path,
        plane: ControlPlane,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = container.name if replica == 0 else f"{container.name}-{replica}"
        self.container = container
        self._pod = pod
        self._pod_name = f"{pod.deployment}-{replica}"
        self._folder = folder
        self._plane = plane
        self._extra = dict(extra_environment or {})
        self._volumes = {
            name: MirroredVolume(source, folder / "volumes" / name) for name, source in pod.volumes.items() if source is not None
        }
        self._refreshed = float("-inf")
        self._wanted = False
        self._starting = threading.Lock()  # whoever owns the plane and its supervisor may both want it to run
        self.process = Process(self.name, (), log=log, stop_timeout_s=pod.grace_s)

    @property
    def port(self) -> int | None:
        """The first port of the container; one that declares none may say it in its arguments (``--port``)."""
        if self.container.ports:
            return next(iter(self.container.ports.values()))
        words = self.container.arguments
        return next((int(value) for flag, value in itertools.pairwise(words) if flag == "--port" and value.isdecimal()), None)

    def start(self) -> None:
        """Bring volumes and environment up to date and start the process, unless it runs; returns before it is ready.

        Raises
        ------
        SourceMissing
            A ConfigMap or Secret it needs does not exist.
        ChartError
            A variable cannot be resolved.
        ProcessError
            It cannot be forked.
        """
        with self._starting:
            self._wanted = True
            if self.process.running:
                return
            self._refresh()
            environment = self._environment()
            self.process.command = self._command(environment)
            self.process.environment = environment
            self.process.folder = self._folder
            self.process.start()

    def stop(self, *, graceful: bool = True) -> None:
        """End it and keep it ended."""
        self._wanted = False
        self.process.stop(None if graceful else 0)

    def ready(self) -> bool:
        """Whether it runs and its readiness probe passes (a container without one is ready while it runs)."""
        if not self.process.running:
            return False
        probe = self.container.readiness
        return probe is None or probe.passes(self.process.environment or {})

    def died(self) -> bool:
        """Whether it ended although it should run."""
        return self._wanted and not self.process.running

    def revive(self) -> None:
        """Start it again."""
        self.start()

    def tend(self) -> None:
        """Bring changed Secrets and ConfigMaps into its folders, every two seconds."""
        missing = any(volume.source.optional and not any(volume.folder.glob("[!.]*")) for volume in self._volumes.values())
        if self._wanted and time.monotonic() - self._refreshed >= (_REFRESH_MISSING_S if missing else _REFRESH_S):
            self._refresh()

    def _refresh(self) -> None:
        self._refreshed = time.monotonic()
        for volume in self._volumes.values():
            volume.refresh(self._plane.client)

    def _command(self, environment: Mapping[str, str]) -> list[str]:
        entry = list(self.container.command) or _entry_point()
        folders = self._mount_folders()
        return [*entry, *(relocate(expand(word, environment), folders) for word in self.container.arguments)]

    def _mount_folders(self) -> list[tuple[str, Path]]:
        folders = []
        for mount in self.container.mounts:
            folder = self._folder / "volumes" / mount.volume
            folder.mkdir(parents=True, exist_ok=True)
            folders.append((mount.path, folder / mount.sub_path if mount.sub_path else folder))
        return folders

    def _environment(self) -> dict[str, str]:
        folders = self._mount_folders()
        home = self._folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(next((folder for path, folder in folders if path == "/tmp"), home)),  # noqa: S108  (a mount path to compare with)
            "KUBECONFIG": os.devnull,
        }
        if self._pod.service_account is not None:
            environment["KUBECONFIG"] = str(self._plane.service_account_kubeconfig(self._pod.namespace, self._pod.service_account))
        for variable in self.container.variables:
            value = self._resolve(variable)
            if value is not None:
                environment[variable.name] = relocate(expand(value, environment), folders)
        return environment | self._extra

    def _resolve(self, variable: Variable) -> str | None:
        if not variable.kind:
            return variable.value
        if variable.kind == "field":
            return self._field(variable)
        found = self._plane.client.find(f"/api/v1/namespaces/{self._pod.namespace}/{variable.kind}/{variable.source}")
        text = ((found or {}).get("data") or {}).get(variable.key)
        if text is None:
            if variable.optional:
                return None
            where = f"{variable.kind.removesuffix('s')} {self._pod.namespace}/{variable.source}"
            raise ChartError(f"{self.name}: variable {variable.name} needs key {variable.key} of {where}, which is not there")
        return base64.b64decode(text).decode() if variable.kind == "secrets" else str(text)

    def _field(self, variable: Variable) -> str:
        fields = {
            "metadata.name": self._pod_name,
            "metadata.namespace": self._pod.namespace,
            "metadata.uid": self._pod_name,
            "spec.nodeName": "localhost",
            "spec.serviceAccountName": self._pod.service_account or "default",
            "status.podIP": "127.0.0.1",
            "status.hostIP": "127.0.0.1",
        }
        if variable.key not in fields:
            raise ChartError(f"{self.name}: variable {variable.name} reads {variable.key}, which a local plane does not know")
        return fields[variable.key]


def _entry_point() -> list[str]:
    """How the images' entry point is started here: with the interpreter that runs us."""
    script = Path(sys.executable).with_name("fluxqueue")
    found = str(script) if script.exists() else shutil.which("fluxqueue")
    return [found] if found else [sys.executable, "-c", "import sys; from fluxqueue.cli.main import main; sys.exit(main())"]
