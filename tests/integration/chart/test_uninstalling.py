"""`fluxqueue uninstall` on what helm installed, with the real controllers and policies of Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.builders import Builder, make_job, make_pod
from support.chart_installation import MANAGED, UNMANAGED, Installation, Person
from support.chart_rendering import NAMESPACE

from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

MARK = ("fluxqueue/suspended-by", "webhook")
LEFTOVERS = {
    "leases.coordination.k8s.io": "fluxqueue-queue",
    "secrets": "fluxqueue-webhook-tls",
}


@pytest.fixture
def installed(installation: Installation, root: Person) -> Iterator[Installation]:
    """The installation, with no work of other tests, and installed again after the test."""
    for namespace in (MANAGED, UNMANAGED):
        forget_work(root.within(namespace))
    yield installation
    installation.uninstall_if_installed()
    installation.install()


def command(
    cluster: ControlPlane, *words: str, helm: bool = True, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``fluxqueue uninstall`` as an administrator, with or without helm on the PATH."""
    folders = [str(Path(cluster.binaries[Tool.HELM]).parent)] if helm else []
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*folders, "/usr/bin", "/bin"]),
        "KUBECONFIG": str(kubeconfig or cluster.kubeconfig),
    }
    program = [str(Path(sys.executable).with_name("fluxqueue")), "uninstall", *words]
    return subprocess.run(
        program,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=environment,
    )


def create(root: Person, *things: Builder) -> None:
    for thing in things:
        answer = root.create(thing)
        assert answer.ok, answer.output


def hold_work(root: Person, queue: Person) -> None:
    """Create work as the webhook and the queue leave it:
    suspended, evicted with its allocation, gated, and suspended by its user.
    """
    create(
        root,
        make_job("waiting").suspended().annotation(*MARK),
        make_job("evicted").suspended().annotation(*MARK),
        make_job("mine").suspended(),
        make_pod("gated").gate("fluxqueue"),
    )
    template = {
        "metadata": {
            "annotations": {"fluxqueue/allocation": "7", "fluxqueue/fluxion-nodes": "node-0"},
            "labels": {"fluxqueue/jobid": "7"},
        },
        "spec": {"schedulingGates": [{"name": "fluxqueue"}]},
    }
    assert queue.patch("job", "evicted", {"spec": {"template": template}}, "--type=strategic").ok


def forget_work(root: Person) -> None:
    for kind in ("jobs", "pods"):
        assert root.run("delete", kind, "--all", "--wait=true", "--timeout=60s").ok


def suspended(root: Person, name: str) -> bool:
    return bool(root.get("job", name)["spec"].get("suspend"))


def assert_released(root: Person) -> None:
    assert (suspended(root, "waiting"), suspended(root, "evicted"), suspended(root, "mine")) == (
        False,
        False,
        True,
    )
    evicted = root.get("job", "evicted")["spec"]["template"]
    assert "fluxqueue/allocation" not in evicted["metadata"].get("annotations", {})
    assert not evicted["spec"].get("schedulingGates")
    assert not root.get("pod", "gated")["spec"].get("schedulingGates")
    wait_until(
        lambda: bool(root.get("pod", "gated")["spec"].get("nodeName")),
        "the gated pod to be bound by kube-scheduler",
        30,
    )
    wait_until(
        lambda: root.get("job", "waiting")["status"].get("succeeded") == 1, "the Job that waited to run", 60
    )


def assert_nothing_left(cluster: ControlPlane) -> None:
    selector = "app.kubernetes.io/instance=fluxqueue"
    kinds = (
        "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings,"
        "clusterroles,clusterrolebindings,deployments,services,serviceaccounts,configmaps,roles,"
        "rolebindings,poddisruptionbudgets"
    )
    assert cluster.kubectl("get", kinds, "-A", "-l", selector, "-o", "name").stdout == ""
    for kind, name in LEFTOVERS.items():
        assert cluster.kubectl("-n", NAMESPACE, "get", kind, name, check=False).returncode != 0


def leave_traces(cluster: ControlPlane) -> None:
    """Create what the running queue creates: its Lease and the webhook's certificate."""
    cluster.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "fluxqueue-queue", "namespace": NAMESPACE},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "fluxqueue-webhook-tls", "namespace": NAMESPACE},
        },
    )


def test_it_releases_held_work_and_removes_everything_with_helms_record(
    installed: Installation, root: Person, queue: Person
) -> None:
    cluster = installed.cluster
    hold_work(root, queue)
    leave_traces(cluster)
    tried = command(cluster, "--release-held", "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert "Releases 2 held Jobs" in tried.stdout
    assert suspended(root, "waiting")
    done = command(cluster, "--release-held", "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "Released 2 Jobs and 1 pod to plain Kubernetes." in done.stdout
    assert "Helm has removed its record of the release." in done.stdout
    assert_released(root)
    assert_nothing_left(cluster)
    assert not installed.is_installed()
    assert root.run("get", "fluxqueue", "default").ok
    again = command(cluster, "--release-held", "--yes")
    assert again.returncode == 0, again.stderr
    forget_work(root)


def test_after_helm_uninstall_it_releases_what_is_still_held(
    installed: Installation, root: Person, queue: Person
) -> None:
    cluster = installed.cluster
    hold_work(root, queue)
    leave_traces(cluster)
    installed.uninstall()
    assert suspended(root, "waiting")
    kept = command(cluster, "--keep-held", "--yes")
    assert kept.returncode == 0, kept.stderr
    assert (
        f"Kept 2 Jobs (Job {MANAGED}/evicted, Job {MANAGED}/waiting) and 1 other pod (Pod {MANAGED}/gated)"
        in kept.stdout
    )
    assert suspended(root, "waiting")
    done = command(cluster, "--release-held", "--yes")
    assert done.returncode == 0, done.stderr
    assert_released(root)
    assert_nothing_left(cluster)
    forget_work(root)


def test_without_helm_it_names_the_command_that_removes_the_record(installed: Installation) -> None:
    done = command(installed.cluster, "--keep-held", "--yes", helm=False)
    assert done.returncode == 0, done.stderr
    assert (
        f"Helm still lists the release: run 'helm uninstall fluxqueue --namespace {NAMESPACE}'."
        in done.stdout
    )
    assert installed.is_installed()
    assert_nothing_left(installed.cluster)


def test_a_missing_permission_is_one_sentence_before_anything_changes(
    installation: Installation, root: Person, tmp_path: Path
) -> None:
    cluster = installation.cluster
    kubeconfig = tmp_path / "alice"
    kubeconfig.write_text(json.dumps(_impersonating(cluster)))
    done = command(cluster, "--release-held", "--yes", kubeconfig=kubeconfig)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: you may not delete mutatingwebhookconfigurations in all namespaces, ")
    assert line.endswith(": nothing was changed; ask an administrator of the cluster")
    assert root.run("get", "mutatingwebhookconfiguration", "fluxqueue-webhook").ok


def _impersonating(cluster: ControlPlane) -> Mapping[str, object]:
    """Return a kubeconfig of a ServiceAccount that may read the cluster and no more."""
    cluster.kubectl("create", "serviceaccount", "reader", f"--namespace={MANAGED}")
    reading = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader-of-all"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
    }
    cluster.apply(reading)
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "reader",
        "--clusterrole=reader-of-all",
        f"--serviceaccount={MANAGED}:reader",
    )
    token = cluster.kubectl("create", "token", "reader", f"--namespace={MANAGED}").stdout.strip()
    config = json.loads(
        cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json").stdout
    )
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    return dict(config)
