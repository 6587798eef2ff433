"""A scheduler process on the session's control plane, and nodes that tests may change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scheduler_processes import WAIT_S, Room, SchedulerProcess

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.fake_nodes import FakeNodeShape, node_object
from fluxqueue.local.processes import wait_until

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def scheduler(control_plane: ControlPlane, service_folder: Path) -> Iterator[SchedulerProcess]:
    """The replica that leads in most tests."""
    running = SchedulerProcess(control_plane.kubeconfig, service_folder, "shared").start()
    yield running
    running.stop()


@pytest.fixture
def room(control_plane: ControlPlane, namespace: str) -> Room:
    """A namespace for one test, in which pods can be created."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_until(lambda: control_plane.client.find(account) is not None, "service account", WAIT_S)
    return Room(control_plane, namespace)


@pytest.fixture
def new_node(control_plane: ControlPlane) -> Iterator[Callable[..., str]]:
    """Create nodes for one test: ``new_node(cpu="2")`` returns the name of a node that is Ready."""
    made: list[str] = []

    def make(**shape: Any) -> str:
        node = node_object(1, FakeNodeShape(**shape))
        name = node["metadata"]["name"] = f"bench-{next(_numbers)}"
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        control_plane.client.request("POST", "/api/v1/nodes", node)
        made.append(name)

        def is_ready() -> bool:
            """True if the node is Ready and has lost its initial taint."""
            found = control_plane.client.get(f"/api/v1/nodes/{name}")
            conditions = found["status"].get("conditions") or []
            return not found["spec"].get("taints") and any(
                each["type"] == "Ready" and each["status"] == "True" for each in conditions
            )

        wait_until(is_ready, f"{name} ready", WAIT_S)
        return name

    yield make
    for name in made:
        control_plane.client.request("DELETE", f"/api/v1/nodes/{name}")
