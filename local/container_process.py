"""A container of the chart that runs as a process, with its environment, volumes, ServiceAccount and probes.

See `chart` for the rules. As the kubelet does, it updates the volumes while the process runs, and resolves
the environment at each start.
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

from fluxqueue.local.chart import ChartContainer, ChartError, ChartPod, Variable, expand, relocate
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import Process
from fluxqueue.local.volumes import MirroredVolume, SourceMissing

__all__ = ["ContainerProcess"]

_REFRESH_S = 2.0
_REFRESH_MISSING_S = 0.25  # a Secret that is still missing may block the start of the whole cluster


class ContainerProcess:
    """One container of one replica, run as a process on this machine.

    Parameters
    ----------
    pod, container
        The container and its pod, as read from the chart.
    replica
        Number of the replica, from 0; it is part of the name from the second replica on.
    folder
        Folder of volumes and home; created if it does not exist.
    log
        File for its output.
    cluster
        The control plane that it uses.
    extra_environment
        Additional variables (coverage of tests, debugging).
    """

    def __init__(
        self,
        pod: ChartPod,
        container: ChartContainer,
        replica: int,
        folder: Path,
        log: Path,
        cluster: ControlPlane,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = container.name if replica == 0 else f"{container.name}-{replica}"
        self.container = container
        self._pod = pod
        self._pod_name = f"{pod.deployment}-{replica}"
        self._folder = folder
        self._cluster = cluster
        self._extra = dict(extra_environment or {})
        self._volumes = {
            name: MirroredVolume(source, folder / "volumes" / name)
            for name, source in pod.volumes.items()
            if source is not None
        }
        self._refreshed = float("-inf")
        self._wanted = False
        self.waits_for = ""
        self._starting = threading.Lock()  # both the owner of the cluster and its supervisor may start it
        self.process = Process(self.name, (), log=log, stop_timeout_s=pod.grace_s)

    @property
    def port(self) -> int | None:
        """The first port of the container, or else the value of ``--port`` in its arguments."""
        if self.container.ports:
            return next(iter(self.container.ports.values()))
        words = self.container.arguments
        return next(
            (
                int(value)
                for flag, value in itertools.pairwise(words)
                if flag == "--port" and value.isdecimal()
            ),
            None,
        )

    @property
    def metrics_port(self) -> int | None:
        """The container's port ``metrics``, which serves HTTPS."""
        return self.container.ports.get("metrics")

    def start(self) -> None:
        """Update volumes and environment and start the process, unless it runs; return before it is ready.

        While a required ConfigMap or Secret does not exist, ``waits_for`` says so, and `tend` tries again.

        Raises
        ------
        ChartError
            A variable cannot be resolved.
        ProcessError
            The process cannot be started.
        """
        with self._starting:
            self._wanted = True
            if self.process.running:
                return
            try:
                self._refresh()
            except SourceMissing as missing:
                self.waits_for = str(missing)
                return
            self.waits_for = ""
            environment = self._environment()
            self.process.command = self._command(environment)
            self.process.environment = environment
            self.process.folder = self._folder
            self.process.start()

    def stop(self, *, graceful: bool = True) -> None:
        """Stop the process; the supervisor does not restart it."""
        self._wanted = False
        self.process.stop(None if graceful else 0)

    def ready(self) -> bool:
        """True if it runs and its readiness probe passes; without a probe, true if it runs."""
        if not self.process.running:
            return False
        probe = self.container.readiness
        return probe is None or probe.passes(self.process.environment or {})

    def died(self) -> bool:
        """True if it has ended although it should run."""
        return self._wanted and not self.waits_for and not self.process.running

    def revive(self) -> None:
        """Restart it."""
        self.start()

    def tend(self) -> None:
        """Copy changed Secrets and ConfigMaps into its folders, every two seconds;
        start it when what it waits for exists.
        """
        missing = any(
            volume.source.optional and not any(volume.folder.glob("[!.]*"))
            for volume in self._volumes.values()
        )
        if not self._wanted or time.monotonic() - self._refreshed < (
            _REFRESH_MISSING_S if missing or self.waits_for else _REFRESH_S
        ):
            return
        if self.waits_for:
            self.start()
        else:
            self._refresh()

    def _refresh(self) -> None:
        self._refreshed = time.monotonic()
        for volume in self._volumes.values():
            volume.refresh(self._cluster.client)

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
        if self.container.token:
            environment["KUBECONFIG"] = str(
                self._cluster.service_account_kubeconfig(self._pod.namespace, self._pod.service_account)
            )
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
        source = self._cluster.client.find(
            f"/api/v1/namespaces/{self._pod.namespace}/{variable.kind}/{variable.source}"
        )
        text = ((source or {}).get("data") or {}).get(variable.key)
        if text is None:
            if variable.optional:
                return None
            origin = f"{variable.kind.removesuffix('s')} {self._pod.namespace}/{variable.source}"
            raise ChartError(
                f"{self.name}: variable {variable.name} needs key {variable.key} of {origin}, "
                "which does not exist"
            )
        return base64.b64decode(text).decode() if variable.kind == "secrets" else str(text)

    def _field(self, variable: Variable) -> str:
        fields = {
            "metadata.name": self._pod_name,
            "metadata.namespace": self._pod.namespace,
            "metadata.uid": self._pod_name,
            "spec.nodeName": "localhost",
            "spec.serviceAccountName": self._pod.service_account,
            "status.podIP": "127.0.0.1",
            "status.hostIP": "127.0.0.1",
        }
        if variable.key not in fields:
            raise ChartError(
                f"{self.name}: variable {variable.name} reads {variable.key}, "
                "which a local cluster does not support"
            )
        return fields[variable.key]


def _entry_point() -> list[str]:
    """Return the command for the images' entry point, with the running interpreter."""
    script = Path(sys.executable).with_name("fluxqueue")
    command = str(script) if script.exists() else shutil.which("fluxqueue")
    return (
        [command]
        if command
        else [sys.executable, "-c", "import sys; from fluxqueue.cli.main import main; sys.exit(main())"]
    )
