"""The contenders. Each starts a control plane of its own,
so that only the measured one runs and none inherits another's objects.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Protocol

from cluster.kueue import Kueue, KueueSettings
from cluster.kueue_objects import submitted_to_kueue
from cluster.sites import Site, Work, job
from fluxqueue.api import names
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.components import ControlPlaneOptions
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.fake_nodes import FakeNodeShape
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.processes import Process

__all__ = [
    "CONTENDERS",
    "SERVERS",
    "Contender",
    "flux_queues",
    "make_contender",
    "submitted_plainly",
    "submitted_to_fluxqueue",
]

SERVERS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")
"""The programs of Kubernetes that every contender runs;
what else runs belongs to the contender, except kwok."""
_NAMESPACE = "contest"


class Contender(Protocol):
    """One way to run work on a cluster."""

    name: str
    namespace: str
    folder: Path

    @property
    def plane(self) -> ControlPlane:
        """Its control plane."""

    def start(self) -> None:
        """Start everything, with a namespace and the queues for work."""

    def stop(self) -> None:
        """Stop everything at once; `folder` remains."""

    def processes(self) -> dict[str, Process]:
        """Return the programs by name: those of the control plane, and its own."""

    def submit(self, work: Work, number: int) -> dict[str, Any]:
        """Return a Job as a user of this contender writes it; ``number`` counts the Jobs."""


class Plain:
    """Kubernetes alone: queues are node selectors, priorities are PriorityClasses."""

    name = "plain"
    namespace = _NAMESPACE

    def __init__(self, folder: Path, site: Site) -> None:
        self.folder = folder
        self.plane = _plane(folder, site)
        self._site = site

    def start(self) -> None:
        self.plane.start()
        self.plane.apply(_namespace({}), *(_priority_class(priority) for priority in self._site.priorities))

    def stop(self) -> None:
        self.plane.stop(graceful=False)

    def processes(self) -> dict[str, Process]:
        return _servers(self.plane)

    def submit(self, work: Work, number: int) -> dict[str, Any]:
        del number
        return submitted_plainly(work, self._site)


class Fluxqueue:
    """This project, as its chart installs it."""

    name = "fluxqueue"
    namespace = _NAMESPACE

    def __init__(self, folder: Path, site: Site, scheduler: str = "stock") -> None:
        options = ClusterOptions(
            nodes=site.nodes,
            node_cpu=str(site.node_cpu),
            node_memory=f"{site.node_memory_gib}Gi",
            node_pods=site.node_pods,
            scheduler=scheduler,
            durable=False,
            api_server_flags=site.api_server_flags,
        )
        self.folder = folder
        self._cluster = InProcessCluster(folder / "fluxqueue", options)
        self._site = site
        if scheduler != "stock":
            self.name = "fluxqueue, own scheduler"

    @property
    def database_dsn(self) -> str:
        """Where the tables of its queue are."""
        return self._cluster.database_dsn

    @property
    def plane(self) -> ControlPlane:
        return self._cluster.control_plane

    def start(self) -> None:
        self._cluster.start()
        self.plane.apply(_namespace({names.MANAGED_LABEL: "true"}), *flux_queues(self._site))

    def stop(self) -> None:
        self._cluster.stop(graceful=False)

    def processes(self) -> dict[str, Process]:
        running = _servers(self.plane) | {
            name: program.process for name, program in self._cluster.programs.items()
        }
        if self._cluster.postgres.process is not None:
            running["postgres"] = self._cluster.postgres.process
        return running

    def submit(self, work: Work, number: int) -> dict[str, Any]:
        del number
        return submitted_to_fluxqueue(work)


class KueueContender:
    """Kueue for ``batch/v1`` Jobs."""

    namespace = _NAMESPACE

    def __init__(self, folder: Path, site: Site, name: str, settings: KueueSettings) -> None:
        self.name = name
        self.folder = folder
        self.plane = _plane(folder, site)
        self._kueue = Kueue(folder / "kueue", self.plane, site, settings)

    def start(self) -> None:
        self.plane.start(definitions=self._kueue.prepare())
        self._kueue.start()
        self.plane.apply(_namespace({}))
        self.plane.apply(*self._kueue.queues.local_queues(_NAMESPACE))

    def stop(self) -> None:
        self._kueue.stop()
        self.plane.stop(graceful=False)

    def processes(self) -> dict[str, Process]:
        running = _servers(self.plane)
        if self._kueue.process is not None:
            running["kueue"] = self._kueue.process
        return running

    def submit(self, work: Work, number: int) -> dict[str, Any]:
        return submitted_to_kueue(work, work.queue or self._kueue.queues.name(number))


CONTENDERS = ("plain", "fluxqueue", "fluxqueue-own-scheduler", "kueue", "kueue-1000", "kueue-tuned")


def make_contender(name: str, site: Site) -> Contender:
    """Return a contender in a new folder below the system's temporary one."""
    folder = Path(tempfile.mkdtemp(prefix=f"fluxqueue-contest-{name}-"))
    folder.chmod(0o711)  # Postgres has an account of its own
    match name:
        case "plain":
            return Plain(folder, site)
        case "fluxqueue":
            return Fluxqueue(folder, site)
        case "fluxqueue-own-scheduler":
            return Fluxqueue(folder, site, "fluxion")
        case "kueue":
            return KueueContender(folder, site, "Kueue", KueueSettings())
        case "kueue-1000":  # what its next release ships (kubernetes-sigs/kueue#15206)
            settings = KueueSettings(qps=1_000, burst=1_000)
            return KueueContender(folder, site, "Kueue, 1,000 requests/s", settings)
        case "kueue-tuned":
            tuned = KueueSettings(qps=2_000, burst=2_000, workers=20, queues=5, log_level="error")
            return KueueContender(folder, site, "Kueue, tuned", tuned)
    raise ValueError(f"no contender is named {name}: choose among {', '.join(CONTENDERS)}")


def submitted_plainly(work: Work, site: Site) -> dict[str, Any]:
    """Return a Job of plain Kubernetes; a queue is the nodes of its cohort."""
    document = job(work)
    spec = document["spec"]["template"]["spec"]
    if work.queue is not None:
        spec["nodeSelector"] = dict(site.queue(work.queue).nodes)
    if work.priority is not None:
        spec["priorityClassName"] = f"priority-{work.priority}"
    return document


def submitted_to_fluxqueue(work: Work) -> dict[str, Any]:
    """Return a Job with its queue, priority and duration in the labels and annotations of this project."""
    document = job(work)
    metadata = document["metadata"]
    if work.queue is not None:
        metadata["labels"][names.QUEUE_LABEL] = work.queue
    if work.priority is not None:
        metadata["annotations"][names.PRIORITY_ANNOTATION] = str(work.priority)
    if work.duration_s is not None:
        metadata["annotations"][names.DURATION_ANNOTATION] = f"{work.duration_s}s"
    if work.least:
        metadata["annotations"][names.MIN_PODS_ANNOTATION] = str(work.least)
    return document


def flux_queues(site: Site) -> list[dict[str, Any]]:
    """Return the FluxQueues of a site: the nodes of the cohort,
    of which each queue may use its own part and what it may borrow.
    """
    return [
        {
            "apiVersion": f"{names.GROUP}/{names.VERSION}",
            "kind": "FluxQueue",
            "metadata": {"name": queue.name},
            "spec": {
                "nodeSelector": dict(queue.nodes),
                "preemption": "lowerPriority",
                "limits": {"cores": queue.cpu + queue.borrowed_cpu},
            },
        }
        for queue in site.queues
    ]


def _plane(folder: Path, site: Site) -> ControlPlane:
    shape = FakeNodeShape(str(site.node_cpu), f"{site.node_memory_gib}Gi", pods=site.node_pods)
    return ControlPlane(
        folder / "plane",
        site.nodes,
        shape,
        options=ControlPlaneOptions(api_server_flags=site.api_server_flags),
    )


def _servers(plane: ControlPlane) -> dict[str, Process]:
    return {component.value: process for component, process in plane.processes.items()}


def _namespace(labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE, "labels": labels}}


def _priority_class(priority: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"priority-{priority}"},
        "value": priority,
    }
