"""Which requests the API server sends to the webhook:
with failurePolicy Fail and no webhook, exactly those are refused.
"""

import json
from collections.abc import Iterator

import pytest
from support.builders import Builder, make_job, make_pod
from support.chart_installation import MANAGED, UNMANAGED, Installation, Person
from support.chart_rendering import NAMESPACE

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

AWAY = "failed calling webhook"


@pytest.fixture(scope="module", autouse=True)
def failing(installation: Installation, alice: Person) -> Iterator[None]:
    def settled(refused: bool) -> None:
        probe = make_pod("probe")
        wait_until(
            lambda: alice.create(probe, "--dry-run=server").refused_with(AWAY) == refused,
            "the API server to know",
            30,
        )

    installation.upgrade(webhook={"failurePolicy": "Fail"})
    settled(True)
    yield
    installation.upgrade()
    settled(False)


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(make_pod("p"), id="a Pod"),
        pytest.param(make_job("j"), id="a Job"),
        pytest.param(make_job("j").label("fluxqueue/managed", "true"), id="a Job that says so"),
        pytest.param(make_pod("p").owned_by("DaemonSet"), id="a Pod that claims to be a DaemonSet's"),
        pytest.param(
            make_pod("p").label("fluxqueue/managed", "false").label("fluxqueue.seen", "yes"),
            id="a Pod opted out after us",
        ),
        pytest.param(
            make_job("j").pod_label("fluxqueue/managed", "false").label("fluxqueue.seen", "yes"),
            id="a Job opted out after us",
        ),
    ],
)
def test_work_of_a_managed_namespace_is(alice: Person, thing: Builder) -> None:
    assert alice.create(thing).refused_with(AWAY)


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(make_pod("opted-out").label("fluxqueue/managed", "false"), id="a Pod that opts out"),
        pytest.param(
            make_job("opted-out").pod_label("fluxqueue/managed", "false"), id="a Job whose template opts out"
        ),
    ],
)
def test_what_opts_out_is_not(alice: Person, thing: Builder) -> None:
    assert alice.create(thing, "--dry-run=server").ok


@pytest.mark.parametrize("namespace", ["kube-system", NAMESPACE, UNMANAGED])
def test_other_namespaces_are_not_whatever_their_labels(root: Person, namespace: str) -> None:
    assert root.run("label", "namespace", "kube-system", "fluxqueue/managed=true", "--overwrite").ok
    assert root.within(namespace).create(make_pod("elsewhere"), "--dry-run=server").ok


def test_changes_are_not(alice: Person, root: Person, installation: Installation) -> None:
    assert root.within(UNMANAGED).create(make_pod("changed")).ok
    assert alice.within(UNMANAGED).patch("pod", "changed", {"metadata": {"labels": {"a": "b"}}}).ok


def test_pods_of_a_daemonset_are_not(installation: Installation, root: Person) -> None:
    template = {
        "metadata": {"labels": {"app": "ds"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "ds"}}, "template": template}
    assert root.create(
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"}, "spec": spec}
    ).ok
    wait_until(
        lambda: root.get("daemonset", "ds")["status"].get("currentNumberScheduled") == 2,
        "its pods on both nodes",
        30,
    )
    assert root.run("delete", "daemonset", "ds").ok


def test_a_node_s_mirror_pods_are_not(cluster: ControlPlane) -> None:
    mirror = (
        make_pod("mirror")
        .namespace(MANAGED)
        .annotation("kubernetes.io/config.mirror", "x")
        .on_node(cluster.client.get("/api/v1/nodes")["items"][0]["metadata"]["name"])
        .build()
    )
    node = mirror["spec"]["nodeName"]
    uid = cluster.client.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    mirror["metadata"]["ownerReferences"] = [owner]
    mirror["spec"]["automountServiceAccountToken"] = False
    done = cluster.kubectl(
        f"--as=system:node:{node}",
        "--as-group=system:nodes",
        "create",
        "--dry-run=server",
        "-f",
        "-",
        stdin=json.dumps(mirror),
        check=False,
    )
    assert done.returncode == 0, done.stderr
