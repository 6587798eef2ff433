"""Nodes that were chosen for FluxReservations, and the reasons that name them, in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.errors import StaleLeader


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


async def test_choices_are_stored_replaced_and_forgotten(store: Store) -> None:
    epoch = await store.acquire_leadership("a")
    await store.reserve_nodes(epoch, {"uid-1": ("n0", "n1"), "uid-2": ()}, [])
    await store.reserve_nodes(epoch, {"uid-1": ["n2"]}, ["uid-2", "uid-3"])
    assert await store.reserved_nodes() == {"uid-1": ("n2",)}
    await store.reserve_nodes(epoch, {}, [])


async def test_an_old_leader_chooses_nothing(store: Store) -> None:
    old = await store.acquire_leadership("a")
    await store.acquire_leadership("b")
    with pytest.raises(StaleLeader):
        await store.reserve_nodes(old, {"uid-1": ("n0",)}, [])
    assert await store.reserved_nodes() == {}


async def test_the_next_leader_keeps_the_nodes_that_were_chosen(store: Store) -> None:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    for present in (["n2", "n3"], ["n0", "n1", "n2", "n3"]):
        matcher = LocalFluxion()
        async with a_leader(store, nodes, matcher) as bench:
            bench.nodes.replace([a_node(name) for name in present])
            bench.reserve("course", start="2126-12-01T09:00:00", nodes={"count": 2})
            await bench.cycle()
            assert bench.book.booked["course"].nodes == ("n2", "n3")
        await matcher.close()


@pytest.mark.parametrize(
    ("reason", "state"), [(Reason.RESERVATION, "available"), (Reason.RESERVATION_NOT_ALLOWED, "pending")]
)
async def test_the_reasons_are_stored_and_shown_in_the_view(bench: Bench, reason: Reason, state: str) -> None:
    await bench.submit(job("waits", 1, "1"))
    await bench.ledger.set_reasons(
        [ReasonChange(workload=bench.row("waits").id, reason=reason, message="why")]
    )
    assert bench.row("waits").reason is reason
    async with bench.store._database.connection() as connection:
        (found,) = await (await connection.execute("SELECT state::text FROM fluxqueue.river_job")).fetchall()
    assert list(found) == [state]
