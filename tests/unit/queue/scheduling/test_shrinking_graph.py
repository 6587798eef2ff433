"""What Jobs that give pods back hold in the graph when something else happens to them meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from support.elastic_jobs import ShownPods, held, leaving, moldable, pods_end, started
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.queue.model.changes import Eviction, Requeue
from fluxqueue.queue.model.moldable import started_pods
from fluxqueue.queue.scheduling.graph.graph_jobs import leaving_job


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown() -> ShownPods:
    return ShownPods()


@pytest.fixture
async def bench(clock: Clock, shown: ShownPods) -> AsyncIterator[Bench]:
    """A Job on four nodes gives its last slot back."""
    async with a_machine(clock) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        made.shown = shown
        await started(made, shown, moldable("wide", 4, 1, duration="10h"))
        await made.submit(job("urgent", 1, "8", "1h", priority=10))
        await made.cycle()
        await made.cycle()
        assert leaving(made, "wide") == [3]
        yield made


async def test_what_was_given_back_is_that_of_one_allocation(bench: Bench) -> None:
    row = bench.row("wide")
    assert started_pods(replace(row, jobid=held(bench, "wide").jobid)) == 3
    assert started_pods(replace(row, jobid=None)) == 4


async def test_more_is_given_back_while_what_was_given_before_ends(
    bench: Bench, shown: ShownPods, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now += timedelta(minutes=7)
    await bench.submit(job("more", 1, "8", "1h", priority=20))
    await bench.cycle()
    given = bench.row("wide").requeue_state.given_back
    assert given is not None
    assert (leaving(bench, "wide"), given.due) == ([2, 3], (3,))
    ensure = bench.graph.ensure

    async def ensure_and_end() -> None:
        await ensure()
        await pods_end(bench, shown, "wide", 3)

    with monkeypatch.context() as during:
        during.setattr(bench.graph, "ensure", ensure_and_end)
        await bench.cycle()
    await bench.cycle()
    assert (bench.graph.rebuilds, leaving(bench, "wide")) == (1, [2])
    assert sum((await bench.held()).get(held(bench, "wide").jobid, {}).values()) == 2


@pytest.mark.parametrize("kept", [(3,), (2, 3)])
async def test_a_slot_that_was_given_back_on_a_lost_node_is_held_until_its_pod_is_gone(
    bench: Bench, clock: Clock, kept: tuple[int, ...]
) -> None:
    wide = held(bench, "wide")
    lost = Reason.NODES_UNAVAILABLE
    await bench.ledger.evict([Eviction(workload=bench.row("wide").id, reason=lost, message="")])
    remnant = tuple((wide.jobid, rank) for rank in kept)
    await bench.ledger.requeue(
        [Requeue(workload=bench.row("wide").id, reason=lost, message="", kept=remnant)]
    )
    for _ in range(4):
        await bench.cycle()
        clock.now += timedelta(seconds=70)
    await bench.submit(job("other", 4, "8", "1h", priority=20))
    for _ in range(3):
        await bench.cycle()
        clock.now += timedelta(seconds=70)
    planned = await bench.graph.fluxion.info(leaving_job(wide.jobid), call=bench.graph.call())
    assert planned.end >= clock.now.timestamp() - 70, "as at the last cycle"
    users = Counter(slot.node for _, allocation in bench.ledger.live() for slot in allocation.open_slots)
    assert max(users.values()) == 1, users
    assert bench.graph.rebuilds == 1


async def test_what_a_job_keeps_is_planned_until_it_ends_with_fewer_pods(
    bench: Bench, shown: ShownPods
) -> None:
    """Its pods have to do what the others did: nothing is planned on their nodes before.
    The work that waits is in its way at first.
    """
    await pods_end(bench, shown, "wide", 3)
    await bench.cycle()
    wide = held(bench, "wide")
    assert wide.end == START + timedelta(hours=10) * 4 / 3
    graph = bench.graph
    assert (await graph.fluxion.info(wide.jobid, call=graph.call())).end == int(wide.end.timestamp())
    await bench.submit(job("next", 4, "8", "1h"))
    await bench.cycle()
    reserved = bench.ledger.reservation(bench.row("next").id)
    assert reserved is not None
    assert reserved.start == wide.end
