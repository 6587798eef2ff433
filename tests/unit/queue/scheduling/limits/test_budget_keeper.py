"""Budgets over whole histories: exact after every crash, and never exceeded but by what ran already.

``BUDGET_HISTORIES=10000`` makes more of them.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import msgspec
from support.budget_histories import BudgetHistory, summary
from support.builders import make_account
from support.memory_store import MemoryStore

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.scheduling.limits.budget_keeper import BudgetKeeper
from fluxqueue.queue.store.ledger import Ledger

HISTORIES = int(os.environ.get("BUDGET_HISTORIES", "200"))
STEPS = 40


async def test_random_histories_with_crashes_use_no_more_than_their_budgets() -> None:
    histories = {seed: BudgetHistory(seed) for seed in range(HISTORIES)}
    for seed, history in histories.items():
        try:
            await history.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
    granted, refused, crashes = summary(histories)
    assert min(granted, refused, crashes) > HISTORIES, "the histories try nothing"


async def test_the_next_period_is_waited_for_by_the_time_of_the_queue_while_that_is_behind() -> None:
    behind, wall = timedelta(hours=1), datetime(2026, 11, 30, 22, tzinfo=UTC)
    store = MemoryStore(lambda: wall - behind)
    ledger = Ledger(store, await store.acquire_leadership("replica"), lambda: wall - behind, lambda: wall)
    await ledger.load()
    tree = account_tree([msgspec.convert(make_account("md", budget={"nodeHours": 1}), FluxAccount)])
    keeper = BudgetKeeper(ledger)
    await keeper.room(tree)
    assert keeper.next_change == (wall + timedelta(hours=2.5)).timestamp(), (
        "three hours of the queue, of which it makes six in five"
    )
    wall = datetime(2026, 12, 1, 0, 30, tzinfo=UTC)
    await keeper.room(tree)
    assert keeper.next_change == (wall + timedelta(minutes=25)).timestamp(), "not at once, again and again"
    behind = timedelta(0)
    await keeper.room(tree)
    assert keeper.next_change == datetime(2027, 1, 1, tzinfo=UTC).timestamp()
