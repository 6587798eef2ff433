"""Follows the slots of released groups: pod groups, gangs, JobSets and gangs of other projects.

A slot whose pod failed or was deleted is kept for its replacement for a while (``grace_s``). It ends earlier
if the owner of the group wants fewer pods, or if its node takes no pods, or refused one. Slots for pods that
come only after others run (of a JobSet, or a gang of another project) are kept as long as these pods are to
come.

The phases of pods and the times are in memory only. A new leader waits for the whole grace time again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence

import structlog

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_gang_slots import ForeignGangSlots
from fluxqueue.queue.cluster.later_jobs import later_slot_labels
from fluxqueue.queue.cluster.owners import read_jobset, read_owner
from fluxqueue.queue.cluster.slot_labels import label_for_pod
from fluxqueue.queue.model.alike_specs import AlikeSpecs
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.groups import JOB_SET, GroupKey, group_of_workload, owner_of_group
from fluxqueue.queue.model.later_pods import reserved_ranks
from fluxqueue.queue.model.pods import age
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.model.time_limits import is_over_time_limit
from fluxqueue.queue.noderules.node_checks import without_pin
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tracking.group_plan import (
    SeenPods,
    conclude_group,
    plan_evicted_group_slots,
    plan_group_slots,
)
from fluxqueue.queue.tracking.last_phases import LastPhases
from fluxqueue.queue.tracking.slot_changes import SlotChanges, empty_ranks, unplaced_pods

__all__ = ["GroupTracker"]

log = structlog.get_logger()

_MARGIN_S = 0.2
"""A slot is planned again so much later than its grace time ends."""
_JOBSET_S = 2.0
"""How long after its Jobs have ended a JobSet is read again, until it has ended too or has started again."""


class GroupTracker:
    """Plans the slots of groups.

    Parameters
    ----------
    api
        For reading owners and JobSets.
    caches, ledger
        The cluster and the queue.
    phases
        Of deleted pods.
    plan_after
        Has a workload planned again after so many seconds.
    reread
        Has the intake read an object (uid) again.
    grace_s
        How long a slot is kept for the replacement of a pod that is gone.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        phases: LastPhases,
        plan_after: Callable[[WorkloadId, float], None],
        reread: Callable[[str], None],
        *,
        grace_s: float,
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._foreign = ForeignGangSlots(caches)
        self._phases = phases
        self._plan_after = plan_after
        self._reread = reread
        self._grace_s = grace_s
        self._seen: dict[WorkloadId, tuple[FluxionJobId, SeenPods]] = {}
        self._empty_since: dict[tuple[FluxionJobId, int], float] = {}

    async def plan(self, workload: Workload, allocation: Allocation) -> SlotChanges:
        """Plan the slots of a released group."""
        if workload.evicting and not is_over_time_limit(workload):
            return self._plan_evicted(workload, allocation)
        later = await self._later_pods(workload, allocation)
        wanted = await self._pods_wanted(workload, allocation, later)
        key = group_of_workload(workload)
        assert key is not None
        pods = [
            pod for pod in self._caches.pods_of_group(key) if self._ledger.by_uid(pod.metadata.uid) is None
        ]
        by_uid = {pod.metadata.uid: pod for pod in pods}
        seen = self._update_seen(workload, allocation, by_uid)
        in_use = {
            uid
            for uid, phase in seen.phases.items()
            if phase == "Succeeded" or (uid in by_uid and not by_uid[uid].terminal)
        }
        reserved = reserved_ranks(allocation, later, in_use)
        refused = workload.refused_by(self._ledger.clock(), since=allocation.granted_at)
        if reserved:
            # no event is watched for a JobSet that fails or is suspended
            self._plan_after(workload.id, self._grace_s)
        cluster = self._caches.cluster_context(workload.namespace)
        label_of = AlikeSpecs(lambda spec: label_for_pod(workload.jobspec, workload.namespace, spec, cluster))
        changes = plan_group_slots(
            pods,
            allocation,
            lambda pod: label_of(pod.spec),
            seen,
            expired=[
                *self._kept_long_enough(allocation, reserved),
                *_ranks_beyond(wanted, allocation, by_uid),
                *self._ranks_on_closed_nodes(allocation, pods, refused),
            ],
            awaited=len(reserved),
            closed=lambda pod, node: node in refused or self._caches.closed(node, pod.spec),
            order=self._foreign.order(key, pods) if key.source else age,
            leaving=leaving_ranks(workload, allocation),
        )
        for pod in unplaced_pods(pods, allocation, changes):
            self._reread(pod.metadata.uid)
        self._update_empty(workload, allocation, changes, reserved)
        return changes

    def _plan_evicted(self, workload: Workload, allocation: Allocation) -> SlotChanges:
        """Plan the slots of a group that is preempted: only those end whose pods succeeded before.

        No new pod gets a slot: what its owner creates is matched with the group again, once that waits.
        """
        seen = self._seen_in(workload, allocation)
        for slot in allocation.open_slots:
            pod = self._caches.pods.get_by_uid(slot.pod_uid or "")
            if pod is not None and not pod.metadata.deletion_timestamp:
                seen.phases[pod.metadata.uid] = pod.status.phase
        return plan_evicted_group_slots(allocation, seen)

    def conclude(self, workload: Workload) -> Ending:
        """Return the end of a group whose slots have all ended."""
        _, seen = self._seen.get(workload.id, (0, SeenPods()))
        return Ending(workload.id, *conclude_group(workload.pods, seen))

    def forget(self, workload: WorkloadId) -> None:
        """Forget a group that ended."""
        self._seen.pop(workload, None)

    def prune(self) -> None:
        """Forget the groups and allocations that are gone."""
        self._seen = {
            workload: seen for workload, seen in self._seen.items() if self._ledger.get(workload) is not None
        }
        self._empty_since = {
            slot: since
            for slot, since in self._empty_since.items()
            if self._ledger.by_jobid(slot[0]) is not None
        }

    def _update_seen(self, workload: Workload, allocation: Allocation, by_uid: Mapping[str, Pod]) -> SeenPods:
        """Return the pods that had a slot of the group, as they were last seen."""
        seen = self._seen_in(workload, allocation)
        phases, in_slots = seen.phases, {slot.pod_uid for slot in allocation.open_slots if slot.pod_uid}
        for uid in in_slots:
            phases[uid] = (
                by_uid[uid].status.phase if uid in by_uid else self._phases.take_pod(uid, phases.get(uid, ""))
            )
        for uid in list(phases):
            if self._ledger.by_uid(uid) is not None:
                del phases[uid]  # withdrawn, and matched alone since
            elif uid not in in_slots and (uid not in by_uid or by_uid[uid].terminal):
                seen.count_former(uid)
        return seen

    def _seen_in(self, workload: Workload, allocation: Allocation) -> SeenPods:
        """Return the pods that were seen in an allocation; those of a former one do not count."""
        jobid, seen = self._seen.get(workload.id, (None, SeenPods()))
        if jobid != allocation.jobid:
            seen = SeenPods()
            self._seen[workload.id] = allocation.jobid, seen
        return seen

    # ---- slots without a pod -------------------------------------------------------------------------------

    def _kept_long_enough(self, allocation: Allocation, reserved: Collection[int]) -> list[int]:
        now = asyncio.get_running_loop().time()
        ranks = (slot.rank for slot in allocation.open_slots if slot.rank not in reserved)
        return [
            rank
            for rank in ranks
            if now - self._empty_since.get((allocation.jobid, rank), now) >= self._grace_s
        ]

    def _ranks_on_closed_nodes(
        self, allocation: Allocation, pods: Sequence[Pod], refused: Container[str]
    ) -> list[int]:
        """Return the slots without a living pod on nodes that take no pod of the group,
        or refused one recently.
        """
        if not pods:
            return []
        living = {pod.metadata.uid for pod in pods if not pod.terminal}
        spec = without_pin(pods[0].spec)
        closed = {
            node
            for node in {slot.node for slot in allocation.open_slots}
            if node in refused or self._caches.closed(node, spec)
        }
        return [
            slot.rank for slot in allocation.open_slots if slot.node in closed and slot.pod_uid not in living
        ]

    def _update_empty(
        self, workload: Workload, allocation: Allocation, changes: SlotChanges, reserved: Collection[int]
    ) -> None:
        """Start the grace time of slots that became empty, and stop it for the others."""
        key = group_of_workload(workload)
        slots = {slot.rank: (allocation.jobid, slot.rank) for slot in allocation.open_slots}
        empty = empty_ranks(allocation, changes).difference(reserved)
        if key is not None and owner_of_group(key) is not None:
            # A StatefulSet may need long until it creates its last pod. So only slots count that already had
            # a pod.
            empty &= set(changes.vacate) | {rank for rank, slot in slots.items() if slot in self._empty_since}
        now = asyncio.get_running_loop().time()
        for rank, slot in slots.items():
            if rank not in empty:
                self._empty_since.pop(slot, None)
            elif slot not in self._empty_since:
                self._empty_since[slot] = now
                self._plan_after(workload.id, self._grace_s + _MARGIN_S)

    # ---- what owners want ----------------------------------------------------------------------------------

    async def _later_pods(self, workload: Workload, allocation: Allocation) -> Counter[str] | None:
        """Return how many pods of a JobSet are created later, by the label of their slots;
        None if the JobSet cannot be read.
        """
        key = group_of_workload(workload)
        if (
            key is None
            or not (key.source or key.kind == JOB_SET)
            or self._caches.namespace_ending(key.namespace)
        ):
            return Counter()
        if all(self._caches.pods.get_by_uid(slot.pod_uid or "") for slot in allocation.open_slots):
            return Counter()
        if key.source:
            return self._foreign.later_slot_labels(workload, key)
        try:
            return await later_slot_labels(self._api, self._caches, workload, key)
        except ApiError as error:
            log.info("jobset.unreadable", namespace=key.namespace, name=key.name, error=str(error))
            return None

    async def _pods_wanted(
        self, workload: Workload, allocation: Allocation, later: Counter[str] | None
    ) -> int | None:
        """Return how many slots the owner of a group can still use;
        None if that is unknown, or if all slots are in use.
        """
        key = group_of_workload(workload)
        pods = [self._caches.pods.get_by_uid(slot.pod_uid or "") for slot in allocation.open_slots]
        if key is None or all(pod is not None and not pod.terminal for pod in pods):
            return None
        if self._caches.namespace_ending(key.namespace):
            return 0
        if key.source:
            return 0 if self._foreign.ended(key) else None
        if key.kind == JOB_SET:
            return await self._pods_wanted_by_jobset(workload, key, later)
        key_of_owner = owner_of_group(key)
        if key_of_owner is None:
            return None
        try:
            owner = await read_owner(self._api, key_of_owner)
        except ApiError as error:
            log.info(
                "gang.owner_unreadable", kind=key_of_owner.kind, name=key_of_owner.name, error=str(error)
            )
            return None
        return owner.spec.size if owner is not None and not owner.metadata.deletion_timestamp else 0

    async def _pods_wanted_by_jobset(
        self, workload: Workload, key: GroupKey, later: Counter[str] | None
    ) -> int | None:
        """Return 0 if a JobSet creates no more pods.

        A JobSet that restarts has no Jobs, or only finished ones, before it creates them again. Only the
        JobSet tells that from its end. What it restarts after the time limit is new work.
        """
        if later != Counter() or not all(
            job.finished or job.spec.suspend for job in self._caches.jobs_of_jobset(key)
        ):
            return None
        try:
            jobset = await read_jobset(self._api, key.namespace, key.name)
        except ApiError as error:
            log.info("jobset.unreadable", namespace=key.namespace, name=key.name, error=str(error))
            return None
        if jobset is None or not jobset.active or is_over_time_limit(workload):
            return 0
        self._plan_after(workload.id, _JOBSET_S)  # it is not watched
        return None


def _ranks_beyond(wanted: int | None, allocation: Allocation, by_uid: Mapping[str, Pod]) -> list[int]:
    """Return the slots without a living pod that are more than the owner wants, the highest ranks."""
    surplus = len(allocation.open_slots) - wanted if wanted is not None else 0
    if surplus <= 0:
        return []
    living = {uid for uid, pod in by_uid.items() if not pod.terminal}
    idle = [slot.rank for slot in allocation.open_slots if slot.pod_uid not in living]
    return idle[max(len(idle) - surplus, 0) :]
