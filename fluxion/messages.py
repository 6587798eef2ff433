"""Requests to the matcher and its answers, as plain values.

The engine takes and returns these values. The gRPC service and its clients convert them to messages of the
proto file and back, one for one. So callers read the same whether the matcher is in their process or behind a
socket.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "AdvanceReservation",
    "AppliedChanges",
    "CallContext",
    "GraphNodeSpec",
    "JobInfo",
    "JobMatchRequest",
    "JobMode",
    "Level",
    "MatchBatch",
    "MatchResult",
    "MatchVerdict",
    "MatchedAllocation",
    "NodeShare",
    "NodeUse",
    "Pool",
    "RestoredJob",
    "Shortage",
    "Stat",
]


class MatchVerdict(enum.StrEnum):
    """Outcome of a request."""

    GRANTED = "granted"
    RESERVED = "reserved"
    BUSY = "busy"
    UNSATISFIABLE = "unsatisfiable"
    INVALID = "invalid"


class JobMode(enum.StrEnum):
    """State of a job in the graph; SYSTEM is what runs on a node outside of Fluxion,
    ADVANCE a time of an advance reservation.
    """

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    CANCELED = "canceled"
    SYSTEM = "system"
    ADVANCE = "advance"


@dataclass(frozen=True, slots=True)
class CallContext:
    """Time, leader and graph of an extended call.

    Attributes
    ----------
    now
        Unix seconds; None leaves the clock frozen at 0, as in flux-sched.
    epoch
        Epoch of the calling leader. A call with an older epoch than the newest seen is refused. 0 claims
        none.
    instance
        If set, any other instance of the graph refuses the call.
    """

    now: int | None = None
    epoch: int = 0
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """A vertex between cluster and node, for example ``Level("zone", "eu-1a")``."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Pool:
    """Leaves of one type on a node: ceil(total / vertex_size) vertices,
    of which the last one has the remainder.
    """

    type: str
    total: int
    vertex_size: int = 1


@dataclass(frozen=True, slots=True)
class GraphNodeSpec:
    """A node of the graph."""

    name: str
    pools: tuple[Pool, ...]
    levels: tuple[Level, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    down: bool = False


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Resources of a job on one node: slots by label, and the sizes of the whole vertices taken by type."""

    node: str
    slots: Mapping[str, int] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Shortage:
    """One thing that a request lacks: a resource type, ``constraint`` or ``nodes``."""

    type: str
    wanted: int
    available: int
    level: str
    constraint: str = ""


@dataclass(frozen=True, slots=True)
class JobMatchRequest:
    """One job of a batch; a jobid of 0 lets the service choose one.

    Attributes
    ----------
    reserve
        Reserve resources if the job cannot start now.
    improve
        Replace a reservation whose start lies ahead by an earlier one, if there is one. Otherwise such a
        reservation is kept as it is.
    policy
        Match policy of this job alone; the graph's if empty.
    latest_nodes
        A reservation takes, of the nodes that suffice at its start, those that become free last. The others
        stay free until then.
    min_slots
        The job may start with as few slots (or nodes with a slot) as this, for proportionally longer, where
        it ends sooner than if it waited for all of them; 0: it may not. No reservation is made for fewer.
    not_before
        Earliest start, on the clock of the call. Such a request is for a plan: it is not made together with
        `improve` or `min_slots`.
    waits_since
        Since when the job waits, on the clock of the call: what it has waited opens the flavors of its
        jobspec (`fluxqueue.fluxion.match.flavors`), of which the first counts that starts it. By default
        it has waited for long enough for all.
    """

    jobspec: str
    jobid: int = 0
    reserve: bool = False
    explain: bool = False
    exclude: tuple[str, ...] = ()
    duration_s: int | None = None
    improve: bool = False
    policy: str = ""
    latest_nodes: bool = False
    min_slots: int = 0
    not_before: int = 0
    waits_since: int = 0


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The answer to one job; times are on the clock of the call.

    Attributes
    ----------
    blocked_by
        The advance reservation that alone keeps the job from starting now, if there is one and an explanation
        was asked for.
    """

    verdict: MatchVerdict
    jobid: int = 0
    at: int = 0
    end: int = 0
    shares: tuple[NodeShare, ...] = ()
    reason: str = ""
    shortages: tuple[Shortage, ...] = ()
    allocation: str = ""
    blocked_by: str = ""


@dataclass(frozen=True, slots=True)
class MatchedAllocation:
    """The answer of the compatible Match: R as JGF text, and the start;
    ``reserved`` is exactly ``at != 0``.
    """

    jobid: int
    allocation: str
    reserved: bool = False
    at: int = 0
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MatchBatch:
    """Answers in the order of the requests; fewer where the batch stopped at the first failure or took long.

    Attributes
    ----------
    overhead_s
        CPU seconds that the matcher spent, so that a machine that is busy with other programs counts for
        nothing, without its collections of garbage.
    displaced
        Yielding reservations that were dropped, because a job of the batch took what they held.
    overhead_of_each_s
        The same CPU seconds for each answer; empty: they are not known.
    """

    results: tuple[MatchResult, ...]
    instance: str
    overhead_s: float = 0.0
    displaced: tuple[int, ...] = ()
    overhead_of_each_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job in the graph; ``end`` 0 means unbounded."""

    jobid: int
    mode: JobMode
    at: int = 0
    end: int = 0
    shares: tuple[NodeShare, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """An allocation that is known from elsewhere and is to be restored; ``end`` 0 means unbounded."""

    jobid: int
    shares: tuple[NodeShare, ...]
    at: int = 0
    end: int = 0
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Nodes that are set aside, as a whole and at certain times, for the jobs that name this reservation.

    Attributes
    ----------
    name
        As jobspecs name it (``attributes.system.reservation``).
    nodes
        Names of nodes. A node that the graph does not have is set aside as soon as it is added.
    times
        Start and end of each time, ascending and apart; an end of 0 means for ever.
    maintenance
        True if nothing is to run at these times; it changes only how a refusal reads.
    """

    name: str
    nodes: tuple[str, ...]
    times: tuple[tuple[int, int], ...]
    maintenance: bool = False


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """Outcome of changes of the graph or of jobs.

    Attributes
    ----------
    reason
        One sentence, if the changes were not made.
    displaced
        Reservations that no longer fit and were dropped.
    excess
        What was not free on nodes. Such a node takes no new matches until it is.
    failed_index
        Index of the change that could not be made, of several that were not made; else -1.
    """

    done: bool
    instance: str
    reason: str = ""
    displaced: tuple[int, ...] = ()
    excess: tuple[NodeShare, ...] = ()
    failed_index: int = -1


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Size and use of one node."""

    node: str
    up: bool
    closed: bool
    total: Mapping[str, int]
    used: Mapping[str, int]
    jobids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stat:
    """Sizes and use of the graph; ``free`` counts what is free now on nodes that are up."""

    instance: str
    policy: str
    nodes: int
    nodes_up: int
    vertices: int
    total: Mapping[str, int]
    free: Mapping[str, int]
    allocated_jobs: int
    reserved_jobs: int
    now: int
    epoch: int
    node_use: tuple[NodeUse, ...] = ()
