"""The README's commands that need a cluster, run as they stand there."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluxqueue.api import names
from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.inprocess import InProcessPlane
from fluxqueue.local.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]


def run(command: str, plane: ControlPlane) -> str:
    """Run a line of the README in the repository, with this plane's kubectl and helm first on PATH."""
    program, *words = shlex.split(command)
    tool = plane.binaries[{"kubectl": Tool.KUBECTL, "helm": Tool.HELM}[program]]
    environment = plane.kubectl_environment()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run([str(tool), *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture
def default_namespace(whole_plane: InProcessPlane) -> Iterator[ControlPlane]:
    """The namespace of the README, as it was before and after."""
    plane = whole_plane.control_plane
    yield plane
    plane.kubectl("delete", "job", "lammps", "--ignore-not-found", "--wait=true", "--timeout=60s")
    plane.kubectl("label", "namespace", "default", f"{names.MANAGED_LABEL}-")
    listed = f"/apis/{names.API_VERSION}/namespaces/default/{names.FLUXJOBS}"
    wait_until(lambda: plane.client.get(listed)["items"] == [], "no FluxJob in namespace default", 60)


def test_what_it_says_on_looking_at_the_queue(default_namespace: ControlPlane) -> None:
    plane = default_namespace
    assert "labeled" in run("kubectl label namespace default fluxqueue/managed=true", plane)
    assert "job.batch/lammps created" in run("kubectl apply -f examples/20-indexed-job.yaml", plane)
    wait_until(lambda: "job/lammps" in run("kubectl fluxqueue jobs", plane), "the FluxJob of job/lammps", 20)
    assert run("kubectl fluxqueue explain job/lammps", plane).startswith("job/lammps in namespace default ")
    assert "default" in run("kubectl fluxqueue queues", plane)
    assert "STATE" in run("kubectl get fluxjobs", plane)


def test_what_it_says_on_installing(control_plane: ControlPlane) -> None:
    try:
        told = run("helm install fluxqueue charts/fluxqueue --namespace fluxqueue-system --create-namespace", control_plane)
        assert "STATUS: deployed" in told
    finally:
        run("helm uninstall fluxqueue --namespace fluxqueue-system --wait", control_plane)
        control_plane.kubectl("delete", "crd", f"{names.FLUXJOBS}.{names.GROUP}", f"{names.FLUXQUEUES}.{names.GROUP}", "--ignore-not-found")
        control_plane.kubectl("delete", "namespace", "fluxqueue-system", "--wait=false")
