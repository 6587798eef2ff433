"""Ends a workload because a person set ``spec.cancel`` of its FluxJob.

What a person made is never deleted. A Job is suspended: its pods go, its allocation is cleared from it before the nodes are free (the
tracker does that with every Job that was suspended), and then its workload ends as Cancelled instead of waiting again. A pod that still
has our gate is deleted, since nothing of it ran; one that runs is its owner's to delete, and the field is put back.

Who resumes a Job that was cancelled asks for it once more. Its pods come gated, so the wish to cancel is taken back here, and then the
intake takes the Job up again.

Level-triggered: the wish stands in the FluxJob until the workload has ended, so it may be looked at any number of times, by any leader.
"""

from __future__ import annotations

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Outcome, Reason, State
from fluxqueue.api.objects import Job, Pod
from fluxqueue.kube.errors import Conflict, NotFound
from fluxqueue.kube.events import Recorder, Severity
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, PODS
from fluxqueue.kube.store import Change
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.workqueue import WorkQueue, run_workers
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.tellings import subjects_of
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.groups import POD_GROUP
from fluxqueue.queue.ledger import Ending, Ledger
from fluxqueue.queue.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.releases import hand_back_job
from fluxqueue.queue.tasks import Trigger

__all__ = ["Canceller"]

log = structlog.get_logger()

_WORKERS = 4
_AGAIN_S = 0.3


class Canceller:
    """Carries out ``spec.cancel``.

    Parameters
    ----------
    api, caches, ledger
        Where Jobs are suspended and pods deleted, what is there, and where workloads end.
    trigger
        How a scheduling cycle is asked for.
    recorder
        For Events on the user's object.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, trigger: Trigger, recorder: Recorder) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._recorder = recorder
        self._keys: WorkQueue[str] = WorkQueue("cancels")
        caches.fluxjobs.add_handler(self._fluxjob_changed)
        caches.jobs.add_handler(self._job_changed)
        ledger.subscribe(self._workload_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._keys, _WORKERS, self._cancel)

    def look_at_everything(self) -> None:
        """Look at every FluxJob once, as at start and in a sweep."""
        for fluxjob in self._caches.fluxjobs.list():
            self._touch(fluxjob)

    def _fluxjob_changed(self, change: Change[FluxJob]) -> None:
        if change.new is not None:
            self._touch(change.new)

    def _job_changed(self, change: Change[Job]) -> None:
        job = change.new
        if job is not None and not job.spec.suspend and (fluxjob := self._caches.fluxjob_of(job.metadata.uid)) is not None:
            self._touch(fluxjob)

    def _workload_changed(self, found: WorkloadId) -> None:
        workload = self._ledger.get(found)
        if workload is not None and (fluxjob := self._caches.fluxjob_of(workload.uid)) is not None:
            self._touch(fluxjob)

    def _touch(self, fluxjob: FluxJob) -> None:
        uid = fluxjob.spec.object_ref.uid
        if fluxjob.spec.cancel and (self._ledger.by_uid(uid) is not None or self._runs(uid)):
            self._keys.add(fluxjob.spec.object_ref.uid)

    async def _cancel(self, uid: str) -> float | None:
        workload, fluxjob = self._ledger.by_uid(uid), self._caches.fluxjob_of(uid)
        if fluxjob is None or not fluxjob.spec.cancel:
            return None
        if workload is None:
            return await self._take_back_wish(fluxjob) if self._runs(uid) else None
        if workload.release_mode is ReleaseMode.GROUP:
            return await self._cancel_group(workload, fluxjob)
        if workload.kind == "Pod":
            return await self._cancel_pod(workload, fluxjob)
        return await self._cancel_job(workload)

    def _runs(self, uid: str) -> bool:
        job = self._caches.jobs.get_by_uid(uid)
        return job is not None and not job.spec.suspend and not job.finished and not job.metadata.deletion_timestamp

    async def _take_back_wish(self, fluxjob: FluxJob) -> float | None:
        """The Job was resumed after it had been cancelled, if it still runs now: what the watch shows may be from before."""
        ref, meta = fluxjob.spec.object_ref, fluxjob.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "spec": {"cancel": False}}
        try:
            job = await self._api.get(JOBS, ref.name, meta.namespace)
            if job.metadata.uid != ref.uid or job.spec.suspend:
                return None
            await self._api.patch(FLUXJOBS, meta.name, body, namespace=meta.namespace, patch_type=PatchType.MERGE)
        except Conflict:
            return _AGAIN_S
        except NotFound:
            return None
        log.info("a cancelled Job was resumed", uid=ref.uid)
        return None

    async def _cancel_job(self, workload: Workload) -> float | None:
        allocation = self._ledger.allocation(workload.id)
        unreleased = allocation is not None and allocation.released_at is None
        if unreleased and workload.reason is not Reason.RELEASE_FAILED:
            return _AGAIN_S  # its release is under way: it is cancelled as a running one in a moment
        job = self._caches.jobs.get_by_uid(workload.uid)
        if job is None or job.metadata.deletion_timestamp or job.finished:
            return None  # it ends by itself
        if not job.spec.suspend or job.metadata.annotation(names.SUSPENDED_BY_ANNOTATION) is not None:
            # Nobody but its user resumes it from here on; and a release that is still under way is of an older version now.
            try:
                await self._api.patch(JOBS, workload.name, hand_back_job(job), namespace=workload.namespace, patch_type=PatchType.STRATEGIC)
            except (Conflict, NotFound):
                return _AGAIN_S
            if not job.spec.suspend:
                self._say(workload, "Cancelling", f"{_where(workload)} is suspended because its FluxJob was cancelled")
        if workload.state is State.PENDING or unreleased:
            await self._end(workload, "it stays suspended: delete it, and apply it again if it is to run")
        return None

    async def _cancel_pod(self, workload: Workload, fluxjob: FluxJob) -> float | None:
        pod = self._caches.pods.get_by_uid(workload.uid)
        if pod is None or pod.metadata.deletion_timestamp or pod.terminal:
            return None
        if not pod.spec.gated_by(names.GATE):
            return await self._refuse(workload, fluxjob)
        try:
            await self._delete(pod)
        except Conflict:
            return _AGAIN_S
        except NotFound:
            return None
        await self._end(workload, "it was deleted before any of it ran")
        return None

    async def _cancel_group(self, workload: Workload, fluxjob: FluxJob) -> float | None:
        """All its pods, as long as none of them was let go."""
        if workload.state is not State.PENDING:
            return await self._refuse(workload, fluxjob)
        for pod in self._caches.members_of(workload):
            if pod.spec.gated_by(names.GATE) and not pod.metadata.deletion_timestamp:
                try:
                    await self._delete(pod)
                except Conflict:
                    return _AGAIN_S
                except NotFound:
                    continue
        await self._end(workload, "its pods were deleted before any of them ran")
        return None

    async def _delete(self, pod: Pod) -> None:
        """Only as it was read: a release that comes first has taken the gate off, and then the pod runs."""
        meta = pod.metadata
        await self._api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version)

    async def _refuse(self, workload: Workload, fluxjob: FluxJob) -> float | None:
        if workload.state is State.PENDING:
            return _AGAIN_S  # read before its release was
        body = {"metadata": {"resourceVersion": fluxjob.metadata.resource_version}, "spec": {"cancel": False}}
        try:
            await self._api.patch(FLUXJOBS, fluxjob.metadata.name, body, namespace=workload.namespace, patch_type=PatchType.MERGE)
        except (Conflict, NotFound):
            return _AGAIN_S
        what = (
            f"pod -l {names.POD_GROUP_LABEL}={workload.name}" if workload.kind == POD_GROUP else f"{workload.kind.lower()} {workload.name}"
        )
        ends = f"kubectl delete {what} ends it"
        why = f"{_where(workload)} runs, and a pod cannot be stopped without deleting it: spec.cancel was put back; {ends}"
        self._say(workload, "EditRefused", why, Severity.WARNING)
        return None

    async def _end(self, workload: Workload, aftermath: str) -> None:
        message = f"{_where(workload)} was cancelled; {aftermath}"
        reach(Point.CANCELLED)
        await self._ledger.finish([Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, message)])
        self._say(workload, "Cancelled", message)
        log.info("cancelled", workload=workload.id, uid=workload.uid)
        await self._trigger.schedule()

    def _say(self, workload: Workload, reason: str, message: str, severity: Severity = Severity.NORMAL) -> None:
        for subject in subjects_of(workload, self._caches, self._ledger.allocation(workload.id)):
            self._recorder.record(subject, reason, message, severity=severity)


def _where(workload: Workload) -> str:
    return f"{workload.kind} {workload.namespace}/{workload.name}"
