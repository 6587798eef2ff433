"""Reads groups of pods: which pods wait, what their owner asks for,
and which pods are matched without their group.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobsets import JobSet
from fluxqueue.api.pods import Pod
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.owners import read_jobset, read_owner
from fluxqueue.queue.cluster.slot_labels import label_for_pod
from fluxqueue.queue.cluster.watched_objects import BY_GROUP
from fluxqueue.queue.intake.describe import describe_group
from fluxqueue.queue.intake.foreign_gangs import ForeignGangs
from fluxqueue.queue.intake.workload_contexts import workload_context
from fluxqueue.queue.model.alike_specs import AlikeSpecs
from fluxqueue.queue.model.given_back import staying_slots
from fluxqueue.queue.model.groups import (
    JOB_SET,
    POD_GROUP,
    GatheredGroup,
    GroupKey,
    gather,
    gather_gang,
    gather_jobset,
    owner_of_group,
    uid_of_group,
)
from fluxqueue.queue.model.records import Allocation, NewWorkload, Workload
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.registry import source_named
from fluxqueue.queue.noderules.node_checks import node_rules
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["GroupOwner", "GroupReader", "Membership"]


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The object that a group belongs to: the owner of a gang, or a JobSet;
    neither for other groups, or if it is gone.
    """

    scaled: ScaledWorkload | None = None
    jobset: JobSet | None = None


_NO_OWNER = GroupOwner()


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether a pod is matched with its group.

    Attributes
    ----------
    alone
        True if it is matched alone; False if it waits for its group, or has, or will have, one of the group's
        slots.
    complete_group
        Of a pod that is alone: the group that it names and that is complete without it, in words; empty if
        there is none.
    """

    alone: bool
    complete_group: str = ""


_MEMBER = Membership(alone=False)
_ALONE = Membership(alone=True)


@dataclass(frozen=True, slots=True)
class _Slots:
    """The open slots of a group that has its nodes, as far as memberships depend on them.

    Attributes
    ----------
    allocation
        Whose they are; None if it is gone.
    taken, active
        Uids of the pods in them that exist, and of those that run or may still run.
    free
        Label and node of the slots without an active pod.
    fitting
        Whether one of these is for pods of a size and with rules about nodes, as far as that was asked.
    kind_of
        Returns the size, as the label of its slots, and the rules about nodes that a pod of a spec has; None
        if it has no size.
    """

    allocation: Allocation | None
    taken: frozenset[str]
    active: frozenset[str]
    free: frozenset[tuple[str, str]]
    kind_of: AlikeSpecs[tuple[str | None, bytes]]
    fitting: dict[tuple[str | None, bytes], bool] = field(default_factory=dict)


class GroupReader:
    """Reads groups.

    Whether a pod is matched with its group depends on all pods of it. What was found for one is kept for the
    others that are read in the same turn: each of thousands of pods would be compared with all of them
    otherwise.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._gangs = ForeignGangs(caches, ledger)
        self._alone: dict[GroupKey, bool] = {}
        self._excess: dict[GroupKey, frozenset[str]] = {}
        self._slots: dict[GroupKey, _Slots] = {}

    def begin(self) -> None:
        """Begin to read: forget what was found before."""
        for found in (self._alone, self._excess, self._slots):
            found.clear()

    def size(self, key: GroupKey) -> int:
        """Return how many pods name a group."""
        if key.source == COMPOSITE_POD_GROUPS.name:
            return sum(map(self.size, self._caches.composite_trees.leaves(key)))
        return len(self._caches.pods.by_index(BY_GROUP, key))

    async def read_owner(self, key: GroupKey) -> GroupOwner:
        """Read the owner of a group from the API server.

        Raises
        ------
        ApiError
            It cannot be read.
        """
        owner = owner_of_group(key)
        return GroupOwner(
            await read_owner(self._api, owner) if owner is not None else None,
            await read_jobset(self._api, key.namespace, key.name) if key.kind == JOB_SET else None,
        )

    def describe(self, key: GroupKey, group: GatheredGroup, row: Workload | None) -> NewWorkload:
        """Describe a group that has no nodes yet; it keeps the uid of its row."""
        uid = row.uid if row is not None else uid_of_group(key, group.members[0])
        context = workload_context(uid, row, self._caches)
        described = describe_group(key, group, self._caches.cluster_context(key.namespace), context)
        return described if row is None else replace(described, uid=row.uid)

    def gather(
        self, key: GroupKey, row: Workload | None, owner: GroupOwner = _NO_OWNER
    ) -> GatheredGroup | None:
        """Return the group as far as it has come together, without the pods that are matched alone;
        None if it has no pods.
        """
        waiting = self._waiting(key)
        if key.source:
            return self._gangs.gather(
                key, [pod for pod in waiting if self._ledger.by_uid(pod.metadata.uid) is None], row
            )
        if key.kind != POD_GROUP:
            waiting = [pod for pod in waiting if self._ledger.by_uid(pod.metadata.uid) is None]
            if key.kind == JOB_SET:
                return gather_jobset(key, waiting, self._caches.jobs_of_jobset(key), owner.jobset)
            return gather_gang(waiting, owner.scaled)
        waiting = [
            pod
            for pod in waiting
            if (own := self._ledger.by_uid(pod.metadata.uid)) is None or _joins(key, own)
        ]
        return gather(key, waiting, row.submitted_at if row is not None else None, self._ledger.clock())

    def may_be_unread(self, key: GroupKey) -> bool:
        """True if a group without pods may have some, because what says so is not all read."""
        return key.source == COMPOSITE_POD_GROUPS.name and not self._caches.composite_trees.settled

    def wants_pods(self, key: GroupKey, owner: GroupOwner) -> bool:
        """True if the object that a group belongs to exists and may create pods for it;
        nobody creates those of other groups.
        """
        if key.source:
            source = source_named(key.source)
            obj = (
                self._caches.gang_objects.find(source, key.namespace, key.name).obj
                if source.controllers
                else None
            )
            return obj is not None and not obj.metadata.deletion_timestamp
        if owner.scaled is not None:
            return owner.scaled.spec.size > 0 and not owner.scaled.metadata.deletion_timestamp
        return owner.jobset is not None and owner.jobset.active

    def newcomers(self, key: GroupKey) -> list[Pod]:
        """Return the waiting pods of a group that have no workload of their own."""
        return [pod for pod in self._waiting(key) if self._ledger.by_uid(pod.metadata.uid) is None]

    def membership(self, pod: Pod, row: Workload | None) -> Membership:
        """Return whether a pod is matched with its group."""
        key = self._caches.group_of(pod)
        if key is None:
            return _ALONE
        group = self._ledger.group(key)
        if group is None and key.source:
            return _ALONE if row is not None or self._is_matched_alone(key, pod) else _MEMBER
        if group is None:
            return _ALONE if row is not None and not _joins(key, row) else _MEMBER
        uid, excess = pod.metadata.uid, Membership(alone=True, complete_group=_in_words(key, group))
        if group.state is State.PENDING:
            if key.source or key.kind != POD_GROUP:
                return _ALONE if row is not None else _MEMBER
            return excess if self.size(key) > group.pods and uid in self._excess_of(key, group) else _MEMBER
        if group.evicting:
            # it waits until the group does, and is matched with it
            return _ALONE if row is not None else _MEMBER
        slots = self._slots_of(key, group)
        if uid in slots.taken:
            return _MEMBER
        if row is None and slots.free and self._fits(pod, group, slots):
            return _MEMBER
        return excess if len(slots.active) >= group.pods else _ALONE

    def _is_matched_alone(self, key: GroupKey, pod: Pod) -> bool:
        """True if a pod that waits belongs to a gang that has no workload,
        and needs no pods to start together.
        """
        if not pod.held or pod.metadata.deletion_timestamp:
            return False
        if key not in self._alone:
            self._alone[key] = self._gangs.gather(key, self.newcomers(key) or [pod], None) is None
        return self._alone[key]

    def _excess_of(self, key: GroupKey, group: Workload) -> frozenset[str]:
        """Return the uids of the pods that a pod group without nodes has too many."""
        if key not in self._excess:
            gathered = self.gather(key, group)
            self._excess[key] = (
                frozenset(each.metadata.uid for each in gathered.excess)
                if gathered is not None
                else frozenset()
            )
        return self._excess[key]

    def _slots_of(self, key: GroupKey, group: Workload) -> _Slots:
        allocation, known = self._ledger.allocation(group.id), self._slots.get(key)
        if known is None or known.allocation is not allocation:
            slots = allocation.open_slots if allocation is not None else ()
            present = [
                each
                for slot in slots
                if (each := self._caches.pods.get_by_uid(slot.pod_uid or "")) is not None
            ]
            active = frozenset(each.metadata.uid for each in present if each.active)
            staying = staying_slots(group, allocation) if allocation is not None else ()
            free = frozenset((slot.label, slot.node) for slot in staying if slot.pod_uid not in active)
            cluster = self._caches.cluster_context(key.namespace)
            kind_of = AlikeSpecs(
                lambda spec: (label_for_pod(group.jobspec, key.namespace, spec, cluster), node_rules(spec))
            )
            known = self._slots[key] = _Slots(
                allocation, frozenset(each.metadata.uid for each in present), active, free, kind_of
            )
        return known

    def _waiting(self, key: GroupKey) -> list[Pod]:
        return [
            pod
            for pod in self._caches.pods_of_group(key)
            if pod.held and not pod.metadata.deletion_timestamp and not pod.terminal
        ]

    def _fits(self, pod: Pod, group: Workload, slots: _Slots) -> bool:
        """True if a slot that is free, or will be, has the size of a pod, on a node that takes it."""
        kind = slots.kind_of(pod.spec)
        if kind not in slots.fitting:
            label, _ = kind
            refused = group.refused_by(
                self._ledger.clock(),
                since=slots.allocation.granted_at if slots.allocation is not None else None,
            )
            slots.fitting[kind] = any(
                size == label and node not in refused and not self._caches.closed(node, pod.spec)
                for size, node in slots.free
            )
        return slots.fitting[kind]


def _joins(key: GroupKey, row: Workload) -> bool:
    """True if a pod with a row of its own, which cannot start as it is,
    is one of the next group of its name.
    """
    return key.kind == POD_GROUP and not key.source and row.reason is Reason.INVALID_REQUEST


def _in_words(key: GroupKey, group: Workload) -> str:
    return (
        f"pod group {key.namespace}/{key.name} of size {group.pods}"
        if key == GroupKey(key.namespace, key.name)
        else ""
    )
