"""Enqueues the objects that must be described again: those that changed, and pending work that a change of
the cluster concerns.

What follows from claims and volumes is in `fluxqueue.queue.intake.claim_watch`, what follows from devices in
``device_watch``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import Namespace, PriorityClass
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.reservations import spec_changed
from fluxqueue.queue.cluster.watched_objects import GangObject
from fluxqueue.queue.intake.claim_watch import ClaimWatch
from fluxqueue.queue.intake.device_watch import DeviceWatch
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.status.fluxjob_edits import edits_are_stored
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.rests import Turns

__all__ = ["ObjectWatch"]

_REST_OF_POD_S = 100e-6
"""Ten times what it takes to look at one: a gang of 10,000 pods rests for a second after each change of its
object."""
_FEW = 100
_PART = 1_000
"""Objects of a resync that are looked at in one go: a few milliseconds."""
_OVER: Final = object()


class ObjectWatch:
    """Follows the objects that ask for resources, and what they are described by.

    Parameters
    ----------
    caches
        The cluster.
    ledger
        The workloads.
    enqueue
        Called with the uid of each object, and the key of each group, to be described again.
    enqueue_later
        The same where there may be many of them, which must not keep back what somebody has just created.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        enqueue: Callable[[str | GroupKey], None],
        enqueue_later: Callable[[str | GroupKey], None],
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._enqueue = enqueue
        self._enqueue_later = enqueue_later
        self._started = False
        self._gang_turns: Turns[GangObject] = Turns(self._enqueue_gangs, _REST_OF_POD_S)
        self._claim_watch = ClaimWatch(caches, ledger, enqueue_later)
        self._device_watch = DeviceWatch(caches, enqueue_later)
        self.parts = self._claim_watch, self._device_watch

    def resync(self) -> None:
        """Enqueue every object and every row once.
        Of very many, the first at once and the others while other work goes on.
        """
        self._started = True
        self._claim_watch.prune()
        self._device_watch.prune()
        self._gang_turns.prune()
        self._go_on(self._enqueue_all())

    def _go_on(self, parts: Iterator[None]) -> None:
        if next(parts, _OVER) is not _OVER:
            asyncio.get_running_loop().call_soon(self._go_on, parts)

    def _enqueue_all(self) -> Iterator[None]:
        """Enqueue every object and every row, in parts."""
        everything: tuple[Job | Pod | Workload, ...] = (
            *self._caches.jobs.list(),
            *self._caches.pods.list(),
            *self._ledger.all(),
        )
        for number, each in enumerate(everything, start=1):
            if isinstance(each, Pod):
                self._enqueue_pod(each)
            else:
                self._enqueue_later(each.metadata.uid if isinstance(each, Job) else each.uid)
            if number % _PART == 0:
                yield

    def _enqueue_pod(self, pod: Pod) -> None:
        job_uid = owning_job_uid(pod)
        if job_uid and not pod.held:
            # the tracker's; most pods of a large cluster are such, and only this much is asked of them
            return
        if pod.held and (key := self._caches.named_group_of(pod)) is not None:
            self._enqueue_later(key)
        if not self._is_read_with_group(pod) and not (job_uid and self._gets_slot(pod, job_uid)):
            self._enqueue_later(pod.metadata.uid)

    def enqueue_namespace(self, namespace: str) -> None:
        """Enqueue the pending work of a namespace."""
        self._enqueue_pending(lambda row: row.namespace == namespace)

    def _enqueue_pending(self, concerns: Callable[[Workload], bool]) -> None:
        if not self._started:
            return  # the first resync is still to come
        for workload in self._ledger.all():
            if workload.state is State.PENDING and concerns(workload):
                self._enqueue_later(workload.uid)

    def job_changed(self, change: Change[Job]) -> None:
        """Enqueue a Job of which something changed that its description depends on."""
        if change.kind is ChangeKind.MODIFIED and change.old is not None and change.new is not None:
            same = change.old.metadata.generation == change.new.metadata.generation
            if (
                same
                and change.old.finished == change.new.finished
                and _beyond_spec(change.old) == _beyond_spec(change.new)
            ):
                return
        self._enqueue(change.obj.metadata.uid)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Enqueue a pod, its group or its Job, whichever is described."""
        pod = change.obj
        job_uid = owning_job_uid(pod)
        former = self._caches.named_group_of(change.old) if change.old is not None else None
        key = self._caches.named_group_of(pod)
        if former is not None and former != key:
            # its labels were changed: the group that it left is not complete without it
            self._enqueue(former)
        if key is not None and self._concerns_group(change, key):
            self._enqueue(key)
        if key is not None and change.old is not None and change.old.held and not pod.held:
            self._caches.composite_trees.pod_released(key)
        if self._is_read_with_group(pod):
            return
        if job_uid is None:
            self._enqueue(pod.metadata.uid)
            return
        if (pod.held and not self._gets_slot(pod, job_uid)) or self._ledger.by_uid(
            pod.metadata.uid
        ) is not None:
            self._enqueue(pod.metadata.uid)
        if change.kind is ChangeKind.ADDED and pod.held and self._ledger.by_uid(job_uid) is None:
            self._enqueue(job_uid)  # a Job that somebody else resumed

    def _concerns_group(self, change: Change[Pod], key: GroupKey) -> bool:
        """True if a group has to be read again: reading it costs in proportion to its pods,
        each of which changes several times.
        """
        old, pod = change.old, change.new
        if old is None or pod is None:
            return True
        if _of_group(old) == _of_group(pod):
            return False
        group = self._ledger.group(key)
        # one with nodes is read for the pods that wait
        return pod.held or group is None or group.state is State.PENDING

    def _is_read_with_group(self, pod: Pod) -> bool:
        """True if the intake reads a pod with its group:
        one that waits, or one for which the group has no slot.
        """
        if self._ledger.by_uid(pod.metadata.uid) is not None:
            return False
        key = self._caches.group_of(pod)
        return key is not None and self._ledger.group(key) is not None

    def _gets_slot(self, pod: Pod, job_uid: str) -> bool:
        """True if the tracker looks for a slot of a pod's Job:
        if there is none for the pod, it has it read (`unplaced_pods`).
        """
        job = self._ledger.by_uid(job_uid)
        if (
            job is None
            or job.state not in (State.ALLOCATED, State.RUNNING)
            or self._ledger.by_uid(pod.metadata.uid) is not None
        ):
            return False
        allocation = self._ledger.allocation(job.id)
        return allocation is not None and allocation.released_at is not None

    def gang_object_changed(self, source: str, namespace: str, name: str) -> None:
        """Enqueue the gangs whose size an object of another project says.
        One of many pods rests after that: each of them is looked at.
        """
        self._gang_turns.due(GangObject(source, namespace, name))

    def _enqueue_gangs(self, found: GangObject) -> int:
        """Enqueue the gangs whose size an object of another project says,
        and return how many pods and Jobs were looked at.
        """
        pods = self._caches.pods_of_gang_object(found)
        jobs = self._caches.jobs_of_pod_group(found.source, found.namespace, found.name)
        related = self._caches.composite_trees.related(found.source, found.namespace, found.name)
        for key in {*related, *(key for pod in pods if (key := self._caches.group_of(pod)) is not None)}:
            self._enqueue(key)
        for job in jobs:
            (self._enqueue if len(jobs) <= _FEW else self._enqueue_later)(job.metadata.uid)
        return len(pods) + len(jobs) + len(related)

    def fluxjob_changed(self, change: Change[FluxJob]) -> None:
        """Enqueue what a person edited; what the queue wrote is acknowledged in the same write."""
        fluxjob = change.new
        if fluxjob is None:
            return
        row = self._ledger.by_uid(fluxjob.spec.object_ref.uid)
        if row is None and change.old is not None and change.old.spec.cancel and not fluxjob.spec.cancel:
            self._enqueue(fluxjob.spec.object_ref.uid)
        if row is not None and row.state is State.PENDING and not _is_stored(fluxjob, row):
            self._enqueue(row.uid)

    def queue_changed(self, change: Change[FluxQueue]) -> None:
        """Enqueue the pending work of a queue whose rules were edited."""
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            return  # only its status, which the queue writes
        name = change.obj.metadata.name
        self._enqueue_pending(lambda row: row.queue == name)

    def account_changed(self, change: Change[FluxAccount]) -> None:
        """Enqueue the pending work of the namespaces that the account has gained,
        lost or may have lost to another.
        """
        before, after = (
            set(each.spec.namespaces or ()) if each is not None else set()
            for each in (change.old, change.new)
        )
        if concerned := (before ^ after):
            self._enqueue_pending(lambda row: row.namespace in concerned)

    def reservation_changed(self, change: Change[FluxReservation]) -> None:
        """Enqueue the pending work that names the reservation: whether it may use it may have changed."""
        name = change.obj.metadata.name
        if spec_changed(change):
            self._enqueue_pending(lambda row: reservation_in(row.jobspec) == name)

    def namespace_changed(self, change: Change[Namespace]) -> None:
        """Enqueue the work of a namespace whose labels changed: it may be managed now, or no more."""
        if (
            change.old is not None
            and change.new is not None
            and change.old.metadata.labels == change.new.metadata.labels
        ):
            return
        namespace = change.obj.metadata.name
        self.enqueue_namespace(namespace)
        if not self._started:
            return
        # of a namespace that has just opted in: they have no row yet
        for job in self._caches.jobs.list(namespace):
            if self._ledger.by_uid(job.metadata.uid) is None:
                self._enqueue_later(job.metadata.uid)

    def class_changed(self, _change: Change[PriorityClass] | Change[RuntimeClass]) -> None:
        """Enqueue all pending work: its pods may get other defaults."""
        self._enqueue_pending(lambda _row: True)

    def limit_range_changed(self, change: Change[LimitRange]) -> None:
        """Enqueue the pending work of the namespace: its pods get other defaults."""
        self.enqueue_namespace(change.obj.metadata.namespace)


def _is_stored(fluxjob: FluxJob, row: Workload) -> bool:
    return edits_are_stored(row, fluxjob) and fluxjob.spec.cancel == row.overrides.cancel


def _of_group(pod: Pod) -> tuple[object, ...]:
    """Return everything of a pod that the reading of its group depends on."""
    meta = pod.metadata
    return (
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp,
        pod.spec,
        pod.status.phase,
    )


def _beyond_spec(job: Job) -> tuple[object, ...]:
    """Return what a description depends on and the generation does not show."""
    meta, status = job.metadata, job.status
    progress = (status.succeeded, status.completed_indexes, status.failed_indexes) if job.spec.suspend else ()
    return meta.labels, meta.annotations, meta.deletion_timestamp, progress
