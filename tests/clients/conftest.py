"""A managed namespace of a local cluster in which pods run as processes, for clients that `make test-clients` installs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.end_to_end import Stage, managed_namespace
from support.process_pods import ProcessPods, running_stages
from support.workflow_clients import installed_clients

from fluxqueue.local import components
from fluxqueue.local.inprocess import ClusterOptions, InProcessCluster


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder of the clients' programs."""
    folder = installed_clients(install=os.environ.get("FLUXQUEUE_CLIENTS") == "install")
    if folder is None:
        pytest.skip("workflow managers are not installed: make test-clients installs them once")
    return folder


@pytest.fixture(scope="session")
def cluster(clients: Path, service_folder: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(service_folder / "clients", ClusterOptions(nodes=4, durable=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "_STAGES", running_stages(service_folder / "stages"))
        made.start()
        yield made
        made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage


@pytest.fixture
def environment(cluster: InProcessCluster, clients: Path) -> dict[str, str]:
    """What the clients and their pods run with."""
    path = f"{clients}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def pods(stage: Stage, environment: dict[str, str], tmp_path: Path) -> Iterator[ProcessPods]:
    with ProcessPods(stage.cluster.control_plane.client, stage.namespace, tmp_path / "pods", environment) as running:
        yield running
