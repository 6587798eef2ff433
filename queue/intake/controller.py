"""Keeps the workload table equal to the objects that ask for resources.

New, changed and deleted Jobs and Pods become rows, in one transaction for a whole burst. The intake is
level-triggered: a key says only that an object may have changed. When its turn comes, the object is read from
the caches. So missing or repeated events do no harm, and each object is read once at start. A scheduling
cycle is requested after the commit, never inside the transaction.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from time import thread_time

import structlog

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import WaitingBudget
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.intake.changes import ChangeStore, IntakeChanges
from fluxqueue.queue.intake.dependency_tracker import DependencyTracker
from fluxqueue.queue.intake.endings import cancelled
from fluxqueue.queue.intake.group_reader import GroupOwner, GroupReader
from fluxqueue.queue.intake.namespace_budgets import NO_BUDGET, NamespaceBudgets
from fluxqueue.queue.intake.object_reader import ObjectReader
from fluxqueue.queue.intake.object_watch import ObjectWatch
from fluxqueue.queue.model.groups import (
    OVERDUE_S,
    REPLACED_WITHIN,
    GroupKey,
    awaits_replaced_pods,
    group_of_workload,
    may_await_wanted_pods,
)
from fluxqueue.queue.model.records import UNREAD, Workload
from fluxqueue.queue.release.blockers import ReleaseBlockers
from fluxqueue.queue.status.failures import FailureReporter
from fluxqueue.queue.status.subjects import object_subjects
from fluxqueue.queue.store import DatabaseUnavailable, StaleLeader
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches
from fluxqueue.queue.tasks.rests import Rests
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["IntakeController"]

log = structlog.get_logger()

_BATCH = 500
_TURN_S = 0.1
"""CPU after which a turn ends: some objects take a hundred times as long to read as others,
and everybody waits for the turn."""
_RETRY_S = 1.0
_REST_OF_POD_S = 250e-6
"""A group of 10,000 pods, which take some minutes to come, is read every 2.5 s."""
_OWNERS_AT_ONCE = 16


class IntakeController:
    """Keeps the table equal to the objects that ask for resources.

    Parameters
    ----------
    api
        Where owners of gangs are read.
    caches
        The cluster.
    ledger
        The workloads.
    trigger
        Requests scheduling cycles and releases.
    recorder
        For Events on objects that could not be taken in.
    port_volume_pools
        Limits the number of different host ports.
    blockers
        What keeps Flux clusters from running.
    waiting
        How much work of each namespace may wait with its request in memory.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        recorder: EventRecorder | None = None,
        port_volume_pools: PortVolumePools | None = None,
        blockers: ReleaseBlockers | None = None,
        waiting: WaitingBudget = NO_BUDGET,
    ) -> None:
        self._ledger = ledger
        self._keys: Batches[str | GroupKey] = Batches(
            "intake", FailureReporter(recorder, "taken in", object_subjects(caches)).report
        )
        blockers = blockers or ReleaseBlockers()
        self._rests: Rests[str | GroupKey] = Rests(self._keys.add_after, _REST_OF_POD_S)
        self._groups = GroupReader(api, caches, ledger)
        budgets = NamespaceBudgets(caches, ledger, waiting, self.enqueue)
        self._objects = ObjectReader(
            caches, ledger, self._groups, blockers, budgets, lambda name: self._watch.enqueue_namespace(name)
        )
        self._watch = ObjectWatch(caches, ledger, self._keys.add, self._keys.add_later)
        self._dependencies = DependencyTracker(caches, ledger, self.enqueue, self._keys.add_later)
        pools = port_volume_pools or PortVolumePools(ledger)
        self._changes = ChangeStore(caches, ledger, trigger, pools, self._dependencies, budgets)
        self.parts = self._objects, self._watch, self._dependencies, budgets, blockers, pools

    def resync(self) -> None:
        """Enqueue every object and every row once, at start and in each sweep."""
        self._objects.forget_ended()
        self._rests.prune()
        self._dependencies.resync()
        self._watch.resync()

    def is_due(self, uid: str) -> bool:
        """True if an object waits for its turn to be read."""
        return self._keys.is_due(uid)

    def enqueue(self, uid: str) -> None:
        """Have one object read again."""
        self._keys.add(uid)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keys.run(partial(self.take_in, most_s=_TURN_S), limit=_BATCH))
            group.create_task(self._dependencies.run())

    async def take_in(self, keys: Sequence[str | GroupKey], most_s: float = math.inf) -> None:
        """Read these objects and groups, and store what they come to. An object that cannot be read does not
        stop the others.

        Those that are left after so many seconds of CPU are enqueued again.
        """
        changes = IntakeChanges()
        each_once = [
            key
            for key in dict.fromkeys(self._group_of(key) or key for key in keys)
            if not self._is_resting(key)
        ]
        owners = await self._read_owners([key for key in each_once if isinstance(key, GroupKey)])
        self._groups.begin()
        self._objects.begin()
        began = thread_time()
        for number, key in enumerate(each_once):
            if number and thread_time() - began > most_s:
                self._put_back(each_once[number:])
                del each_once[number:]
                break
            try:
                if isinstance(key, GroupKey):
                    self._read_group(key, owners.get(key), changes)
                else:
                    self._objects.read(key, self._ledger.by_uid(key), changes)
            except (StaleLeader, DatabaseUnavailable):
                raise
            except Exception as error:
                self._rests.end([key])
                self._keys.fail(key, error)
        try:
            await self._changes.store(changes)
        except Exception:
            self._rests.end(each_once)
            raise
        self._rests.over(each_once)

    def _put_back(self, keys: Sequence[str | GroupKey]) -> None:
        """Leave the rest of a turn for the next ones, behind what somebody created meanwhile."""
        self._rests.end(keys)
        for key in keys:
            self._keys.add(key)

    def _group_of(self, key: str | GroupKey) -> GroupKey | None:
        """Return the group that a key or the uid of a row stands for; None for an object."""
        if isinstance(key, GroupKey):
            return key
        row = self._ledger.by_uid(key)
        return group_of_workload(row) if row is not None else None

    def _is_resting(self, key: str | GroupKey) -> bool:
        return isinstance(key, GroupKey) and self._rests.rests(key, self._groups.size(key))

    async def _read_owners(self, groups: Sequence[GroupKey]) -> dict[GroupKey, GroupOwner | BaseException]:
        """Read what the groups without nodes belong to, many at a time:
        other work waits for this turn to end.
        """
        wanted = [
            key for key in groups if (row := self._ledger.group(key)) is None or row.state is State.PENDING
        ]
        room = asyncio.Semaphore(_OWNERS_AT_ONCE)

        async def read(key: GroupKey) -> GroupOwner:
            async with room:
                return await self._groups.read_owner(key)

        return dict(
            zip(wanted, await asyncio.gather(*map(read, wanted), return_exceptions=True), strict=True)
        )

    def _read_group(
        self, key: GroupKey, owner: GroupOwner | BaseException | None, changes: IntakeChanges
    ) -> None:
        row = self._ledger.group(key)
        if row is not None and row.state is not State.PENDING:
            # It has its nodes. A pod for which it has no slot, and will have none, is matched alone.
            described_pods = [
                self._objects.describe(pod.metadata.uid, None) for pod in self._groups.newcomers(key)
            ]
            changes.described += [each for each in described_pods if each is not None]
            return
        if owner is None:
            self._keys.add(key)  # it lost its nodes while owners were read
            return
        if isinstance(owner, ApiError):
            log.info(
                "group.owner_unreadable",
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                error=str(owner),
            )
            self._keys.add_after(key, _RETRY_S)
            return
        if isinstance(owner, BaseException):
            raise owner
        group = self._groups.gather(key, row, owner)
        if group is None:
            if row is not None and awaits_replaced_pods(row, self._ledger.clock()):
                return  # it is read again when that time is over
            if row is not None and self._groups.may_be_unread(key):
                self._keys.add_after(key, _RETRY_S)
                return
            if (
                row is not None
                and may_await_wanted_pods(row, self._ledger.clock())
                and self._groups.wants_pods(key, owner)
            ):
                self._keys.add_after(key, REPLACED_WITHIN.total_seconds())
                return
            if row is not None:
                changes.endings.append(cancelled(row, _gone(key, row)))
            if key.source:
                for pod in self._groups.newcomers(key):
                    self._keys.add(pod.metadata.uid)  # no gang has to start with it
            return
        changes.described.append(self._groups.describe(key, group, row))
        for pod in group.excess:
            self._keys.add(pod.metadata.uid)
        if group.again_s:
            self._keys.add_after(key, group.again_s)
        elif row is None and group.reason is Reason.WAITING_FOR_GROUP:
            self._keys.add_after(key, OVERDUE_S + 1)


def _gone(key: GroupKey, row: Workload) -> str:
    if row.reason is Reason.PREEMPTED and row.generation == UNREAD:
        return f"ends: nobody created its pods again, so submit it again; {row.message}"
    if key.source:
        return "ends: its pods were deleted while it waited, or are started one by one"
    return "ends: its pods were deleted while it waited"
