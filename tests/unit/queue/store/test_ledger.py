"""What the ledger reads from the tables: also work that has ended, of which the last is in memory."""

from __future__ import annotations

import asyncio
import contextlib

from support.memory_store import memory_ledger
from support.queue_records import described

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import WorkloadId


async def test_ended_work_is_found_by_id_and_by_uid() -> None:
    ledger = await memory_ledger()
    ended, waits = await ledger.upsert([described("ended"), described("waits")])
    await ledger.finish([Ending(workload=ended, state=State.CANCELLED, outcome=Outcome.CANCELLED)])
    assert ledger.get(ended) is None
    assert {each.id: each.state for each in await ledger.stored_workloads([ended, waits])} == {
        ended: State.CANCELLED,
        waits: State.PENDING,
    }
    uids = [each.uid for each in await ledger.stored_workloads([ended])]
    assert [each.id for each in await ledger.stored_workloads_by_uid(uids)] == [ended]


async def test_work_that_was_not_requeued_has_no_reasons_for_it() -> None:
    ledger = await memory_ledger()
    (workload,) = await ledger.upsert([described("new")])
    assert await ledger.requeue_reasons(workload, 5) == []
    assert [(each.state, each.workloads) for each in await ledger.counts()] == [(State.PENDING, 1)]


async def test_who_follows_learns_what_is_gone_although_a_load_was_broken_off() -> None:
    ledger = await memory_ledger()
    waiting = await ledger.upsert([described(f"job-{number}") for number in range(500)])
    gone = [waiting[0], waiting[-1]]
    await ledger._store.finish(
        ledger.epoch,
        [Ending(workload=each, state=State.CANCELLED, outcome=Outcome.CANCELLED) for each in gone],
    )
    told = set[WorkloadId]()
    loading = asyncio.create_task(ledger.load())

    def note(workload: WorkloadId) -> None:
        told.add(workload)
        loading.cancel()

    ledger.subscribe(note)
    with contextlib.suppress(asyncio.CancelledError):
        await loading
    assert not told.issuperset(gone)
    assert ledger.in_doubt.is_set()
    await ledger.load()
    assert told == {*waiting}
