"""What callers and the matcher say to each other, as plain values.

The engine takes and gives these; the gRPC server and clients turn them into messages of the proto file and back, one for one. So the
queue and the simulator read the same whether the matcher is in their process or behind a socket.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "Allocation",
    "Applied",
    "Call",
    "JobInfo",
    "JobRequest",
    "Level",
    "MatchBatch",
    "MatchResult",
    "Mode",
    "NodeShare",
    "NodeSpec",
    "NodeUse",
    "Pool",
    "RestoredJob",
    "Shortage",
    "Stat",
    "Verdict",
]


class Verdict(enum.StrEnum):
    """What became of a request."""

    GRANTED = "granted"
    RESERVED = "reserved"
    BUSY = "busy"
    UNSATISFIABLE = "unsatisfiable"
    INVALID = "invalid"


class Mode(enum.StrEnum):
    """How a job stands in the graph."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    CANCELED = "canceled"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Call:
    """What every extended call carries.

    Attributes
    ----------
    now
        Unix seconds; None leaves the clock frozen at 0, as in the original.
    epoch
        The leader's; calls with one older than the newest seen are refused. 0 claims none.
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
    """Leaves of one type on a node: ceil(total / vertex_size) vertices, the last one carrying the remainder."""

    type: str
    total: int
    vertex_size: int = 1


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to put into the graph."""

    name: str
    pools: tuple[Pool, ...]
    levels: tuple[Level, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    down: bool = False


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What a job has on one node: slots by label, and the sizes of the whole vertices taken by type."""

    node: str
    slots: Mapping[str, int] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Shortage:
    """One thing that stands in the way: a resource type, ``constraint`` or ``nodes``."""

    type: str
    wanted: int
    available: int
    level: str
    constraint: str = ""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job of a batch; a jobid of 0 lets the service pick one.

    Attributes
    ----------
    reserve
        Reserve what cannot start now.
    improve
        If the job has a reservation that has not come yet, give it up for an earlier start; without one it is kept as it is.
    policy
        Match policy of this job alone; empty, the graph's.
    """

    jobspec: str
    jobid: int = 0
    reserve: bool = False
    explain: bool = False
    exclude: tuple[str, ...] = ()
    duration_s: int | None = None
    improve: bool = False
    policy: str = ""


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The answer to one job; times are on the clock of the call."""

    verdict: Verdict
    jobid: int = 0
    at: int = 0
    end: int = 0
    shares: tuple[NodeShare, ...] = ()
    reason: str = ""
    shortages: tuple[Shortage, ...] = ()
    allocation: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the compatible Match answers: R as JGF text, and when it starts; ``reserved`` is exactly ``at != 0``."""

    jobid: int
    allocation: str
    reserved: bool = False
    at: int = 0
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MatchBatch:
    """Answers in the order of the requests; fewer where the batch stopped at the first failure."""

    results: tuple[MatchResult, ...]
    instance: str
    overhead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job in the graph; ``end`` 0 means unbounded."""

    jobid: int
    mode: Mode
    at: int = 0
    end: int = 0
    shares: tuple[NodeShare, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """An allocation known from elsewhere, to be put back; ``end`` 0 means unbounded."""

    jobid: int
    shares: tuple[NodeShare, ...]
    at: int = 0
    end: int = 0
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """What a change of the graph or of a job did.

    Attributes
    ----------
    reason
        One sentence, when not done.
    displaced
        Reservations that no longer fit and were dropped.
    excess
        What was not free on nodes; those take no new matches until it is.
    failed_index
        Of an `Apply` that was not done: which change could not be made; else -1.
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
    """The graph in numbers; ``free`` counts nodes that are up, now."""

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
