"""Pods that claim devices (DRA), with the slices of a driver that is not there and the claims of the real
controllers and scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import Json, make_job, make_pod
from support.device_objects import (
    CLASS,
    DRIVER,
    a_claim,
    a_class,
    a_slice,
    a_template,
    claiming,
    request,
    resource_claims,
)
from support.end_to_end import Stage, managed_namespace
from support.kubernetes_gates import DEVICE_FLAGS, DEVICE_GATES, DEVICE_PARTS
from support.stage_accounts import Accounts

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
API = "/apis/resource.k8s.io/v1"
RULES = "/apis/resource.k8s.io/v1beta2"
LARGE = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"
GPU = "example.com/gpu"
SMALL, BIG = ("node-1", "node-2"), "node-3"
of_1_36 = pytest.mark.skipif(not DEVICE_PARTS, reason="devices have this by default from 1.36 on")


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Four nodes: two with two small devices each, one with two large ones, one without;
    a class of all of them.
    """
    values = {"queue": {"config": {"pinWindowSeconds": 2}}}
    options = ClusterOptions(
        nodes=4, durable=False, values=values, feature_gates=DEVICE_GATES, api_server_flags=DEVICE_FLAGS
    )
    made = InProcessCluster(service_folder / "devices", options)
    made.start()
    create(made, "deviceclasses", a_class())
    for node in SMALL:
        create(made, "resourceslices", a_slice(node, ["small", "small"]))
    create(made, "resourceslices", a_slice(BIG, ["large", "large"]))
    yield made
    made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        create(
            cluster,
            f"namespaces/{stage.namespace}/resourceclaimtemplates",
            a_template("one"),
            a_template("large", request(1, LARGE)),
        )
        yield stage


def create(cluster: InProcessCluster, where: str, *bodies: Json) -> None:
    for body in bodies:
        metadata = {"name": body["metadata"]["name"]}
        cluster.control_plane.client.request("POST", f"{API}/{where}", {**body, "metadata": metadata})


def delete(cluster: InProcessCluster, where: str) -> None:
    cluster.control_plane.client.request("DELETE", f"{API}/{where}")


def gang(name: str, pods: int, template: str = "one") -> Json:
    return claiming(
        make_job(name).indexed(pods).cpu("1").pod_annotation(RUN_SECONDS, "forever"), template
    ).build()


def hosts(stage: Stage, name: str) -> Counter[str]:
    return Counter(pod.spec.node_name or "" for pod in stage.row(name).pods)


def allocated(stage: Stage) -> int:
    claims = stage.cluster.control_plane.client.get(f"{API}/namespaces/{stage.namespace}/resourceclaims")[
        "items"
    ]
    return sum(
        len(claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()))
        for claim in claims
    )


def test_a_gang_starts_where_its_claims_fit_and_devices_are_given_back(stage: Stage) -> None:
    stage.apply(gang("first", 5))
    stage.until_state("first", State.RUNNING)
    assert set(hosts(stage, "first")) <= {*SMALL, BIG}
    assert max(hosts(stage, "first").values()) == 2
    assert allocated(stage) == 5
    stage.apply(gang("second", 2))
    waiting = stage.until_reason("second", Reason.WAITING_FOR_NODES)
    assert f"devices of class {CLASS}" in waiting.status.message
    assert not hosts(stage, "second"), "nothing of it has started"
    explained = stage.plugin("explain", "second").stdout
    assert f"2 devices of class {CLASS} in all" in explained
    stage.succeed("first")
    stage.until_state("second", State.RUNNING)
    stage.until("only its own devices are allocated", lambda: allocated(stage) == 2)


def test_pods_of_a_group_get_the_slots_of_their_group_by_what_they_claim(stage: Stage) -> None:
    create(
        stage.cluster, f"namespaces/{stage.namespace}/resourceclaimtemplates", a_template("pair", request(2))
    )
    for name, template in (("leader", ""), ("w0", "pair"), ("w1", "one"), ("w2", "one")):
        pod = (
            make_pod(name)
            .cpu("1")
            .label(names.POD_GROUP_LABEL, "mesh")
            .annotation(names.POD_GROUP_SIZE_ANNOTATION, "4")
        )
        pod = pod.with_("spec.resourceClaims", resource_claims(template)) if template else pod
        stage.apply(pod.annotation(RUN_SECONDS, "forever").build())
    stage.until(
        "all four run", lambda: sum(bool(pod.spec.node_name) for pod in stage.items("pods", Pod)) == 4
    )
    assert [each.spec.object_ref.name for each in stage.fluxjobs()] == ["mesh"]
    assert allocated(stage) == 4


def test_more_claims_than_there_are_devices_never_start(stage: Stage) -> None:
    stage.apply(gang("never", 7))
    never = stage.until_reason("never", Reason.UNSATISFIABLE)
    assert f"devices of class {CLASS}" in never.status.message
    create(stage.cluster, "resourceslices", a_slice("node-4", ["small"]))
    stage.until_state("never", State.RUNNING)
    assert hosts(stage, "never") == {"node-1": 2, "node-2": 2, "node-3": 2, "node-4": 1}
    delete(stage.cluster, f"resourceslices/{a_slice('node-4', [])['metadata']['name']}")


def test_a_selector_decides_which_nodes_have_the_devices(stage: Stage) -> None:
    stage.apply(gang("big", 2, "large"))
    stage.until_state("big", State.RUNNING)
    assert hosts(stage, "big") == {BIG: 2}
    stage.apply(gang("rest", 4))
    stage.until_state("rest", State.RUNNING)
    assert hosts(stage, "rest") == dict.fromkeys(SMALL, 2), "those that the other selection has are not free"


def test_devices_of_pods_without_the_queue_are_not_free(stage: Stage) -> None:
    client = stage.cluster.control_plane.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": f"{stage.namespace}-other"}})
    other = Stage(stage.cluster, f"{stage.namespace}-other")
    other.until(
        "its account is there",
        lambda: client.find(f"/api/v1/namespaces/{other.namespace}/serviceaccounts/default"),
    )
    create(
        stage.cluster,
        f"namespaces/{other.namespace}/resourceclaimtemplates",
        a_template("large", request(1, LARGE)),
    )
    pod = make_pod("alone").cpu("1").with_("spec.resourceClaims", resource_claims("large"))
    body = pod.namespace(other.namespace).annotation(RUN_SECONDS, "forever").build()
    client.request("POST", f"/api/v1/namespaces/{other.namespace}/pods", body)
    stage.until("its claim is allocated", lambda: allocated(other) == 1)
    stage.apply(gang("big", 2, "large"))
    assert f"devices of class {CLASS}" in stage.until_reason("big", Reason.WAITING_FOR_NODES).status.message
    client.request("DELETE", f"/api/v1/namespaces/{other.namespace}/pods/alone")
    stage.until_state("big", State.RUNNING)
    client.request("DELETE", f"/api/v1/namespaces/{other.namespace}")


def test_work_waits_for_what_its_claims_need(stage: Stage) -> None:
    stage.apply(gang("early", 1, "later"))
    early = stage.until_reason("early", Reason.INVALID_REQUEST)
    assert f"ResourceClaimTemplate {stage.namespace}/later does not exist" in early.status.message
    create(
        stage.cluster,
        f"namespaces/{stage.namespace}/resourceclaimtemplates",
        a_template("later", request(device_class="new")),
    )
    stage.until(
        "the class is missing",
        lambda: "DeviceClass new does not exist" in (stage.row("early").fluxjob or early).status.message,
    )
    create(stage.cluster, "deviceclasses", a_class("new"))
    stage.until_state("early", State.RUNNING)
    delete(stage.cluster, "deviceclasses/new")


def test_a_queue_that_was_killed_knows_which_devices_are_taken(stage: Stage) -> None:
    stage.apply(gang("holds", 5))
    stage.until_state("holds", State.RUNNING)
    stage.kill("queue")
    stage.apply(gang("waits", 2))
    stage.until_reason("waits", Reason.WAITING_FOR_NODES)
    stage.apply(gang("fits", 1))
    stage.until_state("fits", State.RUNNING)
    assert allocated(stage) == 6
    stage.succeed("holds")
    stage.until_state("waits", State.RUNNING)


def test_a_claim_that_has_its_devices_brings_other_work_to_its_node(stage: Stage) -> None:
    create(stage.cluster, f"namespaces/{stage.namespace}/resourceclaims", a_claim("both", request(2, LARGE)))
    for name in ("owner", "guest"):
        job = make_job(name).cpu("1").pod_annotation(RUN_SECONDS, "forever")
        stage.apply(claiming(job, claim="both").build())
        stage.until_state(name, State.RUNNING)
    assert (hosts(stage, "owner"), hosts(stage, "guest"), allocated(stage)) == ({BIG: 1}, {BIG: 1}, 2)


def test_pods_that_share_a_claim_without_devices_start_together_on_one_node(stage: Stage) -> None:
    create(stage.cluster, f"namespaces/{stage.namespace}/resourceclaims", a_claim("new", request(2)))
    stage.apply(
        claiming(
            make_job("shares").indexed(3).cpu("1").pod_annotation(RUN_SECONDS, "forever"), claim="new"
        ).build()
    )
    stage.until_state("shares", State.RUNNING)
    assert sorted(hosts(stage, "shares").values()) == [3]
    assert allocated(stage) == 2
    stage.apply(gang("rest", 4))
    stage.until_state("rest", State.RUNNING)
    assert not hosts(stage, "rest").keys() & hosts(stage, "shares").keys()


@pytest.fixture
def extended(cluster: InProcessCluster) -> Iterator[str]:
    """A resource that the class stands for."""
    path = f"deviceclasses/{CLASS}"
    cluster.control_plane.client.request("PATCH", f"{API}/{path}", {"spec": {"extendedResourceName": GPU}})
    yield GPU
    cluster.control_plane.client.request("PATCH", f"{API}/{path}", {"spec": {"extendedResourceName": None}})


def asking(name: str, pods: int, resource: str, count: int = 1) -> Json:
    job = make_job(name).indexed(pods).pod_annotation(RUN_SECONDS, "forever")
    return job.with_("spec.template.spec.containers", containers({"cpu": "1", resource: str(count)})).build()


@of_1_36
def test_a_resource_that_devices_stand_for_is_given_as_an_unqueued_pod_gets_it(
    stage: Stage, extended: str
) -> None:
    client = stage.cluster.control_plane.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": f"{stage.namespace}-other"}})
    other = Stage(stage.cluster, f"{stage.namespace}-other")
    other.until(
        "its account is there",
        lambda: client.find(f"/api/v1/namespaces/{other.namespace}/serviceaccounts/default"),
    )
    alone = (
        make_pod("alone")
        .with_("spec.containers", containers({"cpu": "1", extended: "1"}))
        .namespace(other.namespace)
    )
    client.request(
        "POST", f"/api/v1/namespaces/{other.namespace}/pods", alone.annotation(RUN_SECONDS, "forever").build()
    )
    stage.until("the unqueued pod has a device", lambda: allocated(other) == 1)
    stage.apply(asking("first", 5, extended))
    stage.until_state("first", State.RUNNING)
    assert max(hosts(stage, "first").values()) == 2
    assert allocated(stage) == 5
    stage.apply(asking("second", 1, extended))
    stage.until_reason("second", Reason.WAITING_FOR_NODES)
    assert not hosts(stage, "second"), "five devices and that of the unqueued pod are all"
    client.request("DELETE", f"/api/v1/namespaces/{other.namespace}/pods/alone")
    stage.until_state("second", State.RUNNING)
    client.request("DELETE", f"/api/v1/namespaces/{other.namespace}")


@of_1_36
def test_more_of_a_resource_than_there_are_devices_never_starts(stage: Stage, extended: str) -> None:
    stage.apply(asking("never", 1, extended, count=3))
    assert extended in stage.until_reason("never", Reason.UNSATISFIABLE).status.message


@of_1_36
def test_the_implicit_resource_of_a_class_is_given_too(stage: Stage) -> None:
    stage.apply(asking("implicit", 3, f"deviceclass.resource.kubernetes.io/{CLASS}", count=2))
    stage.until_state("implicit", State.RUNNING)
    assert hosts(stage, "implicit") == {**dict.fromkeys(SMALL, 1), BIG: 1}
    stage.apply(gang("claims", 1))
    stage.until_reason("claims", Reason.WAITING_FOR_NODES)
    stage.succeed("implicit")
    stage.until_state("claims", State.RUNNING)


@of_1_36
def test_a_class_that_gets_the_name_of_a_resource_lets_waiting_work_start(stage: Stage) -> None:
    stage.apply(asking("early", 2, "example.com/late", count=2))
    stage.until_reason("early", Reason.UNSATISFIABLE)
    create(stage.cluster, "deviceclasses", a_class("late.example.com", extended="example.com/late"))
    stage.until_state("early", State.RUNNING)
    delete(stage.cluster, "deviceclasses/late.example.com")


@of_1_36
def test_limits_of_accounts_count_a_resource_that_devices_stand_for(stage: Stage, extended: str) -> None:
    accounts = Accounts(stage)
    accounts.put("few", namespaces=[stage.namespace], limits={"resources": {extended: 1}})
    stage.apply(asking("one", 1, extended))
    stage.until_state("one", State.RUNNING)
    stage.apply(asking("two", 1, extended))
    stage.until_reason("two", Reason.ACCOUNT_LIMIT)
    stage.succeed("one")
    stage.until_state("two", State.RUNNING)
    accounts.delete()


def test_parts_of_gpus_are_pools_of_their_own(stage: Stage) -> None:
    parts = {"nvidia.com/mig-1g.5gb": "3", "nvidia.com/mig-3g.20gb": "1"}
    node = "/api/v1/nodes/node-4/status"
    stage.cluster.control_plane.client.request(
        "PATCH", node, {"status": {"capacity": parts, "allocatable": parts}}
    )
    small = make_job("small").indexed(3).pod_annotation(RUN_SECONDS, "forever")
    stage.apply(
        small.with_("spec.template.spec.containers", containers({"nvidia.com/mig-1g.5gb": "1"})).build()
    )
    stage.until_state("small", State.RUNNING)
    assert hosts(stage, "small") == {"node-4": 3}
    large = make_job("large").pod_annotation(RUN_SECONDS, "forever")
    stage.apply(
        large.with_("spec.template.spec.containers", containers({"nvidia.com/mig-3g.20gb": "2"})).build()
    )
    assert "nvidia.com/mig-3g.20gb" in stage.until_reason("large", Reason.UNSATISFIABLE).status.message
    gone = dict.fromkeys(parts)
    stage.succeed("small")
    stage.until_state("small", State.COMPLETED)
    stage.cluster.control_plane.client.request(
        "PATCH", node, {"status": {"capacity": gone, "allocatable": gone}}
    )


@of_1_36
def test_parts_that_share_counters_are_given_as_far_as_they_fit_together(stage: Stage) -> None:
    create(stage.cluster, "deviceclasses", a_class("part", "device.driver == 'parts.example.com'"))
    for body in parts_of_a_gpu("node-4"):
        create(stage.cluster, "resourceslices", body)
    stored = stage.cluster.control_plane.client.get(f"{API}/resourceslices/parts-counters")
    assert stored["spec"].get("sharedCounters"), "this Kubernetes keeps counters"
    template = a_template("part", request(device_class="part"))
    create(stage.cluster, f"namespaces/{stage.namespace}/resourceclaimtemplates", template)
    stage.apply(gang("three", 3, "part"))
    assert "devices of class part" in stage.until_reason("three", Reason.UNSATISFIABLE).status.message
    stage.apply(gang("two", 2, "part"))
    stage.until_state("two", State.RUNNING)
    assert hosts(stage, "two") == {"node-4": 2}
    for path in ("resourceslices/parts-counters", "resourceslices/parts-devices", "deviceclasses/part"):
        delete(stage.cluster, path)


def test_devices_of_a_claim_have_an_attribute_in_common(stage: Stage) -> None:
    create(stage.cluster, "resourceslices", a_slice("node-4", ["small", "large"]))
    pair = a_template(
        "pair", request(2), constraints=[{"requests": ["devices-0"], "matchAttribute": f"{DRIVER}/model"}]
    )
    create(stage.cluster, f"namespaces/{stage.namespace}/resourceclaimtemplates", pair)
    stage.apply(gang("four", 4, "pair"))
    assert (
        f"sets of devices of class {CLASS}" in stage.until_reason("four", Reason.UNSATISFIABLE).status.message
    )
    stage.apply(gang("three", 3, "pair"))
    stage.until_state("three", State.RUNNING)
    assert hosts(stage, "three") == {"node-1": 1, "node-2": 1, "node-3": 1}
    delete(stage.cluster, f"resourceslices/{a_slice('node-4', [])['metadata']['name']}")


def test_the_first_alternative_that_is_there_is_counted(stage: Stage) -> None:
    options = [
        {
            "name": "large",
            "deviceClassName": CLASS,
            "count": 1,
            "selectors": [{"cel": {"expression": LARGE}}],
        },
        {"name": "small", "deviceClassName": CLASS, "count": 2},
    ]
    template = a_template("either", {"firstAvailable": options})
    create(stage.cluster, f"namespaces/{stage.namespace}/resourceclaimtemplates", template)
    stage.apply(gang("five", 5, "either"))
    stage.until_reason("five", Reason.UNSATISFIABLE)
    stage.apply(gang("four", 4, "either"))
    stage.until_state("four", State.RUNNING)
    assert hosts(stage, "four") == {"node-1": 1, "node-2": 1, BIG: 2}
    assert allocated(stage) == 6


@of_1_36
def test_shares_of_a_device_are_given_until_it_is_full(stage: Stage) -> None:
    create(stage.cluster, "deviceclasses", a_class("shared", "device.driver == 'shared.example.com'"))
    body = a_slice("node-4", ["large"], driver="shared.example.com")
    body["spec"]["devices"][0]["allowMultipleAllocations"] = True
    create(stage.cluster, "resourceslices", body)
    template = a_template("share", request(device_class="shared", capacity={"requests": {"memory": "30Gi"}}))
    create(stage.cluster, f"namespaces/{stage.namespace}/resourceclaimtemplates", template)
    stage.apply(gang("three", 3, "share"))
    stage.until_reason("three", Reason.UNSATISFIABLE)
    # one after the other: kube-scheduler may overlook a share while it gives another one of the device
    for name in ("first", "second"):
        stage.apply(gang(name, 1, "share"))
        stage.until_state(name, State.RUNNING)
        assert hosts(stage, name) == {"node-4": 1}
    stage.apply(gang("third", 1, "share"))
    stage.until_reason("third", Reason.WAITING_FOR_NODES)
    stage.succeed("first")
    stage.until_state("third", State.RUNNING)
    for path in (f"resourceslices/{body['metadata']['name']}", "deviceclasses/shared"):
        delete(stage.cluster, path)


def taint(cluster: InProcessCluster, name: str, effect: str, **selector: str) -> str:
    rule = {
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}},
    }
    body = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", **rule}
    cluster.control_plane.client.request("POST", f"{RULES}/devicetaintrules", body)
    return f"{RULES}/devicetaintrules/{name}"


@of_1_36
def test_devices_that_a_rule_taints_are_not_given(stage: Stage) -> None:
    rule = taint(stage.cluster, "no-large", "NoSchedule", driver=DRIVER, pool=BIG)
    stage.apply(gang("five", 5))
    stage.until_reason("five", Reason.UNSATISFIABLE)
    stage.apply(gang("four", 4))
    stage.until_state("four", State.RUNNING)
    assert set(hosts(stage, "four")) == set(SMALL)
    stage.cluster.control_plane.client.request("DELETE", rule)
    stage.succeed("four")
    stage.until_state("five", State.RUNNING)


@of_1_36
def test_a_pod_that_a_rule_evicts_starts_where_its_devices_are(stage: Stage) -> None:
    stage.apply(gang("moves", 1, "large"))
    stage.until_state("moves", State.RUNNING)
    create(stage.cluster, "resourceslices", a_slice("node-4", ["large"]))
    rule = taint(stage.cluster, "evict", "NoExecute", driver=DRIVER, pool=BIG)
    stage.until("its next pod runs elsewhere", lambda: hosts(stage, "moves").get("node-4") == 1)
    stage.cluster.control_plane.client.request("DELETE", rule)
    delete(stage.cluster, f"resourceslices/{a_slice('node-4', [])['metadata']['name']}")


def parts_of_a_gpu(node: str) -> list[Json]:
    """Return slices with two halves of a GPU, and the whole of it."""
    pool = {"name": f"{node}-parts", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": "parts.example.com", "nodeName": node, "pool": pool}
    takes = {"half-0": "1", "half-1": "1", "whole": "2"}
    devices = [
        {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"slices": {"value": value}}}]}
        for name, value in takes.items()
    ]
    counters = [{"name": "gpu", "counters": {"slices": {"value": "2"}}}]
    contents: Json = {"parts-counters": {"sharedCounters": counters}, "parts-devices": {"devices": devices}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return [
        {**kind, "metadata": {"name": name}, "spec": {**spec, **content}}
        for name, content in contents.items()
    ]


def containers(limits: dict[str, str]) -> list[Json]:
    return [{"name": "main", "image": "busybox", "resources": {"limits": limits}}]
