"""A control plane with our kinds, work in two namespaces, people with roles, and one dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dashboard_stage import (
    Browserless,
    RunningDashboard,
    at,
    create,
    fluxjob,
    make_namespace,
    make_person,
    prepare,
    run_dashboard,
)

from fluxqueue.api import names
from fluxqueue.local.controlplane import ControlPlane

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(scope="session")
def cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """Work of two tenants, blue and red; texts of red are hostile."""
    with ControlPlane(service_folder / "dashboard", nodes=4) as plane:
        prepare(plane)
        for namespace in ("blue", "red"):
            make_namespace(plane, namespace)
        queue = {
            "apiVersion": names.API_VERSION,
            "kind": "FluxQueue",
            "metadata": {"name": "default"},
            "spec": {"limits": {"running": 4}},
        }
        plane.apply(queue)
        create(
            plane,
            fluxjob(
                "waits",
                "blue",
                position=1,
                reason="WaitingForNodes",
                message="needs 24 cpu, 8 are free",
                eta=at(600),
            ),
        )
        running: dict[str, Any] = {
            "state": "Running",
            "nodes": "node-[1-2]",
            "jobid": 7,
            "allocatedAt": at(-60),
            "startedAt": at(-59),
        }
        create(plane, fluxjob("runs", "blue", spec={"pods": 2}, **running))
        create(plane, fluxjob("secret", "red", reason="WaitingForNodes", message=HOSTILE))
        yield plane


@pytest.fixture(scope="session")
def dashboard(cluster: ControlPlane, service_folder: Path) -> Iterator[RunningDashboard]:
    """The program."""
    with run_dashboard(cluster, service_folder / "dashboard-program") as running:
        yield running


@pytest.fixture(scope="session")
def tokens(cluster: ControlPlane) -> dict[str, str]:
    """Tokens of people, by what they may."""
    return {
        "viewer": make_person(cluster, "viewer", {"blue": "view"}),
        "editor": make_person(cluster, "editor", {"blue": "edit"}),
        "operator": make_person(cluster, "operator", {"": "cluster-admin"}),
        "nobody": make_person(cluster, "nobody", {}),
    }


@pytest.fixture
def browse(dashboard: RunningDashboard, tokens: dict[str, str]) -> Callable[[str], Browserless]:
    """Sign somebody in."""

    def sign_in(who: str) -> Browserless:
        client = Browserless(dashboard.port)
        assert client.sign_in(tokens[who]).status == 303
        return client

    return sign_in
