"""The part of the cluster that decides how an object is read: queues, priorities, namespace defaults and
storage.

These are plain values. `fluxqueue.queue.cluster.caches` builds them from its stores, and builds them again
when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import Flavor, FluxQueue, FluxQueueSpec, Members, QueueState, WaitingBudget
from fluxqueue.api.metadata import PriorityClass
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyLevel
from fluxqueue.queue.model.reservation_plans import ReservationPlan
from fluxqueue.queue.model.sources.native_groups import NO_GROUP_CLAIMS, GroupClaims
from fluxqueue.queue.noderules.device_requests import NO_DEVICES, Devices
from fluxqueue.queue.noderules.volumes import NO_STORAGE, Storage

__all__ = ["ClusterContext", "QueueDefaults", "of_namespace", "queue_defaults", "site_context"]

_ALL_NAMESPACES = Members()
_SYSTEM_CLASSES = "system-"
"""The API server refuses names that begin so for the classes of others."""


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """What a FluxQueue decides about the work in it.

    Attributes
    ----------
    priority, max_priority
        Added to the priority of each workload, and the highest that a workload may have (None: any).
    duration_s, max_duration_s
        Assumed for work that states no duration, and the longest that a workload may state (None: any). In
        seconds.
    enforces_duration
        True if work is ended at the end of its duration.
    state
        Open, held or drained.
    node_selector
        Labels of the nodes that its work may use; empty: all nodes.
    flavors
        Of which of these nodes its work uses one kind, in their order; empty: all alike.
    members
        The namespaces that may use the queue.
    topology
        What work asks of the topology that says nothing itself, by the key of the annotation.
    min_pods_percent
        With how many percent of its pods a Job may start that does not say it itself; None: with all.
    waiting
        How much work of one namespace may wait in it with its request in memory; None: any.
    """

    priority: int = 0
    max_priority: int | None = None
    duration_s: int = names.DEFAULT_DURATION_S
    max_duration_s: int | None = None
    enforces_duration: bool = False
    state: QueueState = QueueState.OPEN
    node_selector: Mapping[str, str] = field(default_factory=dict)
    flavors: tuple[Flavor, ...] = ()
    members: Members = _ALL_NAMESPACES
    topology: Mapping[str, str] = field(default_factory=dict)
    min_pods_percent: int | None = None
    waiting: WaitingBudget | None = None


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What must be known of the cluster to read an object.

    Attributes
    ----------
    queues
        What each queue decides, by name.
    namespace_labels, limit_ranges
        Of the object's namespace.
    priority_classes, default_priority
        What each PriorityClass counts in the queue, by name, and what work counts that names none.
    runtime_classes
        By name.
    storage
        Claims, volumes and their classes.
    devices
        Claims of devices, their templates and classes.
    account
        FluxAccount of the object's namespace; empty: none.
    levels
        The levels of the topology, from the top down.
    reservations
        FluxReservations by name.
    group_claims
        Returns the claims of a PodGroup of Kubernetes, by its namespace and name.
    """

    queues: Mapping[str, QueueDefaults]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    limit_ranges: tuple[LimitRange, ...] = ()
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    default_priority: int = 0
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    storage: Storage = NO_STORAGE
    devices: Devices = NO_DEVICES
    account: str = ""
    levels: tuple[TopologyLevel, ...] = DEFAULT_LEVELS
    reservations: Mapping[str, ReservationPlan] = field(default_factory=dict)
    group_claims: Callable[[str, str], GroupClaims] = lambda _namespace, _name: NO_GROUP_CLAIMS

    def claims_of_group(self, namespace: str, spec: PodSpec) -> GroupClaims:
        """Return the claims of the PodGroup that a pod names."""
        group = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else None
        return self.group_claims(namespace, group) if group and spec.resource_claims else NO_GROUP_CLAIMS


def queue_defaults(spec: FluxQueueSpec) -> QueueDefaults:
    """Read the spec of a FluxQueue."""
    of_namespace = spec.limits.per_namespace if spec.limits is not None else None
    return QueueDefaults(
        priority=spec.priority,
        max_priority=spec.max_priority,
        duration_s=spec.default_duration_seconds,
        max_duration_s=spec.max_duration_seconds,
        enforces_duration=spec.enforce_duration is not None and spec.enforce_duration.enabled,
        state=spec.state,
        node_selector=spec.node_selector or {},
        flavors=tuple(spec.flavors or ()),
        members=spec.namespaces or Members(),
        topology=spec.topology.annotations if spec.topology is not None else {},
        min_pods_percent=spec.min_pods_percent,
        waiting=of_namespace.waiting if of_namespace is not None else None,
    )


def site_context(
    queues: Iterable[FluxQueue],
    priority_classes: Iterable[PriorityClass],
    runtime_classes: Iterable[RuntimeClass],
) -> ClusterContext:
    """Return what these objects of a cluster decide, for all namespaces alike.
    The queue ``default`` may be missing.
    """
    classes = tuple(priority_classes)
    usual = next((item.value for item in classes if item.global_default), 0)
    return ClusterContext(
        queues={
            names.DEFAULT_QUEUE: QueueDefaults(),
            **{queue.metadata.name: queue_defaults(queue.spec) for queue in queues},
        },
        priority_classes={item.metadata.name: item.value if _counts(item) else usual for item in classes},
        default_priority=usual,
        runtime_classes={item.metadata.name: item for item in runtime_classes},
    )


def of_namespace(
    site: ClusterContext, labels: Mapping[str, str] | None, limit_ranges: Iterable[LimitRange], account: str
) -> ClusterContext:
    """Return a context with what is of one namespace: its labels, its LimitRanges and its account."""
    in_order = tuple(sorted(limit_ranges, key=lambda each: each.metadata.name))
    return replace(site, namespace_labels=labels or {}, limit_ranges=in_order, account=account)


def _counts(priority_class: PriorityClass) -> bool:
    """True if work of a class goes ahead by it.
    Everybody may name the classes of programs, which are not about the order of work.
    """
    meta = priority_class.metadata
    return (
        not meta.name.startswith(_SYSTEM_CLASSES)
        and (meta.labels or {}).get(names.PRIORITY_COUNTS_LABEL) != "false"
    )
