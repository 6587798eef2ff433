"""The queue's own nouns: workloads, allocations, slots and transitions, as plain values.

A workload is one thing that is matched as one unit. An allocation is what Fluxion granted it, under a job id that comes from a Postgres
sequence; a slot is one pod's place in it. These values travel between the store, the policies and the controllers; none of them knows
SQL, Kubernetes or gRPC.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NewType

import msgspec

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.jobspecs import SLOT

__all__ = [
    "NO_SETBACKS",
    "NO_WISHES",
    "UNREAD",
    "Allocation",
    "Epoch",
    "Estimate",
    "FluxionJobId",
    "Grant",
    "Inheritance",
    "NewWorkload",
    "PutBack",
    "ReasonChange",
    "ReleaseMode",
    "Reservation",
    "Setbacks",
    "Slot",
    "SlotState",
    "StoredNow",
    "TakeBack",
    "Transition",
    "Wishes",
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
    """The Job is resumed, each gated pod takes a free slot."""
    POD = "pod"
    """A pod of its own: one patch."""
    GROUP = "group"
    """Several pods that were made one by one: each takes a free slot of its size."""


class SlotState(enum.StrEnum):
    """A pod's place in an allocation."""

    FREE = "free"
    """No pod stands in it yet, or the last one is gone and another may follow."""
    TAKEN = "taken"
    """A pod stands in it (``pod_uid``)."""
    ENDED = "ended"
    """No pod will follow: its resources are back."""


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person asked by editing the FluxJob; None: nothing, so the user's object decides.

    Attributes
    ----------
    hold
        Keep it from starting. The queue holds too, after repeated failures to start.
    cancel
        End it.
    queue, priority, duration_s
        Instead of what the object says.
    """

    hold: bool = False
    cancel: bool = False
    queue: str | None = None
    priority: int | None = None
    duration_s: int | None = None


NO_WISHES = Wishes()
"""Of nearly every workload."""


class Setbacks(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What went wrong with a workload so far, as far as its next match depends on it.

    Attributes
    ----------
    starts
        Releases in a row whose pods did not come or bind in time.
    losses
        Nodes lost under it in a row.
    not_before
        It is not matched before this time.
    avoided
        Nodes it is not matched on, each until a time.
    """

    starts: int = 0
    losses: int = 0
    not_before: datetime | None = None
    avoided: Mapping[str, datetime] = {}


NO_SETBACKS = Setbacks()
"""Of nearly every workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkload:
    """What the intake found: a workload as its object describes it now.

    Attributes
    ----------
    uid
        Of the user's object: the identity of the workload.
    generation
        ``metadata.generation`` of the object the jobspec was built from.
    pods
        Slots wanted: pods that run at once.
    duration_s
        Expected wall time; None where the work has no end.
    duration_assumed
        Nobody said how long; the queue's default was taken.
    reason, message
        Why it cannot be matched as it stands (`Reason.NONE`: it can).
    shape
        Digest of everything matching depends on: equal shapes have equal verdicts.
    wishes
        A person's, already part of what is above.
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
    reason: Reason = Reason.NONE
    message: str = ""
    wishes: Wishes = NO_WISHES
    done_indexes: str = ""
    """Completion indexes that need no node any more (``0-2,5``); ``pods`` does not count them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A row of the table ``workload``. ``blocked`` means not matched until its reason goes; times are timezone-aware."""

    id: WorkloadId
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
    state: State
    reason: Reason
    message: str
    submitted_at: datetime
    allocated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: Outcome = Outcome.NONE
    requeues: int = 0
    jobid: FluxionJobId | None = None
    """Of the live allocation, else of the last one; none while it waits."""
    hosts: str = ""
    """RFC 29 hostlist of that allocation, entry i = rank i."""
    wishes: Wishes = NO_WISHES
    done_indexes: str = ""
    setbacks: Setbacks = NO_SETBACKS

    @property
    def blocked(self) -> bool:
        """Whether it is kept from matching until something about it changes."""
        return self.reason not in MATCHABLE_REASONS or self.generation == UNREAD

    @property
    def taken_back(self) -> bool:
        """Whether it gives its nodes back because it is to wait again, and not because it ends."""
        return self.state is State.DRAINING and self.reason is not Reason.NONE

    def backs_off(self, now: datetime) -> bool:
        """Whether it waits until a while has passed since its last setback."""
        return self.setbacks.not_before is not None and self.setbacks.not_before > now


UNREAD = -1
"""Generation of a workload that was put back and is to be read anew before it is matched: some of its indexes may be done."""

MATCHABLE_REASONS = frozenset(
    {
        Reason.NONE,
        Reason.WAITING_FOR_NODES,
        Reason.BLOCKED_BY_RESERVATION,
        Reason.QUEUE_LIMIT,
        Reason.NODES_UNAVAILABLE,
        Reason.PREEMPTED,
        Reason.PROVISIONING,
    }
    | {Reason.RELEASE_FAILED, Reason.BIND_FAILED, Reason.START_TIMEOUT}
)
"""Reasons that describe waiting, not standing still: such workloads are offered to Fluxion in every cycle."""


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
    """None: unbounded."""
    generation: int | None = None
    """Of the object that was matched: a workload edited since is not granted this. None: whatever it is by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A row of the table ``reservation``: where and when a pending workload is to start.

    Attributes
    ----------
    first_start
        What it was promised first.
    start, end
        As planned now; no end is unbounded.
    cause
        Why it was planned anew, where that was not to start earlier.
    """

    workload: WorkloadId
    jobid: FluxionJobId
    first_start: datetime
    start: datetime
    end: datetime | None
    shares: tuple[NodeShare, ...]
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When a pending workload is expected to start: the leader's memory only, not stored.

    Attributes
    ----------
    position
        Place in its queue, the first is 1.
    eta
        The latest expected start if stated durations are kept; None where nothing could be planned.
    eta_soonest
        The other end of the range: if durations are kept as badly as they were of late.
    eta_first
        The first estimate ever given.
    reserved
        Whether ``eta`` is a reservation, and not only planning ahead.
    """

    position: int
    eta: datetime | None = None
    eta_soonest: datetime | None = None
    eta_first: datetime | None = None
    reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One pod's place; ``label`` is that of the slots of its size in the jobspec."""

    jobid: FluxionJobId
    rank: int
    node: str
    state: SlotState
    pod_uid: str | None = None
    pod_name: str | None = None
    label: str = SLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A row of the table ``allocation`` with its slots, by rank."""

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
    """A former grant of a workload that was put back, with pods on nodes nobody hears from."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Node of rank i."""
        return tuple(slot.node for slot in self.slots)

    @property
    def live(self) -> bool:
        """Whether it still holds anything in the graph."""
        return self.freed_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonChange:
    """A pending workload's new reason."""

    workload: WorkloadId
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """A live workload that is to give its nodes back and wait again, and why; ``setbacks`` None leaves them as they are."""

    workload: WorkloadId
    reason: Reason
    message: str
    setbacks: Setbacks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """A live workload of which nothing runs any more, but for the pods in the slots (job id, rank) that stay booked."""

    workload: WorkloadId
    reason: Reason
    message: str
    kept: tuple[tuple[FluxionJobId, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """A live workload whose pod is gone (with how it ends), and a pending one that takes its allocation over."""

    gone: WorkloadId
    heir: WorkloadId
    state: State
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A line of a workload's history."""

    workload: WorkloadId
    at: datetime
    before: State | None
    after: State
    reason: str
    detail: str
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNow:
    """What an upsert made of a found workload."""

    workload: Workload
    inserted: bool
    changed: bool
