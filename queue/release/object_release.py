"""Releases one object onto its nodes: one patch, idempotent, that carries the uid and the generation or
resourceVersion that were read.

If it is refused (409, 422) because the object changed, that is read again. If its generation is the same,
only its status or labels changed, and the patch is sent again. If not, a person edited the suspended object,
so the allocation is not for what it requests now: `Edited`. If a node changed since the match
(`fluxqueue.queue.noderules.node_fitness`), the allocation is of no use either: `Unfit`. A release that is
repeated after a crash finds its own mark on the object and sends nothing.

A patch is not sent again if it would be refused again: for a field other than the whole template, or because
the object is the same as before. Nothing waits here for the Job controller, because others wait for a slot.

The cache may not show yet that an object was released. So an object whose allocation is about to be refused
is read from the API server first: a released object keeps its nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.jobs import Job
from fluxqueue.api.pinwindows import DEFAULT_WINDOW_S, pin_window
from fluxqueue.api.schedulers import choose_scheduler
from fluxqueue.kube.errors import Conflict, Invalid, NotFound
from fluxqueue.kube.kinds import JOBS, PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.jobs import template_can_hold_node
from fluxqueue.queue.model.moldable import is_moldable, parallelism_at_start, started_pods
from fluxqueue.queue.model.records import Allocation, ReleaseMode, Workload
from fluxqueue.queue.noderules.node_fitness import NodeFitness
from fluxqueue.queue.release.generation_patches import by_generation
from fluxqueue.queue.release.new_jobs import YOUNG_S, NewJobs
from fluxqueue.queue.release.patches import (
    clear_start_time,
    gate_release_job,
    hold_node_release_job,
    label_job,
    pin_release_job,
    release_pod,
)
from fluxqueue.queue.release.pod_gates import PodGates

__all__ = ["Cancelled", "Edited", "NotYet", "ObjectReleaser", "Prepare", "ReleaseSettings", "Unfit"]

_TRIES = 6
_PATIENCE = timedelta(seconds=10)
"""So long after its grant, a release may be too early."""

Prepare = Callable[[Job, Allocation], Awaitable[None]]


class Edited(Exception):
    """The object is not the one that was matched."""


class Cancelled(Exception):
    """A person cancels the Job, so it is not released."""


class Unfit(Edited):
    """A node of the allocation changed since the match."""


class NotYet(Exception):
    """The template cannot be changed before the Job controller has written a status."""


class _Refused(NamedTuple):
    """The version of a Job for which a patch was refused."""

    version: str
    error: Invalid
    fixed: bool
    """Its template cannot be changed at all."""


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """How Jobs are released.

    Attributes
    ----------
    pin_window_s
        How long new pods of a released Job are pinned at least (`fluxqueue.api.pinwindows`).
    scheduler
        Binds the pods for which neither a label nor a FluxQueue names a scheduler; None if our scheduler is
        not installed.
    """

    pin_window_s: float = DEFAULT_WINDOW_S
    scheduler: SchedulerName | None = None


class ObjectReleaser:
    """Sends the patches of releases.

    Parameters
    ----------
    api
        Where objects are patched.
    caches
        The cluster.
    clock
        Returns the time of the queue.
    gates
        Notes which pods were released.
    prepare
        Writes what the pods of a Job need before it is released.
    settings
        How Jobs are released.
    wall
        Returns the time of day, with which the webhook compares; the same as `clock` if it is not given.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        clock: Callable[[], datetime],
        gates: PodGates,
        prepare: Prepare,
        settings: ReleaseSettings | None = None,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        self._api = api
        self._caches = caches
        self._clock = clock
        self._wall = wall or clock
        self._gates = gates
        self._prepare = prepare
        self._settings = settings or ReleaseSettings()
        self._new_jobs = NewJobs()
        self.parts = (self._new_jobs,)
        self._fitness = NodeFitness(lambda name: caches.nodes.get("", name))

    async def settle(self, workload: Workload) -> None:
        """Wait for what is about to change the object of a workload, for a quarter of a second at most.
        Call it before `release`.
        """
        if workload.kind != JOBS.kind or (self._clock() - workload.submitted_at).total_seconds() >= YOUNG_S:
            return
        if (job := self._caches.jobs.get_by_uid(workload.uid)) is not None:
            await self._new_jobs.first_status_if_required(job)

    async def release(self, workload: Workload, allocation: Allocation) -> None:
        """Release the object of a workload.

        Raises
        ------
        NotFound
            The object is gone.
        Edited
            The allocation is not for this object, or not for these nodes.
        Cancelled
            A person cancels the Job.
        NotYet
            The Job controller is to write a status first.
        PreparationFailed
            What its pods need cannot be created.
        ApiError
            The API server refuses the patch, or does not answer.
        """
        if workload.release_mode is ReleaseMode.POD:
            await self._release_pod(workload, allocation)
        elif workload.release_mode is ReleaseMode.GROUP:  # the tracker releases its pods one by one
            self._check(workload, allocation)
        else:
            await self._release_job(workload, allocation)

    def _problem(self, workload: Workload, allocation: Allocation) -> str:
        return self._fitness.problem(workload.jobspec, (share.node for share in allocation.shares))

    def _check(self, workload: Workload, allocation: Allocation) -> None:
        """Raise `Unfit` if a node changed. Called only for an object that is known not to be released yet."""
        if problem := self._problem(workload, allocation):
            raise Unfit(f"{workload.ref} is planned again: {problem}")

    async def _release_pod(self, workload: Workload, allocation: Allocation) -> None:
        pod = None if self._problem(workload, allocation) else self._caches.pods.get_by_uid(workload.uid)
        for _ in range(_TRIES):
            if pod is None:
                pod = await self._api.get(PODS, workload.name, workload.namespace)
            if pod.metadata.uid != workload.uid or pod.metadata.deletion_timestamp:
                raise _gone(workload)
            if pod.metadata.annotation(names.ALLOCATION_ANNOTATION) == str(allocation.jobid):
                return
            self._check(workload, allocation)
            try:
                patch = release_pod(pod, allocation.jobid, allocation.hosts[0])
                await self._api.patch(
                    PODS, workload.name, patch, namespace=workload.namespace, patch_type=PatchType.STRATEGIC
                )
                self._gates.note_removed(pod.metadata.uid, pod.metadata.resource_version)
                return
            except Conflict:
                pod = None
        raise Conflict(409, "Conflict", "the pod keeps changing")

    async def _release_job(self, workload: Workload, allocation: Allocation) -> None:
        job = None if self._problem(workload, allocation) else self._caches.jobs.get_by_uid(workload.uid)
        prepared = False
        refused: _Refused | None = None
        for _ in range(_TRIES):
            if job is None:
                job = await self._api.get(JOBS, workload.name, workload.namespace)
            meta = job.metadata
            if meta.uid != workload.uid or meta.deletion_timestamp:
                raise _gone(workload)
            if meta.label(names.JOBID_LABEL) == str(allocation.jobid):
                return
            if self._caches.is_cancelled(workload.uid):
                raise Cancelled
            if meta.generation != workload.generation:
                raise Edited(f"{workload.ref} was edited while it was being released: it is planned again")
            if refused is not None and meta.resource_version == refused.version:
                new = self._clock() - allocation.granted_at < _PATIENCE
                raise NotYet(str(refused.error)) if refused.fixed and new else refused.error
            self._check(workload, allocation)
            try:
                if not prepared:
                    await self._prepare(job, allocation)
                    prepared = True
                await self._patch_job(job, self._job_patch(job, workload, allocation))
                return
            except Conflict:
                job = None
            except Invalid as error:
                fields = {cause.field for cause in error.causes} - {""}
                fixed = "spec.template" in fields
                if fixed:
                    await self._make_mutable(job)
                elif fields:  # without one, a test of the patch failed, or a webhook refused it
                    raise
                job, refused = None, _Refused(meta.resource_version, error, fixed)
        raise Conflict(409, "Conflict", "the Job keeps changing")

    async def _make_mutable(self, job: Job) -> None:
        """Do what is needed for a template that cannot be changed.

        Kubernetes 1.36.0 and 1.36.1 accept a changed one only once the Job has the Suspended condition: the
        next releases wait for it. Those before 1.36 accept none while the Job has a startTime, which only a
        stopped Job can lose.
        """
        started, stopped = job.status.start_time is not None, job.status.has_condition("Suspended")
        if not started and not stopped:
            self._new_jobs.require_status()
        if job.spec.suspend and started and stopped:
            meta = job.metadata
            with contextlib.suppress(Conflict):
                await self._api.patch(
                    JOBS, meta.name, clear_start_time(job), namespace=meta.namespace, subresource="status"
                )

    async def _patch_job(self, job: Job, patch: dict[str, object]) -> None:
        operations = by_generation(job, patch) if job.spec.suspend else None
        kind = PatchType.STRATEGIC if operations is None else PatchType.JSON
        await self._api.patch(
            JOBS, job.metadata.name, operations or patch, namespace=job.metadata.namespace, patch_type=kind
        )

    def _job_patch(self, job: Job, workload: Workload, allocation: Allocation) -> dict[str, object]:
        parallelism = parallelism_at_start(job, workload, allocation)
        if not job.spec.suspend:
            # Its user resumed it: the template cannot change any more. Its pods are gated, and are released
            # one by one.
            return label_job(job, allocation.jobid, parallelism=parallelism)
        scheduler = self._scheduler_of(job, workload)
        if workload.release_mode is not ReleaseMode.PIN or started_pods(workload) < workload.pods:
            return gate_release_job(job, allocation.jobid, scheduler, parallelism=parallelism)
        if template_can_hold_node(job, scheduler) and not is_moldable(workload):
            return hold_node_release_job(job, allocation.jobid, allocation.hosts[0], scheduler)
        pin_until = self._wall() + pin_window(
            len(allocation.slots), self._settings.pin_window_s, self._new_jobs.waiting
        )
        gang = len(allocation.open_slots)
        return pin_release_job(
            job, allocation.jobid, allocation.hosts, pin_until, scheduler, gang, parallelism=parallelism
        )

    def _scheduler_of(self, job: Job, workload: Workload) -> SchedulerName:
        template = job.spec.template
        label = template.metadata.label(names.SCHEDULER_LABEL) or job.metadata.label(names.SCHEDULER_LABEL)
        queue = self._caches.fluxqueues.get("", workload.queue)
        of_queue = queue.spec.scheduler if queue is not None else None
        return choose_scheduler(template.spec.scheduler_name, label, of_queue, self._settings.scheduler)


def _gone(workload: Workload) -> NotFound:
    return NotFound(404, "NotFound", f"{workload.ref} of uid {workload.uid} is gone")
