"""A store in memory, for unit tests of controllers: no SQL, the same methods, deltas, fence and constraints
as the one in Postgres.

`MemoryStore` passes the contracts in `support.workload_contract`, `support.allocation_contract` and
`support.ledger_contract`, which also run against Postgres. Each method changes the tables in one step, so
concurrent calls follow one another as transactions do. It has no control tasks: those are procrastinate's.
`memory_ledger` makes a loaded `Ledger` on a new one.

Examples
--------
>>> ledger = await memory_ledger()
>>> (workload,) = await ledger.upsert([described("lammps")])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from support.memory_allocations import MemoryAllocations
from support.memory_workloads import MemoryWorkloads

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.changes import SlotWrites
from fluxqueue.queue.model.records import Epoch, Reservation, WorkloadId
from fluxqueue.queue.model.requeue_records import NO_REQUEUE_STATE
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES
from fluxqueue.queue.model.spending import amounts_of_shares, overlap_s
from fluxqueue.queue.model.traces import EndedWorkload
from fluxqueue.queue.model.users import programs_of, user_of
from fluxqueue.queue.store import Forgotten
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["MemoryStore", "memory_ledger"]


class MemoryStore(MemoryWorkloads, MemoryAllocations):
    """The store in memory.

    Parameters
    ----------
    clock
        The time, timezone-aware.
    """

    async def write_slots(self, epoch: Epoch, writes: SlotWrites) -> list[Delta]:
        ended = [slot for slot in writes.ended if slot[0] not in writes.finished]
        slots = [await self.vacate_slots(epoch, writes.vacated), await self.take_slots(epoch, writes.taken)]
        states = [
            await self.mark_started(epoch, writes.started),
            await self.mark_draining(epoch, writes.draining),
        ]
        released = await self.mark_released(epoch, writes.released)
        return [
            released,
            *states,
            *slots,
            await self.end_slots(epoch, ended),
            await self.finish(epoch, writes.endings),
        ]

    # ---- reservations --------------------------------------------------------------------------------------

    async def hold(self, epoch: Epoch) -> None:
        self._hold(epoch)

    async def reserve(
        self, epoch: Epoch, made: Sequence[Reservation], dropped: Sequence[WorkloadId]
    ) -> Delta:
        self._hold(epoch)
        for workload in dropped:
            self._reservations.pop(workload, None)
        stored = []
        for each in made:
            if (row := self._rows.get(each.workload)) is not None and row.state is State.PENDING:
                known = self._reservations.get(each.workload)
                self._reservations[each.workload] = kept = replace(
                    each, first_start=known.first_start if known else each.first_start
                )
                stored.append(kept)
        return Delta(reservations=tuple(stored), unreserved=tuple(dropped))

    async def reservations(self) -> list[Reservation]:
        return sorted(self._reservations.values(), key=lambda each: (each.start, each.workload))

    async def reserved_nodes(self) -> dict[str, tuple[str, ...]]:
        return dict(self._reserved_nodes)

    async def reserve_nodes(
        self, epoch: Epoch, chosen: Mapping[str, Sequence[str]], dropped: Collection[str]
    ) -> None:
        self._hold(epoch)
        self._reserved_nodes.update((uid, tuple(nodes)) for uid, nodes in chosen.items())
        for uid in dropped:
            self._reserved_nodes.pop(uid, None)

    # ---- retention -----------------------------------------------------------------------------------------

    async def prune_allocations(
        self, epoch: Epoch, before: datetime, *, allocations: int = 500, slots: int = 5_000
    ) -> tuple[int, int]:
        self._hold(epoch)
        old = [
            row.allocation
            for row in self._allocations.values()
            if row.allocation.freed_at and row.allocation.freed_at < before
        ]
        for allocation in old[:allocations]:
            del self._allocations[allocation.jobid]
        return len(old[:allocations]), sum(len(allocation.slots) for allocation in old[:allocations])

    async def forget(self, epoch: Epoch, before: datetime, limit: int = 500) -> int:
        self._hold(epoch)
        held = {row.allocation.workload for row in self._allocations.values()}
        old = [
            each
            for each in self._rows.values()
            if each.finished_at and each.finished_at < before and each.id not in held
        ][:limit]
        for workload in old:
            del self._rows[workload.id]
            jobspec = workload.jobspec if workload.state is State.CANCELLED else ""
            self._history[workload.id] = replace(
                workload,
                jobspec=jobspec,
                overrides=NO_OVERRIDES,
                requeue_state=NO_REQUEUE_STATE,
                done_indexes="",
            )
        return len(old)

    async def expire_months(self, epoch: Epoch, keep: int, *, drop: bool) -> list[str]:
        self._hold(epoch)
        return []

    async def forgotten(
        self, before: datetime, after: Forgotten | None = None, limit: int = 500
    ) -> list[Forgotten]:
        rows = [
            Forgotten(id=each.id, uid=each.uid, finished_at=each.finished_at)
            for each in self._history.values()
            if each.finished_at is not None and each.finished_at < before
        ]
        rows.sort(key=lambda row: (row.finished_at, row.id))
        return [
            row for row in rows if after is None or (row.finished_at, row.id) > (after.finished_at, after.id)
        ][:limit]

    async def prune_transitions(
        self, epoch: Epoch, ids: Sequence[WorkloadId], before: datetime, limit: int = 5_000
    ) -> int:
        self._hold(epoch)
        named = set(ids)
        old = [each for each in self._transitions if each.workload in named and each.at < before][:limit]
        self._transitions = [each for each in self._transitions if each not in old]
        return len(old)

    async def prune_history(
        self, epoch: Epoch, ids: Sequence[WorkloadId], *, transitions: int = 5_000
    ) -> tuple[list[WorkloadId], int]:
        pruned = await self.prune_transitions(epoch, ids, datetime.max.replace(tzinfo=UTC), transitions)
        left = {each.workload for each in self._transitions}
        gone = [each for each in ids if each in self._history and each not in left]
        for workload in gone:
            del self._history[workload]
        return gone, pruned

    # ---- use of accounts -----------------------------------------------------------------------------------

    async def charge_accounts(
        self, epoch: Epoch, half_life_s: float, weights: Mapping[str, float]
    ) -> dict[str, float]:
        """Charge without decay: what a test needs is who used more."""
        self._hold(epoch)
        uses: dict[str, float] = {}
        for row in self._allocations.values():
            workload, held = self._rows[row.allocation.workload], row.allocation
            seconds = ((held.freed_at or self._clock()) - held.granted_at).total_seconds()
            rate = sum(
                weights.get(kind, 0.0) * amount
                for share in held.shares
                for kind, amount in share.amounts.items()
            )
            if workload.account:
                uses[workload.account] = uses.get(workload.account, 0.0) + rate * seconds
        return uses

    async def charge_users(
        self, epoch: Epoch, half_life_s: float, weights: Mapping[str, float], accounts: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """As `charge_accounts`."""
        self._hold(epoch)
        uses: dict[str, dict[str, float]] = {name: {} for name in accounts}
        for row in self._allocations.values():
            workload, held = self._rows[row.allocation.workload], row.allocation
            seconds = ((held.freed_at or self._clock()) - held.granted_at).total_seconds()
            rate = sum(
                weights.get(kind, 0.0) * amount
                for share in held.shares
                for kind, amount in share.amounts.items()
            )
            if workload.account in uses:
                of = uses[workload.account]
                of[user_of(workload)] = of.get(user_of(workload), 0.0) + rate * seconds
        return uses

    async def spent(self, periods: Sequence[tuple[str, str, date]]) -> dict[tuple[str, str], float]:
        used: dict[tuple[str, str], float] = {}
        for name, account, start in periods:
            since = datetime.combine(start, time(), UTC)
            for charged, held, end in self._spent:
                seconds = overlap_s(held.granted_at, end, since)
                if charged == account and seconds:
                    for kind, amount in amounts_of_shares(held.shares).items():
                        used[name, kind] = used.get((name, kind), 0.0) + amount * seconds
        return used

    async def last_run_times(self) -> list[tuple[tuple[str, str, str], float]]:
        """Return all run times: a history keeps the last ones itself."""
        ended = sorted(
            (row for row in self._rows.values() if row.finished_at and row.started_at),
            key=lambda row: str(row.finished_at),
        )
        return [
            (
                (row.submitted_by or programs_of(row.namespace), row.account, row.queue),
                (row.finished_at - row.started_at).total_seconds(),
            )
            for row in ended
            if row.finished_at is not None and row.started_at is not None
        ]

    # ---- ended workloads -----------------------------------------------------------------------------------

    async def ended_after(
        self, at: datetime, after: WorkloadId, *, settled_s: float, limit: int
    ) -> list[EndedWorkload]:
        settled = self._clock() - timedelta(seconds=settled_s)
        ended = [
            (row.finished_at, row.id, row)
            for row in self._rows.values()
            if row.finished_at and (at, after) < (row.finished_at, row.id)
        ]
        held = [row.allocation for row in self._allocations.values()]
        return [
            EndedWorkload(
                workload=row,
                transitions=tuple(each for each in self._transitions if each.workload == row.id),
                releases=tuple(
                    (each.jobid, each.released_at)
                    for each in held
                    if each.workload == row.id and each.released_at
                ),
            )
            for finished_at, _, row in sorted(ended, key=lambda each: each[:2])[:limit]
            if finished_at <= settled
        ]


async def memory_ledger(
    clock: Callable[[], datetime] = lambda: datetime.now(UTC), store: MemoryStore | None = None
) -> Ledger:
    """Return a loaded ledger of a new leader."""
    store = store if store is not None else MemoryStore(clock)
    ledger = Ledger(store, await store.acquire_leadership("memory"), clock)
    await ledger.load()
    return ledger
