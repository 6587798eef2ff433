import datetime as dt
import json
import time
from typing import Any

import pytest

from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.kubectl import KubectlError
from fluxqueue.local.processes import wait_until


def pod(name: str, *, restart: str = "Never", **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {
                f"fluxqueue.local/{key.replace('_', '-')}": text for key, text in annotations.items()
            },
        },
        "spec": {
            "restartPolicy": restart,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def create(cluster: ControlPlane, namespace: str, manifest: dict[str, Any]) -> str:
    wait_until(
        lambda: cluster.client.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default") is not None,
        "service account",
        20,
    )
    cluster.client.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
    return f"/api/v1/namespaces/{namespace}/pods/{manifest['metadata']['name']}"


def wait_phase(cluster: ControlPlane, path: str, phase: str, timeout_s: float = 20) -> dict[str, Any]:
    wait_until(
        lambda: cluster.client.get(path)["status"].get("phase") == phase,
        f"{path} in phase {phase}",
        timeout_s,
    )
    found: dict[str, Any] = cluster.client.get(path)
    return found


def test_a_pod_runs_for_the_seconds_of_its_annotation_and_succeeds(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = create(control_plane, namespace, pod("short", run_seconds="1.5"))
    done = wait_phase(control_plane, path, "Succeeded")
    assert done["spec"]["nodeName"].startswith("node-")
    ended = done["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 0
    assert dt.datetime.fromisoformat(ended["finishedAt"]) > dt.datetime.fromisoformat(ended["startedAt"])


def test_a_change_of_a_running_pod_does_not_prolong_it(control_plane: ControlPlane, namespace: str) -> None:
    path = create(control_plane, namespace, pod("patched", run_seconds="2"))
    wait_phase(control_plane, path, "Running")
    began = time.monotonic()
    count = 0
    while control_plane.client.get(path)["status"]["phase"] == "Running":
        assert time.monotonic() - began < 20, "each change began the two seconds again"
        count += 1
        control_plane.client.request("PATCH", path, {"metadata": {"labels": {"count": str(count)}}})
    assert count > 5


def test_a_pod_fails_on_request_with_its_exit_code(control_plane: ControlPlane, namespace: str) -> None:
    path = create(control_plane, namespace, pod("failing", run_seconds="0", exit_code="3"))
    failed = wait_phase(control_plane, path, "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_service_pod_runs_until_it_is_deleted(control_plane: ControlPlane, namespace: str) -> None:
    path = create(control_plane, namespace, pod("service", restart="Always"))
    wait_phase(control_plane, path, "Running")
    control_plane.client.request("DELETE", path)
    wait_until(lambda: control_plane.client.find(path) is None, "the pod gone", 20)


def test_a_stuck_pod_stays_terminating_until_it_is_released(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = create(control_plane, namespace, pod("stuck", restart="Always", stuck="true"))
    wait_phase(control_plane, path, "Running")
    control_plane.client.request("DELETE", path)
    create(control_plane, namespace, pod("witness", run_seconds="0"))
    wait_phase(control_plane, f"/api/v1/namespaces/{namespace}/pods/witness", "Succeeded")
    assert control_plane.client.get(path)["metadata"]["deletionTimestamp"]
    control_plane.client.request(
        "PATCH", path, {"metadata": {"annotations": {"fluxqueue.local/stuck": None}}}
    )
    wait_until(lambda: control_plane.client.find(path) is None, "the pod gone", 20)


def test_an_indexed_job_runs_to_completion(control_plane: ControlPlane, namespace: str) -> None:
    template = pod("unused", run_seconds="0.2")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "four", "namespace": namespace},
        "spec": {
            "completionMode": "Indexed",
            "completions": 4,
            "parallelism": 4,
            "template": {
                "metadata": {"annotations": template["metadata"]["annotations"]},
                "spec": template["spec"],
            },
        },
    }
    control_plane.apply(job)
    control_plane.kubectl("wait", "-n", namespace, "job/four", "--for=condition=Complete", "--timeout=30s")


def test_nodes_carry_resources_zone_and_rack(control_plane: ControlPlane) -> None:
    nodes = {node["metadata"]["name"]: node for node in control_plane.client.get("/api/v1/nodes")["items"]}
    assert len(nodes) == 8
    assert nodes["node-1"]["status"]["allocatable"]["cpu"] == "8"
    assert nodes["node-1"]["status"]["allocatable"]["memory"] == "32Gi"
    assert nodes["node-1"]["status"]["allocatable"]["pods"] == "110"
    racks = {
        name: (
            node["metadata"]["labels"]["topology.kubernetes.io/zone"],
            node["metadata"]["labels"]["topology.kubernetes.io/rack"],
        )
        for name, node in nodes.items()
    }
    assert racks["node-4"] == ("zone-a", "rack-1")
    assert racks["node-5"] == ("zone-b", "rack-2")


def test_a_node_taken_down_is_not_ready_until_it_is_brought_back(control_plane: ControlPlane) -> None:
    def ready() -> str:
        conditions = control_plane.client.get("/api/v1/nodes/node-8")["status"]["conditions"]
        return next(str(condition["status"]) for condition in conditions if condition["type"] == "Ready")

    def tainted() -> bool:
        taints = control_plane.client.get("/api/v1/nodes/node-8")["spec"].get("taints", [])
        return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)

    control_plane.nodes.set_down("node-8")
    try:
        wait_until(lambda: ready() == "False" and tainted(), "node-8 NotReady", 20)
    finally:
        control_plane.nodes.set_down("node-8", down=False)
    wait_until(lambda: ready() == "True" and not tainted(), "node-8 Ready", 20)


def test_a_service_account_may_do_what_rbac_says_and_nothing_else(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "-n", namespace, "serviceaccount", "reader")
    control_plane.kubectl("create", "-n", namespace, "role", "reader", "--verb=list", "--resource=pods")
    control_plane.kubectl(
        "create",
        "-n",
        namespace,
        "rolebinding",
        "reader",
        "--role=reader",
        f"--serviceaccount={namespace}:reader",
    )
    kubeconfig = str(control_plane.service_account_kubeconfig(namespace, "reader"))
    who = json.loads(
        control_plane.kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o", "json").stdout
    )
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:reader"
    # in its own namespace, by default
    assert control_plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "pods").returncode == 0
    with pytest.raises(KubectlError, match="forbidden"):
        control_plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "secrets")


@pytest.mark.parametrize(
    "component",
    [Component.KWOK, Component.SCHEDULER, Component.API_SERVER, Component.ETCD],
    ids=lambda c: c.value,
)
def test_pods_run_again_after_a_component_was_killed_and_started(
    control_plane: ControlPlane, namespace: str, component: Component
) -> None:
    before = control_plane.server
    control_plane.restart_component(component, graceful=False)
    wait_until(lambda: control_plane.client.reachable("/readyz"), "API server ready", 60)
    path = create(control_plane, namespace, pod("after", run_seconds="0"))
    wait_phase(control_plane, path, "Succeeded", 60)
    assert control_plane.server == before


def test_pods_that_were_bound_while_kwok_was_away_run_when_it_is_back(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.stop_component(Component.KWOK, graceful=False)
    try:
        paths = [
            create(control_plane, namespace, pod(f"bound-{index}", run_seconds="0")) for index in range(16)
        ]
        wait_until(
            lambda: all(control_plane.client.get(path)["spec"].get("nodeName") for path in paths),
            "pods bound",
            20,
        )
    finally:
        control_plane.start_component(Component.KWOK)
    for path in paths:
        wait_phase(control_plane, path, "Succeeded", 60)
