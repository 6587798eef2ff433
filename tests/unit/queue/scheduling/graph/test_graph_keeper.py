"""The graph of the matcher follows nodes and allocations, and is filled again once it is in doubt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from support.queue_bench import Bench, a_machine, a_node, job

from fluxqueue.fluxion.messages import AppliedChanges
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphLost
from fluxqueue.queue.store.freed import Freed


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine() as made:
        yield made


async def test_the_graph_gets_all_nodes_and_live_allocations(bench: Bench) -> None:
    await bench.submit(job("a", 2, "8"))
    await bench.cycle()
    bench.graph.invalidate()
    await bench.graph.ensure()
    assert set(bench.graph.nodes) == {"n0", "n1", "n2", "n3"}
    assert await bench.held() == {bench.row("a").jobid: {"n0": 1, "n1": 1}}
    assert bench.graph.rebuilds == 2


async def test_a_changed_node_is_sent_without_a_rebuild(bench: Bench) -> None:
    await bench.graph.ensure()
    bench.graph.take_capacity_changed()
    version = bench.graph.version
    bench.nodes.apply(a_node("n0", cordoned=True))
    await bench.graph.ensure()
    assert (bench.graph.rebuilds, bench.graph.version) == (1, version + 1)
    assert not bench.graph.usable("n0")
    assert bench.graph.usable("n1")
    assert bench.graph.take_capacity_changed()
    assert not bench.graph.take_capacity_changed()


async def test_an_unchanged_cluster_costs_no_change(bench: Bench) -> None:
    await bench.graph.ensure()
    bench.graph.take_capacity_changed()
    version = bench.graph.version
    await bench.graph.ensure()
    assert bench.graph.version == version
    assert not bench.graph.take_capacity_changed()


async def test_a_freed_allocation_is_cancelled_in_the_graph(bench: Bench) -> None:
    await bench.submit(job("a", 2, "8"))
    await bench.cycle()
    jobid = bench.row("a").jobid
    assert jobid is not None
    bench.graph.take_capacity_changed()
    bench.ledger.return_freed(Freed(jobs={FluxionJobId(jobid)}))
    await bench.graph.ensure()
    assert await bench.held() == {}
    assert bench.graph.take_capacity_changed()


async def test_a_change_that_the_matcher_refuses_makes_the_next_call_fill_the_graph(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.graph.ensure()

    async def refuse(*_args: object, **_kwargs: object) -> AppliedChanges:
        return AppliedChanges(False, bench.graph.call().instance, reason="unknown node")

    bench.nodes.apply(a_node("n9"))
    with monkeypatch.context() as patched:
        patched.setattr(bench.fluxion, "apply", refuse)
        with pytest.raises(GraphLost, match="Fluxion did not change nodes: unknown node"):
            await bench.graph.ensure()
    await bench.graph.ensure()
    assert bench.graph.rebuilds == 2
    assert bench.graph.usable("n9")


async def test_a_lost_graph_is_detected(bench: Bench) -> None:
    await bench.graph.ensure()
    assert await bench.graph.alive()
    await bench.fluxion.init("lonode", nodes=[], call=bench.graph.call())
    assert not await bench.graph.alive()
    assert await bench.graph.alive(), "a graph that is yet to be filled counts as alive"


async def test_a_graph_that_is_filled_again_follows_a_time_of_day_that_went_back(bench: Bench) -> None:
    right = bench.ledger.wall
    bench.ledger.wall = lambda: right() + timedelta(hours=1)
    await bench.submit(job("early", 1, "1"))
    await bench.cycle()
    bench.ledger.wall = right
    bench.graph.invalidate()
    await bench.submit(job("right", 1, "1"))
    await bench.cycle()
    starts = {workload.name: allocation.start for workload, allocation in bench.ledger.live()}
    assert starts["early"] - right() > timedelta(minutes=50)
    assert abs(starts["right"] - right()) < timedelta(minutes=10)
