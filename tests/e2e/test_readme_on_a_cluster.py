"""The README's commands that need a cluster, run as written."""

import base64
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.statements import statements_checked

from fluxqueue.api import names
from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]


def run(command: str, cluster: ControlPlane) -> str:
    """Run a line of the README in the repository, with the kubectl and helm of this local cluster first on
    PATH.
    """
    program, *words = shlex.split(command)
    tool = cluster.binaries[{"kubectl": Tool.KUBECTL, "helm": Tool.HELM}[program]]
    environment = cluster.kubectl_environment()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        [str(tool), *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture
def default_namespace(whole_cluster: InProcessCluster) -> Iterator[ControlPlane]:
    """The namespace of the README, with the same labels before and after."""
    cluster = whole_cluster.control_plane
    with statements_checked(whole_cluster, "default"):
        yield cluster
        cluster.kubectl("delete", "job", "lammps", "--ignore-not-found", "--wait=true", "--timeout=60s")
        cluster.kubectl("label", "namespace", "default", f"{names.MANAGED_LABEL}-")
        listed = f"/apis/{names.API_VERSION}/namespaces/default/{names.FLUXJOBS}"
        wait_until(lambda: cluster.client.get(listed)["items"] == [], "no FluxJob in namespace default", 60)


def test_the_commands_that_submit_the_first_job_work(default_namespace: ControlPlane) -> None:
    cluster = default_namespace
    assert "labeled" in run("kubectl label namespace default fluxqueue/managed=true", cluster)
    assert "job.batch/lammps created" in run("kubectl apply -f examples/20-indexed-job.yaml", cluster)
    wait_until(
        lambda: "job/lammps" in run("kubectl fluxqueue jobs", cluster), "the FluxJob of job/lammps", 20
    )
    assert run("kubectl fluxqueue explain job/lammps", cluster).startswith("job/lammps in namespace default ")
    assert "default" in run("kubectl fluxqueue queues", cluster)
    assert "STATE" in run("kubectl get fluxjobs", cluster)


def test_the_commands_that_install_the_project_work(control_plane: ControlPlane) -> None:
    try:
        output = run(
            "helm install fluxqueue charts/fluxqueue --namespace fluxqueue-system --create-namespace",
            control_plane,
        )
        assert "STATUS: deployed" in output
    finally:
        run("helm uninstall fluxqueue --namespace fluxqueue-system --wait", control_plane)
        kinds = (f"{names.FLUXJOBS}.{names.GROUP}", f"{names.FLUXQUEUES}.{names.GROUP}")
        control_plane.kubectl("delete", "crd", *kinds, "--ignore-not-found", "--wait=false")
        control_plane.kubectl("delete", "namespace", "fluxqueue-system", "--wait=false")


def test_an_installation_is_verified_as_helm_test_does_it(
    whole_cluster: InProcessCluster, tmp_path: Path
) -> None:
    """The arguments are those of the chart's test pod; its token and authority are what its volumes have."""
    cluster, programs = whole_cluster.control_plane, whole_cluster.programs
    secret = cluster.client.get("/api/v1/namespaces/fluxqueue-system/secrets/fluxqueue-webhook-tls")
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    asked = ("--namespace=fluxqueue-system", "create", "token", "fluxqueue-doctor")

    def verify(audience: str, *more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "token").write_text(cluster.kubectl(*asked, f"--audience={audience}").stdout)
        webhook, queue = (
            programs[name].container.ports[port]
            for name, port in (("webhook", "https"), ("queue", "metrics"))
        )
        arguments = [
            "--webhook",
            f"https://127.0.0.1:{webhook}",
            "--queue",
            f"https://127.0.0.1:{queue}",
            "--token",
            str(tmp_path / "token"),
        ]
        authority = ["--webhook-ca", str(tmp_path / "ca.crt"), "--queue-ca", str(tmp_path / "ca.crt")]
        command = [sys.executable, "-m", "fluxqueue.cli.verify", *arguments, *authority, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = verify("fluxqueue")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line[:6] for line in done.stdout.splitlines()] == ["ok    "] * 3
    refused = verify("somebody-else", "--timeout=0")
    assert refused.returncode == 1
    assert [line[:4] for line in refused.stdout.splitlines()] == ["ok  ", "FAIL", "FAIL"]
    assert "answered 401" in refused.stdout
