"""A random walk through all changes of the ledger: after each step the copy in memory equals what a new
leader would load.

It runs on the store in Postgres and on the store in memory.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.queue_records import START, Leader, described
from support.transition_model import replay

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import (
    Ending,
    Eviction,
    ReasonChange,
    Replacement,
    Requeue,
    SlotWrites,
    TakenSlot,
)
from fluxqueue.queue.model.records import (
    Allocation,
    Reservation,
    Slot,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.store.ledger_rows import TableContents
from fluxqueue.queue.store.ledger_state import LedgerState

__all__ = ["LedgerContract"]

_REASONS = (Reason.WAITING_FOR_NODES, Reason.QUEUE_LIMIT, Reason.NONE)


class LedgerWalk:
    """Changes a ledger at random.

    Parameters
    ----------
    leader
        A store without workloads, and its epoch.
    seed
        The seed of the random choices.
    """

    def __init__(self, leader: Leader, seed: int) -> None:
        self._leader = leader
        self._random = random.Random(seed)
        self._names = 0
        self._cancelled: list[str] = []
        self.ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC))
        self.taken: list[str] = []
        """Names of the steps so far."""

    async def step(self) -> None:
        """Make one change."""
        changes: Sequence[Callable[[], Awaitable[object]]] = (
            self._submit,
            self._edit,
            self._grant,
            self._grant,
            self._reserve,
            self._set_reasons,
            self._set_requeue_states,
            self._release,
            self._fail_release,
            self._take_slots,
            self._take_slots,
            self._vacate_slots,
            self._end_slots,
            self._write_slots,
            self._drain,
            self._evict,
            self._requeue,
            self._replace,
            self._finish,
            self._resubmit,
            self._move_end,
        )
        change = self._random.choice(changes)
        self.taken.append(change.__name__)
        await change()

    async def _submit(self) -> None:
        self._names += 2
        await self.ledger.upsert(
            [described(f"job-{number}", pods=3) for number in (self._names, self._names + 1)]
        )

    async def _edit(self) -> None:
        if row := self._one(State.PENDING):
            edited = described(
                row.name, pods=3, priority=self._random.randrange(3), generation=max(row.generation, 0) + 1
            )
            await self.ledger.upsert([edited, edited])

    async def _grant(self) -> None:
        pending = self.ledger.pending()[:2]
        grants = [await self._leader.grant_for(row, ("node-1", "node-2", "node-2")) for row in pending]
        if grants and self._random.random() < 0.2:
            grants[0] = replace(grants[0], generation=10**6)
        await self.ledger.grant(grants)
        if self._random.random() < 0.2:
            await self.ledger.grant(grants[1:])

    async def _reserve(self) -> None:
        made = []
        for row in self.ledger.pending()[:2]:
            (jobid,) = await self.ledger.next_jobids(1)
            start = START + timedelta(minutes=self._random.randrange(100))
            made.append(
                Reservation(workload=row.id, jobid=jobid, first_start=start, start=start, end=None, shares=())
            )
        dropped = [each.workload for each in self.ledger.reservations()[2:]]
        await self.ledger.reserve(
            made, [each for each in dropped if each not in {new.workload for new in made}]
        )

    async def _set_reasons(self) -> None:
        live = self._random.random() < 0.5
        reason = Reason.BIND_FAILED if live else self._random.choice(_REASONS)
        changes = [
            ReasonChange(workload=row.id, reason=reason, message="since now") for row in self.ledger.all()[:3]
        ]
        await self.ledger.set_reasons(changes, live=live)

    async def _set_requeue_states(self) -> None:
        if row := self._one(*State):
            await self.ledger.set_requeue_states(
                {row.id: RequeueState(starts=self._random.randrange(1, 4), owner="uid-of-web")}
            )

    async def _release(self) -> None:
        claimed = [allocation.jobid for _, allocation in await self.ledger.claim_releases(2, 0.0)]
        await (self.ledger.mark_released if self._random.random() < 0.5 else self.ledger.note_released)(
            claimed
        )
        self.ledger.releases_done(claimed)

    async def _fail_release(self) -> None:
        if allocation := self._allocation():
            await self.ledger.mark_release_failed(allocation.jobid, "the API server answered 503")

    async def _take_slots(self) -> None:
        if slot := self._slot(SlotState.FREE):
            self._names += 1
            await self.ledger.take_slots(
                [TakenSlot(slot.jobid, slot.rank, f"uid-{self._names}", f"pod-{self._names}")]
            )

    async def _vacate_slots(self) -> None:
        if slot := self._slot(SlotState.TAKEN):
            await self.ledger.vacate_slots([(slot.jobid, slot.rank, slot.pod_uid or "")])

    async def _end_slots(self) -> None:
        if slot := self._slot(SlotState.TAKEN, SlotState.FREE):
            await self.ledger.end_slots([(slot.jobid, slot.rank), (slot.jobid, 0)])

    async def _write_slots(self) -> None:
        writes = SlotWrites()
        if free := self._slot(SlotState.FREE):
            self._names += 1
            writes.taken.append(TakenSlot(free.jobid, free.rank, f"uid-{self._names}", f"pod-{self._names}"))
            writes.started += [row.id for row in self.ledger.all()[:2]]
        if taken := self._slot(SlotState.TAKEN):
            writes.vacated.append((taken.jobid, taken.rank, taken.pod_uid or ""))
        if ending := self._allocation():
            writes.ended.append((ending.jobid, 0))
            if self._random.random() < 0.3 and not ending.remnant:
                writes.endings.append(Ending(ending.workload, State.COMPLETED, Outcome.SUCCEEDED))
                writes.finished.add(ending.jobid)
            else:
                writes.draining.append(ending.workload)
        await self.ledger.write_slots(writes)

    async def _drain(self) -> None:
        if row := self._one(State.ALLOCATED, State.RUNNING):
            await self.ledger.mark_draining([row.id])

    async def _evict(self) -> None:
        if row := self._one(State.ALLOCATED, State.RUNNING, State.DRAINING):
            told = RequeueState(stop_at=START + timedelta(days=9_999), preempted_for=row.id)
            requeue_state = self._random.choice((None, RequeueState(losses=1), told, told))
            eviction = Eviction(
                workload=row.id, reason=Reason.PREEMPTED, message="by another", requeue_state=requeue_state
            )
            other = self._one(State.ALLOCATED, State.RUNNING)
            jobid = other.jobid or 0 if other is not None else 0
            given = GivenBack(
                jobid=jobid,
                ranks=(0,),
                stop_at=START + timedelta(days=9_999),
                message="1 pod ends",
                preempted_for=row.id,
            )
            withdrawn = {each.id: "it goes on" for each in self.ledger.all() if self._random.random() < 0.3}
            await self.ledger.evict(
                [eviction], {other.id: given} if other is not None and other != row else {}, withdrawn
            )

    async def _requeue(self) -> None:
        if row := self._one(State.ALLOCATED, State.DRAINING):
            allocation = self.ledger.allocation(row.id)
            slots = allocation.slots if allocation is not None and self._random.random() < 0.6 else ()
            kept = tuple((slot.jobid, slot.rank) for slot in slots if slot.state is SlotState.TAKEN)
            await self.ledger.requeue(
                [Requeue(workload=row.id, reason=Reason.PREEMPTED, message="by another", kept=kept)]
            )

    async def _replace(self) -> None:
        former, new = self._one(State.ALLOCATED, State.RUNNING), self._one(State.PENDING)
        if former is not None and new is not None:
            change = Replacement(
                replaced=former.id, replacement=new.id, state=State.FAILED, outcome=Outcome.FAILED
            )
            await self.ledger.replace([change])

    async def _finish(self) -> None:
        if self._random.random() < 0.5 and (row := self._one(*State)):
            await self.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED)])
            self._cancelled.append(row.uid)

    async def _resubmit(self) -> None:
        if self._cancelled:
            await self.ledger.resubmit([self._cancelled.pop()])

    async def _move_end(self) -> None:
        if allocation := self._allocation():
            await self.ledger.move_ends(
                [(allocation.jobid, START + timedelta(days=self._random.randrange(1, 9)))]
            )

    def _one(self, *states: State) -> Workload | None:
        rows = [row for row in self.ledger.all() if row.state in states]
        return self._random.choice(rows) if rows else None

    def _allocation(self) -> Allocation | None:
        held = [allocation for _, allocation in self.ledger.live()]
        return self._random.choice(held) if held else None

    def _slot(self, *states: SlotState) -> Slot | None:
        slots = [
            slot for _, allocation in self.ledger.live() for slot in allocation.slots if slot.state in states
        ]
        return self._random.choice(slots) if slots else None


def _loaded(contents: TableContents) -> LedgerState:
    """Return the copy of a leader that has just loaded these rows."""
    state = LedgerState(lambda: datetime.now(UTC))
    list(state.loading_contents(contents, ()))
    return state


def _sorted(contents: TableContents) -> TableContents:
    """Return the rows in one order, without the attempts to release, which only the tables count."""
    return TableContents(
        sorted(contents.workloads, key=lambda row: row.id),
        sorted((replace(row, release_attempts=0) for row in contents.allocations), key=lambda row: row.jobid),
        contents.reservations,
    )


class LedgerContract:
    """The ledger on any store."""

    steps = 250

    @pytest.mark.parametrize("seed", range(3))
    async def test_after_every_change_the_ledger_equals_a_fresh_load(self, leader: Leader, seed: int) -> None:
        walk = LedgerWalk(leader, seed)
        await walk.ledger.load()
        for _ in range(self.steps):
            await walk.step()
            tables, copy = await walk.ledger.compared()
            assert _sorted(copy) == _sorted(tables), walk.taken[-3:]
            self._assert_indexes(walk.ledger, _loaded(tables))
        assert len(set(walk.taken)) == 19, "every change was tried"
        remembered = [*vars(walk.ledger)["_ended"]]
        assert await walk.ledger.stored_workloads(remembered) == await leader.store.workloads(remembered)

    @staticmethod
    def _assert_indexes(ledger: Ledger, loaded: LedgerState) -> None:
        for row in loaded.all():
            assert ledger.by_uid(row.uid) == row
            assert (ledger.allocation(row.id) is None) == (loaded.allocation(row.id) is None)
        for allocation in loaded.contents().allocations:
            assert ledger.by_jobid(allocation.jobid) == loaded.by_jobid(allocation.jobid)
        indexes = (
            "_workloads",
            "_by_uid",
            "_by_group",
            "_allocations",
            "_remnants",
            "_by_jobid",
            "_reservations",
        )
        assert {name: vars(ledger)[name].keys() for name in indexes} == {
            name: vars(loaded)[name].keys() for name in indexes
        }
        assert {name: vars(ledger)[name] for name in ("_pending", "_unreleased")} == {
            name: vars(loaded)[name] for name in ("_pending", "_unreleased")
        }

    async def walk(self, leader: Leader, seed: int) -> Ledger:
        """Make all steps of a walk."""
        walk = LedgerWalk(leader, seed)
        await walk.ledger.load()
        for _ in range(self.steps):
            await walk.step()
        return walk.ledger

    async def test_a_release_that_no_pod_waits_for_is_stored_with_the_next_slots(
        self, leader: Leader
    ) -> None:
        ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC))
        await leader.allocate("lammps")
        await ledger.load()
        ((row, allocation),) = await ledger.claim_releases(1)
        await ledger.note_released([allocation.jobid])
        ledger.releases_done([allocation.jobid])
        assert ledger.releasing(allocation.jobid), "nobody else may act on it yet"
        assert ledger.is_released(allocation)
        assert await ledger.next_release_at() is None
        assert [each.released_at for each in await leader.store.live_allocations()] == [None]
        await ledger.write_slots(SlotWrites())
        (stored,) = await leader.store.live_allocations()
        copy = ledger.allocation(row.id)
        assert copy is not None
        assert stored.released_at is not None
        assert copy.released_at == stored.released_at
        assert not ledger.releasing(allocation.jobid)

    async def test_a_release_that_was_not_stored_is_due_again_after_the_tables_are_read(
        self, leader: Leader
    ) -> None:
        ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC))
        await leader.allocate("lammps")
        await ledger.load()
        ((_, allocation),) = await ledger.claim_releases(1)
        await ledger.note_released([allocation.jobid])
        await ledger.load()
        assert not ledger.is_released(allocation)
        ((_, again),) = await ledger.claim_releases(1)
        assert again.jobid == allocation.jobid

    async def test_work_that_gives_back_and_is_evicted_instead_has_the_time_of_its_eviction(
        self, leader: Leader
    ) -> None:
        ledger = Ledger(leader.store, leader.epoch, lambda: datetime.now(UTC))
        await leader.allocate("lammps")
        await ledger.load()
        (row,) = ledger.all()
        assert row.jobid is not None
        later = START + timedelta(days=9_999)
        given = GivenBack(
            jobid=row.jobid, ranks=(0,), stop_at=later, message="1 pod ends", preempted_for=row.id
        )
        await ledger.evict([], {row.id: given})
        assert [each.requeue_state.given_back for each in ledger.all()] == [given]
        told = RequeueState(stop_at=later + timedelta(minutes=1), preempted_for=row.id)
        eviction = Eviction(
            workload=row.id, reason=Reason.PREEMPTED, message="by another", requeue_state=told
        )
        await ledger.evict([eviction], {}, {row.id: "it goes on"})
        assert [each.requeue_state for each in ledger.all()] == [told]
        assert await leader.store.live_workloads() == ledger.all()

    async def test_every_transition_of_a_walk_is_in_the_model(self, leader: Leader) -> None:
        ledger = await self.walk(leader, seed=7)
        last = max(row.id for row in ledger.all())
        lines = [
            line for number in range(last + 1) for line in await leader.store.history(WorkloadId(number))
        ]
        lives, problems = replay(lines)
        assert problems == []
        assert {row.id: lives[row.id].state for row in ledger.all()} == {
            row.id: row.state for row in ledger.all()
        }
