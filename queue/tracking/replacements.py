"""Gives the slots of deleted pods to their replacement pods, or keeps the slots for a while
(`fluxqueue.queue.model.replacement_rules`).

A step of the tracker: after it planned that a pod of a Deployment, ReplicaSet or StatefulSet has ended, and
before it ends its workload. The replacement is one transaction. The allocation passes from one workload to
the other under its job id, so the matcher is not asked, and is released again. The time until which a slot is
kept is in memory only: a new leader counts again from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.owners import read_owner
from fluxqueue.queue.metrics import INHERITED
from fluxqueue.queue.model.changes import Replacement
from fluxqueue.queue.model.records import ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.replacement_rules import (
    ReplicaOwner,
    WaitingReplacements,
    plan_replacement,
    replica_owner_of,
    wants_more_pods,
)
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.rests import Turns
from fluxqueue.queue.tasks.triggers import Trigger
from fluxqueue.queue.tracking.slot_changes import PlannedChanges

__all__ = ["ReplacementSlots"]

log = structlog.get_logger()

_MARGIN_S = 0.2
_REST_OF_SLOT_S = 50e-6
"""Many times what it takes to have one planned again: 2,000 kept slots are at most every 0.1 s."""


class ReplacementSlots:
    """The slots between a pod and its replacement.

    Parameters
    ----------
    api
        For reading owners: whether they want more pods.
    caches, ledger, trigger
        The cluster, the queue, and the control tasks.
    plan_after
        Has the tracker plan a workload again after so many seconds.
    grace_s
        How long a slot is kept for the replacement of a pod that is gone.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        trigger: Trigger,
        plan_after: Callable[[WorkloadId, float], None],
        *,
        grace_s: float,
    ) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._trigger = trigger
        self._plan_after = plan_after
        self._grace_s = grace_s
        self._deleted: dict[str, Pod] = {}
        self._kept_since: dict[ReplicaOwner, dict[WorkloadId, float]] = {}
        self._turns: Turns[ReplicaOwner] = Turns(self._plan_kept, _REST_OF_SLOT_S)

    def note_deleted(self, pod: Pod) -> None:
        """Store the last version of a deleted pod that is a workload of its own."""
        if replica_owner_of(pod) is not None and self._ledger.by_uid(pod.metadata.uid) is not None:
            self._deleted[pod.metadata.uid] = pod

    def prune(self) -> None:
        """Forget the workloads that ended in another way than through `settle`."""
        self._turns.prune()
        self._deleted = {
            uid: pod for uid, pod in self._deleted.items() if self._ledger.by_uid(uid) is not None
        }
        for owner, kept in list(self._kept_since.items()):
            self._kept_since[owner] = {
                workload: since for workload, since in kept.items() if self._ledger.get(workload) is not None
            }
            if not self._kept_since[owner]:
                del self._kept_since[owner]

    def note_change(self, workload: Workload) -> None:
        """Have the slots that are kept for the owner of a changed workload's pod planned again."""
        if not self._kept_since or workload.release_mode is not ReleaseMode.POD:
            return
        pod = self._caches.pods.get_by_uid(workload.uid)
        owner = replica_owner_of(pod) if pod is not None else None
        if owner in self._kept_since:
            self._turns.due(owner)

    def _plan_kept(self, owner: ReplicaOwner) -> int:
        """Have the slots that are kept for an owner planned again, and return how many they are."""
        kept = self._kept_since.get(owner, {})
        for workload in kept:
            self._plan_after(workload, 0)
        return len(kept)

    def note_ending_namespace(self, namespace: str) -> None:
        """Have the slots that are kept in a namespace planned again:
        it is being deleted, so no pod is created in it any more.
        """
        for owner, kept in self._kept_since.items():
            if owner.namespace == namespace:
                for workload in kept:
                    self._plan_after(workload, 0)

    async def settle(self, planned: Sequence[PlannedChanges]) -> list[PlannedChanges]:
        """Replace or keep the slots of pods that ended, and return the plans that are still to be carried
        out.
        """
        owners = {
            each.workload.id: owner for each in planned if (owner := self._owner_of_ended(each)) is not None
        }
        if not owners:
            return list(planned)
        wanted = await self._wanted(set(owners.values()))
        waiting = {owner: self._waiting(owner) for owner in wanted}
        left: list[PlannedChanges] = []
        replacements: list[Replacement] = []
        kept: list[WorkloadId] = []
        for each in planned:
            workload, changes, owner = each.workload, each.changes, owners.get(each.workload.id)
            if owner is None or changes.state is None:
                left.append(each)
                continue
            slot = plan_replacement(
                workload, waiting[owner], wanted=wanted[owner], expired=self._expired(workload, owner)
            )
            if slot.replacement is not None:
                replacements.append(
                    Replacement(
                        replaced=workload.id,
                        replacement=slot.replacement.id,
                        state=changes.state,
                        outcome=changes.outcome,
                        message=changes.message,
                    )
                )
            elif slot.keep:
                self._keep(workload, owner)
                kept.append(workload.id)
            else:
                self._forget(workload, owner)
                left.append(each)
        await self._ledger.mark_draining(kept)
        await self._replace(replacements, owners)
        return left

    def _expired(self, workload: Workload, owner: ReplicaOwner) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._kept_since.get(owner, {}).get(workload.id, now) >= self._grace_s

    def _keep(self, workload: Workload, owner: ReplicaOwner) -> None:
        kept = self._kept_since.setdefault(owner, {})
        if workload.id not in kept:
            kept[workload.id] = asyncio.get_running_loop().time()
            self._plan_after(workload.id, self._grace_s + _MARGIN_S)

    async def _replace(
        self, replacements: Sequence[Replacement], owners: dict[WorkloadId, ReplicaOwner]
    ) -> None:
        if not replacements:
            return
        former = {each.replaced: self._ledger.get(each.replaced) for each in replacements}
        replaced = set(await self._ledger.replace(replacements))
        for each in replacements:
            if each.replacement not in replaced:
                self._plan_after(each.replaced, _MARGIN_S)  # it got a slot of its own meanwhile
            elif (gone := former[each.replaced]) is not None:
                self._forget(gone, owners[each.replaced])
                log.info("slot.replaced", workload=each.replacement, replaced=each.replaced)
        if replaced:
            INHERITED.inc(len(replaced))
            self._trigger.release()

    def _owner_of_ended(self, planned: PlannedChanges) -> ReplicaOwner | None:
        """Return the owner whose pod ends with a plan.

        None if its slot is of no use for a replacement: the pod was evicted from its node, or the node takes
        no such pod.
        """
        workload = planned.workload
        if workload.release_mode is not ReleaseMode.POD or planned.changes.state is None or workload.evicting:
            return None
        pod = self._caches.pods.get_by_uid(workload.uid) or self._deleted.get(workload.uid)
        if pod is None or any(self._caches.closed(slot.node, pod.spec) for slot in planned.allocation.slots):
            return None
        return replica_owner_of(pod)

    def _waiting(self, owner: ReplicaOwner) -> WaitingReplacements:
        """Return the pending workloads of an owner's pods."""
        workloads = (
            self._ledger.by_uid(pod.metadata.uid) for pod in self._caches.pods_of_owner(owner) if _waits(pod)
        )
        return WaitingReplacements(
            workload for workload in workloads if workload is not None and workload.state is State.PENDING
        )

    async def _wanted(self, owners: Iterable[ReplicaOwner]) -> dict[ReplicaOwner, bool]:
        """Return for each owner whether another pod of it will come."""
        asked = list(owners)
        answers = await asyncio.gather(*(self._wants(owner) for owner in asked))
        return dict(zip(asked, answers, strict=True))

    async def _wants(self, owner: ReplicaOwner) -> bool:
        """True if an owner has a gated pod without a workload yet, or wants more pods than it has."""
        if self._caches.namespace_ending(owner.namespace):
            return False
        try:
            scaled = await read_owner(self._api, owner)
        except ApiError as error:
            log.info("replacement.owner_unreadable", kind=owner.kind, name=owner.name, error=str(error))
            return True
        # The pods are read after the answer: a pod that came meanwhile is counted by `wants_more_pods`, and
        # has no workload yet.
        pods = self._caches.pods_of_owner(owner)
        return wants_more_pods(scaled, pods) or any(
            _waits(pod) and self._ledger.by_uid(pod.metadata.uid) is None for pod in pods
        )

    def _forget(self, workload: Workload, owner: ReplicaOwner) -> None:
        self._deleted.pop(workload.uid, None)
        if (kept := self._kept_since.get(owner)) is not None:
            kept.pop(workload.id, None)
            if not kept:
                del self._kept_since[owner]


def _waits(pod: Pod) -> bool:
    return pod.held and not pod.metadata.deletion_timestamp and not pod.terminal
