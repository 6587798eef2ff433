"""A control plane for this folder only, because other tests must not meet the chart's CRDs,
policies and webhook.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chart_installation import MANAGED, QUEUE, UNMANAGED, Installation, Person
from support.chart_rendering import NAMESPACE

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="session")
def cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """Two nodes, a managed and an unmanaged namespace, and people with the cluster's own roles in both."""
    cluster = ControlPlane(service_folder / "chart", nodes=2)
    cluster.start()
    # The label on the release namespace must do nothing.
    namespaces = {
        MANAGED: {"fluxqueue/managed": "true"},
        UNMANAGED: {},
        NAMESPACE: {"fluxqueue/managed": "true"},
    }
    cluster.apply(
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": own}}
            for name, own in namespaces.items()
        ),
        *(
            _binding("RoleBinding", user, role, name)
            for name in (MANAGED, UNMANAGED)
            for user, role in (("alice", "edit"), ("eve", "view"))
        ),
        _binding("ClusterRoleBinding", "root", "cluster-admin"),
    )
    for name in namespaces:
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda path=path: cluster.client.find(path) is not None, "the default service account", 30)  # type: ignore[misc]  # bound
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="session")
def installation(cluster: ControlPlane, service_folder: Path) -> Installation:
    """The chart, installed and in effect."""
    installation = Installation(cluster, service_folder / "helm")
    installation.install()
    return installation


@pytest.fixture(scope="session")
def alice(cluster: ControlPlane) -> Person:
    """A person with the role ``edit``."""
    return Person(cluster, "alice")


@pytest.fixture(scope="session")
def eve(cluster: ControlPlane) -> Person:
    """A person with the role ``view``."""
    return Person(cluster, "eve")


@pytest.fixture(scope="session")
def root(cluster: ControlPlane) -> Person:
    """A person with all rights of RBAC."""
    return Person(cluster, "root")


@pytest.fixture(scope="session")
def queue(cluster: ControlPlane) -> Person:
    """The queue, with the rights that the chart gives it."""
    return Person(cluster, QUEUE)


def _binding(kind: str, user: str, role: str, namespace: str | None = None) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {"name": user, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }
