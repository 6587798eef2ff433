"""Ends work that reaches the end of its duration, in queues that ask for it (``spec.enforceDuration``), and
work that is idle for too long (`fluxqueue.queue.requeue.idle_work`).

First an Event warns. At the limit the queue stores that it was reached, and then ends the work by what keeps
it from coming back: a Job gets ``activeDeadlineSeconds``, so that the Job controller deletes its pods and the
Job fails with ``DeadlineExceeded``; other pods that end by themselves are deleted, those of a group that
belong to Jobs through their Jobs. Pods get SIGTERM and their grace period each way. The tracker sees them
end, and the workload ends with the outcome ``TimeLimit``.

Level-triggered: what is stored is carried out again by each leader and each sweep, until nothing is left to
end. Every write names the uid of its object, so it never reaches another object of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import structlog

from fluxqueue.api.fluxqueues import EnforceDuration, FluxQueue
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.groups import group_of_workload
from fluxqueue.queue.model.records import FluxionJobId, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import (
    is_over_time_limit,
    is_suspended_soon,
    limit_times,
    over_limit_message,
    warning_message,
)
from fluxqueue.queue.release.patches import end_job_after
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["TimeLimits"]

log = structlog.get_logger()

_WORKERS = 4
_RETRY_S = 0.3
_RECHECK_S = 10.0
"""Until pods that appear while a group ends are deleted too."""
_LEAST_S = 0.05


class TimeLimits:
    """Warns and ends work at the end of its duration."""

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, recorder: EventRecorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._recorder = recorder
        self._keys: WorkQueue[WorkloadId] = WorkQueue("time-limits")
        self._warned: dict[WorkloadId, FluxionJobId | None] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._check)

    def resync(self) -> None:
        """Check all live work, as at start and in a sweep."""
        self._warned = {
            key: jobid for key, jobid in self._warned.items() if self._ledger.get(key) is not None
        }
        for workload, _ in self._ledger.live():
            self._enqueue(workload)

    def queue_changed(self, change: Change[FluxQueue]) -> None:
        """Enqueue the live work of a queue whose durations are enforced otherwise."""
        former = change.old.spec.enforce_duration if change.old is not None else None
        if change.new is not None and change.new.spec.enforce_duration != former:
            for workload, _ in self._ledger.live():
                if workload.queue == change.new.metadata.name:
                    self._enqueue(workload)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Enqueue a workload: its end may have moved."""
        workload = self._ledger.get(workload_id)
        if workload is None:
            self._warned.pop(workload_id, None)
        else:
            self._enqueue(workload)

    def _enqueue(self, workload: Workload) -> None:
        if is_over_time_limit(workload) or limit_times(workload, self._rules(workload)) is not None:
            self._keys.add(workload.id)

    def _rules(self, workload: Workload) -> EnforceDuration | None:
        queue = self._caches.fluxqueues.get("", workload.queue)
        return queue.spec.enforce_duration if queue is not None else None

    async def end_idle(self, workload: Workload, idle: str) -> None:
        """End work that is idle for too long, as at its time limit."""
        await self._store(workload, self._ledger.clock(), idle)

    async def _check(self, workload_id: WorkloadId) -> float | None:
        """Do what is due for a workload; the seconds until more is due, None if nothing is."""
        workload = self._ledger.get(workload_id)
        if workload is None or is_suspended_soon(workload) or workload.started_at is None:
            return None
        if is_over_time_limit(workload):
            return await self._end(workload)
        times, now = limit_times(workload, self._rules(workload)), self._ledger.clock()
        if times is None or self._returning_pod(workload):
            return None
        if now >= times.end_at:
            if workload.evicting and not self._goes_on(workload):
                return _RECHECK_S  # it stops, and waits again
            await self._store(workload, now)
            return 0.0
        if times.warn_at is None or now >= times.warn_at:
            self._warn(workload, times.end_at)
            return max((times.end_at - now).total_seconds(), _LEAST_S)
        return max((times.warn_at - now).total_seconds(), _LEAST_S)

    def _returning_pod(self, workload: Workload) -> bool:
        """True for a pod that its controller would create again: it ends with its controller."""
        if workload.release_mode is not ReleaseMode.POD:
            return False
        pod = self._caches.pods.get_by_uid(workload.uid)
        return pod is None or self._returns(pod)

    def _returns(self, pod: Pod) -> bool:
        """True for a pod of a Job that runs, which is ended itself, or of a service.
        Everybody may write an owner into a pod.
        """
        owner = pod.metadata.controller
        if owner is None:
            return False
        job = self._caches.jobs.get_by_uid(owner.uid)
        return (job is not None and not job.finished) or not pod.spec.ends

    def _warn(self, workload: Workload, end_at: datetime) -> None:
        rules = self._rules(workload)
        if rules is None or not rules.grace_seconds or self._warned.get(workload.id, -1) == workload.jobid:
            return
        self._warned[workload.id] = workload.jobid
        self._report(workload, "TimeLimitNear", warning_message(workload, end_at))

    async def _store(self, workload: Workload, now: datetime, idle: str = "") -> None:
        stored = await self._ledger.set_time_limit(workload, now, idle)
        if stored is None:
            return
        reach(CrashPoint.TIME_LIMIT_STORED)
        log.info(
            "workload.time_limit",
            workload=workload.id,
            uid=workload.uid,
            duration_s=workload.duration_s,
            idle=bool(idle),
        )
        self._report(stored, "TimeLimit", over_limit_message(stored))

    async def _end(self, workload: Workload) -> float | None:
        if workload.release_mode is not ReleaseMode.GROUP and workload.kind == "Job":
            job = self._caches.jobs.get_by_uid(workload.uid)
            return await self._end_jobs([job] if job is not None else [])
        if workload.release_mode is ReleaseMode.POD:
            pod = self._caches.pods.get_by_uid(workload.uid)
            return await self._delete([pod] if pod is not None else [])
        jobs, pods = self._parts(workload)
        waits = [await self._end_jobs(jobs), await self._delete(pods)]
        return min((wait_s for wait_s in waits if wait_s is not None), default=_RECHECK_S)

    def _goes_on(self, workload: Workload) -> bool:
        """True if something of a pod or a group runs that its limit would end and its eviction does not stop
        yet.
        """
        pod = self._caches.pods.get_by_uid(workload.uid)
        jobs, pods = (
            self._parts(workload)
            if workload.release_mode is ReleaseMode.GROUP
            else ([], [pod] if pod is not None else [])
        )
        jobs_go_on = any(
            not (job.finished or job.metadata.deletion_timestamp or job.spec.suspend) for job in jobs
        )
        return jobs_go_on or any(not (each.terminal or each.metadata.deletion_timestamp) for each in pods)

    def _parts(self, workload: Workload) -> tuple[list[Job], list[Pod]]:
        """Return the Jobs of a group, and its pods that end by themselves and belong to none."""
        key = group_of_workload(workload)
        pods = [
            pod
            for pod in (self._caches.pods_of_group(key) if key is not None else ())
            if self._ledger.by_uid(pod.metadata.uid) is None
        ]
        owners = (pod.metadata.controller for pod in pods)
        uids = dict.fromkeys(owner.uid for owner in owners if owner is not None and owner.kind == "Job")
        jobs = [job for uid in uids if (job := self._caches.jobs.get_by_uid(uid)) is not None]
        return jobs, [pod for pod in pods if not self._returns(pod)]

    async def _end_jobs(self, jobs: Iterable[Job]) -> float | None:
        again = None
        for job in jobs:
            if job.finished or job.metadata.deletion_timestamp or job.spec.suspend:
                continue
            ran_s = self._ran_s(job)
            if job.spec.active_deadline_seconds is not None and job.spec.active_deadline_seconds <= ran_s:
                continue  # the Job controller ends it
            meta = job.metadata
            try:
                await self._api.patch(
                    JOBS,
                    meta.name,
                    end_job_after(job, ran_s),
                    namespace=meta.namespace,
                    patch_type=PatchType.STRATEGIC,
                )
            except Conflict:
                again = _RETRY_S
                continue
            except NotFound:
                continue
            log.info("job.time_limit", job=f"{meta.namespace}/{meta.name}", seconds=ran_s)
            reach(CrashPoint.TIME_LIMIT_ASKED)
        return again

    def _ran_s(self, job: Job) -> int:
        """For how long a Job has run, as the Job controller counts."""
        started = job.status.start_time
        if started is None:
            return 1
        return max(int((self._ledger.wall() - datetime.fromisoformat(started)).total_seconds()), 1)

    async def _delete(self, pods: Iterable[Pod]) -> float | None:
        """Delete pods in whatever state, each with its grace period."""
        for pod in pods:
            meta = pod.metadata
            if pod.terminal or meta.deletion_timestamp:
                continue
            try:
                await self._api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)
            except (Conflict, NotFound):
                continue  # it is another pod now, or gone
            log.info("pod.time_limit", pod=f"{meta.namespace}/{meta.name}")
            reach(CrashPoint.TIME_LIMIT_ASKED)
        return None

    def _report(self, workload: Workload, reason: str, message: str) -> None:
        for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)):
            self._recorder.record(subject, reason, message, severity=Severity.WARNING)
