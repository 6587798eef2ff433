"""Checks and binds each released pod, from its first watch event until it is bound.

A gang (or a pod that is bound alone) is checked when one of its pods changes. If all its pods are present,
they are checked in one step without any await in between, and assumed on their nodes. So a check must cost
about as much for each pod of a large gang as for one of a small gang. Then all of them are
bound at once, in the order of their ranks. If one pod cannot be bound to its node, none is bound. That pod is
reported, and the queue finds another node for it.

A gang that is refused or waits is checked again when something changes on its node
(`fluxqueue.scheduler_plugin.blocked_gangs`), when a volume changes, and periodically. A gang with a reported
refusal is first left to the queue, which evicts it: its pods are being deleted or changed one after the other
(`fluxqueue.scheduler_plugin.pending_pods`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, NotLeading
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.noderules.node_checks import closed
from fluxqueue.scheduler_plugin.binder import Binder, BindOutcome, BindResult
from fluxqueue.scheduler_plugin.blocked_gangs import BlockedGangs
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FitResult, FitStatus, check_gang
from fluxqueue.scheduler_plugin.claims import ClaimBinder
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint, reach
from fluxqueue.scheduler_plugin.gangs import Gang, GangKey, Member, PendingGangs
from fluxqueue.scheduler_plugin.metrics import BOUND_GANGS, Result, attempted
from fluxqueue.scheduler_plugin.pending_pods import PATIENCE_S, PendingPods, earliest, log_fields
from fluxqueue.scheduler_plugin.reports import PodScheduledReason, SchedulingReporter

__all__ = ["Dispatcher"]

WORKERS: Final = 64
RESYNC_S: Final = 60.0
LONGEST_BACKOFF_S: Final = 5.0
GRACE_S: Final = 10.0
"""How long binds in flight may take when the process ends."""
EVENTS_GRACE_S: Final = 1.0

log: Final = structlog.get_logger(__name__)


class BindFailed(ApiError):
    """Some pods of a gang could not be bound; a later attempt may succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "BindFailed", message)


class Dispatcher:
    """Binds the pods that can be bound, and reports why the others cannot.

    Attributes
    ----------
    problem
        Why nothing can be bound at all, in the API server's words; empty if there is no such problem.
    """

    def __init__(
        self,
        caches: SchedulerCaches,
        binder: Binder,
        claims: ClaimBinder,
        reporter: SchedulingReporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._caches = caches
        self._binder = binder
        self._claims = claims
        self._reporter = reporter
        self._clock = clock
        self._gangs = PendingGangs(clock)
        self._queue: WorkQueue[GangKey] = WorkQueue("gangs", cap_s=LONGEST_BACKOFF_S)
        self._blocked = BlockedGangs(self._queue.add)
        self._pending = PendingPods(reporter, clock)
        self._bound: set[str] = set()
        self._stopping = False
        self.problem = ""

    async def run(self) -> None:
        """Bind until cancelled; binds in flight are completed first."""
        self._watch()
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(self._reporter.run())
            resyncing = group.create_task(self._resync())
            working = asyncio.ensure_future(run_workers(self._queue, WORKERS, self._process))
            try:
                await asyncio.shield(working)
            finally:
                self._stopping = True
                self._queue.shut_down()
                await asyncio.wait({working}, timeout=GRACE_S)
                working.cancel()
                await asyncio.wait(
                    {working, asyncio.ensure_future(self._reporter.flush())}, timeout=EVENTS_GRACE_S
                )
                reporting.cancel()
                resyncing.cancel()

    def _watch(self) -> None:
        caches, storage = self._caches, self._caches.storage
        caches.pods.add_handler(self._pod_changed)
        caches.nodes.add_handler(self._node_changed)
        for store in (storage.claims, storage.volumes, storage.classes, storage.csi_nodes):
            store.add_handler(self._volume_changed)
        self._pending.export(lambda: len(self._gangs.invalid))

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            for key in self._gangs.keys:
                self._queue.add(key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        uid = change.obj.metadata.uid
        before = self._gangs.member(uid)
        for key in self._gangs.apply(change):
            self._queue.add(key)
        if before is not None and self._caches.assumed_node(uid) is None:
            self._blocked.node_changed(before.assignment.node)
        if self._gangs.key_of(uid) is not None:
            self._pending.add(uid)
        else:
            self._pending.drop(uid)
            self._bound.discard(uid)
            if uid not in self._gangs.invalid:
                self._reporter.forget(uid)
        if (invalid := self._gangs.invalid.get(uid)) is not None:
            self._reporter.unscheduled(invalid[0], PodScheduledReason.UNSCHEDULABLE, invalid[1])
        self._blocked.pod_changed(change)

    def _node_changed(self, change: Change[Node]) -> None:
        self._blocked.node_changed(change.obj.metadata.name)

    def _volume_changed(self, _change: Change[Any]) -> None:
        self._blocked.volume_changed()

    async def _process(self, key: GangKey) -> float | None:
        """Check a gang and bind it if possible; return after how many seconds to check it again."""
        gang = self._gangs.gang(key, self._bound)
        if gang is None or self._stopping:
            return None
        members = [member for member in gang.members if member.uid not in self._bound]
        if not members:
            return None
        if gang.apart:
            return await self._bind_apart(key, members)
        if not gang.complete:
            return self._wait_for_gang(gang, members)
        return await self._bind_together(key, members)

    async def _bind_apart(self, key: GangKey, members: Sequence[Member]) -> float | None:
        """Bind each of the pods that can be bound.
        Other work goes on between their checks, so each is checked in its state of then.
        """
        started = self._clock()
        fitting: list[Member] = []
        due_s: list[float | None] = []
        for uid in [member.uid for member in members]:
            if fitting or due_s:
                await asyncio.sleep(0)
            member = self._gangs.member(uid) if self._gangs.key_of(uid) == key else None
            if member is None:
                continue
            result = self._check([member])[uid]
            if result.status is FitStatus.FITS:
                self._caches.assume(member.pod, member.assignment.node)
                fitting.append(member)
            else:
                due_s.append(self._defer(key, member, result, started))
        for member, result in await self._prepare(key, fitting):
            fitting.remove(member)
            due_s.append(self._defer(key, member, result, started))
        await self._bind(key, fitting, started)
        return earliest(due_s)

    async def _bind_together(self, key: GangKey, members: Sequence[Member]) -> float | None:
        """Bind all pods of a gang, or none."""
        started = self._clock()
        results = self._check(members)
        blocked = [
            (member, results[member.uid])
            for member in members
            if results[member.uid].status is not FitStatus.FITS
        ]
        if not blocked and (left_s := self._pending.handed_over_s(members)) > 0:
            return left_s
        if not blocked:
            for member in members:
                self._caches.assume(member.pod, member.assignment.node)
            blocked = await self._prepare(key, members)
        if blocked:
            return self._defer_gang(key, members, blocked, started)
        await self._bind(key, members, started)
        BOUND_GANGS.inc()
        return None

    def _defer_gang(
        self,
        key: GangKey,
        members: Sequence[Member],
        blocked: Sequence[tuple[Member, FitResult]],
        started: float,
    ) -> float | None:
        """Report the pods that keep their gang from being bound, and to the others which pod they wait
        for.
        """
        for member in members:
            self._unassume(member)
        refused = [
            (member, result) for member, result in blocked if result.status is FitStatus.REFUSED
        ] or blocked
        due_s = [self._defer(key, member, result, started) for member, result in refused]
        first, result = refused[0]
        uids = {member.uid for member, _ in refused}
        others = [member for member in members if member.uid not in uids]
        message = (
            f"the {len(members)} pods of allocation {key.allocation} are bound together, and "
            f"{first.pod.metadata.name} cannot be: "
        )
        due_s.append(
            self._pending.wait(others, PodScheduledReason.WAITING_FOR_GANG, message + result.message)
        )
        return earliest(due_s)

    def _check(self, members: Sequence[Member]) -> dict[str, FitResult]:
        return check_gang([(member.pod, member.assignment.node) for member in members], self._caches)

    async def _prepare(self, key: GangKey, members: Sequence[Member]) -> list[tuple[Member, FitResult]]:
        """Prepare the claims of pods that fit; return those that cannot be bound yet, or no longer fit."""
        claiming = [member for member in members if _claims(member.pod)]
        if not claiming:
            return []
        results = await asyncio.gather(*(self._prepare_one(key, member) for member in claiming))
        return [
            (member, result)
            for member, result in zip(claiming, results, strict=True)
            if result.status is not FitStatus.FITS
        ]

    async def _prepare_one(self, key: GangKey, member: Member) -> FitResult:
        try:
            result = await self._claims.prepare(member.pod, member.assignment.node)
        except NotLeading:
            raise
        except ApiError as error:
            log.warning("claims.failed", **log_fields(member), error=error.message)
            self._queue.add_after(key, LONGEST_BACKOFF_S)
            return FitResult(FitStatus.WAITS, error.message)
        reach(SchedulerCrashPoint.CLAIM_SELECTED)
        return self._check([member])[member.uid] if result.status is FitStatus.FITS else result

    async def _bind(self, key: GangKey, members: Sequence[Member], started: float) -> None:
        """Bind pods that are assumed on their nodes; raise `BindFailed` if a later attempt may succeed."""
        if not members:
            return
        reach(SchedulerCrashPoint.CHECKED)
        if len(members) == 1:
            failures = [await self._bind_one(key, members[0], started)]
        else:
            failures = await asyncio.gather(*(self._bind_one(key, member, started) for member in members))
        if retriable := [failure for failure in failures if failure]:
            raise BindFailed(retriable[0])

    async def _bind_one(self, key: GangKey, member: Member, started: float) -> str:
        """Bind one pod; return why it has to be tried again, empty if it has not."""
        result = await self._binder.bind(member)
        reach(SchedulerCrashPoint.BOUND_ONE)
        attempts = self._pending.tried(member)
        attempt_s = self._clock() - started
        if result.outcome is BindOutcome.BOUND:
            self._handle_bound(member, attempts, attempt_s)
        elif result.outcome is BindOutcome.CHANGED:
            log.info("bind.overtaken", **log_fields(member), answer=result.message)
        else:
            attempted(Result.ERROR, attempt_s)
            return self._handle_failure(key, member, result)
        return ""

    def _handle_bound(self, member: Member, attempts: int, attempt_s: float) -> None:
        self._pending.bound(member, attempts, attempt_s)
        if self._gangs.member(member.uid) is not None:
            self._bound.add(member.uid)
        else:  # the watch was faster than the response
            self._pending.drop(member.uid)
        self.problem = ""
        reach(SchedulerCrashPoint.BOUND)
        self._reporter.scheduled(member.pod, member.assignment.node)

    def _handle_failure(self, key: GangKey, member: Member, result: BindResult) -> str:
        if result.outcome is BindOutcome.UNKNOWN:
            return result.message
        log.error("bind.refused", **log_fields(member), error=result.message)
        message = f"node {member.assignment.node}: {result.message}"
        if result.outcome is BindOutcome.UNAUTHORIZED:
            self.problem = result.message
            self._reporter.unscheduled(member.pod, PodScheduledReason.ERROR, message)
            return result.message
        self._reporter.unscheduled(member.pod, PodScheduledReason.UNSCHEDULABLE, message)
        self._blocked.on_node(key, member.assignment.node)
        return ""

    def _defer(self, key: GangKey, member: Member, result: FitResult, started: float) -> float | None:
        """Defer a pod that waits for a volume or that its node refuses;
        return after how many seconds to check again.
        """
        self._unassume(member)
        if result.status is FitStatus.WAITS:
            self._blocked.on_volume(key)
            return self._pending.wait([member], PodScheduledReason.WAITING_FOR_VOLUME, result.message)
        self._blocked.on_node(key, member.assignment.node)
        if member.pod.spec.volumes:
            self._blocked.on_volume(key)
        return self._pending.refuse(member, result.message, started, may_lag=self._may_lag(member))

    def _may_lag(self, member: Member) -> bool:
        """Return True if a refusal depends on objects from other watches than that of pods."""
        return bool(
            _claims(member.pod)
            or closed(self._caches.node(member.assignment.node), member.pod.spec, lagging=True)
        )

    def _unassume(self, member: Member) -> None:
        """Stop counting a pod on its node, and enqueue the gangs that were refused there."""
        node = member.assignment.node
        if self._caches.assumed_node(member.uid) == node:
            self._caches.forget(member.uid, node)
            self._blocked.node_changed(node)

    def _wait_for_gang(self, gang: Gang, members: Sequence[Member]) -> float | None:
        for member in members:
            self._unassume(member)
        left_s = gang.since + PATIENCE_S - self._clock()
        if left_s > 0:
            return left_s
        message = (
            f"the {gang.size} pods of allocation {gang.key.allocation} are bound together, "
            "and not all of them are released yet"
        )
        return self._pending.wait(members, PodScheduledReason.WAITING_FOR_GANG, message)


def _claims(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes or ())
