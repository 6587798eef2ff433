"""The FluxQueue: the rules of one queue, as an administrator writes them.

FluxQueues are cluster-scoped. A queue exists if it has a FluxQueue object; only ``default`` exists without
one, with the defaults below. A limit that is not set does not apply.
"""

from __future__ import annotations

import enum

import msgspec

from fluxqueue.api import names
from fluxqueue.api.formatting import format_limits
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.names import DEFAULT_DURATION_S, DEFAULT_GRACE_S
from fluxqueue.api.workstatus import WorkStatus

__all__ = [
    "FOREIGN_MATCHER_LOSES",
    "POLICY_IN_FORCE",
    "AtLimit",
    "BackfillDurations",
    "Consolidation",
    "EnforceDuration",
    "Flavor",
    "FluxQueue",
    "FluxQueueSpec",
    "FluxQueueStatus",
    "Limits",
    "Members",
    "NamespaceLimits",
    "Planning",
    "Policy",
    "Preemption",
    "PreemptionRules",
    "PriorityWeights",
    "Provision",
    "QueueLimits",
    "QueueState",
    "ReservedNodes",
    "SchedulerName",
    "TopologyDefaults",
    "WaitingBudget",
    "WorkloadLimits",
]


POLICY_IN_FORCE = "PolicyInForce"
"""Condition of FluxQueues where a foreign matcher chooses nodes: False if it cannot do what the rules say."""

FOREIGN_MATCHER_LOSES = (
    "a foreign matcher without a clock chooses nodes: work starts first come, first served, without "
    "backfill, reserved starts and estimates"
)
"""What its message says."""


class Policy(enum.StrEnum):
    """In which order a queue starts workloads, and whether later ones may start before a blocked one
    (backfill).
    """

    FCFS = "fcfs"
    EASY = "easy"
    HYBRID = "hybrid"
    CONSERVATIVE = "conservative"


class QueueState(enum.StrEnum):
    """``open``; ``held``: accepts workloads and starts none; ``drained``:
    accepts none, and still starts those that it has.
    """

    OPEN = "open"
    HELD = "held"
    DRAINED = "drained"


class Preemption(enum.StrEnum):
    """Whether workloads of a queue preempt others and may be preempted, by priority.
    Both queues must allow it.
    """

    NEVER = "never"
    LOWER_PRIORITY = "lowerPriority"


class AtLimit(enum.StrEnum):
    """What work that waits for a limit does to the work of its queue behind it, under the same limit.

    With ``skip`` that work may start in what is free of the limit, with ``stop`` it waits too.
    """

    SKIP = "skip"
    STOP = "stop"


class ReservedNodes(enum.StrEnum):
    """Which nodes a reservation takes, among those that suffice at its start:
    by the match policy, or those that become free last.
    """

    MATCH_POLICY = "matchPolicy"
    FREE_LAST = "freeLast"


class BackfillDurations(enum.StrEnum):
    """By which durations work is tried behind reservations:
    as it stated, or as its people's last work suggests.
    """

    STATED = "stated"
    PREDICTED = "predicted"


class Provision(enum.StrEnum):
    """What happens to a workload that fits on no existing node, but on a node that the autoscaler could add.

    With ``none`` the workload waits until somebody adds such nodes. With the others the queue requests them
    from the autoscaler and holds the workload until they exist: with ``gate`` by a ProvisioningRequest, with
    ``pods`` by pods that no scheduler binds.
    """

    NONE = "none"
    GATE = "gate"
    PODS = "pods"


class SchedulerName(enum.StrEnum):
    """The scheduler that binds the pods of a queue:
    the cluster's own (``stock``, by node affinity) or the project's (``fluxion``).
    """

    STOCK = "stock"
    FLUXION = "fluxion"


class Limits(PartialObject, frozen=True):
    """What workloads may use at the same time; None is no limit.

    ``running`` counts workloads that have nodes, ``nodes`` counts each node once, ``cores`` counts requested
    cores, ``resources`` are quantities by Kubernetes resource name, as requested.
    """

    running: int | None = None
    nodes: int | None = None
    cores: int | None = None
    resources: dict[str, str | int | float] | None = None

    @property
    def words(self) -> str:
        """The quantities, for people."""
        return format_limits(
            [("running", self.running), ("nodes", self.nodes), ("cores", self.cores)], self.resources
        )


class WaitingBudget(PartialObject, frozen=True):
    """How much work of one namespace may wait with its request in memory: workloads, and MiB of requests;
    None is no limit.
    """

    workloads: int | None = None
    requests_mi_b: int | None = msgspec.field(default=None, name="requestsMiB")

    @property
    def size(self) -> int | None:
        """The most bytes of requests."""
        return None if self.requests_mi_b is None else self.requests_mi_b * 2**20

    @property
    def words(self) -> str:
        """Both figures, for people."""
        parts = ((self.workloads, "workloads"), (self.requests_mi_b, "MiB of requests"))
        return " and ".join(f"{most} {unit}" for most, unit in parts if most is not None)


class NamespaceLimits(Limits, frozen=True):
    """The limits of each namespace in a queue: what may run, and what may wait."""

    waiting: WaitingBudget | None = None


class WorkloadLimits(PartialObject, frozen=True):
    """What one workload may have, all its pods together; None is no limit."""

    nodes: int | None = None
    cores: int | None = None
    resources: dict[str, str | int | float] | None = None

    @property
    def words(self) -> str:
        """The quantities, for people."""
        return format_limits([("nodes", self.nodes), ("cores", self.cores)], self.resources)


class QueueLimits(Limits, frozen=True):
    """The limits of a whole queue, those of each namespace in it, of each user, and of each workload."""

    per_namespace: NamespaceLimits | None = None
    per_user: Limits | None = None
    per_workload: WorkloadLimits | None = None


class Members(PartialObject, frozen=True):
    """The namespaces that may use a queue, by name or by label (one match is enough);
    if neither is set, all managed namespaces.
    """

    names: list[str] | None = None
    match_labels: dict[str, str] | None = None

    def admits(self, namespace: str, labels: dict[str, str]) -> bool:
        """True if workloads of a namespace with these labels may use the queue."""
        if not self.names and not self.match_labels:
            return True
        if namespace in (self.names or ()):
            return True
        return bool(self.match_labels) and all(
            labels.get(key) == value for key, value in (self.match_labels or {}).items()
        )


class EnforceDuration(PartialObject, frozen=True):
    """Whether work is ended at the end of its duration, also of one that it did not state,
    and how long before that it is warned.
    """

    enabled: bool = False
    only_stated: bool = False
    grace_seconds: int = DEFAULT_GRACE_S


class Planning(PartialObject, frozen=True):
    """How a queue plans ahead."""

    reserved_nodes: ReservedNodes = ReservedNodes.MATCH_POLICY
    backfill_durations: BackfillDurations = BackfillDurations.STATED


class PreemptionRules(PartialObject, frozen=True):
    """What running work of a queue is granted before it is preempted:
    a minimum run time, and time to save what it has.
    """

    min_run_seconds: int = 0
    grace_seconds: int = 0


class Consolidation(PartialObject, frozen=True):
    """Whether running work of a queue is moved, or gives pods back, so that wide work starts sooner, and the
    most that one workload may lose by that.

    ``max_lost_seconds`` counts since its start or its last checkpoint. What was moved is not moved again
    within ``again_after_seconds``.
    """

    enabled: bool = False
    max_lost_seconds: int = 1_800
    again_after_seconds: int = 3_600


class TopologyDefaults(PartialObject, frozen=True):
    """What the work of a queue asks of the topology if it says nothing itself (`fluxqueue.api.topology`)."""

    required: str | None = None
    preferred: str | None = None
    slice: str | None = None
    exclusive: bool | None = None
    pods_per_node: int | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations that would mean the same."""
        stated = {
            names.REQUIRED_TOPOLOGY_ANNOTATION: self.required,
            names.PREFERRED_TOPOLOGY_ANNOTATION: self.preferred,
            names.TOPOLOGY_SLICE_ANNOTATION: self.slice,
            names.EXCLUSIVE_ANNOTATION: "true" if self.exclusive else None,
            names.PODS_PER_NODE_ANNOTATION: str(self.pods_per_node) if self.pods_per_node else None,
        }
        return {key: text for key, text in stated.items() if text}


class Flavor(PartialObject, frozen=True):
    """Some of the nodes of a queue, by their labels, and how long work waits before it may use them."""

    name: str = ""
    node_selector: dict[str, str] | None = None
    wait_seconds: int = 0


class PriorityWeights(PartialObject, frozen=True):
    """What counts how much in the order of the work of a queue (`fluxqueue.api.priorityfactors`).

    ``age``, ``fair_share`` and ``size`` are what the factor 1 adds to a priority. ``queue`` and
    ``priority_class`` multiply the priority of the queue and that of the work. The factors of age and size
    are 1 from ``max_age_seconds`` and ``full_size_pods`` on.
    """

    age: int = 0
    fair_share: int = 0
    size: int = 0
    queue: int = 1
    priority_class: int = 1
    max_age_seconds: int = 604_800
    full_size_pods: int = 100


class FluxQueueSpec(PartialObject, frozen=True):
    """The rules. Durations are in seconds. None is no limit, or the installation's default."""

    policy: Policy = Policy.EASY
    reservation_depth: int | None = None
    planning: Planning | None = None
    match_policy: str | None = None
    state: QueueState = QueueState.OPEN
    preemption: Preemption = Preemption.NEVER
    preemption_rules: PreemptionRules | None = None
    consolidation: Consolidation | None = None
    provision: Provision = Provision.NONE
    scheduler: SchedulerName | None = None
    priority: int = 0
    max_priority: int | None = None
    priority_weights: PriorityWeights | None = None
    default_duration_seconds: int = DEFAULT_DURATION_S
    max_duration_seconds: int | None = None
    enforce_duration: EnforceDuration | None = None
    limits: QueueLimits | None = None
    at_limit: AtLimit = AtLimit.SKIP
    node_selector: dict[str, str] | None = None
    flavors: list[Flavor] | None = None
    namespaces: Members | None = None
    topology: TopologyDefaults | None = None
    min_pods_percent: int | None = None


class FluxQueueStatus(WorkStatus, frozen=True):
    """How many workloads wait and run, and how many nodes they use."""


class FluxQueue(PartialObject, frozen=True):
    """A FluxQueue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FluxQueueSpec = FluxQueueSpec()
    status: FluxQueueStatus = FluxQueueStatus()
