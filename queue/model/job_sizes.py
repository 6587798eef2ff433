"""How many pods of a Job run at once that was started with fewer than it asked for.

It grows by as many pods as fit now beside all reservations. Its new pods are matched one by one, behind all
other work. A pod that gets no node in a while is given up: the Job goes back to the pods that have one, and
grows no more for some minutes. Pods that wait would keep the Job from passing its slots on to its next
indexes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["MOST_GROWN", "PATIENCE", "REST", "JobPods", "may_grow_by", "next_parallelism"]

PATIENCE = timedelta(seconds=20)
"""How long a pod by which a Job grew waits for a node."""
REST = timedelta(minutes=5)
"""How long a Job does not grow after a pod was given up."""
MOST_GROWN = 100
"""By so many pods it grows at once."""


@dataclass(frozen=True, slots=True)
class JobPods:
    """The pods of a running Job.

    Attributes
    ----------
    parallelism
        As its spec has it.
    full
        That which its user asked for.
    least
        With how few it may run.
    left
        Its pods that have not succeeded: those that exist, and those that are still to come.
    active
        Those that exist.
    waiting
        Those of them that are matched alone and have no node yet, with the time since when the first of them
        waits (None: none does).
    """

    parallelism: int
    full: int
    least: int
    left: int
    active: int
    waiting: int = 0
    waiting_since: datetime | None = None


def may_grow_by(pods: JobPods, now: datetime, given_up_at: datetime | None) -> int:
    """Return by how many pods a Job would grow if there were room."""
    if pods.waiting or (given_up_at is not None and now < given_up_at + REST):
        return 0
    return max(min(pods.full - pods.parallelism, pods.left - pods.active, MOST_GROWN), 0)


def next_parallelism(pods: JobPods, fits: int, now: datetime) -> int:
    """Return how many pods of a Job are to run at once; its present parallelism if nothing is to change."""
    if pods.waiting_since is not None and now >= pods.waiting_since + PATIENCE:
        return min(max(pods.active - pods.waiting, pods.least), pods.parallelism)
    return pods.parallelism + fits
