"""Lets granted workloads go: one patch each, idempotent, claimed so that no two do it at once.

The grant is stored before; the patch carries the uid and resourceVersion that were read. When the API server says the object changed
(409), it is read again: if its generation is the same, only status or labels moved and the patch is sent anew; if not, a person edited
the suspended object, so what was matched is not what it asks for any more, and it goes back to be matched again. An object that is gone
frees its allocation. A crash between patch and note repeats the patch, which finds its own work and notes it.

What was refused is due again when its claim runs out; what failed because the API server was away or overloaded after 1 s, then 2, 4 and so
on up to that. The table knows when that is, and each round ends with setting an alarm for the earliest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.objects import Job
from fluxqueue.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.ledger import Ending, Ledger
from fluxqueue.queue.metrics import RELEASE_SECONDS, RELEASES
from fluxqueue.queue.records import Allocation, FluxionJobId, PutBack, ReleaseMode, Workload
from fluxqueue.queue.releases import clear_start_time, gate_release_job, pin_release_job, release_pod
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.tasks import Trigger

__all__ = ["Releaser"]

log = structlog.get_logger()

_CLAIM = 64
_AT_ONCE = 16
_RETRY_AFTER_S = 20.0
_SOONEST_S = 0.2
_TRIES = 6


class _Edited(Exception):
    """The object is not the one that was matched."""


class Releaser:
    """Carries out releases.

    Parameters
    ----------
    api
        Where objects are patched.
    caches, ledger, trigger
        The cluster, the queue, and how a scheduling cycle is asked for.
    reread
        Tells the intake to look at an object (uid) again after it was found edited.
    let_go
        Tells the tracker that a pod (uid, resourceVersion as read) lost its gate.
    prepare
        Writes what a Job's pods need before it is let go.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        reread: Callable[[str], None],
        let_go: Callable[[str, str], None],
        prepare: Callable[[Job, Allocation], Awaitable[None]],
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._reread = reread
        self._let_go = let_go
        self._prepare = prepare
        self._alarm: asyncio.TimerHandle | None = None
        self._waking: asyncio.Task[None] | None = None

    async def release_due(self) -> None:
        """Let go all that is due, and ask for another round when more will be."""
        try:
            await self._release_claimed()
        finally:
            self._set_alarm(await self._ledger.store.next_release_at())

    async def _release_claimed(self) -> None:
        while claimed := await self._ledger.claim_releases(_CLAIM, _RETRY_AFTER_S):
            reach(Point.CLAIMED)
            limit = asyncio.Semaphore(_AT_ONCE)
            failed: list[FluxionJobId] = []
            try:
                done = await asyncio.gather(*(self._release(limit, workload, allocation, failed) for workload, allocation in claimed))
                reach(Point.RELEASED)
                await self._ledger.released([jobid for jobid in done if jobid is not None])
                await self._ledger.release_soon(failed)
            finally:
                self._ledger.release_over(allocation.jobid for _, allocation in claimed)
            if len(claimed) < _CLAIM:
                return

    def _set_alarm(self, at: datetime | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at is not None:
            delay_s = max((at - self._ledger.clock()).total_seconds(), _SOONEST_S)
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._waking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            await self._trigger.release()
        except DatabaseUnavailable as error:
            # When Postgres is back, every control task is run once, and that round sets the alarm anew.
            log.warning("a release could not be asked for", error=str(error))

    async def _release(
        self, limit: asyncio.Semaphore, workload: Workload, allocation: Allocation, failed: list[FluxionJobId]
    ) -> FluxionJobId | None:
        """Let one workload go; its allocation's id if that is done. What is worth another attempt soon is added to `failed`."""
        where = f"{workload.kind} {workload.namespace}/{workload.name}"
        mode = str(workload.release_mode)
        async with limit:
            try:
                if workload.release_mode is ReleaseMode.POD:
                    await self._release_pod(workload, allocation)
                elif workload.release_mode is not ReleaseMode.GROUP:  # the pods of a group are let go one by one, by the tracker
                    await self._release_job(workload, allocation)
            except NotFound:
                RELEASES.labels(mode, "gone").inc()
                message = f"{where} was deleted before it was released"
                await self._ledger.finish([Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, message)])
                await self._trigger.schedule()
                return None
            except _Edited as edited:
                RELEASES.labels(mode, "edited").inc()
                await self._ledger.requeue([PutBack(workload=workload.id, reason=Reason.NONE, message=str(edited))])
                reach(Point.EDITED)
                self._reread(workload.uid)
                await self._trigger.schedule()
                return None
            except (Invalid, Forbidden, Conflict) as error:
                RELEASES.labels(mode, "refused").inc()
                log.warning("a release was refused", object=where, workload=workload.id, error=str(error))
                await self._ledger.release_failed(allocation.jobid, f"{where} could not be released: {error}")
                return None
            except ApiError as error:
                # The API server is away or overloaded.
                failed.append(allocation.jobid)
                RELEASES.labels(mode, "failed").inc()
                log.warning("a release failed and is tried again", object=where, workload=workload.id, error=str(error))
                return None
        RELEASES.labels(mode, "released").inc()
        RELEASE_SECONDS.observe(_seconds_since(allocation.granted_at, self._ledger.clock()))
        return allocation.jobid

    async def _release_pod(self, workload: Workload, allocation: Allocation) -> None:
        pod = self._caches.pods.get_by_uid(workload.uid)
        for _ in range(_TRIES):
            if pod is None:
                pod = await self._api.get(PODS, workload.name, workload.namespace)
            if pod.metadata.uid != workload.uid or pod.metadata.deletion_timestamp:
                raise _gone(workload)
            if pod.metadata.annotation(names.ALLOCATION_ANNOTATION) == str(allocation.jobid):
                return
            try:
                patch = release_pod(pod, allocation.jobid, allocation.hosts[0])
                await self._api.patch(PODS, workload.name, patch, namespace=workload.namespace, patch_type=PatchType.STRATEGIC)
                self._let_go(pod.metadata.uid, pod.metadata.resource_version)
                return
            except Conflict:
                pod = None
        raise Conflict(409, "Conflict", "the pod keeps changing")

    async def _release_job(self, workload: Workload, allocation: Allocation) -> None:
        job = self._caches.jobs.get_by_uid(workload.uid)
        for attempt in range(_TRIES):
            if job is None:
                job = await self._api.get(JOBS, workload.name, workload.namespace)
            meta = job.metadata
            if meta.uid != workload.uid or meta.deletion_timestamp:
                raise _gone(workload)
            if meta.label(names.JOBID_LABEL) == str(allocation.jobid):
                return
            if meta.generation != workload.generation:
                raise _Edited(f"Job {workload.namespace}/{workload.name} was edited while it was being released: it is matched again")
            try:
                if attempt == 0:
                    await self._prepare(job, allocation)
                await self._api.patch(
                    JOBS, meta.name, _job_patch(job, workload, allocation), namespace=meta.namespace, patch_type=PatchType.STRATEGIC
                )
                return
            except Conflict:
                job = None
            except Invalid:
                # Kubernetes 1.36.0 and 1.36.1 take a changed template only once the Suspended condition is there; before 1.36 one of
                # a Job that has run takes none while it has a startTime.
                if attempt + 1 == _TRIES:
                    raise
                await asyncio.sleep(0.05 * 2**attempt)
                if job.spec.suspend and job.status.start_time is not None and job.status.holds("Suspended"):
                    with contextlib.suppress(Conflict):
                        await self._api.patch(JOBS, meta.name, clear_start_time(job), namespace=meta.namespace, subresource="status")
                job = None
        raise Conflict(409, "Conflict", "the Job keeps changing")


def _job_patch(job: Job, workload: Workload, allocation: Allocation) -> dict[str, object]:
    if not job.spec.suspend:
        # Resumed by its user: the template is fixed now, its pods came gated and are let go one by one.
        meta = job.metadata
        return {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": {names.JOBID_LABEL: str(allocation.jobid)}}
        }
    if workload.release_mode is ReleaseMode.PIN:
        return pin_release_job(job, allocation.jobid, allocation.hosts)
    return gate_release_job(job, allocation.jobid)


def _gone(workload: Workload) -> NotFound:
    return NotFound(404, "NotFound", f"{workload.kind} {workload.namespace}/{workload.name} of uid {workload.uid} is gone")


def _seconds_since(then: datetime, now: datetime) -> float:
    return max((now - then).total_seconds(), 0.0)
