"""A managed namespace of a local cluster in which pods run as processes,
for clients that `make test-clients` installs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.end_to_end import Stage, managed_namespace
from support.workflow_clients import installed_clients

from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RSYNC = """#!/usr/bin/env python3
# The part of rsync that Snakemake's storage uses: copy one file or folder.
import pathlib, shutil, sys
source, target = sys.argv[-2:]
if pathlib.Path(source).is_dir():
    shutil.copytree(source, target, dirs_exist_ok=True)
else:
    shutil.copy2(source, target)
"""


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder of the clients' programs."""
    folder = installed_clients(install=os.environ.get("FLUXQUEUE_CLIENTS") == "install")
    if folder is None:
        pytest.skip("workflow managers are not installed: make test-clients installs them once")
    return folder


@pytest.fixture(scope="session")
def path(clients: Path, service_folder: Path) -> str:
    """Where the clients and their pods find programs; with an rsync, which Snakemake's storage needs."""
    programs = service_folder / "programs"
    programs.mkdir()
    if not shutil.which("rsync"):
        (programs / "rsync").write_text(RSYNC)
        (programs / "rsync").chmod(0o755)
    return os.pathsep.join(
        [str(programs), str(clients), str(Path(sys.executable).parent), os.environ["PATH"]]
    )


@pytest.fixture(scope="session")
def cluster(path: str, service_folder: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(
        service_folder / "clients", ClusterOptions(nodes=4, durable=False, processes=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)  # the node agent's is that of its pods
        made.start()
        yield made
        made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster, statements=False) as stage:  # it was tried on a machine that was too busy
        yield stage


@pytest.fixture
def environment(cluster: InProcessCluster, path: str) -> dict[str, str]:
    """What the clients run with."""
    return {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONUNBUFFERED": "1"}
