"""The reason ``NodesUnavailable``: for work that needs nodes that are not up, and for no other work."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.store import Store


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(3)])
    return cache


@pytest.fixture
async def bench(store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion) -> AsyncIterator[Bench]:
    async with a_leader(store, nodes, fluxion) as made:
        made.policy = Policy.EASY
        yield made


def cordon(bench: Bench, *names: str) -> None:
    for name in names:
        bench.nodes.apply(a_node(name, cordoned=True))


async def test_with_all_nodes_cordoned_the_reason_is_nodes_unavailable(bench: Bench) -> None:
    cordon(bench, "n0", "n1", "n2")
    await bench.submit(job("any", 1, "1"))
    await bench.cycle()
    row = bench.row("any")
    assert (row.state, row.reason) == (State.PENDING, Reason.NODES_UNAVAILABLE)
    assert row.message == "the nodes that are up could not hold it: n0, n1, n2 are cordoned or not ready"


async def test_work_that_fits_the_nodes_that_are_up_waits_for_nodes(bench: Bench) -> None:
    cordon(bench, "n2")
    await bench.submit(job("runs", 2, "8"))
    await bench.cycle()
    await bench.submit(job("small", 1, "8"), job("large", 3, "8"))
    await bench.cycle()
    assert bench.row("small").reason is Reason.WAITING_FOR_NODES
    assert bench.row("large").reason is Reason.NODES_UNAVAILABLE
    bench.nodes.apply(_open("n2"))
    await bench.cycle()
    assert bench.row("small").hosts == "n2"
    assert bench.row("large").reason is Reason.WAITING_FOR_NODES


def _open(name: str) -> Node:
    node = a_node(name)
    return msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, resource_version="3")
    )
