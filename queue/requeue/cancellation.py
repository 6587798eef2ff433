"""Ends workloads whose FluxJob has ``spec.cancel`` set by a person.

An object that a person created is never deleted while it may run. A Job is suspended: its pods end, its
allocation is removed from it before the nodes are freed (as for every Job that was suspended), and then its
workload ends as Cancelled, with the start and the nodes of its run. Nobody else requeues or evicts it
meanwhile (`Caches.is_cancelled`). A Job that has nodes and is not released ends at once, and is not released
from then on. A pod that still waits, or that our own scheduler has not bound yet, is deleted, because nothing
of it ran. A pod that may run can only be deleted by its owner, so ``spec.cancel`` is set back to false.

A person who resumes a cancelled Job requests it again. Its pods are created gated. So ``spec.cancel`` is set
back to false here, and then the intake submits the Job again.

Level-triggered: ``spec.cancel`` stays in the FluxJob until the workload has ended, so it may be read any
number of times, by any leader.
"""

from __future__ import annotations

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Outcome, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import EventRecorder, Severity
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, PODS
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.groups import is_pod_group
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.release.patches import suspend_for_user
from fluxqueue.queue.requeue.job_suspension import JobSuspender
from fluxqueue.queue.requeue.steps import RequeueStep, next_step
from fluxqueue.queue.status.subjects import subjects_of
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Canceller"]

log = structlog.get_logger()

_WORKERS = 4
_RETRY_S = 0.3
_RECHECK_S = 1.0
_STAYS_SUSPENDED = "it stays suspended: delete it, or set its spec.suspend to false to submit it again"


class Canceller:
    """Carries out ``spec.cancel``.

    Parameters
    ----------
    api, caches, ledger, trigger
        The API server, the cluster, the queue and the control tasks.
    recorder
        For Events on the user's object.
    """

    def __init__(
        self, api: Api, caches: Caches, ledger: Ledger, trigger: Trigger, recorder: EventRecorder
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._recorder = recorder
        self._jobs = JobSuspender(api)
        self._keys: WorkQueue[str] = WorkQueue("cancels")

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._cancel)

    def resync(self) -> None:
        """Enqueue every cancelled FluxJob, as at start and in a sweep."""
        for fluxjob in self._caches.fluxjobs.list():
            self._enqueue(fluxjob)

    def fluxjob_changed(self, change: Change[FluxJob]) -> None:
        """Enqueue a FluxJob: its user may cancel the work, or no more."""
        if change.new is not None:
            self._enqueue(change.new)

    def job_changed(self, change: Change[Job]) -> None:
        """Enqueue the FluxJob of a Job: a cancelled one is kept suspended."""
        job = change.new
        if job is not None and (fluxjob := self._caches.fluxjob_of(job.metadata.uid)) is not None:
            self._enqueue(fluxjob)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Enqueue the FluxJob of a workload, which may have been cancelled before it was one."""
        workload = self._ledger.get(workload_id)
        if workload is not None and (fluxjob := self._caches.fluxjob_of(workload.uid)) is not None:
            self._enqueue(fluxjob)

    def _enqueue(self, fluxjob: FluxJob) -> None:
        uid = fluxjob.spec.object_ref.uid
        if fluxjob.spec.cancel and (self._ledger.by_uid(uid) is not None or self._runs(uid)):
            self._keys.add(fluxjob.spec.object_ref.uid)

    async def _cancel(self, uid: str) -> float | None:
        workload, fluxjob = self._ledger.by_uid(uid), self._caches.fluxjob_of(uid)
        if fluxjob is None or not fluxjob.spec.cancel:
            return None
        if workload is None:
            return await self._withdraw_cancellation(fluxjob) if self._runs(uid) else None
        if workload.release_mode is ReleaseMode.GROUP:
            return await self._cancel_group(workload, fluxjob)
        if workload.kind == "Pod":
            return await self._cancel_pod(workload, fluxjob)
        return await self._cancel_job(workload)

    def _runs(self, uid: str) -> bool:
        job = self._caches.jobs.get_by_uid(uid)
        return (
            job is not None
            and not job.spec.suspend
            and not job.finished
            and not job.metadata.deletion_timestamp
        )

    async def _withdraw_cancellation(self, fluxjob: FluxJob) -> float | None:
        """Set ``spec.cancel`` back to false if a cancelled Job was resumed.
        The Job is read again, because the cache may be older.
        """
        ref, meta = fluxjob.spec.object_ref, fluxjob.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "spec": {"cancel": False}}
        try:
            job = await self._api.get(JOBS, ref.name, meta.namespace)
            if job.metadata.uid != ref.uid or job.spec.suspend:
                return None
            await self._api.patch(
                FLUXJOBS, meta.name, body, namespace=meta.namespace, patch_type=PatchType.MERGE
            )
        except Conflict:
            return _RETRY_S
        except NotFound:
            return None
        log.info("cancellation.withdrawn", uid=ref.uid)
        return None

    async def _cancel_job(self, workload: Workload) -> float | None:
        allocation = self._ledger.allocation(workload.id)
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is None or job.metadata.deletion_timestamp or job.finished:
            return None  # it ends anyway
        unreleased = allocation is not None and allocation.released_at is None
        if allocation is not None and unreleased and self._is_being_released(job, allocation):
            return _RETRY_S  # then it is cancelled as a running Job
        if not job.spec.suspend or job.metadata.annotation(names.SUSPENDED_BY_ANNOTATION) is not None:
            # From here on, only its user resumes it.
            try:
                await self._api.patch(
                    JOBS,
                    workload.name,
                    suspend_for_user(job),
                    namespace=workload.namespace,
                    patch_type=PatchType.STRATEGIC,
                )
            except (Conflict, NotFound):
                return _RETRY_S
            if not job.spec.suspend:
                self._report(
                    workload,
                    "Cancelling",
                    f"{_where(workload)} is suspended because its FluxJob was cancelled",
                )
        if workload.state is State.PENDING or unreleased:
            await self._end(workload, f"while it waited; {_STAYS_SUSPENDED}")
            return None
        if workload.state is not State.DRAINING:
            await self._ledger.mark_draining([workload.id])
        return await self._end_stopped(workload, job, allocation)

    def _is_being_released(self, job: Job, allocation: Allocation) -> bool:
        """True while a release is carried out, or if it was and that is not stored yet."""
        return self._ledger.releasing(allocation.jobid) or job.metadata.label(names.JOBID_LABEL) == str(
            allocation.jobid
        )

    async def _end_stopped(self, workload: Workload, job: Job, allocation: Allocation | None) -> float | None:
        """End a suspended Job of which nothing runs any more.
        Pods on a lost node may run, so they are waited for.
        """
        step = next_step(job, self._caches.pods_of_job(workload.uid), allocation, self._caches.lost)
        if step.step is not RequeueStep.CLEAR or step.kept:
            return _RECHECK_S
        if not await self._jobs.clear(job):
            return _RETRY_S
        started, now = workload.started_at, self._ledger.clock()
        how_long = (
            f"after it ran {(now - started).total_seconds():.0f} s"
            if started is not None
            else "while it started"
        )
        await self._end(workload, f"{how_long}; {_STAYS_SUSPENDED}")
        return None

    async def _cancel_pod(self, workload: Workload, fluxjob: FluxJob) -> float | None:
        pod = self._caches.pods.get_by_uid(workload.uid)
        if pod is None or pod.metadata.deletion_timestamp or pod.terminal:
            return None
        if not (pod.held or pod.revocable):
            return await self._refuse(workload, fluxjob)
        try:
            await self._delete(pod)
        except Conflict:
            return _RETRY_S
        except NotFound:
            return None
        await self._end(workload, "while it waited, and deleted before any of it ran")
        return None

    async def _cancel_group(self, workload: Workload, fluxjob: FluxJob) -> float | None:
        """Delete all pods of a group, as long as none of them was released."""
        if workload.state is not State.PENDING:
            return await self._refuse(workload, fluxjob)
        for pod in self._caches.members_of(workload):
            if pod.held and not pod.metadata.deletion_timestamp:
                try:
                    await self._delete(pod)
                except Conflict:
                    return _RETRY_S
                except NotFound:
                    continue
        await self._end(workload, "while it waited, and its pods were deleted before any of them ran")
        return None

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod in the version that was read: if it was released meanwhile, it may run."""
        meta = pod.metadata
        await self._api.delete(
            PODS, meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )

    async def _refuse(self, workload: Workload, fluxjob: FluxJob) -> float | None:
        if workload.state is State.PENDING:
            return _RETRY_S  # the FluxJob or the pod was read before the release
        body = {"metadata": {"resourceVersion": fluxjob.metadata.resource_version}, "spec": {"cancel": False}}
        try:
            await self._api.patch(
                FLUXJOBS,
                fluxjob.metadata.name,
                body,
                namespace=workload.namespace,
                patch_type=PatchType.MERGE,
            )
        except (Conflict, NotFound):
            return _RETRY_S
        what = (
            f"pod -l {names.POD_GROUP_LABEL}={workload.name}"
            if is_pod_group(workload)
            else f"{workload.kind.lower()} {workload.name}"
        )
        ends = f"kubectl delete {what} ends it"
        why = (
            f"{_where(workload)} runs, and a pod cannot be stopped without deleting it: "
            f"spec.cancel was set back to false; {ends}"
        )
        self._report(workload, "EditRefused", why, Severity.WARNING)
        return None

    async def _end(self, workload: Workload, when: str) -> None:
        message = f"{_where(workload)} was cancelled by spec.cancel of its FluxJob {when}"
        reach(CrashPoint.CANCELLED)
        await self._ledger.finish([Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, message)])
        self._report(workload, "Cancelled", message)
        log.info("workload.cancelled", workload=workload.id, uid=workload.uid)
        self._trigger.schedule()

    def _report(
        self, workload: Workload, reason: str, message: str, severity: Severity = Severity.NORMAL
    ) -> None:
        for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)):
            self._recorder.record(subject, reason, message, severity=severity)


def _where(workload: Workload) -> str:
    return workload.ref
