"""What a cycle says of work that fits only nodes the cluster may grow by."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Provision, QueueLimits
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.fluxion.nodes import NodeRules
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.provisioning import NodeShape, Prospects, imagined_nodes
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    """Two nodes of 8 cores, and up to two of 16 to come."""
    nodes: ObjectStore[Node] = ObjectStore()
    nodes.replace([a_node("n0"), a_node("n1")])
    shapes = [NodeShape(name="large", allocatable={"cpu": "16", "memory": "32Gi"}, max_nodes=2)]
    fluxion = LocalFluxion()
    async with a_leader(store, nodes, fluxion, prospects=Prospects(imagined_nodes(shapes, NodeRules()))) as made:
        yield made
    await fluxion.close()


def told(bench: Bench, *names: str) -> list[Reason]:
    return [bench.row(name).reason for name in names]


async def test_what_may_fit_later_waits_for_nodes_and_what_never_may_is_unsatisfiable(bench: Bench) -> None:
    await bench.submit(job("later", 2, "16"), job("never", 1, "17"), job("too-many", 3, "16"), job("now", 1, "8"))
    await bench.cycle()
    assert told(bench, "later", "never", "too-many") == [Reason.WAITING_FOR_NODES, Reason.UNSATISFIABLE, Reason.UNSATISFIABLE]
    assert "with more nodes of shape large it would fit" in bench.row("later").message
    assert bench.row("now").state is State.ALLOCATED


async def test_a_gang_may_need_nodes_that_are_there_and_nodes_that_are_not(bench: Bench) -> None:
    await bench.submit(job("five", 5, "8"), job("seven", 7, "8"))
    await bench.cycle()
    assert told(bench, "five", "seven") == [Reason.WAITING_FOR_NODES, Reason.UNSATISFIABLE]
    assert "shape large" in bench.row("five").message


async def test_a_queue_that_asks_for_nodes_says_so_from_the_moment_it_does(bench: Bench) -> None:
    await bench.submit(job("later", 1, "16"))
    await bench.cycle()
    assert told(bench, "later") == [Reason.WAITING_FOR_NODES]
    bench.provision = Provision.GATE
    await bench.cycle()
    assert told(bench, "later") == [Reason.PROVISIONING]
    await bench.submit(job("alike", 1, "16"))
    await bench.cycle()
    assert told(bench, "alike") == [Reason.PROVISIONING]
    bench.provision = Provision.NONE
    await bench.cycle()
    assert told(bench, "later", "alike") == [Reason.WAITING_FOR_NODES] * 2


async def test_it_is_matched_as_soon_as_such_a_node_is_there(bench: Bench) -> None:
    bench.provision = Provision.GATE
    await bench.submit(job("later", 2, "16"))
    await bench.cycle()
    bench.nodes.apply(a_node("n2", "16"))
    await bench.cycle()
    assert told(bench, "later") == [Reason.PROVISIONING]
    bench.nodes.apply(a_node("n3", "16"))
    await bench.cycle()
    assert (bench.row("later").state, bench.row("later").hosts) == (State.ALLOCATED, "n[2-3]")


async def test_who_is_at_a_limit_has_no_nodes_added(bench: Bench) -> None:
    bench.provision, bench.limits = Provision.GATE, QueueLimits(running=1)
    await bench.submit(job("runs", 1, "8"))
    await bench.cycle()
    await bench.submit(job("later", 1, "16"))
    await bench.cycle()
    assert told(bench, "later") == [Reason.QUEUE_LIMIT]
    bench.limits = None
    await bench.cycle()
    assert told(bench, "later") == [Reason.PROVISIONING]


async def test_when_the_node_that_could_hold_it_goes_it_waits_for_one_like_it(bench: Bench) -> None:
    bench.nodes.apply(a_node("n2", "16"))
    await bench.submit(job("runs", 1, "16"), job("later", 1, "16"))
    await bench.cycle()
    assert (bench.row("runs").hosts, told(bench, "later")) == ("n2", [Reason.WAITING_FOR_NODES])
    bench.provision = Provision.GATE
    bench.nodes.replace([a_node("n0"), a_node("n1")])
    await bench.cycle()
    assert told(bench, "later") == [Reason.PROVISIONING]
