"""The FluxQueue: the rules of one queue, as its administrator writes them.

Cluster scoped. A queue without a FluxQueue object does not exist, except ``default``, which has the defaults below. What is not said is
not limited.
"""

from __future__ import annotations

import enum

from fluxqueue.api.names import DEFAULT_DURATION_S
from fluxqueue.api.objects import ObjectCondition, ObjectMeta, Part

__all__ = [
    "FluxQueue",
    "FluxQueueSpec",
    "FluxQueueStatus",
    "Limits",
    "Members",
    "Policy",
    "Preemption",
    "Provision",
    "QueueLimits",
    "QueueState",
]


class Policy(enum.StrEnum):
    """In which order a queue starts work, and whether later work may go ahead of blocked work (architecture, section 8)."""

    FCFS = "fcfs"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class QueueState(enum.StrEnum):
    """``held`` accepts work and starts none; ``drained`` accepts none, starts what it has and lets it finish."""

    OPEN = "open"
    HELD = "held"
    DRAINED = "drained"


class Preemption(enum.StrEnum):
    """Whether work of a queue may suspend, and be suspended by, work of another priority: only between queues that both say so."""

    NEVER = "never"
    LOWER_PRIORITY = "lowerPriority"


class Provision(enum.StrEnum):
    """What is done for work that no node there is could hold, but one the cluster may grow by.

    With ``none`` it waits until somebody adds such nodes; with ``gate`` they are asked of the autoscaler, and it is held until they are
    there.
    """

    NONE = "none"
    GATE = "gate"


class Limits(Part, frozen=True):
    """What workloads may use at once, None without limit: workloads that have nodes, nodes (each counted once), cores as requested."""

    running: int | None = None
    nodes: int | None = None
    cores: int | None = None


class QueueLimits(Limits, frozen=True):
    """The limits of a queue as a whole, and those of each namespace in it."""

    per_namespace: Limits | None = None


class Members(Part, frozen=True):
    """Who may use a queue: namespaces by name or by label, either suffices. Nothing said: all managed ones."""

    names: list[str] | None = None
    match_labels: dict[str, str] | None = None

    def admits(self, namespace: str, labels: dict[str, str]) -> bool:
        """Whether work of a namespace with these labels may wait in the queue."""
        if not self.names and not self.match_labels:
            return True
        if namespace in (self.names or ()):
            return True
        return bool(self.match_labels) and all(labels.get(key) == value for key, value in (self.match_labels or {}).items())


class FluxQueueSpec(Part, frozen=True):
    """The rules. Durations are whole seconds; what is None is not limited, or left to the installation."""

    policy: Policy = Policy.EASY
    reservation_depth: int | None = None
    match_policy: str | None = None
    state: QueueState = QueueState.OPEN
    preemption: Preemption = Preemption.NEVER
    provision: Provision = Provision.NONE
    priority: int = 0
    max_priority: int | None = None
    default_duration_seconds: int = DEFAULT_DURATION_S
    max_duration_seconds: int | None = None
    limits: QueueLimits | None = None
    node_selector: dict[str, str] | None = None
    namespaces: Members | None = None


class FluxQueueStatus(Part, frozen=True):
    """How full it is."""

    observed_generation: int = 0
    pending: int = 0
    running: int = 0
    nodes_in_use: int = 0
    conditions: list[ObjectCondition] | None = None


class FluxQueue(Part, frozen=True):
    """A queue, as `kubectl get fluxqueues` shows it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxQueueSpec = FluxQueueSpec()
    status: FluxQueueStatus = FluxQueueStatus()
