"""The store in memory keeps the contracts of the one in Postgres."""

from __future__ import annotations

import inspect

import pytest
from support.allocation_contract import AllocationContract
from support.budget_contract import SpentContract
from support.ended_contract import EndedContract
from support.ledger_contract import LedgerContract
from support.memory_store import MemoryStore, memory_ledger
from support.queue_records import Leader, described
from support.stepped_clock import SteppedClock
from support.workload_contract import WorkloadContract

from fluxqueue.queue.store import StaleLeader, Store


@pytest.fixture
async def leader() -> Leader:
    store = MemoryStore()
    return Leader(store, await store.acquire_leadership("replica-0"))


class TestAllocationsInMemory(AllocationContract):
    """The same tests as for Postgres."""


class TestWorkloadsInMemory(WorkloadContract):
    """The same tests as for Postgres."""


class TestEndedInMemory(EndedContract):
    """The same tests as for Postgres."""


class TestLedgerInMemory(LedgerContract):
    """The same tests as for Postgres."""


class TestSpentInMemory(SpentContract):
    """The same tests as for Postgres."""

    @pytest.fixture
    def clock(self) -> SteppedClock:
        return SteppedClock()

    @pytest.fixture
    async def leader(self, clock: SteppedClock) -> Leader:
        store = MemoryStore(clock)
        return Leader(store, await store.acquire_leadership("replica-0"))


def test_it_has_every_method_of_the_store() -> None:
    public = {
        name for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction) if not name.startswith("_")
    }
    assert {name for name in public if getattr(MemoryStore, name) is getattr(Store, name)} == set()


async def test_it_refuses_the_changes_of_a_former_leader() -> None:
    store = MemoryStore()
    former = await store.acquire_leadership("replica-0")
    await store.acquire_leadership("replica-1")
    with pytest.raises(StaleLeader):
        await store.upsert(former, [described("late")])
    assert await store.pending() == []


async def test_a_ledger_on_it_holds_what_was_upserted() -> None:
    ledger = await memory_ledger()
    (workload,) = await ledger.upsert([described("lammps")])
    assert [each.id for each in ledger.pending()] == [workload]
