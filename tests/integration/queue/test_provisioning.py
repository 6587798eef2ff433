"""The reasons of work that fits only nodes that can be added to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Provision, QueueLimits
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.graph.nodes import NodeRules
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShape, NodeShapes, possible_nodes
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    """Two nodes of 8 cores, and up to two of 16 that may be added."""
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node("n0"), a_node("n1")])
    shapes = [NodeShape(name="large", allocatable={"cpu": "16", "memory": "32Gi"}, max_nodes=2)]
    fluxion = LocalFluxion()
    async with a_leader(
        store, nodes, fluxion, node_shapes=NodeShapes(possible_nodes(shapes, NodeRules()))
    ) as made:
        yield made
    await fluxion.close()


def reasons_of(bench: Bench, *names: str) -> list[Reason]:
    return [bench.row(name).reason for name in names]


async def test_work_that_fits_a_larger_cluster_waits_and_other_work_is_unsatisfiable(bench: Bench) -> None:
    await bench.submit(
        job("later", 2, "16"), job("never", 1, "17"), job("too-many", 3, "16"), job("now", 1, "8")
    )
    await bench.cycle()
    assert reasons_of(bench, "later", "never", "too-many") == [
        Reason.WAITING_FOR_NODES,
        Reason.UNSATISFIABLE,
        Reason.UNSATISFIABLE,
    ]
    assert "with more nodes of shape large it would fit" in bench.row("later").message
    assert bench.row("now").state is State.ALLOCATED


async def test_a_gang_may_need_present_nodes_and_added_nodes(bench: Bench) -> None:
    await bench.submit(job("five", 5, "8"), job("seven", 7, "8"))
    await bench.cycle()
    assert reasons_of(bench, "five", "seven") == [Reason.WAITING_FOR_NODES, Reason.UNSATISFIABLE]
    assert "shape large" in bench.row("five").message


async def test_the_reason_changes_when_a_queue_begins_to_request_nodes(bench: Bench) -> None:
    await bench.submit(job("later", 1, "16"))
    await bench.cycle()
    assert reasons_of(bench, "later") == [Reason.WAITING_FOR_NODES]
    bench.provision = Provision.GATE
    await bench.cycle()
    assert reasons_of(bench, "later") == [Reason.PROVISIONING]
    await bench.submit(job("alike", 1, "16"))
    await bench.cycle()
    assert reasons_of(bench, "alike") == [Reason.PROVISIONING]
    bench.provision = Provision.NONE
    await bench.cycle()
    assert reasons_of(bench, "later", "alike") == [Reason.WAITING_FOR_NODES] * 2


async def test_work_is_matched_as_soon_as_such_a_node_is_added(bench: Bench) -> None:
    bench.provision = Provision.GATE
    await bench.submit(job("later", 2, "16"))
    await bench.cycle()
    bench.nodes.apply(a_node("n2", "16"))
    await bench.cycle()
    assert reasons_of(bench, "later") == [Reason.PROVISIONING]
    bench.nodes.apply(a_node("n3", "16"))
    await bench.cycle()
    assert (bench.row("later").state, bench.row("later").hosts) == (State.ALLOCATED, "n[2-3]")


async def test_no_nodes_are_requested_for_work_over_a_limit(bench: Bench) -> None:
    bench.provision, bench.limits = Provision.GATE, QueueLimits(running=1)
    await bench.submit(job("runs", 1, "8"))
    await bench.cycle()
    await bench.submit(job("later", 1, "16"))
    await bench.cycle()
    assert reasons_of(bench, "later") == [Reason.QUEUE_LIMIT]
    bench.limits = None
    await bench.cycle()
    assert reasons_of(bench, "later") == [Reason.PROVISIONING]


async def test_work_waits_for_a_node_like_the_one_that_was_removed(bench: Bench) -> None:
    bench.nodes.apply(a_node("n2", "16"))
    await bench.submit(job("runs", 1, "16"), job("later", 1, "16"))
    await bench.cycle()
    assert (bench.row("runs").hosts, reasons_of(bench, "later")) == ("n2", [Reason.WAITING_FOR_NODES])
    bench.provision = Provision.GATE
    bench.nodes.replace([a_node("n0"), a_node("n1")])
    await bench.cycle()
    assert reasons_of(bench, "later") == [Reason.PROVISIONING]
