"""What accounts have spent, on real tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.budget_contract import SpentContract, finish, minutes, spent
from support.builders import make_account
from support.queue_bench import Bench, a_leader, a_node, job
from support.queue_records import Leader
from support.stepped_clock import SteppedClock

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Epoch, NewWorkload
from fluxqueue.queue.store import Database, StaleLeader, Store


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def leader(pool: Database, epoch: Epoch, clock: SteppedClock) -> Leader:
    return Leader(Store(pool, clock), epoch)


class TestSpentInPostgres(SpentContract):
    """The same tests as for the store in memory."""


async def test_a_former_leader_frees_and_charges_nothing(leader: Leader, clock: SteppedClock) -> None:
    (workload,) = await leader.allocate("a", account="md")
    clock.set(1)
    await leader.store.acquire_leadership("replica-1")
    with pytest.raises(StaleLeader):
        await finish(leader, workload)
    assert await spent(leader) == {}


async def test_many_that_end_together_are_charged_together(leader: Leader, clock: SteppedClock) -> None:
    workloads = await leader.allocate(*(f"w{number}" for number in range(300)), account="md")
    clock.set(2)
    await finish(leader, *workloads)
    assert await spent(leader) == pytest.approx(minutes(600))


async def test_days_of_long_ago_are_forgotten_with_the_next_charge(
    leader: Leader, clock: SteppedClock
) -> None:
    (workload,) = await leader.allocate("a", account="md")
    clock.set(1)
    await finish(leader, workload)
    for days, kept in ((700, True), (900, False)):
        clock.set(timedelta(days=days).total_seconds() / 60)
        await leader.store.charge_accounts(leader.epoch, 3_600.0, {})
        assert bool(await spent(leader)) is kept


# ---- whole cycles ------------------------------------------------------------------------------------------


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def give(bench: Bench, **budget: Any) -> None:
    """Give the account ``site`` a budget; ``md`` is below it."""
    documents = [make_account("site", budget={"period": "year", **budget}), make_account("md", parent="site")]
    bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))


def an_hour(name: str, pods: int = 1, hours: int = 1) -> NewWorkload:
    return replace(job(name, pods, "1", f"{hours}h"), account="md")


def states(bench: Bench, names: str) -> str:
    """One letter for each workload: R has nodes, A is over a budget, w waits for another reason."""
    rows = [bench.row(name) for name in names]
    return "".join(
        "R" if row.state is State.ALLOCATED else "A" if row.reason is Reason.ACCOUNT_LIMIT else "w"
        for row in rows
    )


@pytest.mark.parametrize("policy", list(Policy))
async def test_what_fits_a_budget_starts_and_the_rest_waits_until_there_is_room(
    bench: Bench, policy: Policy
) -> None:
    bench.policy = policy
    give(bench, resourceHours={"cpu": "3.5"})
    await bench.submit(an_hour("a", 2), an_hour("b", 2), an_hour("c"), an_hour("d", 4))
    await bench.cycle()
    assert states(bench, "abcd") == "RARA"
    assert (
        "0 of 3.5 core-hours are used, 3 may still be used by running work, and this may use 2"
        in bench.row("b").message
    )
    assert "is 3.5 core-hours for a period, and this may use 4: ask for less" in bench.row("d").message
    await bench.ledger.finish([Ending(bench.row("a").id, State.COMPLETED, Outcome.SUCCEEDED)])
    await bench.cycle()
    assert states(bench, "bcd") == "RRA"
    give(bench, resourceHours={"cpu": 8})
    await bench.cycle()
    assert states(bench, "bcd") == "RRR"


@pytest.mark.parametrize("policy", list(Policy))
async def test_nodes_of_an_answer_beyond_the_budget_are_given_back(bench: Bench, policy: Policy) -> None:
    bench.policy = policy
    give(bench, nodeHours=2)
    await bench.submit(an_hour("a", 1, hours=2), an_hour("b"))
    await bench.cycle()
    assert states(bench, "ab") == "RA"


async def test_the_next_leader_counts_what_the_last_one_freed(bench: Bench, store: Store) -> None:
    give(bench, resourceHours={"cpu": 3})
    await bench.submit(an_hour("a", 2))
    await bench.cycle()
    await store.finish(bench.ledger.epoch, [Ending(bench.row("a").id, State.COMPLETED, Outcome.SUCCEEDED)])
    await bench.ledger.load()
    await bench.submit(an_hour("b", 3))
    await bench.cycle()
    assert states(bench, "b") == "A", "some of the three hours is used"
