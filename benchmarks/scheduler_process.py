"""Our scheduler next to a bare control plane, as the chart runs it, for benchmarks that need no queue."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from fluxqueue.api import hostlists, names
from fluxqueue.local.binaries import Tool
from fluxqueue.local.chart import read_pod, render
from fluxqueue.local.container_process import ContainerProcess
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.inprocess import NAMESPACE, RELEASE
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process
from fluxqueue.local.values import PORTS, cluster_values

__all__ = ["SchedulerProcess", "cpu_s", "released"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROFILED = """
import atexit, cProfile, time
profile = cProfile.Profile(time.thread_time)
atexit.register(lambda: (profile.disable(), profile.dump_stats({path!r})))
profile.enable()
"""


class SchedulerProcess:
    """One replica of our scheduler under its own ServiceAccount; a context manager.

    Parameters
    ----------
    folder
        The folder of its log, which is also its home directory.
    plane
        The control plane where it binds; only the scheduler's part of the chart is installed there.
    profile
        The file for a cProfile, written when it ends. Profiling costs about half of its speed.
    """

    def __init__(self, folder: Path, cluster: ControlPlane, *, profile: Path | None = None) -> None:
        self._cluster = cluster
        values = cluster_values({name: free_port() for name in PORTS}, "fluxion")
        chart = render(cluster.binaries[Tool.HELM], RELEASE, NAMESPACE, values)
        self._objects = [thing for thing in chart.objects if _of_the_scheduler(thing)]
        pod = read_pod(next(thing for thing in chart.deployments if _of_the_scheduler(thing)), NAMESPACE)
        (container,) = pod.containers
        environment = {}
        if profile is not None:
            (folder / "profiled").mkdir(parents=True)
            (folder / "profiled" / "sitecustomize.py").write_text(
                _PROFILED.format(path=str(profile.absolute()))
            )
            environment = {"PYTHONPATH": str(folder / "profiled")}
        self._program = ContainerProcess(
            pod, container, 0, folder / "scheduler", folder / "scheduler.log", cluster, environment
        )

    @property
    def process(self) -> Process:
        """The running program."""
        return self._program.process

    def __enter__(self) -> SchedulerProcess:
        self._cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            *self._objects,
            namespace=NAMESPACE,
        )
        self._program.start()
        deadline = time.monotonic() + 60
        while not self._program.ready():
            if time.monotonic() > deadline or not self.process.running:
                raise SystemExit(f"our scheduler is not ready{self.process.log_excerpt()}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.stop()
        if error is not None:
            print(self.process.log_excerpt())


def _of_the_scheduler(thing: Any) -> bool:
    return bool((thing["metadata"].get("labels") or {}).get("app.kubernetes.io/component") == "scheduler")


def cpu_s(process: Process) -> float:
    """Return the CPU seconds, user and system, that a process has used so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def released(way: str, allocation: int, node: str, gang: int) -> dict[str, Any]:
    """Return what a release adds to a pod, without the gate (strategic merge patch);
    ``gang`` is the number of pods of the allocation.
    """
    annotations = {
        names.ALLOCATION_ANNOTATION: str(allocation),
        names.NODES_ANNOTATION: hostlists.encode([node]),
    }
    meta: dict[str, Any] = {"labels": {names.JOBID_LABEL: str(allocation)}, "annotations": annotations}
    if way == "fluxion":
        if gang > 1:
            annotations[names.GANG_SIZE_ANNOTATION] = str(gang)
        return {"metadata": meta}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    return {"metadata": meta, "spec": {"affinity": affinity}}
