"""Follows the pods of released workloads onto their nodes and to their end.

Each time a Job or one of its pods changes, the workload's places are judged anew (`fluxqueue.queue.tracking`) and the judgement is
carried out: gated pods are let go onto their slot, pods are noted in their slots, places that no pod will need again go back to the
cluster, and the last one ends the workload. The slot is stored before the pod is let go, so a crash in between repeats the same patch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Job, Pod
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.kube.errors import ApiError, Conflict, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.store import Change, ChangeKind
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.batches import Batches
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.controllers.owners import read_owner
from fluxqueue.queue.controllers.successions import KEPT_S, Successions
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.groups import JOB_SET, GroupKey, group_of, group_of_workload, jobset_of, line_of_group
from fluxqueue.queue.intake import owning_job_uid
from fluxqueue.queue.jobspecs import label_for
from fluxqueue.queue.ledger import Ending, Ledger, TakenSlot
from fluxqueue.queue.metrics import RELEASES, SLOTS_ENDED
from fluxqueue.queue.records import Allocation, FluxionJobId, ReleaseMode, SlotState, Workload, WorkloadId
from fluxqueue.queue.releases import release_pod
from fluxqueue.queue.requeues import lost_places
from fluxqueue.queue.tasks import Trigger
from fluxqueue.queue.tracking import (
    JobPhase,
    Judgement,
    conclude_group,
    conclude_job,
    job_phase,
    judge_group,
    judge_job,
    judge_pod,
    kept_ranks,
)

__all__ = ["Tracker"]

log = structlog.get_logger()

_BATCH = 500
_AGAIN_S = 0.2

Stopped = Callable[[Workload, Job, Allocation], Awaitable[None]]


class Tracker:
    """Keeps slots and states equal to the pods there are.

    Parameters
    ----------
    api
        Where gated pods are let go.
    caches, ledger, trigger
        The cluster, the queue, and how a scheduling cycle is asked for.
    stopped
        Told of a released Job that was suspended.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger, trigger: Trigger, stopped: Stopped) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._stopped = stopped
        self._keys: Batches[WorkloadId] = Batches("tracker")
        self._let_go: dict[str, str] = {}
        self._last_phase: dict[str, str] = {}
        self._last_job_phase: dict[str, JobPhase] = {}
        self._seen: dict[WorkloadId, dict[str, str]] = {}
        self._free_since: dict[tuple[FluxionJobId, int], float] = {}
        self._successions = Successions(api, caches, ledger, trigger, self._look_after)
        caches.jobs.add_handler(self._job_changed)
        caches.pods.add_handler(self._pod_changed)
        ledger.subscribe(self._workload_changed)

    def look_at_everything(self) -> None:
        """Judge every live workload once, as at start and in a sweep; what was remembered of those that ended is forgotten."""
        self._forget_the_ended()
        for workload in self._ledger.all():
            if workload.state is not State.PENDING:
                self._keys.add(workload.id)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._keys.run(self._judge, limit=_BATCH)

    def note_let_go(self, uid: str, resource_version: str) -> None:
        """A pod that was read at this version lost its gate: it is not patched again before the watch shows a later one."""
        self._let_go[uid] = resource_version

    # ---- events ----------------------------------------------------------------------------------------------------------------

    def _job_changed(self, change: Change[Job]) -> None:
        uid = change.obj.metadata.uid
        if change.kind is ChangeKind.DELETED and self._ledger.by_uid(uid) is not None:
            self._last_job_phase[uid] = job_phase(change.obj)
        self._touch(uid)
        if (jobset := jobset_of(change.obj)) is not None:
            self._touch_group(GroupKey(change.obj.metadata.namespace, jobset, JOB_SET))

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.obj
        uid = pod.metadata.uid
        owner = owning_job_uid(pod)
        if change.kind is ChangeKind.DELETED:
            self._let_go.pop(uid, None)
            if self._ledger.by_uid(uid) is not None or group_of(pod) is not None:
                self._last_phase[uid] = pod.status.phase
                self._successions.note_gone(pod)
        self._touch(uid)
        if owner is not None:
            self._touch(owner)
        else:
            self._touch_holder(pod)
        self._touch_group(group_of(pod))

    def _workload_changed(self, workload: WorkloadId) -> None:
        found = self._ledger.get(workload)
        if found is None:
            return
        if found.state is not State.PENDING:
            self._keys.add(workload)
        self._successions.note_change(found)

    def _look_after(self, workload: WorkloadId, delay_s: float) -> None:
        if delay_s > 0:
            self._keys.add_after(workload, delay_s)
        else:
            self._keys.add(workload)

    def _touch(self, uid: str) -> None:
        workload = self._ledger.by_uid(uid)
        if workload is not None and workload.state is not State.PENDING:
            self._keys.add(workload.id)

    def _touch_holder(self, pod: Pod) -> None:
        """A Job deleted without its pods leaves them to nobody; they say themselves which allocation they stand in."""
        jobid = pod.metadata.annotation(names.ALLOCATION_ANNOTATION)
        holder = self._ledger.by_jobid(FluxionJobId(int(jobid))) if jobid and jobid.isdecimal() else None
        if holder is not None and holder.uid != pod.metadata.uid:
            self._keys.add(holder.id)

    def _touch_group(self, key: GroupKey | None) -> None:
        group = self._ledger.group(key) if key is not None else None
        if group is not None and group.state is not State.PENDING:
            self._keys.add(group.id)

    def _pods(self, workload: Workload, allocation: Allocation) -> tuple[list[Pod], list[Pod]]:
        """The pods of a Job for its places, controlled by it or left standing there by nobody; and its living ones matched on their own."""
        owned: dict[str, Pod] = {}
        elsewhere: list[Pod] = []
        for controlled in self._caches.pods_of_job(workload.uid):
            if self._ledger.by_uid(controlled.metadata.uid) is None:
                owned[controlled.metadata.uid] = controlled
            elif not controlled.terminal:
                elsewhere.append(controlled)
        standing = [slot.pod_uid for slot in allocation.slots if slot.pod_uid and slot.pod_uid not in owned]
        left = [pod for uid in standing if (pod := self._caches.pods.get_by_uid(uid)) is not None]
        return [*owned.values(), *left], elsewhere

    def _forget_the_ended(self) -> None:
        """Most is forgotten as workloads end here; pods deleted while they waited, or whose places were inherited, end elsewhere."""
        ledger, pods = self._ledger, self._caches.pods
        in_groups = [allocation for workload, allocation in ledger.live() if workload.release_mode is ReleaseMode.GROUP]
        standing = {slot.pod_uid for allocation in in_groups for slot in allocation.slots}
        kept = {uid: phase for uid, phase in self._last_phase.items() if uid in standing or ledger.by_uid(uid) is not None}
        self._last_phase = kept
        self._last_job_phase = {uid: phase for uid, phase in self._last_job_phase.items() if ledger.by_uid(uid) is not None}
        self._let_go = {uid: version for uid, version in self._let_go.items() if pods.get_by_uid(uid) is not None}
        self._seen = {found: seen for found, seen in self._seen.items() if ledger.get(found) is not None}
        self._free_since = {place: since for place, since in self._free_since.items() if ledger.by_jobid(place[0]) is not None}
        self._successions.forget_the_ended()

    # ---- carrying out ------------------------------------------------------------------------------------------------------------

    async def _judge(self, ids: list[WorkloadId]) -> None:
        judged: list[tuple[Workload, Allocation, Judgement]] = []
        concluded: list[Ending] = []
        for found in ids:
            workload, allocation = self._ledger.get(found), self._ledger.allocation(found)
            if workload is None or workload.state is State.PENDING:
                continue
            if allocation is None:
                if workload.release_mode is ReleaseMode.GROUP:
                    concluded.append(Ending(workload.id, *conclude_group(workload.pods, self._seen.get(workload.id, {}))))
                    continue
                # The last index was done before the Job said that it is.
                job, pods = self._caches.jobs.get_by_uid(workload.uid), self._caches.pods_of_job(workload.uid)
                end = conclude_job(job, pods, self._last_job_phase.get(workload.uid))
                if end.state is not None:
                    concluded.append(Ending(workload.id, end.state, end.outcome, end.message))
                continue
            if allocation.released_at is None:
                continue
            if workload.release_mode is ReleaseMode.POD:
                pod = self._caches.pods.get_by_uid(workload.uid)
                judgement = judge_pod(pod, allocation, self._last_phase.get(workload.uid, ""))
            elif workload.release_mode is ReleaseMode.GROUP:
                judgement = self._judge_group(workload, allocation, await self._places_wanted(workload, allocation))
            else:
                job = self._caches.jobs.get_by_uid(workload.uid)
                if job_phase(job) is JobPhase.SUSPENDED and job is not None:
                    await self._stopped(workload, job, allocation)
                    continue
                pods, elsewhere = self._pods(workload, allocation)
                last, lost = self._last_job_phase.get(workload.uid), lost_places(workload, job, self._caches.lost)
                judgement = judge_job(job, pods, allocation, last, elsewhere=elsewhere, lost=lost)
            judged.append((workload, allocation, judgement))
        await self._ledger.finish(concluded)
        judged = await self._successions.settle(judged)
        await self._store(judged)
        await self._let_pods_go(judged)

    def _judge_group(self, workload: Workload, allocation: Allocation, wanted: int | None) -> Judgement:
        key = group_of_workload(workload)
        assert key is not None
        pods = [pod for pod in self._caches.pods_of_group(key) if self._ledger.by_uid(pod.metadata.uid) is None]
        by_uid = {pod.metadata.uid: pod for pod in pods}
        seen = self._seen.setdefault(workload.id, {})
        open_slots = [slot for slot in allocation.slots if slot.state is not SlotState.ENDED]
        for slot in open_slots:
            if (uid := slot.pod_uid) is not None:
                seen[uid] = by_uid[uid].status.phase if uid in by_uid else self._last_phase.pop(uid, seen.get(uid, ""))
        now = asyncio.get_running_loop().time()
        places = {slot.rank: (slot.jobid, slot.rank) for slot in open_slots}
        expired = [rank for rank, place in places.items() if now - self._free_since.get(place, now) >= KEPT_S]
        if wanted is not None and len(open_slots) > wanted:
            idle = [slot.rank for slot in open_slots if slot.pod_uid not in by_uid or by_uid[slot.pod_uid].terminal]
            expired += idle[max(len(idle) - (len(open_slots) - wanted), 0) :]
        judgement = judge_group(pods, allocation, lambda pod: _label_for(workload, pod), seen, expired=expired, lost=self._caches.lost)
        kept = kept_ranks(allocation, judgement)
        if line_of_group(key) is not None:
            # A StatefulSet may take long to come to its last pod: only places are counted in which one has stood.
            kept &= set(judgement.vacate) | {rank for rank, place in places.items() if place in self._free_since}
        for rank, place in places.items():
            if rank not in kept:
                self._free_since.pop(place, None)
            elif place not in self._free_since:
                self._free_since[place] = now
                self._keys.add_after(workload.id, KEPT_S + _AGAIN_S)
        return judgement

    async def _places_wanted(self, workload: Workload, allocation: Allocation) -> int | None:
        """How many places the owner of a group can still use; None where that cannot be told, or all are in use."""
        key = group_of_workload(workload)
        standing = [self._caches.pods.get_by_uid(slot.pod_uid or "") for slot in allocation.slots if slot.state is not SlotState.ENDED]
        if key is None or all(pod is not None and not pod.terminal for pod in standing):
            return None
        if key.kind == JOB_SET:
            return None if any(not job.finished for job in self._caches.jobs_of_jobset(key)) else 0
        line = line_of_group(key)
        if line is None:
            return None
        try:
            owner = await read_owner(self._api, line)
        except ApiError as error:
            log.info("the owner of a gang could not be asked", kind=line.kind, name=line.name, error=str(error))
            return None
        return owner.spec.size if owner is not None and not owner.metadata.deletion_timestamp else 0

    async def _store(self, judged: Sequence[tuple[Workload, Allocation, Judgement]]) -> None:
        taken: list[TakenSlot] = []
        vacated: list[tuple[FluxionJobId, int, str]] = []
        ended: list[tuple[FluxionJobId, int]] = []
        started: list[WorkloadId] = []
        draining: list[WorkloadId] = []
        endings: list[Ending] = []
        whole: set[FluxionJobId] = set()  # allocations that finishing the workload gives back anyway
        for workload, allocation, judgement in judged:
            jobid = allocation.jobid
            by_rank = {slot.rank: slot for slot in allocation.slots}
            vacated += [(jobid, rank, uid) for rank in judgement.vacate if (uid := by_rank[rank].pod_uid)]
            taken += [
                TakenSlot(jobid, rank, pod.metadata.uid, pod.metadata.name)
                for rank, pod in (*judgement.take, *judgement.assign)
                if by_rank[rank].pod_uid != pod.metadata.uid
            ]
            ended += [(jobid, rank) for rank in judgement.end]
            open_slots = sum(1 for slot in allocation.slots if slot.state != "ended") - len(judgement.end)
            if judgement.running and workload.state is State.ALLOCATED:
                started.append(workload.id)
            if judgement.state is not None:
                if open_slots > 0:
                    draining.append(workload.id)
                else:
                    endings.append(Ending(workload.id, judgement.state, judgement.outcome, judgement.message))
                    whole.add(jobid)
                    self._last_phase.pop(workload.uid, None)
                    self._seen.pop(workload.id, None)
                    self._last_job_phase.pop(workload.uid, None)
        await self._ledger.vacate_slots(vacated)
        await self._ledger.take_slots(taken)
        await self._ledger.started(started)
        await self._ledger.end_slots([slot for slot in ended if slot[0] not in whole])
        if ended:
            reach(Point.SLOTS_ENDED)
        await self._ledger.draining(draining)
        await self._ledger.finish(endings)
        if endings:
            reach(Point.FINISHED)
        if ended or endings:
            SLOTS_ENDED.inc(len(ended))
            await self._trigger.schedule()

    async def _let_pods_go(self, judged: Sequence[tuple[Workload, Allocation, Judgement]]) -> None:
        due = [
            (workload, allocation, rank, pod)
            for workload, allocation, judgement in judged
            for rank, pod in judgement.assign
            if self._let_go.get(pod.metadata.uid) != pod.metadata.resource_version
        ]
        if not due:
            return
        reach(Point.PLACED)
        # The leader of a Flux cluster goes before its followers: they connect to it, and a lost attempt costs them a whole time-out.
        await asyncio.gather(*(self._let_pod_go(*one) for one in due if _leads(*one[2:])))
        await asyncio.gather(*(self._let_pod_go(*one) for one in due if not _leads(*one[2:])))

    async def _let_pod_go(self, workload: Workload, allocation: Allocation, rank: int, pod: Pod) -> None:
        meta = pod.metadata
        node = allocation.slots[rank].node
        try:
            await self._api.patch(
                PODS,
                meta.name,
                release_pod(pod, allocation.jobid, node),
                namespace=meta.namespace,
                patch_type=PatchType.STRATEGIC,
            )
        except (Conflict, NotFound):
            # Somebody changed or deleted it: the watch tells, and the workload is judged anew. Should it have told already, look again.
            RELEASES.labels("gate", "conflict").inc()
            self._keys.add_after(workload.id, _AGAIN_S)
        except ApiError as error:
            RELEASES.labels("gate", "failed").inc()
            log.warning("a pod could not be let go", pod=f"{meta.namespace}/{meta.name}", workload=workload.id, error=str(error))
            self._keys.add_after(workload.id, 1.0)
        else:
            reach(Point.UNGATED)
            RELEASES.labels("gate", "released").inc()
            self.note_let_go(meta.uid, meta.resource_version)


def _label_for(workload: Workload, pod: Pod) -> str | None:
    try:
        return label_for(workload.jobspec, pod_requests(pod.spec))
    except InvalidRequest:
        return None


def _leads(rank: int, pod: Pod) -> bool:
    return rank == 0 and pod.metadata.annotation(names.MINICLUSTER_ANNOTATION) == "true"
