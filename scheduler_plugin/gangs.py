"""Which released pods are bound together, and whether all of them have been released.

The queue writes the allocation into each pod that it releases, and the size of the gang where several pods
must start together. The pods of such a gang wait until all of them are released and can be bound. A missing
pod, a pod gated by somebody else and a pod that is being deleted hold back the others. The gang has started
as soon as one pod of the allocation is bound or has run. Pods that remain or come later as replacements are
then bound one by one, because waiting could only delay them. A pod without a gang is a gang of one; its uid
is the key.

This module knows neither the cluster nor the clock. It takes changes of pods and returns gangs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change
from fluxqueue.scheduler_plugin.assignments import InvalidAssignment, NodeAssignment, assignment_of

__all__ = ["Gang", "GangKey", "Member", "PendingGangs"]

REMEMBERED: Final = 10_000
"""Gangs that have run and have no pods left.
A pod that replaces one of theirs does not wait for the others."""

_NO_INDEX: Final = 1 << 31


class GangKey(NamedTuple):
    """The key of a gang: its allocation, or the uid of a pod that is bound alone.
    The other field is empty.
    """

    namespace: str
    allocation: str
    uid: str


@dataclass(frozen=True, slots=True)
class Member:
    """A released pod that is not bound.

    Attributes
    ----------
    pod
        The pod as last seen.
    assignment
        The node it is to be bound to.
    seen_at
        When it was first seen with this node, in monotonic seconds.
    """

    pod: Pod
    assignment: NodeAssignment
    seen_at: float

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.pod.metadata.uid

    @property
    def rank(self) -> tuple[int, str]:
        """The order of the pod within its gang."""
        index = self.pod.completion_index
        return (_NO_INDEX if index is None else index, self.pod.metadata.name)


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are checked together.

    Attributes
    ----------
    members
        Pods that are released and not known to be bound, in the order of their ranks if they can be bound.
    size
        How many pods are bound together.
    started
        True if one of them is bound or has run, so that each of the others is bound alone.
    since
        When the first member was seen, in monotonic seconds.
    """

    key: GangKey
    members: tuple[Member, ...]
    size: int
    started: bool
    since: float

    @property
    def apart(self) -> bool:
        """True if each member is bound alone."""
        return self.started or self.size <= 1

    @property
    def complete(self) -> bool:
        """True if all pods that are bound together are present."""
        return len(self.members) >= self.size


class _Group:
    """The waiting pods of one gang.
    Its size is kept up to date, so that checking a large gang does not count it again.
    """

    __slots__ = ("members", "since", "size")

    def __init__(self, since: float) -> None:
        self.members: dict[str, Member] = {}
        self.size = 0
        self.since = since

    def add(self, member: Member) -> None:
        before = self.members.get(member.uid)
        self.members[member.uid] = member
        self.size = max(self.size, member.assignment.gang_size)
        if before is not None and before.assignment.gang_size != member.assignment.gang_size:
            self._measure()

    def remove(self, uid: str) -> None:
        gone = self.members.pop(uid)
        if self.members and gone.assignment.gang_size == self.size > 1:
            self._measure()

    def _measure(self) -> None:
        self.size = max(member.assignment.gang_size for member in self.members.values())


class PendingGangs:
    """Released pods that are not bound, grouped by gang.

    Parameters
    ----------
    clock
        Monotonic seconds.
    reads
        Reads the node of a pod; returns None if the pod is not to be bound here.

    Attributes
    ----------
    invalid
        Pods whose node cannot be read, and why, by uid.
    """

    def __init__(
        self, clock: Callable[[], float], reads: Callable[[Pod], NodeAssignment | None] = assignment_of
    ) -> None:
        self._clock = clock
        self._reads = reads
        self._gangs: dict[GangKey, _Group] = {}
        self._key_of: dict[str, GangKey] = {}
        self._running: Counter[tuple[str, str]] = Counter()
        self._ran: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.invalid: dict[str, tuple[Pod, str]] = {}

    def __len__(self) -> int:
        return len(self._key_of)

    @property
    def keys(self) -> list[GangKey]:
        """All gangs with a pod that is not bound."""
        return [*self._gangs]

    def key_of(self, uid: str) -> GangKey | None:
        """Return the gang of a released pod that is not bound."""
        return self._key_of.get(uid)

    def member(self, uid: str) -> Member | None:
        """Return a released pod that is not bound, in its current state."""
        key = self._key_of.get(uid)
        return self._gangs[key].members[uid] if key is not None else None

    def apply(self, change: Change[Pod]) -> list[GangKey]:
        """Apply a change of a pod and return the gangs to be checked again."""
        affected = self._count(change)
        uid, pod = change.obj.metadata.uid, change.new
        assignment = self._read(pod, uid)
        before = self._key_of.get(uid)
        if pod is None or assignment is None:
            if before is not None:
                self._take_out(uid, before)
                affected.append(before)
            return affected
        key = _key(pod, assignment)
        known = self._gangs[before].members.get(uid) if before is not None else None
        if before is not None and before != key:
            self._take_out(uid, before)
            affected.append(before)
        now = self._clock()
        seen_at = known.seen_at if known is not None and known.assignment == assignment else now
        group = self._gangs.get(key)
        if group is None:
            group = self._gangs[key] = _Group(now)
        group.add(Member(pod, assignment, seen_at))
        self._key_of[uid] = key
        affected.append(key)
        return affected

    def gang(self, key: GangKey, bound: Set[str] = frozenset()) -> Gang | None:
        """Return a gang in its current state, or None if no pod of it waits.

        Parameters
        ----------
        key
            The key of the gang.
        bound
            Uids of pods that have just been bound and that the watch does not show as bound yet.
        """
        group = self._gangs.get(key)
        if group is None:
            return None
        where = (key.namespace, key.allocation)
        started = bool(key.allocation) and (
            where in self._running or where in self._ran or not bound.isdisjoint(group.members)
        )
        members = [*group.members.values()]
        if len(members) > 1 and (started or len(members) >= group.size):
            members.sort(key=lambda member: member.rank)
        return Gang(key, tuple(members), group.size, started, group.since)

    def _read(self, pod: Pod | None, uid: str) -> NodeAssignment | None:
        self.invalid.pop(uid, None)
        try:
            return self._reads(pod) if pod is not None else None
        except InvalidAssignment as error:
            assert pod is not None
            self.invalid[uid] = (pod, str(error))
            return None

    def _take_out(self, uid: str, key: GangKey) -> None:
        del self._key_of[uid]
        group = self._gangs[key]
        group.remove(uid)
        if not group.members:
            del self._gangs[key]

    def _count(self, change: Change[Pod]) -> list[GangKey]:
        """Count the bound pods of each allocation and return the gang that has just started,
        if it has waiting members.
        """
        before, now = _runs_in(change.old), _runs_in(change.new)
        if before == now:
            return []
        if before is not None:
            self._running[before] -= 1
            if self._running[before] <= 0:
                del self._running[before]
                self._remember(before)
        if now is None:
            return []
        self._running[now] += 1
        key = GangKey(*now, "")
        return [key] if key in self._gangs and self._running[now] == 1 else []

    def _remember(self, ran: tuple[str, str]) -> None:
        self._ran[ran] = None
        self._ran.move_to_end(ran)
        if len(self._ran) > REMEMBERED:
            self._ran.popitem(last=False)


def _key(pod: Pod, assignment: NodeAssignment) -> GangKey:
    together = assignment.allocation and assignment.gang_size > 1
    return GangKey(
        pod.metadata.namespace,
        assignment.allocation if together else "",
        "" if together else pod.metadata.uid,
    )


def _runs_in(pod: Pod | None) -> tuple[str, str] | None:
    """Return namespace and allocation of a pod that is or was bound."""
    if pod is None or not pod.spec.node_name:
        return None
    allocation = pod.metadata.annotation(names.ALLOCATION_ANNOTATION)
    return (pod.metadata.namespace, allocation) if allocation else None
