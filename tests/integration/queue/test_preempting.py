"""Preemption in whole cycles: which work is evicted, which is not,
and that a failed trial does not change the graph.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.elastic_jobs import ShownPods, held, leaving, moldable, started
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import NamespaceLimits, Policy, Preemption, QueueLimits
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        yield made
    await matcher.close()


async def start(bench: Bench, *names: str) -> None:
    """Release and start granted Jobs."""
    rows = [bench.row(name) for name in names]
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows])


async def requeued(bench: Bench, name: str) -> None:
    """Requeue a Job as the requeuer does once its pods are gone,
    and submit it as the intake reads it again.
    """
    row = bench.row(name)
    await bench.ledger.requeue([Requeue(workload=row.id, reason=row.reason, message=row.message)])
    await bench.submit(job(name, row.pods, "8", "1h"))


def drained(bench: Bench, names: Iterable[str]) -> str:
    return "".join(name for name in names if bench.row(name).state is State.DRAINING)


async def test_the_youngest_of_the_lowest_is_evicted_with_a_reason_and_keeps_its_order(bench: Bench) -> None:
    await bench.submit(job("a", 2, "8", "1h"), job("b", 2, "8", "1h"))
    await bench.cycle()
    await start(bench, "a", "b")
    submitted = bench.row("b").submitted_at
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    with capture_logs() as logs:
        await bench.cycle()
    victim = drained(bench, "ab")
    assert len(victim) == 1
    row = bench.row(victim)
    preempting = [
        (each["workload"], each["victims"]) for each in logs if each["event"] == "workload.preempting"
    ]
    assert preempting == [(bench.row("urgent").id, [row.id])], "who may read the log learns of both"
    assert row.reason is Reason.PREEMPTED
    assert row.message == (
        f"Job default/{victim} (priority 0) was preempted by Job default/urgent (priority 10): it is "
        "requeued and keeps its submit time"
    )
    await bench.cycle()
    assert drained(bench, "ab") == victim
    await requeued(bench, victim)
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED
    assert (bench.row(victim).state, bench.row(victim).requeues) == (State.PENDING, 1)
    assert bench.row(victim).reason is Reason.PREEMPTED
    if victim == "b":
        assert bench.row("b").submitted_at == submitted


async def test_a_trial_that_fails_leaves_the_graph_as_it_was(bench: Bench) -> None:
    await bench.submit(job("low", 2, "8", "1h"), job("high", 2, "8", "1h", priority=20))
    await bench.cycle()
    await start(bench, "low", "high")
    before = await bench.held()
    await bench.submit(job("wide", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert {bench.row(name).state for name in ("low", "high")} == {State.RUNNING}
    held = await bench.held()
    assert {jobid: held[jobid] for jobid in before} == before
    reservation = bench.ledger.reservation(bench.row("wide").id)
    assert reservation is not None
    assert held[reservation.jobid] == {f"n{number}": 1 for number in range(4)}


async def test_without_preemption_no_work_is_evicted(bench: Bench) -> None:
    bench.preemption = Preemption.NEVER
    await bench.submit(job("a", 4, "8", "1h"))
    await bench.cycle()
    await start(bench, "a")
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert drained(bench, "a") == ""


async def test_work_that_is_about_to_be_released_is_no_victim(bench: Bench) -> None:
    await bench.submit(job("a", 4, "8", "1h"))
    await bench.cycle()
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert drained(bench, "a") == ""


async def test_free_nodes_next_to_victims_stay_reserved_while_they_drain(bench: Bench) -> None:
    await bench.submit(job("low", 3, "8", "1h"))
    await bench.cycle()
    await start(bench, "low")
    await bench.submit(job("urgent", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert bench.row("low").state is State.DRAINING
    await bench.submit(job("short", 1, "8", "30m"))
    await bench.cycle()
    reservation = bench.ledger.reservation(bench.row("urgent").id)
    assert reservation is not None
    assert reservation.start - bench.ledger.clock() <= timedelta(seconds=60)
    assert bench.row("short").state is State.PENDING
    await requeued(bench, "low")
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED


@pytest.mark.parametrize(
    "limits",
    [QueueLimits(nodes=3), QueueLimits(per_namespace=NamespaceLimits(nodes=3))],
    ids=["queue", "namespace"],
)
async def test_no_work_is_evicted_for_work_over_a_limit(bench: Bench, limits: QueueLimits) -> None:
    # FCFS learns of a limit on nodes only from the answer of the match
    bench.policy, bench.limits = Policy.FCFS, limits
    bench.other_queues = {"low": Discipline(preemption=Preemption.LOWER_PRIORITY)}
    await bench.submit(replace(job("low", 4, "8", "1h"), queue="low"))
    await bench.cycle()
    await start(bench, "low")
    await bench.submit(job("wide", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert bench.row("low").state is State.RUNNING


async def test_no_work_is_evicted_for_nodes_that_work_of_higher_order_would_take(bench: Bench) -> None:
    bench.other_queues = {"others": Discipline(Policy.EASY)}
    await bench.submit(
        job("low", 2, "8", "1h"), replace(job("high", 2, "8", "1h", priority=30), queue="others")
    )
    await bench.cycle()
    await start(bench, "low", "high")
    waiting = [job("wide", 3, "8", "1h", priority=20), job("ahead", 2, "8", "10m", priority=20)]
    await bench.submit(
        *(replace(each, queue="others") for each in waiting), job("urgent", 2, "8", "1h", priority=10)
    )
    await bench.cycle()
    assert bench.row("low").state is State.RUNNING
    gone = [Ending(bench.row(name).id, State.CANCELLED, Outcome.CANCELLED, "") for name in ("wide", "ahead")]
    await bench.ledger.finish(gone)
    await bench.cycle()
    assert bench.row("low").state is State.DRAINING


async def test_a_reservation_of_lower_priority_in_another_queue_prevents_no_eviction(bench: Bench) -> None:
    bench.other_queues["batch"] = Discipline(Policy.EASY)
    await bench.submit(job("low", 2, "8", "2h"))
    await bench.cycle()
    await start(bench, "low")
    await bench.submit(replace(job("all", 4, "8", "1h"), queue="batch"))
    await bench.cycle()
    reserved = bench.ledger.reservation(bench.row("all").id)
    assert reserved is not None
    await bench.submit(job("urgent", 3, "8", "24h", priority=10))
    await bench.cycle()
    assert drained(bench, ["low"]) == "low"
    assert {share.node for share in reserved.shares} == {"n0", "n1", "n2", "n3"}


async def test_reserved_nodes_of_equal_priority_are_not_free_for_preemption(bench: Bench) -> None:
    bench.other_queues["batch"] = Discipline(Policy.EASY)
    await bench.submit(job("low", 2, "8", "2h"))
    await bench.cycle()
    await start(bench, "low")
    await bench.submit(replace(job("all", 4, "8", "1h", priority=10), queue="batch"))
    await bench.cycle()
    await bench.submit(job("urgent", 3, "8", "24h", priority=10))
    await bench.cycle()
    assert drained(bench, ["low"]) == ""


async def test_a_new_leader_goes_on_with_what_a_job_gives_back(bench: Bench, store: Store) -> None:
    shown = ShownPods()
    bench.shown = shown
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert leaving(bench, "wide") == [2, 3]
    matcher = LocalFluxion()
    async with a_leader(store, bench.nodes, matcher) as second:
        second.policy, second.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        second.shown = shown
        await second.cycle()
        assert (second.row("wide").state, leaving(second, "wide")) == (State.RUNNING, [2, 3])
        assert second.row("wide").requeue_state == bench.row("wide").requeue_state
        await second.ledger.end_slots([(held(second, "wide").jobid, rank) for rank in (2, 3)])
        await second.cycle()
        assert second.row("urgent").state is State.ALLOCATED
        assert second.ledger.giving_back() == []
    await matcher.close()


async def test_what_ends_for_work_that_waits_is_said_to_it(bench: Bench, store: Store) -> None:
    shown = ShownPods()
    bench.shown = shown
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    words = (
        r"; it waits for 2 pods of Job default/wide to end, since \S+Z, at most until \S+Z: "
        r"\d+ node-seconds lost"
    )
    assert re.search(rf"{words}$", told := bench.row("urgent").message)
    matcher = LocalFluxion()
    async with a_leader(store, bench.nodes, matcher) as second:
        second.policy, second.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        second.shown = shown
        await second.cycle()
        assert second.row("urgent").message.endswith(told.partition("; it waits for ")[2]), (
            "also under a new leader"
        )
        await second.ledger.end_slots([(held(second, "wide").jobid, rank) for rank in (2, 3)])
        await second.cycle()
        assert second.row("urgent").state is State.ALLOCATED
    await matcher.close()
