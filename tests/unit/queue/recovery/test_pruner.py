"""Ended work is deleted after the retention, but never a row whose object still exists."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from support.memory_store import MemoryStore, memory_ledger
from support.queue_builders import EPOCH, a_new_workload

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.recovery.pruner import Pruner
from fluxqueue.queue.store.ledger import Ledger

RETENTION = timedelta(hours=1)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def ledger(clock: Clock) -> Ledger:
    ledger = await memory_ledger(clock, MemoryStore(clock))
    ids = await ledger.upsert([a_new_workload("ended"), a_new_workload("kept"), a_new_workload("waiting")])
    await ledger.finish([Ending(workload, State.CANCELLED, Outcome.CANCELLED) for workload in ids[:2]])
    return ledger


async def known(ledger: Ledger) -> list[str]:
    return sorted(each.uid for each in await ledger.stored_workloads_by_uid(["ended", "kept", "waiting"]))


async def test_nothing_is_deleted_before_the_retention(clock: Clock, ledger: Ledger) -> None:
    clock.now += RETENTION
    await Pruner(ledger, lambda _uid: False, retention_s=RETENTION.total_seconds()).prune()
    assert await known(ledger) == ["ended", "kept", "waiting"]


async def test_after_the_retention_ended_work_is_deleted_unless_its_object_exists(
    clock: Clock, ledger: Ledger
) -> None:
    clock.now += RETENTION + timedelta(seconds=1)
    await Pruner(ledger, lambda uid: uid == "kept", retention_s=RETENTION.total_seconds()).prune()
    assert await known(ledger) == ["kept", "waiting"]


async def test_a_row_that_was_kept_is_deleted_once_its_object_is(clock: Clock, ledger: Ledger) -> None:
    clock.now += RETENTION + timedelta(seconds=1)
    existing = {"kept"}
    pruner = Pruner(ledger, existing.__contains__, retention_s=RETENTION.total_seconds())
    await pruner.prune()
    existing.clear()
    await pruner.prune()
    assert await known(ledger) == ["waiting"]
