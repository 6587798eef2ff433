"""What work that was taken back holds, in the table, in memory and in the matcher."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.ledger import Ending, TakenSlot
from fluxqueue.queue.records import UNREAD, FluxionJobId, PutBack, Setbacks, TakeBack, Workload
from fluxqueue.queue.store import Store


@pytest.fixture
def nodes() -> ObjectStore[Node]:
    found: ObjectStore[Node] = ObjectStore()
    found.replace([a_node(f"n{number}") for number in range(4)])
    return found


@pytest.fixture
async def fluxion() -> AsyncIterator[LocalFluxion]:
    matcher = LocalFluxion()
    yield matcher
    await matcher.close()


@pytest.fixture
async def bench(store: Store, nodes: ObjectStore[Node], fluxion: LocalFluxion) -> AsyncIterator[Bench]:
    async with a_leader(store, nodes, fluxion) as made:
        yield made


async def running(bench: Bench, name: str, pods: int) -> Workload:
    """A workload of whole nodes whose pods all stand in their slots."""
    await bench.submit(job(name, pods, "8"))
    await bench.cycle()
    row = bench.row(name)
    assert row.jobid is not None
    await bench.ledger.released([FluxionJobId(row.jobid)])
    await bench.ledger.take_slots([TakenSlot(FluxionJobId(row.jobid), rank, f"{name}-{rank}", f"{name}-{rank}") for rank in range(pods)])
    await bench.ledger.started([row.id])
    return bench.row(name)


async def lose(bench: Bench, row: Workload, *ranks: int, setbacks: Setbacks | None = None) -> None:
    """Take a workload back whose pods of these ranks nobody hears from."""
    why = Reason.NODES_UNAVAILABLE, "node n0 was lost"
    await bench.ledger.take_back([TakeBack(workload=row.id, reason=why[0], message=why[1], setbacks=setbacks)])
    kept = tuple((FluxionJobId(row.jobid or 0), rank) for rank in ranks)
    await bench.ledger.requeue([PutBack(workload=row.id, reason=why[0], message=why[1], kept=kept)])


async def test_what_is_taken_back_drains_and_says_why_and_waits_again_with_its_submit_time(bench: Bench) -> None:
    before = await running(bench, "first", 2)
    await bench.ledger.take_back([TakeBack(workload=before.id, reason=Reason.PREEMPTED, message="for others")])
    draining = bench.row("first")
    assert (draining.state, draining.reason, draining.message) == (State.DRAINING, Reason.PREEMPTED, "for others")
    await bench.ledger.requeue([PutBack(workload=before.id, reason=Reason.PREEMPTED, message="for others")])
    (stored,) = await bench.store.pending()
    assert stored == bench.row("first")
    assert (stored.submitted_at, stored.requeues, stored.generation) == (before.submitted_at, 1, UNREAD)
    history = [(line.before, line.after, line.reason) for line in await bench.store.history(before.id)][-2:]
    assert history == [(State.RUNNING, State.DRAINING, "Preempted"), (State.DRAINING, State.PENDING, "Preempted")]


async def test_it_is_not_matched_before_its_object_was_read_again(bench: Bench) -> None:
    row = await running(bench, "first", 2)
    await lose(bench, row)
    await bench.cycle()
    assert bench.row("first").state is State.PENDING
    await bench.submit(job("first", 2, "8"))
    await bench.cycle()
    assert bench.row("first").state is State.ALLOCATED


async def test_slots_of_pods_nobody_hears_from_stay_booked_and_the_others_are_free(bench: Bench) -> None:
    row = await running(bench, "first", 3)
    await lose(bench, row, 1)
    await bench.submit(job("first", 3, "8"), job("next", 1, "8"))
    await bench.cycle()
    held = await bench.held()
    assert held[row.jobid or 0] == {"n1": 1}
    again = bench.row("first")
    assert again.state is State.ALLOCATED
    assert held[again.jobid or 0] == {"n0": 1, "n2": 1, "n3": 1}
    assert bench.row("next").state is State.PENDING
    await bench.ledger.end_slots([(FluxionJobId(row.jobid or 0), 1)])
    await bench.cycle()
    assert bench.row("next").state is State.ALLOCATED
    assert bench.row("next").hosts == "n1"
    assert not bench.ledger.remnants()


async def test_the_next_leader_and_a_new_graph_know_what_stays_booked(
    bench: Bench, store: Store, nodes: ObjectStore[Node], fluxion: LocalFluxion
) -> None:
    row = await running(bench, "first", 3)
    await lose(bench, row, 2)
    async with a_leader(store, nodes, fluxion) as second:
        assert [remnant.jobid for remnant in second.ledger.remnants()] == [row.jobid]
        await second.cycle()
        assert await second.held() == {row.jobid: {"n2": 1}}
        await second.submit(job("first", 3, "8"))
        await second.cycle()
        assert second.row("first").state is State.ALLOCATED
        assert len(second.ledger.live()) == 2


async def test_the_end_of_a_workload_ends_what_stayed_booked(bench: Bench) -> None:
    row = await running(bench, "first", 3)
    await lose(bench, row, 1)
    await bench.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED, "deleted")])
    await bench.cycle()
    assert await bench.held() == {}
    assert await bench.store.live_allocations() == []


async def test_what_backs_off_is_not_matched_until_its_time_has_come(store: Store, nodes: ObjectStore[Node], fluxion: LocalFluxion) -> None:
    now = datetime.now(UTC)
    async with a_leader(store, nodes, fluxion, lambda: now) as bench:
        row = await running(bench, "first", 2)
        await lose(bench, row, setbacks=Setbacks(losses=1, not_before=now + timedelta(seconds=30)))
        await bench.submit(job("first", 2, "8"))
        await bench.cycle()
        assert bench.row("first").state is State.PENDING
        assert (await bench.store.pending())[0].setbacks == bench.row("first").setbacks
        now += timedelta(seconds=31)
        bench.ledger.look_again([row.id])
        await bench.cycle()
        assert bench.row("first").state is State.ALLOCATED
