"""Limits of a queue and of namespaces in it, in whole cycles: who stands aside, who passes, and when that ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Limits, Policy, QueueLimits
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.ledger import Ending
from fluxqueue.queue.store import Store


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectStore[Node] = ObjectStore()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def states(bench: Bench, names: str) -> str:
    """One letter each: R has nodes, L is over a limit, w waits otherwise."""
    rows = [bench.row(name) for name in names]
    return "".join("R" if row.state is State.ALLOCATED else "L" if row.reason is Reason.QUEUE_LIMIT else "w" for row in rows)


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


@pytest.mark.parametrize("policy", list(Policy))
async def test_no_more_run_than_the_queue_allows_and_an_end_lets_the_next_go(bench: Bench, policy: Policy) -> None:
    bench.policy, bench.limits = policy, QueueLimits(running=2)
    await bench.submit(*(job(name, 1, "1") for name in "abcd"))
    await bench.cycle()
    assert states(bench, "abcd") == "RRLL"
    assert bench.row("c").message == "the queue 'default' may run 2 workloads at once, and 2 run or have nodes reserved"
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bcd") == "RRL"


@pytest.mark.parametrize("policy", list(Policy))
async def test_who_is_over_the_limit_of_his_namespace_lets_others_pass(bench: Bench, policy: Policy) -> None:
    bench.policy, bench.limits = policy, QueueLimits(per_namespace=Limits(running=1))
    await bench.submit(job("a", 1, "1", namespace="x"), job("b", 1, "1", namespace="x"), job("c", 1, "1", namespace="y"))
    await bench.cycle()
    assert states(bench, "abc") == "RLR"
    assert "namespace 'x' in the queue 'default' may run 1 " in bench.row("b").message


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_grant_on_too_many_nodes_is_given_back_and_smaller_work_passes(bench: Bench, policy: Policy) -> None:
    bench.policy, bench.limits = policy, QueueLimits(nodes=2)
    await bench.submit(job("a", 1, "8"), job("b", 2, "8"), job("c", 1, "8"))
    await bench.cycle()
    assert states(bench, "abc") == "RLR"
    assert "may use 2 nodes at once: it uses 1, and 3 with this" in bench.row("b").message
    assert set(await bench.held()) == {bench.row("a").jobid, bench.row("c").jobid}


async def test_cores_count_as_requested_whatever_nodes_are_free(bench: Bench) -> None:
    bench.limits = QueueLimits(cores=6)
    await bench.submit(job("a", 2, "2"), job("b", 1, "4"), job("c", 2, "1"))
    await bench.cycle()
    assert states(bench, "abc") == "RLR"


async def test_an_edit_of_the_limits_acts_in_the_next_cycle(bench: Bench) -> None:
    bench.limits = QueueLimits(running=1)
    await bench.submit(job("a", 1, "1"), job("b", 4, "8"), job("c", 1, "1"))
    await bench.cycle()
    assert states(bench, "abc") == "RLL"
    bench.limits = None
    bench.policy = Policy.EASY
    await bench.cycle()
    assert states(bench, "abc") == "RwR"
    assert "reserved for it" in bench.row("b").message


async def test_a_promise_counts_so_that_it_can_be_kept(bench: Bench) -> None:
    bench.policy, bench.limits = Policy.EASY, QueueLimits(running=2)
    await bench.submit(job("a", 1, "8", "1h"), job("b", 4, "8", "1h"), job("c", 1, "8", "10m"))
    await bench.cycle()
    assert states(bench, "abc") == "RwL"
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bc") == "Rw"


async def test_limits_that_leave_no_room_for_a_promise_end_it_with_that_cause(bench: Bench) -> None:
    bench.policy = Policy.EASY
    await bench.submit(job("a", 1, "8", "1h"), job("b", 4, "8", "1h"))
    await bench.cycle()
    assert bench.ledger.reservation(bench.row("b").id) is not None
    bench.limits = QueueLimits(nodes=2)
    await bench.cycle()
    assert states(bench, "ab") == "RL"
    assert bench.ledger.reservation(bench.row("b").id) is None
    assert await bench.store.reservations() == []
    assert set(await bench.held()) == {bench.row("a").jobid}


async def test_who_could_never_start_is_told_that_and_not_of_limits(bench: Bench) -> None:
    bench.limits = QueueLimits(running=1)
    await bench.submit(job("a", 1, "1"), job("huge", 1, "64"))
    await bench.cycle()
    assert bench.row("huge").reason is Reason.UNSATISFIABLE
