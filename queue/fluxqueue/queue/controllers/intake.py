"""Takes in what the watch shows: new, changed and vanished Jobs and Pods become rows, in one transaction for a whole burst.

Level-triggered: a key says only that something about an object may have changed; what is true is read from the caches when its turn
comes, so missing or repeated events do no harm, and at start every object is simply looked at once. Scheduling is asked for after the
commit, never inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import FluxJob, Outcome, Reason, State
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.objects import Job, Namespace, Node, Pod
from fluxqueue.api.poddefaults import LimitRange
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.store import Change, ChangeKind
from fluxqueue.kube.transport import Api
from fluxqueue.queue.batches import Batches
from fluxqueue.queue.caches import Caches, lasting_taints
from fluxqueue.queue.controllers.owners import read_owner
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.groups import (
    JOB_SET,
    OVERDUE_S,
    POD_GROUP,
    Gathering,
    GroupKey,
    gather,
    gather_gang,
    gather_jobset,
    group_of,
    group_of_workload,
    jobset_of,
    line_of_group,
)
from fluxqueue.queue.intake import Standing, describe_group, describe_job, describe_pod, owning_job_uid
from fluxqueue.queue.jobspecs import label_for
from fluxqueue.queue.ledger import Ending, Ledger
from fluxqueue.queue.records import NewWorkload, Slot, SlotState, Workload, WorkloadId
from fluxqueue.queue.requeues import lost_places
from fluxqueue.queue.steering import taken_in, wishes_after
from fluxqueue.queue.tasks import Trigger
from fluxqueue.queue.tracking import stands_beyond

__all__ = ["IntakeController"]

log = structlog.get_logger()

_BATCH = 500
_AGAIN_S = 1.0


class IntakeController:
    """Keeps the table equal to the objects that ask for resources.

    Parameters
    ----------
    api
        Where owners of gangs are asked for their size.
    caches
        The cluster.
    ledger
        The queue.
    trigger
        How a scheduling cycle is asked for.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, trigger: Trigger) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._keys: Batches[str | GroupKey] = Batches("intake")
        self._started = False
        caches.jobs.add_handler(self._job_changed)
        caches.pods.add_handler(self._pod_changed)
        caches.fluxjobs.add_handler(self._fluxjob_changed)
        caches.fluxqueues.add_handler(self._queue_changed)
        caches.namespaces.add_handler(self._namespace_changed)
        caches.limit_ranges.add_handler(self._limit_range_changed)
        caches.nodes.add_handler(self._node_changed)
        caches.priority_classes.add_handler(lambda _change: self._look_again(lambda _row: True))
        caches.runtime_classes.add_handler(lambda _change: self._look_again(lambda _row: True))

    def look_at_everything(self) -> None:
        """Look at every object and every row once, as at start and in a sweep."""
        self._started = True
        for job in self._caches.jobs.list():
            self._keys.add(job.metadata.uid)
        for pod in self._caches.pods.list():
            if pod.spec.gated_by(names.GATE) or not owning_job_uid(pod):
                self._keys.add(pod.metadata.uid)
            if (key := group_of(pod)) is not None and pod.spec.gated_by(names.GATE):
                self._keys.add(key)
        for workload in self._ledger.all():
            self._keys.add(workload.uid)

    def look_at(self, uid: str) -> None:
        """Look at one object again."""
        self._keys.add(uid)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._keys.run(self._take_in, limit=_BATCH)

    # ---- events ----------------------------------------------------------------------------------------------------------------

    def _job_changed(self, change: Change[Job]) -> None:
        if change.kind is ChangeKind.MODIFIED and change.old is not None and change.new is not None:
            same = change.old.metadata.generation == change.new.metadata.generation
            if same and change.old.finished == change.new.finished and _marks(change.old) == _marks(change.new):
                return
        self._keys.add(change.obj.metadata.uid)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.obj
        owner = owning_job_uid(pod)
        if (key := group_of(pod)) is not None:
            self._keys.add(key)
        if owner is None:
            self._keys.add(pod.metadata.uid)
            return
        if pod.spec.gated_by(names.GATE) or self._ledger.by_uid(pod.metadata.uid) is not None:
            self._keys.add(pod.metadata.uid)  # it may be one by which its Job has grown
        if change.kind is ChangeKind.ADDED and pod.spec.gated_by(names.GATE) and self._ledger.by_uid(owner) is None:
            self._keys.add(owner)  # a Job somebody else resumed

    def _fluxjob_changed(self, change: Change[FluxJob]) -> None:
        """A person's edit; what we wrote ourselves is acknowledged in the same write."""
        fluxjob = change.new
        if fluxjob is None:
            return
        row = self._ledger.by_uid(fluxjob.spec.object_ref.uid)
        if row is None and change.old is not None and change.old.spec.cancel and not fluxjob.spec.cancel:
            self._keys.add(fluxjob.spec.object_ref.uid)
        if row is not None and row.state is State.PENDING and not self._knows(row, fluxjob):
            self._keys.add(row.uid)

    def _knows(self, row: Workload, fluxjob: FluxJob) -> bool:
        return taken_in(row, fluxjob) and fluxjob.spec.cancel == row.wishes.cancel

    def _queue_changed(self, change: Change[FluxQueue]) -> None:
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            return  # its status, which we write
        name = change.obj.metadata.name
        self._look_again(lambda row: row.queue == name)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.old is not None and change.new is not None and change.old.metadata.labels == change.new.metadata.labels:
            return
        name = change.obj.metadata.name
        self._look_again(lambda row: row.namespace == name)
        if not self._started:
            return
        # Objects of a namespace that has just opted in have no row yet.
        for job in self._caches.jobs.list(name):
            if self._ledger.by_uid(job.metadata.uid) is None:
                self._keys.add(job.metadata.uid)

    def _limit_range_changed(self, change: Change[LimitRange]) -> None:
        name = change.obj.metadata.namespace
        self._look_again(lambda row: row.namespace == name)

    def _node_changed(self, change: Change[Node]) -> None:
        """Taints that no node had, or that no node has any more, change what is asked of nodes."""
        before = lasting_taints(change.old) if change.old is not None else frozenset()
        now = lasting_taints(change.new) if change.new is not None else frozenset()
        if before != now:
            self._look_again(lambda _row: True)

    def _look_again(self, concerns: Callable[[Workload], bool]) -> None:
        if not self._started:
            return  # everything is about to be looked at
        for workload in self._ledger.all():
            if workload.state is State.PENDING and concerns(workload):
                self._keys.add(workload.uid)

    # ---- carrying out ------------------------------------------------------------------------------------------------------------

    async def _take_in(self, keys: list[str | GroupKey]) -> None:
        found: list[NewWorkload] = []
        endings: list[Ending] = []
        again: list[Workload] = []
        for uid in keys:
            if isinstance(uid, GroupKey):
                await self._take_in_group(uid, found, endings)
                continue
            row = self._ledger.by_uid(uid)
            if row is not None and (key := group_of_workload(row)) is not None:
                await self._take_in_group(key, found, endings)
                continue
            if row is not None and row.state is not State.PENDING:
                if row.state is State.ALLOCATED and self._unreleased(row):
                    if self._vanished(uid):
                        endings.append(_cancelled(row, "was deleted before it was released"))
                    elif self._edited_after_refusal(row):
                        again.append(row)
                continue
            described = self._describe(uid, row)
            if described is not None:
                found.append(described)
            elif row is not None:
                endings.append(self._ending(row))
        if again:
            await self._ledger.release_again([row.id for row in again])
            await self._trigger.release()
        changed = await self._ledger.take_in(found) if found else []
        changed += await self._take_up_again(found)
        if changed:
            reach(Point.TAKEN_IN)
        if endings:
            await self._ledger.finish(endings)
            reach(Point.ENDED_WAITING)
        if changed or endings:
            await self._trigger.schedule()

    def _describe(self, uid: str, row: Workload | None) -> NewWorkload | None:
        standing = self._standing(uid, row)
        job = self._caches.jobs.get_by_uid(uid)
        if job is not None:
            namespace = job.metadata.namespace
            if jobset_of(job) is not None:
                return None  # its JobSet resumes it, and all its Jobs are matched as one
            gated = any(pod.spec.gated_by(names.GATE) for pod in self._caches.pods_of_job(uid))
            # What we hold must be let go by us, even after its namespace opted out.
            held_by_us = job.metadata.annotation(names.SUSPENDED_BY_ANNOTATION) == names.SUSPENDED_BY_WEBHOOK
            if not (gated or held_by_us or self._caches.manages(namespace)):
                return None
            # A queued Job that its user resumed is matched all the same: its pods are about to come, gated.
            around, minicluster = self._caches.surroundings(namespace), self._caches.minicluster_of(job)
            return describe_job(job, around, standing, has_gated_pods=gated or row is not None, minicluster=minicluster)
        pod = self._caches.pods.get_by_uid(uid)
        if pod is None:
            return None
        around = self._caches.surroundings(pod.metadata.namespace)
        owner, key = owning_job_uid(pod), self._caches.group_of(pod)
        if owner is not None and key is None:
            grows = self._job_that_grew(pod, owner, row)
            return describe_pod(pod, around, standing, grows=grows) if grows is not None else None
        surplus_of = self._stands_alone(pod, row)
        if surplus_of is None:
            return None
        grows = (self._ledger.group(key) or row) if owner is not None and key is not None else None
        return describe_pod(pod, around, standing, surplus_of=surplus_of, grows=grows)

    def _job_that_grew(self, pod: Pod, owner: str, row: Workload | None) -> Workload | None:
        """The workload of a pod's Job, where that runs and has no place for the pod: it grew since it was matched, or lost a node."""
        workload, job = self._ledger.by_uid(owner), self._caches.jobs.get_by_uid(owner)
        allocation = self._ledger.allocation(workload.id) if workload is not None else None
        if workload is None or job is None or allocation is None or allocation.released_at is None or job.spec.suspend:
            return None
        if workload.state not in (State.ALLOCATED, State.RUNNING) or any(slot.pod_uid == pod.metadata.uid for slot in allocation.slots):
            return None
        if row is not None:
            return workload
        own = [each for each in self._caches.pods_of_job(owner) if self._ledger.by_uid(each.metadata.uid) is None]
        return workload if stands_beyond(pod, job, own, allocation, lost_places(workload, job, self._caches.lost)) else None

    async def _take_up_again(self, found: Sequence[NewWorkload]) -> list[WorkloadId]:
        """A cancelled Job that its user resumed is asked for once more: what had ended begins anew."""
        resumed = [new for new in found if new.kind == "Job" and self._ledger.by_uid(new.uid) is None and self._resumed(new)]
        if not resumed or not await self._ledger.take_up_again([new.uid for new in resumed]):
            return []
        return await self._ledger.take_in(resumed)

    def _resumed(self, new: NewWorkload) -> bool:
        """Whether the Job runs, and the wish to cancel it was taken back: whoever cancels it still is not contradicted."""
        job = self._caches.jobs.get_by_uid(new.uid)
        return job is not None and not job.spec.suspend and not new.wishes.cancel

    def _edited_after_refusal(self, row: Workload) -> bool:
        job = self._caches.jobs.get_by_uid(row.uid)
        return row.reason is Reason.RELEASE_FAILED and job is not None and job.metadata.generation != row.generation

    async def _take_in_group(self, key: GroupKey, found: list[NewWorkload], endings: list[Ending]) -> None:
        row = self._ledger.group(key)
        if row is not None and row.state is not State.PENDING:
            # It has its nodes. Who has no place among them, and is to have none, is matched on his own.
            newcomers = (pod.metadata.uid for pod in self._waiting(key) if self._ledger.by_uid(pod.metadata.uid) is None)
            for uid in newcomers:
                described = self._describe(uid, None)
                if described is not None:
                    found.append(described)
            return
        line = line_of_group(key)
        try:
            owner = await read_owner(self._api, line) if line is not None else None
        except ApiError as error:
            log.info("the owner of a gang could not be asked", kind=key.kind, name=key.name, error=str(error))
            self._keys.add_after(key, _AGAIN_S)
            return
        row = self._ledger.group(key)
        if row is not None and row.state is not State.PENDING:
            self._keys.add(key)  # it got its nodes while its owner was asked
            return
        gathering = self._gathering(key, row, owner)
        if gathering is None:
            if row is not None:
                endings.append(_cancelled(row, "ends: its pods were deleted while it waited"))
            return
        standing = self._standing(row.uid if row is not None else gathering.uid, row)
        described = describe_group(key, gathering, self._caches.surroundings(key.namespace), standing)
        found.append(described if row is None else replace(described, uid=row.uid))
        for pod in gathering.surplus:
            self._keys.add(pod.metadata.uid)
        if row is None and gathering.reason is Reason.WAITING_FOR_GROUP:
            self._keys.add_after(key, OVERDUE_S + 1)

    def _waiting(self, key: GroupKey) -> list[Pod]:
        return [
            pod
            for pod in self._caches.pods_of_group(key)
            if pod.spec.gated_by(names.GATE) and not pod.metadata.deletion_timestamp and not pod.terminal
        ]

    def _gathering(self, key: GroupKey, row: Workload | None, owner: ScaledWorkload | None = None) -> Gathering | None:
        """The group as it has come together; pods that are matched on their own do not belong to it."""
        if key.kind != POD_GROUP:
            waiting = [pod for pod in self._waiting(key) if self._ledger.by_uid(pod.metadata.uid) is None]
            return gather_jobset(key, waiting, self._caches.jobs_of_jobset(key)) if key.kind == JOB_SET else gather_gang(waiting, owner)
        waiting = [
            pod
            for pod in self._waiting(key)
            if (own := self._ledger.by_uid(pod.metadata.uid)) is None or own.reason is Reason.INVALID_REQUEST
        ]
        return gather(key, waiting, row.submitted_at if row is not None else None, self._ledger.clock())

    def _stands_alone(self, pod: Pod, row: Workload | None) -> str | None:
        """Whether a pod is matched on its own: None if it belongs to its group, else the group it is one too many for, or nothing."""
        key = self._caches.group_of(pod)
        if key is None:
            return ""
        group = self._ledger.group(key)
        if group is None:
            return "" if row is not None else None
        where = f"pod group {key.namespace}/{key.name} of size {group.pods}" if key.kind == POD_GROUP else ""
        if group.state is State.PENDING:
            if key.kind != POD_GROUP:
                return "" if row is not None else None
            gathering = self._gathering(key, group)
            surplus = gathering.surplus if gathering is not None else ()
            return where if any(each.metadata.uid == pod.metadata.uid for each in surplus) else None
        allocation = self._ledger.allocation(group.id)
        slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED] if allocation is not None else []
        standing = [found for slot in slots if (found := self._caches.pods.get_by_uid(slot.pod_uid or "")) is not None]
        if any(found.metadata.uid == pod.metadata.uid for found in standing):
            return None
        staying = [found for found in standing if found.staying]
        if row is None and len(staying) < len(slots) and self._fits(group, pod, slots, staying):
            return None
        return where if len(staying) >= group.pods else ""

    def _fits(self, group: Workload, pod: Pod, slots: Sequence[Slot], staying: Sequence[Pod]) -> bool:
        """Whether one of the places that are free, or will be, is for a pod of this size."""
        busy = {found.metadata.uid for found in staying}
        try:
            label = label_for(group.jobspec, pod_requests(pod.spec))
        except InvalidRequest:
            return False
        return any(slot.label == label and slot.pod_uid not in busy for slot in slots)

    def _standing(self, uid: str, row: Workload | None) -> Standing:
        fluxjob = self._caches.fluxjob_of(uid)
        if row is None and fluxjob is None:
            return Standing()
        avoided = row.setbacks.avoided.items() if row is not None else ()
        now = self._ledger.clock()
        return Standing(row, wishes_after(row, fluxjob), tuple(sorted(node for node, until in avoided if until > now)))

    def _vanished(self, uid: str) -> bool:
        held = self._caches.jobs.get_by_uid(uid) or self._caches.pods.get_by_uid(uid)
        return held is None or held.metadata.deletion_timestamp is not None

    def _unreleased(self, row: Workload) -> bool:
        allocation = self._ledger.allocation(row.id)
        return allocation is not None and allocation.released_at is None

    def _ending(self, row: Workload) -> Ending:
        """How a pending workload ends whose object asks for nothing any more."""
        job = self._caches.jobs.get_by_uid(row.uid)
        if job is not None and job.finished:
            done = job.status.holds("Complete")
            return Ending(
                row.id,
                State.COMPLETED if done else State.FAILED,
                Outcome.SUCCEEDED if done else Outcome.FAILED,
                "the Job finished without being released by the queue",
            )
        if self._vanished(row.uid):
            return _cancelled(row, "was deleted while it waited")
        return _cancelled(row, "left the queue: it opted out, or runs without us")


def _cancelled(row: Workload, what: str) -> Ending:
    return Ending(row.id, State.CANCELLED, Outcome.CANCELLED, f"{row.kind} {row.namespace}/{row.name} {what}")


def _marks(job: Job) -> tuple[object, ...]:
    """What the intake reads beside the spec."""
    meta, status = job.metadata, job.status
    progress = (status.succeeded, status.completed_indexes, status.failed_indexes) if job.spec.suspend else ()
    return meta.labels, meta.annotations, meta.deletion_timestamp, progress
