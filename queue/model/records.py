"""The queue's records: workloads, allocations, slots and transitions, as plain values.

A workload is what is matched as one unit. An allocation is what Fluxion granted to it, under a job id from a
Postgres sequence. A slot is the part of an allocation that one pod takes. These values travel between the
store, the policies and the controllers; none of them knows SQL, Kubernetes or gRPC.
"""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NewType

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.jobspecs import SLOT
from fluxqueue.queue.model.prices import Rates
from fluxqueue.queue.model.reasons import MATCHABLE_REASONS
from fluxqueue.queue.model.requeue_records import NO_REQUEUE_STATE, NodeRefusal, RequeueState
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES, SpecOverrides
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS, StartConditions

__all__ = [
    "GUARANTEED_FIRST",
    "MOVED_FIRST",
    "ROOM_FIRST",
    "UNREAD",
    "UNUSED_LAST",
    "Allocation",
    "Epoch",
    "FluxionJobId",
    "Grant",
    "NewWorkload",
    "ReleaseMode",
    "Reservation",
    "Slot",
    "SlotState",
    "Transition",
    "Workload",
    "WorkloadId",
]

WorkloadId = NewType("WorkloadId", int)
FluxionJobId = NewType("FluxionJobId", int)
Epoch = NewType("Epoch", int)


class ReleaseMode(enum.StrEnum):
    """How exact placement reaches the pods (architecture, section 5)."""

    PIN = "pin"
    """One patch of a suspended Job; the webhook pins each pod."""
    GATE = "gate"
    """The Job is resumed, and each gated pod takes a free slot."""
    POD = "pod"
    """A pod without a Job: one patch."""
    GROUP = "group"
    """Several pods that were created one by one: each takes a free slot of its size."""


class SlotState(enum.StrEnum):
    """The state of a slot of an allocation."""

    FREE = "free"
    """No pod has it yet, or the last one is gone and another may follow."""
    TAKEN = "taken"
    """A pod has it (``pod_uid``)."""
    ENDED = "ended"
    """No pod follows: its resources are free."""


GUARANTEED_FIRST = 1 << 58
"""Added to the priority of work that comes before all other; more than any sum of weights."""
ROOM_FIRST = 1 << 56
"""Added to the priority of work for which other work is being moved."""
MOVED_FIRST = 1 << 54
"""Added to the priority of work that was moved, until it restarts."""
UNUSED_LAST = -(1 << 54)
"""Added to the priority of work that was idle when it was preempted, until it restarts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What the intake reads from the object of a workload, and its row has too.

    Attributes
    ----------
    uid
        Uid of the user's object: the identity of the workload.
    generation
        ``metadata.generation`` of the object when its jobspec was built.
    pods
        Number of slots: pods that run at once.
    duration_s
        Expected run time in seconds; None if the work has no end.
    duration_assumed
        True if no duration was given and the queue's default is used.
    shape
        Digest of everything that a match depends on: equal shapes match equally.
    overrides
        What a person set; the values above already contain it.
    submitted_by
        User name of the person who submitted it; empty: not known.
    done_indexes
        Completion indexes that need no node any more (``0-2,5``); ``pods`` does not count them.
    """

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str
    queue: str
    priority: int
    jobspec: str
    shape: str
    pods: int
    duration_s: int | None
    duration_assumed: bool
    release_mode: ReleaseMode
    generation: int
    overrides: SpecOverrides = NO_OVERRIDES
    submitted_by: str = ""
    done_indexes: str = ""
    start_conditions: StartConditions = NO_START_CONDITIONS

    @property
    def ref(self) -> str:
        """Kind, namespace and name of its object, for people."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkload(_Described):
    """A workload as the intake reads it from its object now.

    Attributes
    ----------
    reason, message
        Why it cannot be matched as it is (`Reason.NONE`: it can).
    account
        FluxAccount of its namespace; empty: none.
    requeue_state
        The initial state of a new workload: that of the pod that this one replaces.
    submitted_at
        Submit time of the workload that it belongs to: a pod of a running Job has that of its Job. None: now.
    """

    reason: Reason = Reason.NONE
    message: str = ""
    account: str = ""
    requeue_state: RequeueState = field(default=NO_REQUEUE_STATE, hash=False, compare=False)
    submitted_at: datetime | None = field(default=None, hash=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(_Described):
    """A row of the table ``workload``; times are timezone-aware."""

    id: WorkloadId
    state: State
    reason: Reason
    message: str
    submitted_at: datetime
    promised_at: datetime | None = None
    """The first estimate of its start; known since it got nodes, and kept if it waits again."""
    allocated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: Outcome = Outcome.NONE
    requeues: int = 0
    jobid: FluxionJobId | None = None
    """Job id of the live allocation, else of the last one; none while it is pending."""
    hosts: str = ""
    """RFC 29 hostlist of that allocation, entry i = rank i."""
    account: str = ""
    """FluxAccount it belongs to since it was matched, or would if it were matched now; empty: none."""
    requeue_state: RequeueState = NO_REQUEUE_STATE
    added_priority: int = field(default=0, compare=False)
    """What the weights of its queue add to its priority, and what puts it first (`GUARANTEED_FIRST`);
    not in the tables, the leader computes it."""
    predicted_s: int | None = field(default=None, compare=False)
    """Predicted duration, below the stated one; not in the tables, the leader computes it."""
    closed_flavors: int = field(default=0, compare=False)
    """How many flavors of its request it may not use yet. Not in the tables, the leader computes it."""

    def ref_within(self, namespace: str) -> str:
        """How a message names it that people of a namespace read:
        they may not know what others are called.
        """
        return self.ref if self.namespace == namespace else "work of another namespace"

    @property
    def order_priority(self) -> int:
        """The priority by which work is ordered. Preemption goes by ``priority`` too."""
        return self.priority + self.added_priority

    @property
    def comes_first(self) -> bool:
        """True for pending work within what is guaranteed to its account: it comes before all other."""
        return self.added_priority > GUARANTEED_FIRST // 2

    @property
    def weighed_priority(self) -> int:
        """The priority by which it is ordered among work that comes first, and among all other."""
        added = self.added_priority
        for first in (GUARANTEED_FIRST, ROOM_FIRST, MOVED_FIRST):
            added -= first if added > first // 2 else 0
        added -= UNUSED_LAST if added < UNUSED_LAST // 2 else 0
        return self.priority + added

    @property
    def tried_s(self) -> int | None:
        """The shortest duration with which it is matched: predicted, else stated; None if it has no end."""
        return self.duration_s if self.predicted_s is None else self.predicted_s

    @property
    def blocked(self) -> bool:
        """True if it is not matched until its reason or its description changes."""
        return self.reason not in MATCHABLE_REASONS or self.generation == UNREAD

    @property
    def left_out(self) -> bool:
        """True if it waits without its request: the budget of its namespace allows no more waiting work."""
        return self.state is State.PENDING and self.reason is Reason.QUEUE_LIMIT and not self.jobspec

    @property
    def evicting(self) -> bool:
        """True if it frees its nodes because it is to wait again, and not because it ends."""
        return self.state is State.DRAINING and self.reason is not Reason.NONE

    def backs_off(self, now: datetime) -> bool:
        """True if it waits because of a recent failure."""
        return self.requeue_state.not_before is not None and self.requeue_state.not_before > now

    def refused_by(self, now: datetime, since: datetime | None = None) -> dict[str, NodeRefusal]:
        """Return the refusals in force by node: all, or those since a time, such as that of the grant."""
        return {
            node: refusal
            for node, refusal in self.requeue_state.refused.items()
            if refusal.until > now and (since is None or refusal.at > since)
        }


UNREAD = -1
"""Generation of work that the intake reads again before it is matched:
of which some indexes may be done since it was requeued, or whose request is not in its row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What Fluxion granted, to be stored before anything is released on it."""

    workload: WorkloadId
    jobid: FluxionJobId
    shares: tuple[NodeShare, ...]
    hosts: tuple[str, ...]
    """Node of rank i."""
    start: datetime
    end: datetime | None
    """None: no end is planned."""
    generation: int | None = None
    """Generation of the object that was matched: a workload edited since is not granted.
    None: any generation."""
    promised_at: datetime | None = None
    """The first estimate of its start; None: there was none but that of a reservation."""
    rates: Rates = ()
    """What it costs an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A row of the table ``reservation``: where and when a pending workload is to start.

    Attributes
    ----------
    first_start
        Start of its first reservation.
    start, end
        As planned now; None as end: no end is planned.
    cause
        Why it was planned again, if it does not start earlier.
    """

    workload: WorkloadId
    jobid: FluxionJobId
    first_start: datetime
    start: datetime
    end: datetime | None
    shares: tuple[NodeShare, ...]
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A row of the table ``slot``; ``label`` is that of the slots of its size in the jobspec."""

    jobid: FluxionJobId
    rank: int
    node: str
    state: SlotState
    pod_uid: str | None = None
    pod_name: str | None = None
    label: str = SLOT


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A row of the table ``allocation`` with its slots by rank. It never changes, so these are sorted by pod
    and by node once, and not for each pod of a large gang.
    """

    jobid: FluxionJobId
    workload: WorkloadId
    shares: tuple[NodeShare, ...]
    granted_at: datetime
    start: datetime
    end: datetime | None
    released_at: datetime | None = None
    freed_at: datetime | None = None
    release_attempts: int = 0
    slots: tuple[Slot, ...] = field(default=())
    remnant: bool = False
    """True for a former grant of a requeued workload, kept for pods on nodes that are missing or NotReady."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Node of rank i."""
        return tuple(slot.node for slot in self.slots)

    @cached_property
    def open_slots(self) -> tuple[Slot, ...]:
        """The slots that have not ended."""
        return tuple(slot for slot in self.slots if slot.state is not SlotState.ENDED)

    @cached_property
    def open_nodes(self) -> frozenset[str]:
        """The nodes of the slots that have not ended."""
        return frozenset(slot.node for slot in self.open_slots)

    @property
    def pod_uids(self) -> Set[str]:
        """The pods that its slots name, ended slots included."""
        return self._by_pod.keys()

    def slot_of(self, pod_uid: str) -> Slot | None:
        """Return the slot that names a pod; None if there is none."""
        return self._by_pod.get(pod_uid)

    @cached_property
    def _by_pod(self) -> dict[str, Slot]:
        return {slot.pod_uid: slot for slot in reversed(self.slots) if slot.pod_uid is not None}

    def open_slots_for(self, pod_uid: str, node: str | None) -> tuple[Slot, ...]:
        """Return the open slots on a node that a pod may use:
        the one that names the pod, else those that name none.
        """
        own = self._open_by_pod.get((pod_uid, node))
        return own or self._open_by_pod.get((None, node), ())

    @cached_property
    def labels(self) -> frozenset[str]:
        """The labels of its slots."""
        return frozenset(slot.label for slot in self.slots)

    def share_on(self, node: str) -> NodeShare | None:
        """Return its share of a node; None if it has none."""
        return self._share_by_node.get(node)

    @cached_property
    def _share_by_node(self) -> dict[str, NodeShare]:
        return {share.node: share for share in reversed(self.shares)}

    @cached_property
    def _open_by_pod(self) -> dict[tuple[str | None, str | None], tuple[Slot, ...]]:
        found: dict[tuple[str | None, str | None], list[Slot]] = {}
        for slot in self.open_slots:
            found.setdefault((slot.pod_uid, slot.node), []).append(slot)
        return {key: tuple(slots) for key, slots in found.items()}

    @property
    def live(self) -> bool:
        """True if it still holds anything in the graph."""
        return self.freed_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A row of the table ``transition``."""

    workload: WorkloadId
    at: datetime
    before: State | None
    after: State
    reason: str
    detail: str
    epoch: Epoch
