"""A queue's own match policy: its grants, its reservations, and those after the graph was filled anew."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectStore[Node] = ObjectStore()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        made.policy = Policy.EASY
        yield made
    await matcher.close()


async def test_work_is_placed_by_the_policy_of_its_queue_and_an_edit_acts_at_once(bench: Bench) -> None:
    bench.match_policy = "hinode"
    await bench.submit(job("high", 1, "1"))
    await bench.cycle()
    bench.match_policy = ""
    await bench.submit(job("usual", 1, "1"))
    await bench.cycle()
    assert (bench.row("high").hosts, bench.row("usual").hosts) == ("n3", "n0")


async def test_whole_nodes_are_reserved_granted_and_found_again_as_whole_nodes(bench: Bench) -> None:
    bench.match_policy = "lonodex"
    await bench.submit(job("wide", 3, "8", "1h"), job("next", 4, "8", "1h"), job("small", 1, "1", "30m"), job("other", 1, "1", "30m"))
    await bench.cycle()
    assert bench.row("small").state is State.ALLOCATED
    assert bench.row("other").state is State.PENDING  # its core is free, but the node is the other's alone
    await bench.fluxion.init("lonode", nodes=[], call=bench.graph.call())  # it lost the graph, as a restart does
    assert not await bench.graph.alive()
    await bench.cycle()
    promise = bench.ledger.reservation(bench.row("next").id)
    assert promise is not None
    jobs = {each.jobid: each for each in await bench.fluxion.list_jobs(call=bench.graph.call(), with_shares=True)}
    assert all(share.exclusive for share in jobs[promise.jobid].shares)
