"""A control plane of this folder's own, since the chart brings kinds, policies and a webhook that other tests must not meet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_installation import MANAGED, QUEUE, UNMANAGED, Installation, Person
from chart_rendering import NAMESPACE

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="session")
def plane(service_folder: Path) -> Iterator[ControlPlane]:
    """Two nodes, a managed and an unmanaged namespace, and people with the cluster's own roles in both."""
    plane = ControlPlane(service_folder / "chart", nodes=2)
    plane.start()
    # The label on the release namespace must do nothing.
    namespaces = {MANAGED: {"fluxqueue/managed": "true"}, UNMANAGED: {}, NAMESPACE: {"fluxqueue/managed": "true"}}
    plane.apply(
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": own}} for name, own in namespaces.items()),
        *(
            _binding("RoleBinding", user, role, name)
            for name in (MANAGED, UNMANAGED)
            for user, role in (("alice", "edit"), ("eve", "view"))
        ),
        _binding("ClusterRoleBinding", "root", "cluster-admin"),
    )
    for name in namespaces:
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda path=path: plane.client.find(path) is not None, "the default service account there", 30)  # type: ignore[misc]  # bound
    yield plane
    plane.destroy()


@pytest.fixture(scope="session")
def installation(plane: ControlPlane, service_folder: Path) -> Installation:
    """The chart, installed and in force."""
    installation = Installation(plane, service_folder / "helm")
    installation.install()
    return installation


@pytest.fixture(scope="session")
def alice(plane: ControlPlane) -> Person:
    """Somebody with the role ``edit``."""
    return Person(plane, "alice")


@pytest.fixture(scope="session")
def eve(plane: ControlPlane) -> Person:
    """Somebody with the role ``view``."""
    return Person(plane, "eve")


@pytest.fixture(scope="session")
def root(plane: ControlPlane) -> Person:
    """Somebody who may do anything that RBAC knows of."""
    return Person(plane, "root")


@pytest.fixture(scope="session")
def queue(plane: ControlPlane) -> Person:
    """The queue, with the rights the chart gives it."""
    return Person(plane, QUEUE)


def _binding(kind: str, user: str, role: str, namespace: str | None = None) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {"name": user, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }
