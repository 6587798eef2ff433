"""The ledger on Postgres: after every change it equals a fresh load, and it sends no description twice."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pytest
from support.ledger_contract import LedgerContract
from support.queue_records import Leader, described
from support.transition_model import departures

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Replacement
from fluxqueue.queue.model.prices import Rate
from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.ledger import Ledger


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


class TestLedgerOnPostgres(LedgerContract):
    """The tests of the store in memory, with fewer steps."""

    steps = 120

    async def test_the_rows_of_a_walk_are_those_of_the_model(self, leader: Leader, database: str) -> None:
        await self.walk(leader, seed=7)
        problems = departures(database)
        assert [
            each for each in problems if "never released" not in each and "was granted" not in each
        ] == [], "a walk does not release first"


async def _ledger(leader: Leader) -> Ledger:
    ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC))
    await ledger.load()
    return ledger


async def _change_priorities(database: str) -> None:
    """Change the table without the leader: only a repeated write of the description restores it."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("UPDATE fluxqueue.workload SET priority = 77")


async def _priorities(store: Store) -> list[int]:
    return [workload.priority for workload in await store.pending()]


async def test_an_unchanged_description_is_not_sent_again(leader: Leader, database: str) -> None:
    ledger = await _ledger(leader)
    assert len(await ledger.upsert([described("a"), described("b")])) == 2
    await _change_priorities(database)
    assert await ledger.upsert([described("a"), described("b")]) == []
    assert await _priorities(leader.store) == [77, 77]
    (changed,) = await ledger.upsert([described("a", priority=5), described("b")])
    assert [ledger.get(changed)] == await leader.store.workloads_by_uid(["uid-a"])
    assert sorted(await _priorities(leader.store)) == [5, 77]


async def test_a_new_leader_compares_every_description_once(leader: Leader, database: str) -> None:
    await (await _ledger(leader)).upsert([described("a")])
    await _change_priorities(database)
    ledger = await _ledger(leader)
    assert len(await ledger.upsert([described("a")])) == 1
    assert await _priorities(leader.store) == [0]


async def test_a_replaced_workload_leaves_nothing_in_the_ledger(leader: Leader) -> None:
    """Rolling updates replace workloads for years: a leader that kept the old ones would grow."""
    ledger = await _ledger(leader)
    (former,) = await ledger.upsert([described("former")])
    for turn in range(3):
        row = ledger.get(former)
        assert row is not None
        if row.jobid is None:
            assert await ledger.grant([await leader.grant_for(row)]) == []
        (new,) = await ledger.upsert([described(f"new-{turn}")])
        change = Replacement(
            replaced=former,
            replacement=new,
            state=State.CANCELLED,
            outcome=Outcome.CANCELLED,
            message="its pod is gone",
        )
        assert await ledger.replace([change]) == [new]
        assert ledger.get(former) is None
        former = new
    assert [allocation.workload for _, allocation in ledger.live()] == [former]
    sizes = {name: len(held) for name, held in vars(ledger).items() if isinstance(held, dict)}
    assert {name for name, size in sizes.items() if size > 1} == set()


async def test_who_takes_nodes_over_has_the_prices_of_then(leader: Leader, database: str) -> None:
    """Else the pods of a Deployment had those of its first one for years."""
    ledger = await _ledger(leader)
    former, new = await ledger.upsert([described("former"), described("new")])
    row = ledger.get(former)
    assert row is not None
    assert await ledger.grant([await leader.grant_for(row)]) == []
    ledger.price = lambda shares: (Rate(None, Decimal(len(shares))),)
    change = Replacement(replaced=former, replacement=new, state=State.CANCELLED, outcome=Outcome.CANCELLED)
    assert await ledger.replace([change]) == [new]
    async with await psycopg.AsyncConnection.connect(database) as connection:
        found = await connection.execute(
            "SELECT workload, rates FROM fluxqueue.allocations ORDER BY workload"
        )
        assert await found.fetchall() == [
            (former, None),
            (new, [{"since": "-infinity", "per_hour": "2"}]),
        ]


async def test_another_reason_of_the_intake_is_sent(leader: Leader) -> None:
    ledger = await _ledger(leader)
    (workload,) = await ledger.upsert([described("a")])
    await ledger.upsert([described("a", reason=Reason.HELD, message="a person holds it")])
    row = ledger.get(workload)
    assert row is not None
    assert (row.reason, row.message) == (Reason.HELD, "a person holds it")
