"""The leader's memory against the tables it was loaded from."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
from queue_records import Leader, found

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Epoch, Inheritance
from fluxqueue.queue.store import Store


async def _ledger(store: Store, epoch: Epoch) -> Ledger:
    ledger = Ledger(store, epoch, lambda: datetime.now(UTC))
    await ledger.load()
    return ledger


async def _spoil(database: str) -> None:
    """Make the table differ from what was found, behind the leader's back: only a write of the same again would show."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("UPDATE fluxqueue.workload SET priority = 77")


async def _priorities(store: Store) -> list[int]:
    return [workload.priority for workload in await store.pending()]


async def test_what_the_intake_says_again_is_not_sent_again(store: Store, epoch: Epoch, database: str) -> None:
    ledger = await _ledger(store, epoch)
    assert len(await ledger.take_in([found("a"), found("b")])) == 2
    await _spoil(database)
    assert await ledger.take_in([found("a"), found("b")]) == []
    assert await _priorities(store) == [77, 77]
    (changed,) = await ledger.take_in([found("a", priority=5), found("b")])
    assert ledger.get(changed) == await store.workload_by_uid("uid-a")
    assert sorted(await _priorities(store)) == [5, 77]


async def test_a_new_leader_compares_everything_once(store: Store, epoch: Epoch, database: str) -> None:
    await (await _ledger(store, epoch)).take_in([found("a")])
    await _spoil(database)
    ledger = await _ledger(store, epoch)
    assert len(await ledger.take_in([found("a")])) == 1
    assert await _priorities(store) == [0]


async def test_a_place_that_is_inherited_leaves_nothing_of_who_had_it(store: Store, epoch: Epoch) -> None:
    """Rolling updates do this for ever: a leader that remembered the former ones would grow."""
    ledger, leader = await _ledger(store, epoch), Leader(store, epoch)
    (gone,) = await ledger.take_in([found("gone")])
    for turn in range(3):
        row = ledger.get(gone)
        assert row is not None
        if row.jobid is None:
            assert await ledger.grant([await leader.grant_for(row)]) == []
        (heir,) = await ledger.take_in([found(f"heir-{turn}")])
        left = Inheritance(gone=gone, heir=heir, state=State.CANCELLED, outcome=Outcome.CANCELLED, message="the pod was deleted")
        assert await ledger.inherit([left]) == [heir]
        assert ledger.get(gone) is None
        gone = heir
    fresh = await _ledger(store, epoch)
    assert [allocation.workload for _, allocation in ledger.live()] == [allocation.workload for _, allocation in fresh.live()] == [gone]
    sizes = {name: len(held) for name, held in vars(ledger).items() if isinstance(held, dict)}
    assert {name for name, size in sizes.items() if size > 1} == set()


async def test_what_waits_for_another_reason_than_before_is_sent(store: Store, epoch: Epoch) -> None:
    ledger = await _ledger(store, epoch)
    (workload,) = await ledger.take_in([found("a")])
    await ledger.take_in([found("a", reason=Reason.HELD, message="a person holds it")])
    row = ledger.get(workload)
    assert row is not None
    assert (row.reason, row.message) == (Reason.HELD, "a person holds it")
