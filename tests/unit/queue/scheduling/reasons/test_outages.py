"""Which workloads wait for nodes that are not up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container

import pytest
from support.queue_bench import Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.reasons.outages import Outages


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine() as made:
        await made.submit(job("wide", 4, "8"), job("small", 1, "8"))
        yield made


async def reasons(bench: Bench, reserved: Container[WorkloadId] = ()) -> dict[str, Reason]:
    """Return the refined reasons of both workloads."""
    await bench.graph.ensure()
    rows = {bench.row(name).id: name for name in ("wide", "small")}
    changes = [
        ReasonChange(workload=workload, reason=Reason.WAITING_FOR_NODES, message="") for workload in rows
    ]
    refined = await Outages(bench.ledger, bench.graph).refine(changes, reserved)
    return {rows[change.workload]: change.reason for change in refined}


async def test_with_all_nodes_up_reasons_stay(bench: Bench) -> None:
    assert await reasons(bench) == {"wide": Reason.WAITING_FOR_NODES, "small": Reason.WAITING_FOR_NODES}


async def test_only_work_that_needs_a_node_that_is_down_waits_for_it(bench: Bench) -> None:
    bench.nodes.apply(a_node("n0", cordoned=True))
    assert await reasons(bench) == {"wide": Reason.NODES_UNAVAILABLE, "small": Reason.WAITING_FOR_NODES}


async def test_with_all_nodes_down_all_work_waits_for_them(bench: Bench) -> None:
    for number in range(4):
        bench.nodes.apply(a_node(f"n{number}", cordoned=True))
    assert await reasons(bench) == {"wide": Reason.NODES_UNAVAILABLE, "small": Reason.NODES_UNAVAILABLE}


async def test_work_with_a_reservation_does_not_wait_for_nodes_that_are_down(bench: Bench) -> None:
    bench.nodes.apply(a_node("n0", cordoned=True))
    assert (await reasons(bench, {bench.row("wide").id}))["wide"] is Reason.WAITING_FOR_NODES


async def test_work_that_is_not_asked_about_is_told_when_a_node_is_up_again() -> None:
    """Something smaller of its family is refused before it, so that the matcher is not asked about it."""
    async with a_machine() as bench:
        bench.policy = Policy.EASY
        await bench.submit(job("running", 3, "8"))
        await bench.cycle()
        for name in ("n2", "n3"):
            bench.nodes.apply(a_node(name, cordoned=True))
        await bench.submit(job("small", 1, "8"), job("wide", 4, "8"))
        await bench.cycle()
        assert "n2, n3 are cordoned" in bench.row("wide").message

        bench.nodes.apply(a_node("n2"))
        await bench.cycle()
        assert (
            bench.row("wide").message
            == "the nodes that are up could not hold it: n3 is cordoned or not ready"
        )
        assert bench.row("wide").reason is Reason.NODES_UNAVAILABLE

        bench.nodes.apply(a_node("n3", "1"))
        await bench.cycle()
        assert bench.row("wide").reason is not Reason.NODES_UNAVAILABLE
