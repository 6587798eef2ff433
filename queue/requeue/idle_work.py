"""Tells running work that it is idle, and ends it if it stays so, or lets work of any priority preempt it, as
an administrator asks for (``queue.config.idle``).

Prometheus is asked regularly what pods use. What its answers show is in the memory of the leader: another
leader begins to look anew, and says nothing of idle work until it has looked for long enough. Work is ended
by `fluxqueue.queue.requeue.time_limits`, which stores that first, and only in answer to an answer: where
there is none, nothing is ended. That it may be preempted is stored too, and taken back with the first answer
that shows use, and while there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog
from msgspec import structs

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Preemption
from fluxqueue.api.pods import Pod
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.metrics import IDLE, IDLE_ANSWERS
from fluxqueue.queue.model.groups import group_of_workload
from fluxqueue.queue.model.idleness import Idleness, IdleRules, PodName, ends_for_good, is_idle
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.preemption_notices import grace_left_s
from fluxqueue.queue.model.records import (
    Allocation,
    FluxionJobId,
    ReleaseMode,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import Unused
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.requeue.prometheus import NoAnswer, ask_use
from fluxqueue.queue.requeue.time_limits import TimeLimits
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["IdleWork"]

log = structlog.get_logger()

_AT_ONCE = 1_000
"""Pods that are looked at before others have their turn."""


class IdleWork:
    """Looks for idle work.

    Parameters
    ----------
    caches, ledger
        The cluster and the queue.
    recorder
        For Events on the user's object.
    limits
        Ends work.
    rules
        When work is idle.
    ask
        Asks for the use of pods.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        recorder: EventRecorder,
        limits: TimeLimits,
        rules: IdleRules,
        ask: Callable[[IdleRules, Callable[[PodName], bool]], Awaitable[Mapping[PodName, float]]] = ask_use,
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._limits = limits
        self._rules = rules
        self._ask = ask
        self._idle: dict[WorkloadId, Idleness] = {}
        self._words: dict[WorkloadId, tuple[FluxionJobId | None, str]] = {}
        """What is said of those that were told, with the allocation."""
        self._changed: list[Callable[[WorkloadId], None]] = []

    def subscribe(self, listener: Callable[[WorkloadId], None]) -> None:
        """Call a listener with each workload of which something else is said from now on."""
        self._changed.append(listener)

    def resync(self) -> None:
        """Do nothing: each answer is compared with all work."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._rules.every_seconds)
                await self.look()
        finally:
            IDLE.set(0)

    def words(self, workload: Workload) -> str:
        """Return what is said of a workload; empty if it is not idle, or was not told yet."""
        jobid, words = self._words.get(workload.id, (None, ""))
        return words if jobid == workload.jobid else ""

    async def look(self) -> None:
        """Ask once, and do what the answer shows to be due."""
        try:
            use = await self._ask(self._rules, self._is_known)
        except NoAnswer as error:
            IDLE_ANSWERS.labels("failed").inc()
            log.warning("prometheus.no_answer", error=str(error))
            await self._store(answered=False)
        else:
            IDLE_ANSWERS.labels("answered").inc()
            await self._compare(use)
            await self._store(answered=True)
        self._show()

    async def _store(self, *, answered: bool) -> None:
        """Store what may be preempted, and what may not any more. What is being stopped stays as it is."""
        now, changes = self._ledger.clock(), dict[WorkloadId, Unused | None]()
        for workload, _ in self._ledger.live():
            known, before = self._idle.get(workload.id), workload.requeue_state.unused
            if (before is None and known is None) or not _may_be_idle(workload, now):
                continue
            if known is None and not answered:
                continue  # another leader has seen it
            wanted = known.stored(self._rules, now, self._ledger.epoch) if known is not None else None
            if _without_time(wanted) != _without_time(before):
                changes[workload.id] = wanted
        await self._ledger.set_unused(changes)

    def _is_known(self, pod: PodName) -> bool:
        return self._caches.pods.get(*pod) is not None

    async def _compare(self, use: Mapping[PodName, float]) -> None:
        """Compare all running work with an answer, and end what is over. What fails on the way leaves what is
        known of the others as it was.
        """
        now, looked_at = self._ledger.clock(), 0
        ids = [each.id for each, allocation in self._ledger.live() if not allocation.remnant]
        for workload_id in self._idle.keys() - ids:
            del self._idle[workload_id]
        for workload_id in ids:
            workload, allocation = self._ledger.get(workload_id), self._ledger.allocation(workload_id)
            known = self._idle.pop(workload_id, None)
            if workload is None or allocation is None or not _may_be_idle(workload, now):
                continue
            pods = self._pods(workload, allocation)
            if (idleness := self._next(workload, pods, use, known, now)) is not None:
                self._idle[workload_id] = idleness
                over = idleness.last == now and idleness.is_over(self._rules)
                if over and self._rules.then == "end":
                    await self._limits.end_idle(workload, idleness.words(self._rules, now, last=True))
                    del self._idle[workload_id]
            looked_at += 1 + len(pods)
            if looked_at >= _AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)

    def _next(
        self,
        workload: Workload,
        pods: Sequence[Pod],
        use: Mapping[PodName, float],
        known: Idleness | None,
        now: datetime,
    ) -> Idleness | None:
        """Return what is known of a workload after an answer; None if it is not idle."""
        run = workload.jobid, frozenset(pod.metadata.uid for pod in pods)
        if known is None or known.run != run:
            known = Idleness.restored(workload.requeue_state.unused, run, self._rules)
        idle = False if self._opted_out(workload, pods) else is_idle(pods, use, self._rules.below)
        if not idle:
            return known if idle is None else None
        known = known.seen(now, self._rules) if known is not None else Idleness(run, now, now)
        if known.told_s is not None:
            known = replace(known, ends=self._goes(workload, pods))
        return self._told(workload, pods, known) if known.is_to_be_told(self._rules) else known

    def _told(self, workload: Workload, pods: Sequence[Pod], known: Idleness) -> Idleness:
        """Tell people that their work is idle; with the next answer if Events are too many now."""
        told = known.told(ends=self._goes(workload, pods))
        message = f"{workload.ref} is {told.words(self._rules, known.last)}"
        sent = [
            self._recorder.record(subject, "Idle", message, severity=Severity.WARNING)
            for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id))
        ]
        if not any(sent):
            return known
        log.info("workload.idle", workload=workload.id, uid=workload.uid, since=known.since.isoformat())
        return told

    def _goes(self, workload: Workload, pods: Sequence[Pod]) -> bool:
        """True if work is ended, or may be preempted, when its grace is over."""
        if self._rules.then == "preemptible":
            queue = self._caches.fluxqueues.get("", workload.queue)
            if queue is None or queue.spec.preemption is not Preemption.LOWER_PRIORITY:
                return False
        return self._rules.then != "notice" and ends_for_good(workload.kind, pods)

    def _show(self) -> None:
        """Have FluxJobs show other words where they have changed."""
        now, former = self._ledger.clock(), self._words
        self._words = {
            workload_id: (idleness.run[0], idleness.words(self._rules, now))
            for workload_id, idleness in self._idle.items()
            if idleness.told_s is not None
        }
        for workload_id in former.keys() | self._words.keys():
            if former.get(workload_id) != self._words.get(workload_id):
                for listener in self._changed:
                    listener(workload_id)
        IDLE.set(len(self._words))

    def _pods(self, workload: Workload, allocation: Allocation) -> list[Pod]:
        """Return the pods of a workload that run or may run, also those that were matched alone: none of a
        pod that belongs to a Job.
        """
        key = group_of_workload(workload)
        pods = (
            self._caches.pods_of_group(key)
            if key is not None
            else self._caches.pods_of_workload(workload, allocation)
        )
        part = workload.release_mode is ReleaseMode.POD
        return [pod for pod in pods if pod.active and not (part and owning_job_uid(pod))]

    def _opted_out(self, workload: Workload, pods: Sequence[Pod]) -> bool:
        if not self._rules.may_opt_out:
            return False
        obj = self._caches.job_or_pod(workload.uid)
        return any(
            each is not None and each.metadata.annotation(names.KEEP_IDLE_ANNOTATION) == "true"
            for each in (obj, *pods)
        )


def _may_be_idle(workload: Workload, now: datetime) -> bool:
    """True for work that runs, also in the grace in which it goes on if it is used."""
    runs = workload.state is State.RUNNING or grace_left_s(workload, now) > 0
    return runs and workload.started_at is not None and not is_over_time_limit(workload)


def _without_time(unused: Unused | None) -> Unused | None:
    return structs.replace(unused, seen_at=unused.since) if unused is not None else None
