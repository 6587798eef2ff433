"""Guarantees of accounts in whole cycles on Postgres:
who comes first, who loses nodes, and what a new leader knows of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Requeue
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.store import Store

POLICIES = pytest.mark.parametrize("policy", list(Policy))


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        yield made
    await matcher.close()


def guarantee(bench: Bench, **nodes: int) -> None:
    documents = [
        make_account(name, guaranteed={"nodes": nodes[name]} if name in nodes else {})
        for name in ("physics", "bio")
    ]
    bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))


def of(account: str, name: str, nodes: int, **more: Any) -> NewWorkload:
    return replace(job(name, nodes, "8", "1h", **more), account=account)


async def start(bench: Bench, *workloads: NewWorkload) -> None:
    """Submit Jobs that are granted, and let them run."""
    await bench.submit(*workloads)
    await bench.cycle()
    rows = [bench.row(each.uid) for each in workloads]
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows])


async def requeued(bench: Bench, described: NewWorkload) -> None:
    """Requeue a Job as the requeuer does once its pods are gone,
    and submit it as the intake reads it again.
    """
    row = bench.row(described.uid)
    await bench.ledger.requeue([Requeue(workload=row.id, reason=row.reason, message=row.message)])
    await bench.submit(described)


@POLICIES
async def test_covered_work_comes_first_under_every_policy_and_in_every_queue(
    bench: Bench, policy: Policy
) -> None:
    bench.policy, bench.preemption = policy, Preemption.NEVER
    bench.other_queues = {"other": Discipline(policy)}
    guarantee(bench, physics=2)
    await bench.submit(of("bio", "a", 4, priority=50))
    await bench.submit(replace(of("physics", "b", 2), queue="other"))
    await bench.cycle()
    assert [bench.row(name).state for name in "ab"] == [State.PENDING, State.ALLOCATED]


async def test_a_borrower_waits_until_the_covered_work_has_ended_also_after_a_change_of_leader(
    bench: Bench,
) -> None:
    guarantee(bench, physics=2)
    borrower = of("bio", "borrower", 4, priority=9)
    await start(bench, borrower)
    await bench.submit(of("physics", "mine", 2))
    await bench.cycle()
    assert (bench.row("borrower").state, bench.row("borrower").reason) == (State.DRAINING, Reason.PREEMPTED)
    await bench.ledger.load()
    await bench.cycle()
    await requeued(bench, borrower)
    await bench.cycle()
    assert (bench.row("mine").state, bench.row("borrower").state) == (State.ALLOCATED, State.PENDING)
    assert "the resources are guaranteed" in bench.row("borrower").message


async def test_two_accounts_within_their_guarantees_take_nothing_from_each_other(bench: Bench) -> None:
    guarantee(bench, physics=2, bio=2)
    first, second = of("bio", "first", 2), of("bio", "second", 2)
    await start(bench, first, second)
    await bench.submit(of("physics", "mine", 2))
    await bench.cycle()
    (victim,) = [each for each in (first, second) if bench.row(each.uid).state is State.DRAINING]
    await requeued(bench, victim)
    for _ in range(3):
        await bench.cycle()
    states = [bench.row(name).state for name in ("first", "second", "mine")]
    assert sorted(states) == sorted([State.PENDING, State.RUNNING, State.ALLOCATED])
    assert bench.row(victim.uid).state is State.PENDING
