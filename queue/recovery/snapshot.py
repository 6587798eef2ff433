"""What one comparison reads of the cluster, the tables, the leader's memory and the graph."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import GraphNodeSpec, JobInfo, NodeUse
from fluxqueue.queue.model.records import Allocation, Reservation, Workload

__all__ = ["FRESH", "SchedulerState", "SystemSnapshot"]

FRESH = timedelta(seconds=15)
"""An object or row younger than this may not have been read, reported or shown yet."""


class SchedulerState(enum.Enum):
    """State of our own scheduler."""

    UNKNOWN = "unknown"
    """Its Lease was not read."""
    ABSENT = "absent"
    """The chart does not install it."""
    AWAY = "away"
    """No replica of it leads."""
    LEADS = "leads"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSnapshot:
    """All four places, read as close together as possible.

    Attributes
    ----------
    pods, nodes, jobs, fluxjobs
        The cluster.
    workloads, allocations, reservations
        Pending and live rows of the tables.
    remembered, held
        The same workloads and allocations in the leader's memory.
    graph_jobs, graph_nodes
        What Fluxion holds, and its nodes.
    specs, foreign
        What the graph should have of each node, and what pods that are not ours take of it.
    now, wall
        The time of the queue and the time of day.
    clocks
        By how many seconds each clock is ahead of the time of day; empty if they were not read.
    thorough
        True if Fluxion reported what its jobs hold where, and its nodes; else only the ids of its jobs are
        known.
    scheduler
        State of our own scheduler.
    """

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    jobs: Sequence[Job]
    fluxjobs: Sequence[FluxJob]
    workloads: Sequence[Workload]
    allocations: Sequence[Allocation]
    reservations: Sequence[Reservation]
    remembered: Sequence[Workload]
    held: Sequence[Allocation]
    graph_jobs: Sequence[JobInfo]
    graph_nodes: Sequence[NodeUse]
    specs: Mapping[str, GraphNodeSpec]
    foreign: Mapping[str, Mapping[str, int]]
    now: datetime
    wall: datetime
    clocks: Mapping[str, float] = field(default_factory=dict)
    thorough: bool = True
    scheduler: SchedulerState = SchedulerState.UNKNOWN

    def is_old(self, created: str | None) -> bool:
        """True if an object has existed long enough to be in the queue;
        one without a readable creation time counts as old.
        """
        try:
            return created is None or self.wall - datetime.fromisoformat(created) > FRESH
        except ValueError:
            return True
