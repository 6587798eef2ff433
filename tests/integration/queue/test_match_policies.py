"""Match policies of queues: grants, reservations, and reservations after the graph was filled again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        made.policy = Policy.EASY
        yield made
    await matcher.close()


async def test_work_is_matched_by_the_policy_of_its_queue_and_edits_apply_at_once(bench: Bench) -> None:
    bench.match_policy = "hinode"
    await bench.submit(job("high", 1, "1"))
    await bench.cycle()
    bench.match_policy = ""
    await bench.submit(job("usual", 1, "1"))
    await bench.cycle()
    assert (bench.row("high").hosts, bench.row("usual").hosts) == ("n3", "n0")


async def test_whole_nodes_are_reserved_granted_and_restored_as_whole_nodes(bench: Bench) -> None:
    bench.match_policy = "lonodex"
    await bench.submit(
        job("wide", 3, "8", "1h"),
        job("next", 4, "8", "1h"),
        job("small", 1, "1", "30m"),
        job("other", 1, "1", "30m"),
    )
    await bench.cycle()
    assert bench.row("small").state is State.ALLOCATED
    # its core is free, but the other workload has the whole node
    assert bench.row("other").state is State.PENDING
    # it lost the graph, as a restart does
    await bench.fluxion.init("lonode", nodes=[], call=bench.graph.call())
    assert not await bench.graph.alive()
    await bench.cycle()
    promise = bench.ledger.reservation(bench.row("next").id)
    assert promise is not None
    jobs = {
        each.jobid: each for each in await bench.fluxion.list_jobs(call=bench.graph.call(), with_shares=True)
    }
    assert all(share.exclusive for share in jobs[promise.jobid].shares)
