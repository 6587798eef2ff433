"""Preemption in whole cycles: who makes room, who does not, and that the matcher's graph is the same after a look in vain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Limits, Policy, Preemption, QueueLimits
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.ledger import Ending
from fluxqueue.queue.policies.rounds import Discipline
from fluxqueue.queue.records import PutBack
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectStore[Node] = ObjectStore()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        yield made
    await matcher.close()


async def start(bench: Bench, *names: str) -> None:
    """Let go and run what was granted."""
    rows = [bench.row(name) for name in names]
    await bench.ledger.released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.started([row.id for row in rows])


async def put_back(bench: Bench, name: str) -> None:
    """What the requeuer does once the pods are gone, and the intake has read the Job again."""
    row = bench.row(name)
    await bench.ledger.requeue([PutBack(workload=row.id, reason=row.reason, message=row.message)])
    await bench.submit(job(name, row.pods, "8", "1h"))


def drained(bench: Bench, names: str) -> str:
    return "".join(name for name in names if bench.row(name).state is State.DRAINING)


async def test_the_youngest_of_the_lowest_makes_room_says_for_whom_and_keeps_its_place(bench: Bench) -> None:
    await bench.submit(job("a", 2, "8", "1h"), job("b", 2, "8", "1h"))
    await bench.cycle()
    await start(bench, "a", "b")
    submitted = bench.row("b").submitted_at
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    victim = drained(bench, "ab")
    assert len(victim) == 1
    row = bench.row(victim)
    assert row.reason is Reason.PREEMPTED
    assert row.message == (
        f"Job default/{victim} (priority 0) was suspended for Job default/urgent (priority 10): it waits again, in its old place"
    )
    await bench.cycle()
    assert drained(bench, "ab") == victim
    await put_back(bench, victim)
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED
    assert (bench.row(victim).state, bench.row(victim).requeues) == (State.PENDING, 1)
    assert bench.row(victim).reason is Reason.PREEMPTED
    if victim == "b":
        assert bench.row("b").submitted_at == submitted


async def test_a_look_in_vain_leaves_the_graph_as_it_was(bench: Bench) -> None:
    await bench.submit(job("low", 2, "8", "1h"), job("high", 2, "8", "1h", priority=20))
    await bench.cycle()
    await start(bench, "low", "high")
    before = await bench.held()
    await bench.submit(job("wide", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert {bench.row(name).state for name in ("low", "high")} == {State.RUNNING}
    held = await bench.held()
    assert {jobid: held[jobid] for jobid in before} == before
    promise = bench.ledger.reservation(bench.row("wide").id)
    assert promise is not None
    assert held[promise.jobid] == {f"n{number}": 1 for number in range(4)}


async def test_without_preemption_nobody_is_suspended(bench: Bench) -> None:
    bench.preemption = Preemption.NEVER
    await bench.submit(job("a", 4, "8", "1h"))
    await bench.cycle()
    await start(bench, "a")
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert drained(bench, "a") == ""


async def test_what_is_about_to_be_let_go_is_left_alone(bench: Bench) -> None:
    await bench.submit(job("a", 4, "8", "1h"))
    await bench.cycle()
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert drained(bench, "a") == ""


async def test_what_is_free_beside_the_victims_is_kept_until_they_are_gone(bench: Bench) -> None:
    await bench.submit(job("low", 3, "8", "1h"))
    await bench.cycle()
    await start(bench, "low")
    await bench.submit(job("urgent", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert bench.row("low").state is State.DRAINING
    await bench.submit(job("short", 1, "8", "30m"))
    await bench.cycle()
    promise = bench.ledger.reservation(bench.row("urgent").id)
    assert promise is not None
    assert promise.start - bench.ledger.clock() <= timedelta(seconds=60)
    assert bench.row("short").state is State.PENDING
    await put_back(bench, "low")
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED


@pytest.mark.parametrize("limits", [QueueLimits(nodes=3), QueueLimits(per_namespace=Limits(nodes=3))], ids=["queue", "namespace"])
async def test_nobody_is_suspended_for_what_a_limit_would_keep_from_starting(bench: Bench, limits: QueueLimits) -> None:
    bench.policy, bench.limits = Policy.FCFS, limits  # which learns of a limit on nodes only by the answer
    bench.other_queues = {"low": Discipline(preemption=Preemption.LOWER_PRIORITY)}
    await bench.submit(replace(job("low", 4, "8", "1h"), queue="low"))
    await bench.cycle()
    await start(bench, "low")
    await bench.submit(job("wide", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert bench.row("low").state is State.RUNNING


async def test_nobody_is_suspended_for_nodes_that_work_of_a_higher_order_would_take(bench: Bench) -> None:
    bench.other_queues = {"others": Discipline(Policy.EASY)}
    await bench.submit(job("low", 2, "8", "1h"), replace(job("high", 2, "8", "1h", priority=30), queue="others"))
    await bench.cycle()
    await start(bench, "low", "high")
    waiting = [job("wide", 3, "8", "1h", priority=20), job("ahead", 2, "8", "10m", priority=20)]
    await bench.submit(*(replace(each, queue="others") for each in waiting), job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert bench.row("low").state is State.RUNNING
    gone = [Ending(bench.row(name).id, State.CANCELLED, Outcome.CANCELLED, "") for name in ("wide", "ahead")]
    await bench.ledger.finish(gone)
    await bench.cycle()
    assert bench.row("low").state is State.DRAINING
