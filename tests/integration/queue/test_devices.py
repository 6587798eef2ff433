"""Work gets nodes with as many devices as its claims ask for, and nothing that a claim of anybody has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_node, make_pod
from support.device_objects import CLASS, DRIVER, a_claim, a_class, a_slice, a_template, claiming, request
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job, around

from fluxqueue.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.port_volume_pools import MAX_PORTS_OF_NAMESPACE
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.records import NewWorkload, Workload
from fluxqueue.queue.store import Store

LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(3)])
    return cache


@pytest.fixture
async def bench(store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion) -> AsyncIterator[Bench]:
    """Node n0 has no devices, n1 two small ones, n2 a small and a large one."""
    async with a_leader(store, nodes, fluxion) as made:
        made.devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
        has(made, "n1", "small", "small")
        has(made, "n2", "small", "large")
        yield made


def has(bench: Bench, node: str, *models: str, version: int = 1) -> None:
    bench.devices.slices.apply(msgspec.convert(a_slice(node, models, version=version), ResourceSlice))


def claim(bench: Bench, name: str, *devices: tuple[str, str], pod: str = "", version: int = 1) -> None:
    body = a_claim(
        name, request(max(len(devices), 1)), namespace="default", has=devices, pod=pod, version=version
    )
    bench.devices.claims.apply(msgspec.convert(body, ResourceClaim))


def job(bench: Bench, name: str, pods: int, *requests: Any, namespace: str = "default") -> NewWorkload:
    template = a_template(name, *requests, namespace=namespace)
    bench.devices.templates.apply(msgspec.convert(template, ResourceClaimTemplate))
    builder = (
        make_job(name)
        .namespace(namespace)
        .indexed(pods)
        .cpu("1")
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    described = describe_job(
        a_job(claiming(builder, name), uid=f"uid-of-{name}"), around(devices=bench.devices)
    )
    assert described is not None
    return described


def row(bench: Bench, name: str) -> Workload:
    return bench.row(f"uid-of-{name}")


def hosts(bench: Bench, name: str) -> list[str]:
    allocation = bench.ledger.allocation(row(bench, name).id)
    return sorted(slot.node for slot in allocation.slots) if allocation is not None else []


async def test_a_gang_gets_the_nodes_that_have_its_devices_or_none(bench: Bench) -> None:
    await bench.submit(job(bench, "four", 4), job(bench, "more", 1))
    await bench.cycle()
    assert hosts(bench, "four") == ["n1", "n1", "n2", "n2"]
    assert row(bench, "more").reason is Reason.WAITING_FOR_NODES
    assert f"devices of class {CLASS}" in row(bench, "more").message
    await bench.submit(job(bench, "five", 5))
    await bench.cycle()
    assert row(bench, "five").reason is Reason.UNSATISFIABLE


async def test_a_selection_counts_on_the_nodes_that_have_it(bench: Bench) -> None:
    await bench.submit(job(bench, "large", 1, request(1, LARGE)), job(bench, "more", 1, request(1, LARGE)))
    await bench.cycle()
    assert hosts(bench, "large") == ["n2"]
    assert row(bench, "more").state is State.PENDING


async def test_devices_that_claims_of_others_have_are_not_given(bench: Bench) -> None:
    claim(bench, "theirs", ("n1", "gpu-0"), ("n1", "gpu-1"), pod="stranger")
    await bench.submit(job(bench, "two", 2, request(1)))
    await bench.cycle()
    assert hosts(bench, "two") == ["n2", "n2"]
    await bench.submit(job(bench, "later", 2))
    await bench.cycle()
    assert hosts(bench, "later") == []
    claim(bench, "theirs", version=2)
    await bench.cycle()
    assert hosts(bench, "later") == ["n1", "n1"]


async def test_the_claims_of_own_pods_are_not_counted_twice(bench: Bench) -> None:
    await bench.submit(job(bench, "own", 1))
    await bench.cycle()
    allocation = bench.ledger.allocation(row(bench, "own").id)
    assert allocation is not None
    pod = make_pod("own-0").namespace("default").uid("p").owned_by("Job", "own")
    pod = pod.annotation("fluxqueue/allocation", str(allocation.jobid)).with_("metadata.resourceVersion", "1")
    bench.pods.apply(msgspec.convert(pod.build(), Pod))
    claim(bench, "own-claim", ("n1", "gpu-1"), pod="p")
    await bench.submit(job(bench, "rest", 3))
    await bench.cycle()
    assert hosts(bench, "own") == ["n1"]
    assert hosts(bench, "rest") == ["n1", "n2", "n2"]


async def test_a_large_device_that_went_to_work_for_any_is_missing_for_work_for_large_ones(
    bench: Bench,
) -> None:
    await bench.submit(job(bench, "any", 3))
    await bench.cycle()
    assert hosts(bench, "any") == ["n1", "n1", "n2"]
    allocation = bench.ledger.allocation(row(bench, "any").id)
    assert allocation is not None
    pod = make_pod("any-2").namespace("default").uid("p").owned_by("Job", "any").on_node("n2")
    pod = pod.annotation("fluxqueue/allocation", str(allocation.jobid)).with_("metadata.resourceVersion", "1")
    bench.pods.apply(msgspec.convert(pod.build(), Pod))
    claim(bench, "any-claim", ("n2", "gpu-1"), pod="p")
    bench.policy = Policy.EASY
    await bench.submit(job(bench, "large", 1, request(1, LARGE)))
    await bench.cycle()
    assert hosts(bench, "large") == []
    assert row(bench, "large").reason is Reason.WAITING_FOR_NODES
    await bench.submit(job(bench, "small", 1))
    await bench.cycle()
    assert hosts(bench, "small") == ["n2"]


async def test_a_node_that_gets_devices_is_used_at_once(bench: Bench) -> None:
    await bench.submit(job(bench, "waits", 6))
    await bench.cycle()
    assert row(bench, "waits").reason is Reason.UNSATISFIABLE
    has(bench, "n0", "small", "small")
    await bench.cycle()
    assert hosts(bench, "waits") == ["n0", "n0", "n1", "n1", "n2", "n2"]


async def test_running_work_whose_devices_vanished_keeps_its_nodes(bench: Bench) -> None:
    await bench.submit(job(bench, "runs", 2))
    await bench.cycle()
    has(bench, "n1", version=2)
    await bench.submit(job(bench, "waits", 3), job(bench, "fits", 2))
    await bench.scheduler.cycle()
    assert "jobs hold devices" in bench.scheduler.last_error, (
        "the graph is filled again, with what is held as an excess of its node"
    )
    await bench.cycle()
    assert hosts(bench, "runs") == ["n1", "n1"]
    assert row(bench, "waits").reason is Reason.UNSATISFIABLE
    assert hosts(bench, "fits") == ["n2", "n2"]
    has(bench, "n1", "small", "small", "small", "small", "small", version=3)
    await bench.cycle()
    assert hosts(bench, "waits") == ["n1", "n1", "n1"]


async def test_one_namespace_does_not_fill_the_graph_with_selections(bench: Bench) -> None:
    many = [
        job(bench, f"j{number}", 1, request(1, f"device.driver == '{number}'"))
        for number in range(MAX_PORTS_OF_NAMESPACE + 1)
    ]
    other = job(bench, "other", 1, request(1, "device.driver == 'other'"), namespace="elsewhere")
    judged = bench.port_volume_pools.limit_types([*many, other])
    assert [new.reason for new in judged] == [Reason.NONE] * MAX_PORTS_OF_NAMESPACE + [
        Reason.INVALID_REQUEST,
        Reason.NONE,
    ]
    assert "16 different requests for devices" in judged[-2].message


def asking(name: str, pods: int, resource: str, count: int = 1) -> NewWorkload:
    resources = {"requests": {"cpu": "1", resource: str(count)}, "limits": {resource: str(count)}}
    builder = (
        make_job(name)
        .namespace("default")
        .indexed(pods)
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    builder = builder.with_(
        "spec.template.spec.containers", [{"name": "main", "image": "busybox", "resources": resources}]
    )
    described = describe_job(a_job(builder, uid=f"uid-of-{name}"), around())
    assert described is not None
    return described


async def test_a_resource_that_devices_stand_for_is_matched_beside_claims_and_nodes_that_report_it(
    bench: Bench, nodes: ObjectCache[Node]
) -> None:
    await bench.submit(asking("early", 6, "example.com/gpu"))
    await bench.cycle()
    assert row(bench, "early").reason is Reason.UNSATISFIABLE
    bench.devices.classes.apply(msgspec.convert(a_class(extended="example.com/gpu", version=2), DeviceClass))
    reports = (
        make_node("n0")
        .uid("uid-n0")
        .allocatable(**{"cpu": "8", "memory": "32Gi", "pods": "110", "example.com/gpu": "2"})
    )
    nodes.apply(msgspec.convert(reports.with_("metadata.resourceVersion", "9").build(), Node))
    claim(bench, "theirs", ("n1", "gpu-0"), pod="stranger")
    await bench.cycle()
    assert row(bench, "early").state is State.PENDING
    claim(bench, "theirs", version=2)
    await bench.cycle()
    assert hosts(bench, "early") == ["n0", "n0", "n1", "n1", "n2", "n2"]


async def test_the_implicit_resource_of_a_class_is_matched(bench: Bench) -> None:
    await bench.submit(
        asking("implicit", 2, f"deviceclass.resource.kubernetes.io/{CLASS}", 2),
        asking("more", 1, f"deviceclass.resource.kubernetes.io/{CLASS}"),
    )
    await bench.cycle()
    assert hosts(bench, "implicit") == ["n1", "n2"]
    assert row(bench, "more").reason is Reason.WAITING_FOR_NODES


async def test_a_claim_made_for_a_resource_counts_once(bench: Bench) -> None:
    bench.devices.classes.apply(msgspec.convert(a_class(extended="example.com/gpu", version=2), DeviceClass))
    resources = {"requests": {"cpu": "1", "example.com/gpu": "1"}}
    pod = make_pod("alone").namespace("default").uid("p").on_node("n1").with_("metadata.resourceVersion", "1")
    pod = pod.with_("spec.containers", [{"name": "main", "resources": resources}])
    bench.pods.apply(msgspec.convert(pod.build(), Pod))
    claim(bench, "alone-extended-resources", ("n1", "gpu-0"), pod="p")
    await bench.submit(asking("rest", 3, "example.com/gpu"))
    await bench.cycle()
    assert hosts(bench, "rest") == ["n1", "n2", "n2"]


def sharing(bench: Bench, name: str, pods: int, claim_name: str, cpu: str = "1") -> NewWorkload:
    builder = (
        make_job(name)
        .namespace("default")
        .indexed(pods)
        .cpu(cpu)
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    described = describe_job(
        a_job(claiming(builder, claim=claim_name), uid=f"uid-of-{name}"), around(devices=bench.devices)
    )
    assert described is not None
    return described


async def test_pods_that_share_a_claim_without_devices_start_on_one_node_and_take_them_once(
    bench: Bench,
) -> None:
    claim(bench, "one")
    await bench.submit(sharing(bench, "both", 3, "one"))
    await bench.cycle()
    assert hosts(bench, "both") == ["n1", "n1", "n1"]
    allocation = bench.ledger.allocation(row(bench, "both").id)
    assert allocation is not None
    for name in ("both-0", "both-1", "both-2"):
        pod = make_pod(name).namespace("default").uid(name).owned_by("Job", "both").on_node("n1")
        pod = pod.annotation("fluxqueue/allocation", str(allocation.jobid)).with_(
            "metadata.resourceVersion", "1"
        )
        bench.pods.apply(msgspec.convert(pod.build(), Pod))
    claim(bench, "one", ("n1", "gpu-0"), pod="both-1", version=2)
    await bench.submit(job(bench, "rest", 3), job(bench, "more", 1))
    await bench.cycle()
    assert hosts(bench, "rest") == ["n1", "n2", "n2"]
    assert row(bench, "more").reason is Reason.WAITING_FOR_NODES


async def test_more_pods_than_a_node_holds_cannot_share_a_claim(bench: Bench) -> None:
    claim(bench, "one")
    await bench.submit(sharing(bench, "wide", 3, "one", cpu="4"))
    await bench.cycle()
    assert row(bench, "wide").reason is Reason.UNSATISFIABLE


async def test_a_claim_of_a_pod_group_is_taken_once_and_counts_through_a_slot_of_the_group(
    bench: Bench,
) -> None:
    bench.devices.templates.apply(
        msgspec.convert(a_template("t", request(2), namespace="default"), ResourceClaimTemplate)
    )
    builder = claiming(make_job("both").namespace("default").indexed(3).cpu("1").suspended(), "t")
    builder = builder.annotation("fluxqueue/suspended-by", "webhook").with_(
        "spec.template.spec.schedulingGroup", {"podGroupName": "g"}
    )
    made = a_job(builder, uid="uid-of-both")
    named = (made.spec.template.spec.resource_claims or [])[0]
    described = describe_job(made, around(devices=bench.devices, group_claims=lambda *_: {named: ""}))
    assert described is not None
    await bench.submit(described)
    await bench.cycle()
    assert hosts(bench, "both") == ["n1", "n1", "n1"]
    allocation = bench.ledger.allocation(row(bench, "both").id)
    assert allocation is not None
    for name in ("both-0", "both-1", "both-2"):
        pod = make_pod(name).namespace("default").uid(name).owned_by("Job", "both").on_node("n1")
        pod = pod.with_("spec.schedulingGroup", {"podGroupName": "g"}).with_("metadata.resourceVersion", "1")
        bench.pods.apply(
            msgspec.convert(pod.annotation("fluxqueue/allocation", str(allocation.jobid)).build(), Pod)
        )
    body = a_claim("g-t", request(2), namespace="default", has=[("n1", "gpu-0"), ("n1", "gpu-1")])
    body["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-of-g"}
    ]
    bench.devices.claims.apply(msgspec.convert(body, ResourceClaim))
    await bench.submit(job(bench, "rest", 2))
    await bench.cycle()
    assert hosts(bench, "rest") == ["n2", "n2"]
