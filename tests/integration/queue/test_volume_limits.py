"""No node gets more volumes of a driver than it can attach, including those of foreign pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_pod
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.storage import CSINode, PersistentVolumeClaim, StorageClass
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.store import Store

DRIVER = "example.com"


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(3)])
    return cache


@pytest.fixture
async def bench(store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion) -> AsyncIterator[Bench]:
    async with a_leader(store, nodes, fluxion) as made:
        made.storage.classes.apply(
            msgspec.convert(
                {
                    "metadata": {"name": "fast", "uid": "c"},
                    "provisioner": DRIVER,
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                StorageClass,
            )
        )
        yield made


def limit(bench: Bench, node: str, count: int, version: int = 1) -> None:
    drivers = {"drivers": [{"name": DRIVER, "allocatable": {"count": count}}]}
    meta = {"name": node, "uid": node, "resourceVersion": str(version)}
    bench.storage.csi_nodes.apply(msgspec.convert({"metadata": meta, "spec": drivers}, CSINode))


def volumes(bench: Bench, *claims: str) -> list[dict[str, Any]]:
    for name in claims:
        meta = {"name": name, "namespace": "default", "uid": name}
        bench.storage.claims.apply(
            msgspec.convert({"metadata": meta, "spec": {"storageClassName": "fast"}}, PersistentVolumeClaim)
        )
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def job(bench: Bench, name: str, *claims: str) -> NewWorkload:
    builder = (
        make_job(name)
        .namespace("default")
        .cpu("1")
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    spec = builder.with_("spec.template.spec.volumes", volumes(bench, *claims))
    described = describe_job(a_job(spec, uid=name), around(storage=bench.storage))
    assert described is not None
    return described


def host(bench: Bench, name: str) -> str:
    allocation = bench.ledger.allocation(bench.row(name).id)
    return allocation.slots[0].node if allocation is not None else ""


async def test_pods_get_nodes_that_can_still_attach_their_volumes(bench: Bench) -> None:
    limit(bench, "n0", 1)
    limit(bench, "n1", 2)
    await bench.submit(*(job(bench, f"j{number}", f"claim-{number}") for number in range(4)))
    await bench.cycle()
    assert [host(bench, f"j{number}") for number in range(4)] == ["n0", "n1", "n1", "n2"], (
        "n2 states no limit"
    )


async def test_volumes_of_foreign_pods_count_once_for_a_claim(bench: Bench) -> None:
    limit(bench, "n0", 2)
    for name in ("a", "b"):
        pod = (
            make_pod(name)
            .namespace("default")
            .uid(name)
            .on_node("n0")
            .phase("Running")
            .with_("spec.volumes", volumes(bench, "shared"))
        )
        bench.pods.apply(msgspec.convert(pod.with_("metadata.resourceVersion", "1").build(), Pod))
    await bench.submit(job(bench, "one", "x"), job(bench, "two", "y"))
    await bench.cycle()
    assert [host(bench, name) for name in ("one", "two")] == ["n0", "n1"]


async def test_a_node_that_can_attach_more_than_before_is_used_at_once(bench: Bench) -> None:
    for name in ("n0", "n1", "n2"):
        limit(bench, name, 0)
    await bench.submit(job(bench, "waits", "x"))
    await bench.cycle()
    assert bench.row("waits").reason is Reason.UNSATISFIABLE
    limit(bench, "n1", 1, version=2)
    await bench.cycle()
    assert host(bench, "waits") == "n1"


def gang(bench: Bench, name: str, pods: int, cpu: str, *claims: str) -> NewWorkload:
    builder = (
        make_job(name)
        .namespace("default")
        .cpu(cpu)
        .indexed(pods)
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    described = describe_job(
        a_job(builder.with_("spec.template.spec.volumes", volumes(bench, *claims)), uid=name),
        around(storage=bench.storage),
    )
    assert described is not None
    return described


async def test_a_claim_that_pods_of_a_gang_share_counts_once_on_each_node(bench: Bench) -> None:
    for name in ("n0", "n1", "n2"):
        limit(bench, name, 1)
    await bench.submit(gang(bench, "shares", 4, "3", "shared"), job(bench, "other", "x"))
    await bench.cycle()
    allocation = bench.ledger.allocation(bench.row("shares").id)
    assert allocation is not None
    assert {share.node: share.amounts["volumes:csi:example.com"] for share in allocation.shares} == {
        "n0": 1,
        "n1": 1,
    }
    assert host(bench, "other") == "n2"


async def test_a_gang_that_shares_more_claims_than_any_node_attaches_is_unsatisfiable(bench: Bench) -> None:
    for name in ("n0", "n1", "n2"):
        limit(bench, name, 1)
    await bench.submit(gang(bench, "shares", 4, "1", "shared", "also"))
    await bench.cycle()
    row = bench.row("shares")
    assert row.reason is Reason.UNSATISFIABLE
    assert (
        row.message == "no node has 2 volumes of example.com: the largest has 1 volumes of example.com in all"
    )
