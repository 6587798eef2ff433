"""The leader's memory of the queue, and the only way to change it.

Postgres is the truth; the leader keeps the pending and the live part of it in memory, so that a cycle over a hundred thousand pending
workloads reads no table. Every change is one transaction of the store followed at once by the same change here, under one lock: two
changes can then never be applied in another order than they were committed. When the process dies between the two, nothing is lost: the
next leader loads what was committed.

When Postgres goes away under a change, nobody knows whether it was committed; and a Postgres that comes back may be one that never heard
of the last changes. Then this memory is in doubt (`Ledger.doubted`), until whoever watches for that has it loaded anew.

What a change frees in the graph is noted here and handed to whoever speaks to Fluxion; should that be lost, the sweep finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.groups import GroupKey, group_of_workload
from fluxqueue.queue.jobspecs import labels_of
from fluxqueue.queue.records import (
    UNREAD,
    Allocation,
    Epoch,
    Estimate,
    FluxionJobId,
    Grant,
    Inheritance,
    NewWorkload,
    PutBack,
    ReasonChange,
    Reservation,
    Slot,
    SlotState,
    TakeBack,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.states import LIVE
from fluxqueue.queue.store import DatabaseUnavailable, Store

__all__ = ["Ending", "Freed", "Ledger", "TakenSlot", "Told"]

Listener = Callable[[WorkloadId], None]


@dataclass(frozen=True, slots=True)
class TakenSlot:
    """A pod stands in a slot."""

    jobid: FluxionJobId
    rank: int
    pod_uid: str
    pod_name: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a workload ends."""

    workload: WorkloadId
    state: State
    outcome: Outcome
    message: str = ""


@dataclass(slots=True)
class Freed:
    """What the graph still holds although the queue has given it back.

    Attributes
    ----------
    jobs, slots
        Whole allocations, and single slots of others.
    nodes
        Where pods may still run that were counted through a slot until now.
    """

    jobs: set[FluxionJobId] = field(default_factory=set)
    slots: dict[FluxionJobId, list[Slot]] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.slots or self.nodes)


@dataclass(frozen=True, slots=True)
class Told:
    """What is pending or live, as the tables or this memory tell it."""

    workloads: Sequence[Workload]
    allocations: Sequence[Allocation]
    reservations: Sequence[Reservation]


class Ledger:
    """Pending and live workloads, changed through the store only.

    Parameters
    ----------
    store
        The tables.
    epoch
        The leadership under which changes are made: an older one is refused by the store.
    clock
        Postgres' time, told without asking it each time.
    """

    def __init__(self, store: Store, epoch: Epoch, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.epoch = epoch
        self.clock = clock
        self.doubted = asyncio.Event()
        """Set while this memory may differ from the tables."""
        self._lock = asyncio.Lock()
        self._workloads: dict[WorkloadId, Workload] = {}
        self._by_uid: dict[str, WorkloadId] = {}
        self._by_group: dict[GroupKey, WorkloadId] = {}
        self._found: dict[WorkloadId, int] = {}
        """What the intake said last of each, as a hash: a hundred thousand jobspecs would be kept twice."""
        self._allocations: dict[WorkloadId, Allocation] = {}
        self._remnants: dict[FluxionJobId, Allocation] = {}
        self._releasing: set[FluxionJobId] = set()
        self._by_jobid: dict[FluxionJobId, WorkloadId] = {}
        self._reservations: dict[WorkloadId, Reservation] = {}
        self._first_starts: dict[WorkloadId, datetime] = {}
        self.estimates: dict[WorkloadId, Estimate] = {}
        """When pending workloads are expected to start, as far as that was worked out; written by the scheduler, never stored."""
        self._freed = Freed()
        self._listeners: list[Listener] = []

    # ---- reading ---------------------------------------------------------------------------------------------------------------

    def get(self, workload: WorkloadId) -> Workload | None:
        """A pending or live workload; None once it has ended."""
        return self._workloads.get(workload)

    def by_uid(self, uid: str) -> Workload | None:
        """The pending or live workload of an object."""
        found = self._by_uid.get(uid)
        return self._workloads[found] if found is not None else None

    def group(self, key: GroupKey) -> Workload | None:
        """The pending or live workload of a pod group."""
        found = self._by_group.get(key)
        return self._workloads[found] if found is not None else None

    def allocation(self, workload: WorkloadId) -> Allocation | None:
        """The live allocation of a workload."""
        return self._allocations.get(workload)

    def by_jobid(self, jobid: FluxionJobId) -> Workload | None:
        """The workload a live allocation belongs to."""
        found = self._by_jobid.get(jobid)
        return self._workloads.get(found) if found is not None else None

    def pending(self) -> list[Workload]:
        """Pending workloads in policy order: priority, submit time, id."""
        waiting = [workload for workload in self._workloads.values() if workload.state is State.PENDING]
        return sorted(waiting, key=lambda workload: (-workload.priority, workload.submitted_at, workload.id))

    def live(self) -> list[tuple[Workload, Allocation]]:
        """Allocations that hold something, with their workloads; a workload that was put back may have several, all but one remnants."""
        held = [*self._allocations.values(), *self._remnants.values()]
        return [(self._workloads[allocation.workload], allocation) for allocation in held]

    def remnants(self) -> list[Allocation]:
        """What workloads that were put back still hold, for pods on nodes nobody hears from."""
        return list(self._remnants.values())

    def holding(self, jobid: FluxionJobId) -> Allocation | None:
        """The live allocation of this id, be it a remnant."""
        if (remnant := self._remnants.get(jobid)) is not None:
            return remnant
        owner = self._by_jobid.get(jobid)
        return self._allocations.get(owner) if owner is not None else None

    def releasing(self, jobid: FluxionJobId) -> bool:
        """Whether its release is being carried out by this process at this moment."""
        return jobid in self._releasing

    def reservation(self, workload: WorkloadId) -> Reservation | None:
        """Where and when a pending workload is to start."""
        return self._reservations.get(workload)

    def reservations(self) -> list[Reservation]:
        """All of them, by their start."""
        return sorted(self._reservations.values(), key=lambda each: (each.start, each.workload))

    def first_start(self, workload: WorkloadId) -> datetime | None:
        """What a pending workload was promised first, whether or not the promise stands."""
        return self._first_starts.get(workload)

    def all(self) -> Iterable[Workload]:
        """Every pending and live workload."""
        return list(self._workloads.values())

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with the id of each workload that changes, after the change is stored."""
        self._listeners.append(listener)

    def take_freed(self) -> Freed:
        """What is to be given back in the graph; the caller puts it back with `put_freed` if it could not."""
        freed, self._freed = self._freed, Freed()
        return freed

    def put_freed(self, freed: Freed) -> None:
        """Return what could not be given back."""
        self._freed.jobs |= freed.jobs
        self._freed.nodes |= freed.nodes
        for jobid, slots in freed.slots.items():
            self._freed.slots.setdefault(jobid, []).extend(slots)

    # ---- changing --------------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read pending and live workloads anew, as a new leader does; what a former one was about to release is due again."""
        async with self._changing():
            await self.store.void_claims(self.epoch)
            stored = await self._tables()
            allocations = stored.allocations
            before = self._workloads.keys()
            self._workloads = {workload.id: workload for workload in stored.workloads}
            self._by_uid = {workload.uid: workload.id for workload in self._workloads.values()}
            self._by_group = {key: workload.id for workload in self._workloads.values() if (key := group_of_workload(workload))}
            self._allocations = {allocation.workload: allocation for allocation in allocations if not allocation.remnant}
            self._remnants = {allocation.jobid: allocation for allocation in allocations if allocation.remnant}
            self._by_jobid = {allocation.jobid: allocation.workload for allocation in allocations}
            self._reservations = {each.workload: each for each in stored.reservations}
            self._first_starts = {each.workload: each.first_start for each in self._reservations.values()}
            self._found = {}
            self._freed = Freed()
            self.doubted.clear()
        self._tell(before | self._workloads.keys())

    async def compared(self, *, pending: bool = True) -> tuple[Told, Told]:
        """What the tables tell, and what this memory tells, of one moment; the lock is held meanwhile.

        Parameters
        ----------
        pending
            Read from the tables also what waits, of which there may be very much; else this memory is believed about that.
        """
        async with self._lock:
            return await self._tables(pending=pending), self.told()

    def told(self) -> Told:
        """What this memory tells."""
        return Told(list(self._workloads.values()), [allocation for _, allocation in self.live()], self.reservations())

    def doubt(self) -> None:
        """Note that the tables may tell something else: Postgres was away."""
        self.doubted.set()

    async def take_in(self, found: Sequence[NewWorkload]) -> list[WorkloadId]:
        """Insert or update what the intake found; the ids of those that changed.

        The intake repeats itself, most of all in a sweep: what it said last of a workload that still waits is not even sent.
        """
        async with self._changing():
            found = [new for new in found if not self._known(new)]
            if not found:
                return []
            stored = await self.store.upsert(self.epoch, found)
            changed = [now.workload.id for now in stored if now.inserted or now.changed]
            for new, now in zip(found, stored, strict=True):
                if not now.workload.state.ended:
                    self._workloads[now.workload.id] = now.workload
                    self._index(now.workload)
                    self._found[now.workload.id] = hash(new)
        self._tell(changed)
        return changed

    async def take_up_again(self, uids: Sequence[str]) -> list[WorkloadId]:
        """Let cancelled workloads wait once more, as if they had just come; returns those that were cancelled."""
        async with self._changing():
            stored = await self.store.take_up_again(self.epoch, uids)
            for workload in stored:
                self._workloads[workload.id] = workload
                self._index(workload)
        ids = [workload.id for workload in stored]
        self._tell(ids)
        return ids

    async def release_again(self, ids: Sequence[WorkloadId]) -> None:
        """Make releases due now that were refused: something about their objects changed."""
        jobids = [allocation.jobid for found in ids if (allocation := self._allocations.get(found)) is not None]
        if jobids:
            await self.store.release_again(self.epoch, jobids)

    async def release_soon(self, jobids: Sequence[FluxionJobId]) -> None:
        """Try releases again shortly that failed for no fault of theirs."""
        if jobids:
            await self.store.release_soon(self.epoch, jobids)

    async def set_reasons(self, changes: Sequence[ReasonChange]) -> None:
        """Say why workloads wait; unchanged reasons cost nothing."""
        fresh = [change for change in changes if self._differs(change)]
        if not fresh:
            return
        async with self._changing():
            stored = set(await self.store.set_reasons(self.epoch, fresh))
            fresh = [change for change in fresh if change.workload in stored]
            for change in fresh:
                self._update(change.workload, reason=change.reason, message=change.message)
        self._tell(change.workload for change in fresh)

    async def set_live_reasons(self, changes: Sequence[ReasonChange]) -> None:
        """Say what is the matter with workloads that hold nodes."""
        fresh = [change for change in changes if self._differs(change)]
        if not fresh:
            return
        async with self._changing():
            stored = set(await self.store.set_reasons(self.epoch, fresh, live=True))
            for change in fresh:
                if change.workload in stored:
                    self._update(change.workload, reason=change.reason, message=change.message)
        self._tell(stored)

    async def grant(self, grants: Sequence[Grant]) -> list[Grant]:
        """Store what Fluxion granted; returns those whose workload was no longer pending, freed again."""
        if not grants:
            return []
        async with self._changing():
            granted = set(await self.store.grant(self.epoch, grants))
            now = self.clock()
            refused = [grant for grant in grants if grant.workload not in granted]
            self._freed.jobs.update(grant.jobid for grant in refused)
            if refused:
                await self._reread([grant.workload for grant in refused])
            for grant in grants:
                if grant.workload not in granted:
                    continue
                labels = labels_of(grant.shares, len(grant.hosts))
                slots = tuple(
                    Slot(
                        jobid=grant.jobid,
                        rank=rank,
                        node=node,
                        state=SlotState.ENDED if node == names.NO_NODE else SlotState.FREE,
                        label=label,
                    )
                    for rank, (node, label) in enumerate(zip(grant.hosts, labels, strict=True))
                )
                self._allocations[grant.workload] = Allocation(
                    jobid=grant.jobid,
                    workload=grant.workload,
                    shares=grant.shares,
                    granted_at=now,
                    start=grant.start,
                    end=grant.end,
                    slots=slots,
                )
                self._by_jobid[grant.jobid] = grant.workload
                self._forget_plan(grant.workload)
                self._update(
                    grant.workload,
                    state=State.ALLOCATED,
                    reason=Reason.NONE,
                    message="",
                    allocated_at=now,
                    jobid=grant.jobid,
                    hosts=hostlists.encode(grant.hosts),
                )
        self._tell(granted)
        return refused

    async def plan(self, made: Sequence[Reservation], given_up: Iterable[WorkloadId]) -> None:
        """Store reservations made or moved, and those given up; workloads that are no longer pending keep none."""
        gone = [found for found in given_up if found in self._reservations]
        if not made and not gone:
            return
        async with self._changing():
            stored = set(await self.store.plan(self.epoch, made, gone))
            for found in gone:
                self._reservations.pop(found, None)
            for each in made:
                if each.workload in stored:
                    self._reservations[each.workload] = each
                    self._first_starts.setdefault(each.workload, each.first_start)
        self._tell([*gone, *stored])

    async def move_ends(self, ends: Sequence[tuple[FluxionJobId, datetime]]) -> None:
        """Move the planned ends of live allocations, because they run longer than was said."""
        if not ends:
            return
        latest = dict(ends)
        async with self._changing():
            for jobid in await self.store.move_ends(self.epoch, ends):
                if (allocation := self.holding(jobid)) is not None:
                    self._put(replace(allocation, end=latest[jobid]))

    async def claim_releases(self, limit: int, retry_after_s: float) -> list[tuple[Workload, Allocation]]:
        """Allocations that are due to be released, each claimed for ``retry_after_s``; say `release_over` of all of them."""
        claimed = await self.store.claim_releases(self.epoch, limit, retry_after_s)
        self._releasing.update(allocation.jobid for _, allocation in claimed)
        return claimed

    def release_over(self, jobids: Iterable[FluxionJobId]) -> None:
        """These releases are not being carried out any more, whatever came of them."""
        self._releasing.difference_update(jobids)

    async def released(self, jobids: Sequence[FluxionJobId]) -> None:
        """Note that objects were let go."""
        if not jobids:
            return
        async with self._changing():
            await self.store.released(self.epoch, jobids)
            now = self.clock()
            owners = [owner for jobid in jobids if (owner := self._by_jobid.get(jobid)) is not None]
            for owner in owners:
                self._allocations[owner] = replace(self._allocations[owner], released_at=now)
                if self._workloads[owner].reason is Reason.RELEASE_FAILED:
                    self._update(owner, reason=Reason.NONE, message="")
        self._tell(owners)

    async def release_failed(self, jobid: FluxionJobId, message: str) -> None:
        """Note why an object could not be let go; it is tried again."""
        async with self._changing():
            await self.store.release_failed(self.epoch, jobid, message)
            owner = self._by_jobid.get(jobid)
            if owner is not None and self._state(owner) is State.ALLOCATED:
                self._update(owner, reason=Reason.RELEASE_FAILED, message=message)
        if owner is not None:
            self._tell([owner])

    async def take_slots(self, taken: Sequence[TakenSlot]) -> None:
        """Note which pods stand in which slots."""
        if not taken:
            return
        async with self._changing():
            stored = await self.store.take_slots(self.epoch, [(slot.jobid, slot.rank, slot.pod_uid, slot.pod_name) for slot in taken])
            for slot in taken:
                if (slot.jobid, slot.rank) in stored:
                    self._update_slot(slot.jobid, slot.rank, SlotState.TAKEN, slot.pod_uid, slot.pod_name)

    async def vacate_slots(self, vacated: Sequence[tuple[FluxionJobId, int, str]]) -> None:
        """Note that pods (by uid) left slots another may take."""
        if not vacated:
            return
        async with self._changing():
            for jobid, rank in await self.store.vacate_slots(self.epoch, vacated):
                self._update_slot(jobid, rank, SlotState.FREE, None, None)

    async def end_slots(self, ended: Sequence[tuple[FluxionJobId, int]]) -> None:
        """Give slots back to the cluster."""
        if not ended:
            return
        async with self._changing():
            freed = set(await self.store.end_slots(self.epoch, ended))
            for jobid, rank in ended:
                slot = self._update_slot(jobid, rank, SlotState.ENDED, None, None)
                if slot is not None and jobid not in freed:
                    self._freed.slots.setdefault(jobid, []).append(slot)
            self._drop_allocations(freed)

    async def started(self, ids: Sequence[WorkloadId]) -> None:
        """Note that all pods of workloads are on their nodes."""
        ids = [found for found in ids if self._state(found) is State.ALLOCATED]
        if not ids:
            return
        async with self._changing():
            ids = await self.store.started(self.epoch, ids)
            now = self.clock()
            for found in ids:
                self._update(found, state=State.RUNNING, started_at=now, reason=Reason.NONE, message="")
        self._tell(ids)

    async def draining(self, ids: Sequence[WorkloadId]) -> None:
        """Note that workloads wait for their last pods to go."""
        ids = [found for found in ids if self._state(found) in (State.ALLOCATED, State.RUNNING)]
        if not ids:
            return
        async with self._changing():
            ids = await self.store.draining(self.epoch, ids)
            for found in ids:
                self._update(found, state=State.DRAINING, reason=Reason.NONE, message="")
        self._tell(ids)

    async def finish(self, endings: Sequence[Ending]) -> None:
        """End workloads, freeing whatever they still hold."""
        endings = [ending for ending in endings if ending.workload in self._workloads]
        if not endings:
            return
        async with self._changing():
            ends = [(ending.workload, ending.state, ending.outcome, ending.message) for ending in endings]
            freed = await self.store.finish(self.epoch, ends)
            self._drop_allocations(freed)
            for ending in endings:
                self._allocations.pop(ending.workload, None)
                if (ended := self._workloads.pop(ending.workload, None)) is not None:
                    self._unindex(ended)
                self._forget_plan(ending.workload)
                self._found.pop(ending.workload, None)
        self._tell(ending.workload for ending in endings)

    async def inherit(self, inheritances: Sequence[Inheritance]) -> list[WorkloadId]:
        """End workloads whose places others take over, allocation and all; returns the heirs."""
        inheritances = [each for each in inheritances if each.gone in self._allocations and self._state(each.heir) is State.PENDING]
        if not inheritances:
            return []
        async with self._changing():
            heirs = set(await self.store.inherit(self.epoch, inheritances))
            done = [each for each in inheritances if each.heir in heirs and each.gone in self._allocations]
            now = self.clock()
            for each in done:
                allocation = self._allocations.pop(each.gone)
                slots = tuple(
                    slot if slot.state is SlotState.ENDED else replace(slot, state=SlotState.FREE, pod_uid=None, pod_name=None)
                    for slot in allocation.slots
                )
                self._allocations[each.heir] = replace(
                    allocation, workload=each.heir, granted_at=now, released_at=None, release_attempts=0, slots=slots
                )
                self._by_jobid[allocation.jobid] = each.heir
                gone = self._workloads.pop(each.gone)
                self._unindex(gone)
                self._found.pop(each.gone, None)
                self._forget_plan(each.heir)
                self._update(
                    each.heir,
                    state=State.ALLOCATED,
                    reason=Reason.NONE,
                    message="",
                    allocated_at=now,
                    jobid=allocation.jobid,
                    hosts=gone.hosts,
                )
        self._tell([found for each in done for found in (each.gone, each.heir)])
        return [each.heir for each in done]

    async def take_back(self, wanted: Sequence[TakeBack]) -> None:
        """Note that live workloads are to give their nodes back and wait again: they drain, and say why."""
        wanted = [each for each in wanted if self._state(each.workload) in LIVE]
        if not wanted:
            return
        async with self._changing():
            ids = set(await self.store.take_back(self.epoch, wanted))
            for each in wanted:
                if each.workload in ids:
                    self._update(each.workload, state=State.DRAINING, reason=each.reason, message=each.message)
                    if each.setbacks is not None:
                        self._update(each.workload, setbacks=each.setbacks)
        self._tell(ids)

    async def requeue(self, backs: Sequence[PutBack]) -> None:
        """Put workloads back into the queue with their submit time, freeing what they hold but for the slots that are kept."""
        backs = [each for each in backs if each.workload in self._workloads]
        if not backs:
            return
        async with self._changing():
            ids, freed = await self.store.requeue(self.epoch, backs)
            self._drop_allocations(freed)
            for each in backs:
                if each.workload not in ids:
                    continue
                if each.kept and (allocation := self._allocations.pop(each.workload, None)) is not None:
                    self._reduce(allocation, {rank for _, rank in each.kept})
                self._update(
                    each.workload,
                    state=State.PENDING,
                    reason=each.reason,
                    message=each.message,
                    jobid=None,
                    hosts="",
                    allocated_at=None,
                    started_at=None,
                    requeues=self._workloads[each.workload].requeues + 1,
                    generation=UNREAD,
                )
                self._found.pop(each.workload, None)
        self._tell(ids)

    def look_again(self, ids: Iterable[WorkloadId]) -> None:
        """Tell the listeners of workloads of which nothing changed but the time."""
        self._tell([found for found in ids if found in self._workloads])

    # ---- inside ----------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """One change at a time; one that was broken off may have been committed all the same."""
        async with self._lock:
            try:
                yield
            except (DatabaseUnavailable, asyncio.CancelledError):
                self.doubt()
                raise

    async def _tables(self, *, pending: bool = True) -> Told:
        waiting = await self.store.pending() if pending else self.pending()
        live = await self.store.live_workloads()
        return Told([*waiting, *live], await self.store.live_allocations(), await self.store.reservations())

    def _known(self, new: NewWorkload) -> bool:
        found = self._by_uid.get(new.uid)
        return found is not None and self._state(found) is State.PENDING and self._found.get(found) == hash(new)

    def _index(self, workload: Workload) -> None:
        self._by_uid[workload.uid] = workload.id
        if (key := group_of_workload(workload)) is not None:
            self._by_group[key] = workload.id

    def _unindex(self, workload: Workload) -> None:
        self._by_uid.pop(workload.uid, None)
        if (key := group_of_workload(workload)) is not None and self._by_group.get(key) == workload.id:
            del self._by_group[key]

    def _forget_plan(self, found: WorkloadId) -> None:
        """As the tables do: what starts or ends has no planned start."""
        self._reservations.pop(found, None)
        self._first_starts.pop(found, None)
        self.estimates.pop(found, None)

    async def _reread(self, ids: Sequence[WorkloadId]) -> None:
        """Take over what the table says of workloads this memory was wrong about."""
        for found in ids:
            self._found.pop(found, None)
            known = self._workloads.pop(found, None)
            if known is not None:
                self._unindex(known)
        for workload in await self.store.workloads(ids):
            if not workload.state.ended:
                self._workloads[workload.id] = workload
                self._index(workload)

    def _tell(self, ids: Iterable[WorkloadId]) -> None:
        for found in list(ids):
            for listener in self._listeners:
                listener(found)

    def _state(self, found: WorkloadId) -> State | None:
        workload = self._workloads.get(found)
        return workload.state if workload else None

    def _differs(self, change: ReasonChange) -> bool:
        workload = self._workloads.get(change.workload)
        return workload is not None and (workload.reason, workload.message) != (change.reason, change.message)

    def _update(self, found: WorkloadId, **changes: object) -> None:
        workload = self._workloads.get(found)
        if workload is not None:
            self._workloads[found] = replace(workload, **changes)  # type: ignore[arg-type]  # names are checked by replace itself

    def _update_slot(self, jobid: FluxionJobId, rank: int, state: SlotState, pod_uid: str | None, pod_name: str | None) -> Slot | None:
        allocation = self.holding(jobid)
        if allocation is None or rank >= len(allocation.slots):
            return None
        slots = list(allocation.slots)
        slots[rank] = slot = replace(slots[rank], state=state, pod_uid=pod_uid, pod_name=pod_name)
        self._put(replace(allocation, slots=tuple(slots)))
        return slot

    def _put(self, allocation: Allocation) -> None:
        if allocation.remnant:
            self._remnants[allocation.jobid] = allocation
        else:
            self._allocations[allocation.workload] = allocation

    def _reduce(self, allocation: Allocation, kept: set[int]) -> None:
        """Leave an allocation these slots only, as a remnant; the others are to be given back in the graph."""
        given = [slot for slot in allocation.slots if slot.rank not in kept and slot.state is not SlotState.ENDED]
        if given:
            self._freed.slots.setdefault(allocation.jobid, []).extend(given)
        slots = tuple(slot if slot.rank in kept else replace(slot, state=SlotState.ENDED) for slot in allocation.slots)
        self._put(replace(allocation, slots=slots, remnant=True))

    def _drop_allocations(self, freed: Iterable[FluxionJobId]) -> None:
        for jobid in freed:
            self._freed.jobs.add(jobid)
            self._freed.slots.pop(jobid, None)
            if (dropped := self.holding(jobid)) is not None:
                self._freed.nodes.update(slot.node for slot in dropped.slots if slot.state is SlotState.TAKEN)
            owner = self._by_jobid.pop(jobid, None)
            if self._remnants.pop(jobid, None) is None and owner is not None:
                self._allocations.pop(owner, None)
