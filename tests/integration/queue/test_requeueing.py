"""What evicted work holds: in the tables, in memory and in the matcher."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.changes import Ending, Eviction, Requeue, TakenSlot
from fluxqueue.queue.model.records import UNREAD, FluxionJobId, Workload
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.store import Store


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(4)])
    return cache


async def running(bench: Bench, name: str, pods: int) -> Workload:
    """Return a workload of whole nodes whose pods are all stored in their slots."""
    await bench.submit(job(name, pods, "8"))
    await bench.cycle()
    row = bench.row(name)
    assert row.jobid is not None
    await bench.ledger.mark_released([FluxionJobId(row.jobid)])
    await bench.ledger.take_slots(
        [TakenSlot(FluxionJobId(row.jobid), rank, f"{name}-{rank}", f"{name}-{rank}") for rank in range(pods)]
    )
    await bench.ledger.mark_started([row.id])
    return bench.row(name)


async def lose(bench: Bench, row: Workload, *ranks: int, requeue_state: RequeueState | None = None) -> None:
    """Evict and requeue a workload whose pods of these ranks are on lost nodes."""
    why = Reason.NODES_UNAVAILABLE, "node n0 was lost"
    await bench.ledger.evict(
        [Eviction(workload=row.id, reason=why[0], message=why[1], requeue_state=requeue_state)]
    )
    kept = tuple((FluxionJobId(row.jobid or 0), rank) for rank in ranks)
    await bench.ledger.requeue([Requeue(workload=row.id, reason=why[0], message=why[1], kept=kept)])


async def test_evicted_work_drains_with_its_reason_and_keeps_its_submit_time(bench: Bench) -> None:
    before = await running(bench, "first", 2)
    await bench.ledger.evict([Eviction(workload=before.id, reason=Reason.PREEMPTED, message="for others")])
    draining = bench.row("first")
    assert (draining.state, draining.reason, draining.message) == (
        State.DRAINING,
        Reason.PREEMPTED,
        "for others",
    )
    await bench.ledger.requeue([Requeue(workload=before.id, reason=Reason.PREEMPTED, message="for others")])
    (stored,) = await bench.store.pending()
    assert stored == bench.row("first")
    assert (stored.submitted_at, stored.requeues, stored.generation) == (before.submitted_at, 1, UNREAD)
    history = [(line.before, line.after, line.reason) for line in await bench.store.history(before.id)][-2:]
    assert history == [
        (State.RUNNING, State.DRAINING, "Preempted"),
        (State.DRAINING, State.PENDING, "Preempted"),
    ]


async def test_requeued_work_is_not_matched_before_its_object_was_read_again(bench: Bench) -> None:
    row = await running(bench, "first", 2)
    await lose(bench, row)
    await bench.cycle()
    assert bench.row("first").state is State.PENDING
    await bench.submit(job("first", 2, "8"))
    await bench.cycle()
    assert bench.row("first").state is State.ALLOCATED


async def test_slots_of_pods_on_lost_nodes_stay_booked_and_the_others_are_free(bench: Bench) -> None:
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


async def test_the_next_leader_and_a_new_graph_keep_the_booked_slots(
    bench: Bench, store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion
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


async def test_the_end_of_a_workload_frees_its_booked_slots(bench: Bench) -> None:
    row = await running(bench, "first", 3)
    await lose(bench, row, 1)
    await bench.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED, "deleted")])
    await bench.cycle()
    assert await bench.held() == {}
    assert await bench.store.live_allocations() == []


async def test_work_is_not_matched_before_the_end_of_its_backoff(
    store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion
) -> None:
    now = datetime.now(UTC)
    async with a_leader(store, nodes, fluxion, lambda: now) as bench:
        row = await running(bench, "first", 2)
        await lose(bench, row, requeue_state=RequeueState(losses=1, not_before=now + timedelta(seconds=30)))
        await bench.submit(job("first", 2, "8"))
        await bench.cycle()
        assert bench.row("first").state is State.PENDING
        assert (await bench.store.pending())[0].requeue_state == bench.row("first").requeue_state
        now += timedelta(seconds=31)
        bench.ledger.notify([row.id])
        await bench.cycle()
        assert bench.row("first").state is State.ALLOCATED
