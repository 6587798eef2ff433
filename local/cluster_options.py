"""What a local cluster is started with, and what it says of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ClusterOptions", "ProcessStatus"]


@dataclass(frozen=True)
class ClusterOptions:
    """Options of a local cluster.

    Attributes
    ----------
    nodes, node_cpu, node_memory, node_gpus, node_pods
        The number of nodes, and their resources.
    queue_replicas
        Replicas of the queue, each with its own matcher; one leads.
    scheduler
        The default scheduler: ``stock``, or ``fluxion``, which also runs the project's scheduler.
    scheduler_replicas
        Replicas of the project's scheduler, if `scheduler` or `values` enable it.
    durable
        True if Postgres data must survive a crash of the machine.
    dsn
        A Postgres server to use instead of a private one.
    values
        Helm values that override those of a local cluster.
    audit
        True if the API server writes an audit log.
    volumes
        True if the controllers of volumes and claims run.
    processes
        True if pods run as processes of this machine; else kwok simulates them.
    feature_gates
        Feature gates of the control plane.
    api_server_flags, controller_manager_flags
        Additional flags of the API server and of the controller manager.
    """

    nodes: int = 8
    node_cpu: str = "8"
    node_memory: str = "32Gi"
    node_gpus: int = 0
    node_pods: int = 110
    queue_replicas: int = 1
    scheduler: str = "stock"
    scheduler_replicas: int = 1
    durable: bool = True
    dsn: str | None = None
    values: Mapping[str, Any] | None = None
    audit: bool = False
    volumes: bool = False
    processes: bool = False
    feature_gates: Mapping[str, bool] | None = None
    api_server_flags: Sequence[str] = ()
    controller_manager_flags: Sequence[str] = ()


@dataclass(frozen=True)
class ProcessStatus:
    """The state of one process of a cluster, for people."""

    name: str
    pid: int | None
    state: str
    port: int | None
    restarts: int
    log: Path
    metrics_port: int | None = None
