"""What is used on a node in addition to slots: DaemonSets, pods with copied keys,
and pods that are larger than their slot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder, make_pod
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import NodeUse
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    """Two nodes of 4 cpu."""
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}", cpu="4") for number in range(2)])
    async with LocalFluxion() as fluxion, a_leader(store, nodes, fluxion) as made:
        yield made


def daemonset(uid: str, **requests: str) -> DaemonSet:
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    meta = {"name": uid, "namespace": "kube-system", "uid": uid}
    return msgspec.convert({"metadata": meta, "spec": {"template": {"spec": spec}}}, DaemonSet)


def owner(kind: str, uid: str) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
            "kind": kind,
            "name": uid,
            "uid": uid,
            "controller": True,
        }
    ]


def put(bench: Bench, builder: PodBuilder, version: int = 1, phase: str = "Running") -> None:
    named = (
        builder.uid(builder.build()["metadata"]["name"])
        .phase(phase)
        .with_("metadata.resourceVersion", str(version))
    )
    bench.pods.apply(msgspec.convert(named.build(), Pod))


async def use(bench: Bench, name: str) -> NodeUse:
    stat = await bench.fluxion.stat(call=bench.graph.call(), per_node=True)
    return next(each for each in stat.node_use if each.node == name)


# ---- DaemonSets --------------------------------------------------------------------------------------------


async def test_a_pod_that_fits_only_without_daemonsets_is_unsatisfiable_and_blocks_no_work(
    bench: Bench,
) -> None:
    bench.daemonsets.apply(daemonset("agent", cpu="100m"))
    await bench.submit(job("whole", 1, "4"), job("small", 1, "1"))
    await bench.cycle()
    await bench.cycle()
    whole = bench.row("whole")
    assert whole.reason is Reason.UNSATISFIABLE
    assert (
        whole.message
        == "no node has 4 cpu: the largest has 3.9 cpu in all; the pods of DaemonSets take 0.1 cpu of a node"
    )
    assert bench.row("small").state is State.ALLOCATED
    bench.daemonsets.remove(daemonset("agent", cpu="100m"))
    await bench.cycle()
    assert bench.row("whole").state is State.ALLOCATED


async def test_a_daemonset_pod_like_its_template_changes_nothing_in_the_graph(bench: Bench) -> None:
    bench.daemonsets.apply(daemonset("agent", cpu="100m"))
    await bench.cycle()
    version = bench.graph.version
    agent = (
        make_pod("agent-n0")
        .namespace("kube-system")
        .cpu("100m")
        .on_node("n0")
        .with_("metadata.ownerReferences", owner("DaemonSet", "agent"))
    )
    put(bench, agent)
    await bench.cycle()
    assert bench.graph.version == version
    assert (await use(bench, "n0")).total["cpu"] == 3_900
    put(bench, agent.cpu("300m"), version=2)
    await bench.cycle()
    assert (await use(bench, "n0")).total["cpu"] == 3_700


@pytest.mark.parametrize(
    "requests",
    [{"cpu": "5"}, {"nvidia.com/gpu": "1"}, {"cpu": "19P"}],
    ids=["too large", "a gpu it lacks", "absurd"],
)
async def test_a_daemonset_that_can_never_fit_closes_no_node(bench: Bench, requests: dict[str, str]) -> None:
    bench.daemonsets.apply(daemonset("never", **requests))
    await bench.submit(job("whole", 2, "4"))
    await bench.cycle()
    assert bench.row("whole").state is State.ALLOCATED


async def test_a_daemonset_on_full_nodes_closes_none_and_gets_its_share_as_work_ends(bench: Bench) -> None:
    await bench.submit(job("low", 1, "1"), job("high", 1, "2"))
    await bench.cycle()
    assert (bench.row("low").hosts, bench.row("high").hosts) == ("n0", "n0")
    bench.daemonsets.apply(daemonset("greedy", cpu="2"))
    await bench.cycle()
    node = await use(bench, "n0")
    assert (node.closed, node.total["cpu"]) == (False, 3_000)
    await end(bench, "low")
    await bench.cycle()
    node = await use(bench, "n0")
    assert (node.closed, node.total["cpu"], node.used["cpu"]) == (False, 2_000, 2_000)


async def end(bench: Bench, name: str) -> None:
    allocation = bench.ledger.allocation(bench.row(name).id)
    assert allocation is not None
    slot = allocation.slots[0]
    pod = make_pod(f"{name}-0").cpu("1").on_node(slot.node).allocation(slot.node, jobid=int(allocation.jobid))
    put(bench, pod.with_("metadata.ownerReferences", owner("Job", name)))
    await bench.ledger.end_slots([(slot.jobid, slot.rank)])
    put(bench, pod.with_("metadata.ownerReferences", owner("Job", name)), version=2, phase="Succeeded")


# ---- which pods are ours -----------------------------------------------------------------------------------


def of(workload: Workload, name: str, cpu: str = "2") -> PodBuilder:
    """A pod with the keys of a workload's allocation, bound to its node, owned by its Job."""
    pod = (
        make_pod(name)
        .cpu(cpu)
        .on_node(workload.hosts)
        .allocation(workload.hosts, jobid=int(workload.jobid or 0))
    )
    return pod.with_("metadata.ownerReferences", owner("Job", workload.uid))


async def ours(bench: Bench, cpu: str = "2") -> Workload:
    await bench.submit(job("ours", 1, cpu))
    await bench.cycle()
    return bench.row("ours")


async def test_the_pod_of_the_job_counts_through_its_slot(bench: Bench) -> None:
    put(bench, of(await ours(bench), "ours-0"))
    await bench.cycle()
    assert (await use(bench, "n0")).used["cpu"] == 2_000


@pytest.mark.parametrize(
    "forged",
    [
        lambda pod: pod.namespace("elsewhere"),
        lambda pod: pod.without("metadata.ownerReferences"),
        lambda pod: pod.with_("metadata.ownerReferences", owner("Job", "another")),
        lambda pod: pod.with_("metadata.ownerReferences", owner("ReplicaSet", "ours")),
    ],
    ids=["in another namespace", "of nobody", "of another Job", "of an owner that is no Job"],
)
async def test_a_pod_with_copied_keys_counts_as_foreign(bench: Bench, forged: Any) -> None:
    workload = await ours(bench)
    put(bench, of(workload, "ours-0"))
    put(bench, forged(of(workload, "forged")))
    await bench.cycle()
    assert (await use(bench, "n0")).used["cpu"] == 4_000


async def test_no_more_pods_count_as_ours_than_there_are_slots(bench: Bench) -> None:
    workload = await ours(bench)
    for name in ("ours-0", "ours-1"):
        put(bench, of(workload, name))
    await bench.cycle()
    assert (await use(bench, "n0")).used["cpu"] == 4_000


# ---- pods larger than their slot ---------------------------------------------------------------------------


async def test_a_pod_with_a_sidecar_beyond_its_slot_counts_with_its_full_size(bench: Bench) -> None:
    workload = await ours(bench)
    sidecar = {"name": "mesh", "resources": {"requests": {"cpu": "1"}}}
    pod = of(workload, "ours-0")
    put(bench, pod.with_("spec.containers", [*pod.build()["spec"]["containers"], sidecar]))
    await bench.submit(job("neighbour", 1, "2", namespace="elsewhere"))
    await bench.cycle()
    assert (await use(bench, "n0")).used["cpu"] == 3_000
    assert bench.row("neighbour").hosts == "n1"


async def test_a_pod_that_is_resized_in_place_counts_with_its_new_size(bench: Bench) -> None:
    workload = await ours(bench)
    for version, (cpu, used) in enumerate((("2", 2_000), ("3", 3_000), ("1", 2_000)), start=1):
        put(bench, of(workload, "ours-0", cpu), version=version)
        await bench.cycle()
        assert (await use(bench, "n0")).used["cpu"] == used


async def test_resources_of_a_pod_beyond_its_slot_are_freed_when_it_ends(bench: Bench) -> None:
    workload = await ours(bench)
    put(bench, of(workload, "ours-0", "4"))
    await bench.cycle()
    put(bench, of(workload, "ours-0", "4"), version=2, phase="Succeeded")
    await bench.cycle()
    assert (await use(bench, "n0")).used["cpu"] == 2_000
