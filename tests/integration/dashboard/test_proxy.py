"""People whom a proxy names, against a real API server: what they see, and what is done in their name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dashboard_stage import (
    SYSTEM,
    Browserless,
    RunningDashboard,
    create,
    fluxjob,
    read,
    run_dashboard,
)

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

SECRET = "the secret of the proxy of this test"
RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}


def _role(kind: str, name: str, subject: dict[str, str], role: str) -> dict[str, Any]:
    group = "" if subject["kind"] == "ServiceAccount" else "rbac.authorization.k8s.io"
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    return {
        **RBAC,
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": ref,
        "subjects": [{"apiGroup": group, **subject}],
    }


@pytest.fixture(scope="session")
def behind_proxy(cluster: ControlPlane, service_folder: Path) -> Iterator[RunningDashboard]:
    """A dashboard behind a proxy, which may act for alice alone;
    carol and her group may edit as well, by RBAC.
    """
    rules = [
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"], "verbs": ["impersonate"]},
        {
            "apiGroups": [""],
            "resources": ["groups"],
            "resourceNames": ["team-a", "system:authenticated"],
            "verbs": ["impersonate"],
        },
    ]
    account = {"kind": "ServiceAccount", "name": "fluxqueue-dashboard", "namespace": SYSTEM}
    cluster.apply(
        {**RBAC, "kind": "ClusterRole", "metadata": {"name": "dashboard-acts"}, "rules": rules},
        _role("ClusterRoleBinding", "dashboard-acts", account, "dashboard-acts"),
    )
    cluster.apply(
        _role("RoleBinding", "team-a", {"kind": "Group", "name": "team-a"}, "edit"), namespace="blue"
    )
    secret = service_folder / "proxy-secret"
    secret.write_text(SECRET)
    folder = service_folder / "proxied-dashboard"
    with run_dashboard(cluster, folder, "--proxy-secret-file", str(secret), "--impersonate") as running:
        yield running


def person(
    dashboard: RunningDashboard, name: str, groups: str = "team-a", secret: str = SECRET
) -> Browserless:
    headers = {"fluxqueue-proxy-secret": secret, "x-forwarded-user": name, "x-forwarded-groups": groups}
    return Browserless(dashboard.port, headers=headers)


def test_a_person_of_the_proxy_is_signed_in_and_sees_his_namespaces(behind_proxy: RunningDashboard) -> None:
    text = person(behind_proxy, "alice").get("/queue").text
    assert "job/waits" in text
    assert "job/secret" not in text
    assert "Sign out" not in text


@pytest.mark.parametrize(
    ("name", "secret"), [("alice", "wrong"), ("alice", ""), ("system:admin", SECRET), ("", SECRET)]
)
def test_headers_of_anybody_else_open_nothing(name: str, secret: str, behind_proxy: RunningDashboard) -> None:
    answer = person(behind_proxy, name, secret=secret).get("/queue")
    assert answer.status == 303
    assert answer.headers["location"].startswith("/sign-in")


def test_groups_of_the_cluster_are_not_taken_from_a_header(behind_proxy: RunningDashboard) -> None:
    text = person(behind_proxy, "mallory", groups="system:masters").get("/queue").text
    assert "No job that you may see matches" in text


def test_what_he_does_is_done_as_himself(behind_proxy: RunningDashboard, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("by-alice", "blue"))
    alice, path = person(behind_proxy, "alice"), f"/jobs/blue/{name}"
    wait_until(lambda: alice.get(path).status == 200, "the job to be shown", 60)
    page = alice.get(path)
    assert "YAML of FluxJob" in page.text
    uid = read(cluster, "blue", name)["metadata"]["uid"]
    assert alice.post(f"{path}/hold", {"csrf": page.csrf, "uid": uid}).status == 303
    assert read(cluster, "blue", name)["spec"]["hold"] is True


def test_for_whom_it_may_not_act_nothing_is_done(
    behind_proxy: RunningDashboard, cluster: ControlPlane
) -> None:
    name = create(cluster, fluxjob("by-carol", "blue"))
    carol, path = person(behind_proxy, "carol"), f"/jobs/blue/{name}"
    wait_until(lambda: carol.get(path).status == 200, "the job to be shown", 60)
    page = carol.get(path)
    assert "Its Events cannot be read: the dashboard may not act in your name" in page.text
    assert "You may not read" not in page.text
    uid = read(cluster, "blue", name)["metadata"]["uid"]
    answer = carol.post(f"{path}/hold", {"csrf": page.csrf, "uid": uid})
    assert answer.status == 409
    assert "the dashboard may not act in your name, with all of your groups" in answer.text
    assert "the role edit" not in answer.text
    assert not read(cluster, "blue", name)["spec"].get("hold")


def test_the_secret_is_in_no_log_and_no_page(behind_proxy: RunningDashboard) -> None:
    assert SECRET not in person(behind_proxy, "alice").get("/queue").text
    assert SECRET not in behind_proxy.log.read_text()
