"""The FluxQueue: the rules of one queue, as its administrator writes them.

Cluster scoped. A queue without a FluxQueue object does not exist, except ``default``, which has the defaults below. The limits speak
of single workloads; what is not said is not limited.
"""

from __future__ import annotations

import enum

from fluxqueue.api.names import DEFAULT_DURATION_S
from fluxqueue.api.objects import ObjectCondition, ObjectMeta, Part

__all__ = ["FluxQueue", "FluxQueueSpec", "FluxQueueStatus", "Policy", "QueueState"]


class Policy(enum.StrEnum):
    """In which order a queue starts work, and whether later work may go ahead of blocked work (architecture, section 8)."""

    FCFS = "fcfs"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class QueueState(enum.StrEnum):
    """``held`` accepts work and starts none; ``drained`` refuses new work and lets the old finish."""

    OPEN = "open"
    HELD = "held"
    DRAINED = "drained"


class FluxQueueSpec(Part, frozen=True):
    """The rules. Durations are whole seconds; ``max_duration_seconds`` None is no limit."""

    policy: Policy = Policy.FCFS
    state: QueueState = QueueState.OPEN
    priority: int = 0
    default_duration_seconds: int = DEFAULT_DURATION_S
    max_duration_seconds: int | None = None


class FluxQueueStatus(Part, frozen=True):
    """How full it is."""

    pending: int = 0
    running: int = 0
    conditions: list[ObjectCondition] | None = None


class FluxQueue(Part, frozen=True):
    """A queue, as `kubectl get fluxqueues` shows it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxQueueSpec = FluxQueueSpec()
    status: FluxQueueStatus = FluxQueueStatus()
