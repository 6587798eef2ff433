"""Who is told of which change: all subscriptions of a leader.

No part of a leader subscribes itself; `subscribe` does when all are made. What changes is a source, and its
handlers are called in their order. A handler notes what changed, in memory, and its part acts later in its
own loop. Why it is told is the docstring of the handler; `docs/reference/changes.md` has all of them.

A cache tells a new handler of every object that it has. So the sources are subscribed to in their order too:
`NamespaceQuotas` follows the pods of namespaces whose quotas it knows, and quotas stand before pods.

The views that are parts of `Caches` follow the caches that they are made of, in every replica, and before
any leader: they are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from fluxqueue.kube.kinds import Named
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.cluster.victims import Victims
from fluxqueue.queue.intake.claim_watch import ClaimWatch
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.intake.dependency_tracker import DependencyTracker
from fluxqueue.queue.intake.device_watch import DeviceWatch
from fluxqueue.queue.intake.extra_request_learning import ExtraRequestLearner
from fluxqueue.queue.intake.namespace_budgets import NamespaceBudgets
from fluxqueue.queue.intake.object_watch import ObjectWatch
from fluxqueue.queue.intake.singletons import Singletons
from fluxqueue.queue.leadership.node_recounts import NodeRecounts
from fluxqueue.queue.miniclusters.keys import MiniClusterKeys
from fluxqueue.queue.release.blockers import ReleaseBlockers
from fluxqueue.queue.release.job_resizer import JobResizer
from fluxqueue.queue.release.new_jobs import NewJobs
from fluxqueue.queue.requeue.bind_refusals import BindRefusals
from fluxqueue.queue.requeue.cancellation import Canceller
from fluxqueue.queue.requeue.give_backs import GiveBacks
from fluxqueue.queue.requeue.idle_work import IdleWork
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.maintenances import Maintenances
from fluxqueue.queue.requeue.pod_evictions import PodEvictor
from fluxqueue.queue.requeue.pod_refusals import PodRefusals
from fluxqueue.queue.requeue.preemption_notices import PreemptionNotices
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.requeue.startup_monitor import StartupMonitor
from fluxqueue.queue.requeue.time_limits import TimeLimits
from fluxqueue.queue.scheduling.backlogs import Backlogs
from fluxqueue.queue.scheduling.flavor_waits import FlavorWaits
from fluxqueue.queue.scheduling.graph.node_specs import NodeSpecs
from fluxqueue.queue.scheduling.graph.pod_rule_tracker import PodRuleTracker
from fluxqueue.queue.scheduling.growth import Growth
from fluxqueue.queue.scheduling.limits.namespace_quotas import NamespaceQuotas
from fluxqueue.queue.scheduling.limits.submitted_limits import SubmittedLimits
from fluxqueue.queue.scheduling.predicted_durations import PredictedDurations
from fluxqueue.queue.scheduling.priority_keeper import PriorityKeeper
from fluxqueue.queue.scheduling.provisioning.provisioner import Provisioner
from fluxqueue.queue.scheduling.reasons.deadlines import Deadlines
from fluxqueue.queue.scheduling.reservations.chained_starts import ChainedStarts
from fluxqueue.queue.scheduling.reservations.estimates import StartEstimator
from fluxqueue.queue.scheduling.reservations.reservation_book import ReservationBook
from fluxqueue.queue.scheduling.scheduler import Scheduler
from fluxqueue.queue.status.events import EventReporter
from fluxqueue.queue.status.fluxaccount_writer import FluxAccountWriter
from fluxqueue.queue.status.fluxjob_writer import FluxJobWriter
from fluxqueue.queue.status.fluxqueue_writer import FluxQueueWriter
from fluxqueue.queue.status.fluxreservation_writer import FluxReservationWriter
from fluxqueue.queue.status.work_status_writer import WorkStatusWriter
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tracking.tracker import Tracker

__all__ = ["SOURCES", "Source", "subscribe", "subscribing", "told"]

T = TypeVar("T", bound=Named)
Handler = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Source:
    """What changes, and who is told.

    Attributes
    ----------
    name
        What changes.
    owner
        The class of what knows of the changes.
    add
        Has the owner call one more handler; where that takes long, each step of what it returns does a part.
    handlers
        Methods of the parts that are told.
    """

    name: str
    owner: type[Any]
    add: Callable[[Any, Handler], Iterator[None] | None]
    handlers: tuple[Handler, ...]


def _kind(
    name: str, cache: Callable[[Caches], ObjectCache[T]], *handlers: Callable[[Any, Change[T]], None]
) -> Source:
    """Return the objects of a kind as a source."""
    return Source(name, Caches, lambda caches, handler: cache(caches).adding_handler(handler), handlers)


SOURCES = (
    _kind(
        "Nodes",
        lambda caches: caches.nodes,
        NodeSpecs.node_changed,
        Requeuer.node_changed,
        FluxQueueWriter.node_changed,
        StartupMonitor.node_changed,
        PodRuleTracker.node_changed,
        Scheduler.node_changed,
        ReservationBook.node_changed,
        Maintenances.node_changed,
    ),
    _kind(
        "CSINodes",
        lambda caches: caches.storage.csi_nodes,
        ClaimWatch.csi_node_changed,
        Scheduler.node_changed,
    ),
    _kind("DaemonSets", lambda caches: caches.daemonsets, NodeRecounts.daemonset_changed),
    Source(
        "devices of nodes",
        Caches,
        lambda caches, handler: caches.devices.subscribe(handler),
        (NodeRecounts.devices_changed,),
    ),
    _kind(
        "Namespaces",
        lambda caches: caches.namespaces,
        ObjectWatch.namespace_changed,
        Tracker.namespace_changed,
        PodRuleTracker.namespace_changed,
    ),
    _kind(
        "LimitRanges",
        lambda caches: caches.limit_ranges,
        ObjectWatch.limit_range_changed,
        NamespaceQuotas.defaults_changed,
    ),
    _kind(
        "RuntimeClasses",
        lambda caches: caches.runtime_classes,
        ObjectWatch.class_changed,
        NamespaceQuotas.defaults_changed,
    ),
    _kind(
        "PriorityClasses",
        lambda caches: caches.priority_classes,
        ObjectWatch.class_changed,
        NamespaceQuotas.defaults_changed,
    ),
    _kind(
        "ResourceQuotas",
        lambda caches: caches.resource_quotas,
        PodRefusals.quota_changed,
        NamespaceQuotas.quota_changed,
    ),
    _kind("ServiceAccounts", lambda caches: caches.service_accounts, PodRefusals.account_changed),
    _kind("PodDisruptionBudgets", lambda caches: caches.disruption_budgets, Victims.budget_changed),
    _kind(
        "FluxQueues",
        lambda caches: caches.fluxqueues,
        ObjectWatch.queue_changed,
        TimeLimits.queue_changed,
        FluxQueueWriter.queue_changed,
        Provisioner.queue_changed,
        Scheduler.queue_changed,
        PriorityKeeper.rules_changed,
    ),
    _kind(
        "FluxAccounts",
        lambda caches: caches.fluxaccounts,
        ObjectWatch.account_changed,
        FluxAccountWriter.account_changed,
        Scheduler.queue_changed,
        PriorityKeeper.rules_changed,
    ),
    _kind(
        "FluxReservations",
        lambda caches: caches.fluxreservations,
        ObjectWatch.reservation_changed,
        FluxReservationWriter.reservation_changed,
        Scheduler.queue_changed,
    ),
    _kind(
        "Jobs",
        lambda caches: caches.jobs,
        ObjectWatch.job_changed,
        ClaimWatch.job_changed,
        DeviceWatch.job_changed,
        Requeuer.job_changed,
        Tracker.job_changed,
        Canceller.job_changed,
        MiniClusterKeys.job_changed,
        NewJobs.job_changed,
    ),
    _kind(
        "Pods",
        lambda caches: caches.pods,
        ForeignPods.pod_changed,
        ExtraRequestLearner.pod_changed,
        ObjectWatch.pod_changed,
        ClaimWatch.pod_changed,
        DeviceWatch.pod_changed,
        PodEvictor.pod_changed,
        Requeuer.pod_changed,
        Tracker.pod_changed,
        MiniClusterKeys.pod_changed,
        JobBackoffs.pod_changed,
        BindRefusals.pod_changed,
        StartupMonitor.pod_changed,
        PodRuleTracker.pod_changed,
        NamespaceQuotas.pod_changed,
    ),
    _kind("MiniClusters", lambda caches: caches.miniclusters, MiniClusterKeys.minicluster_changed),
    _kind(
        "FluxJobs",
        lambda caches: caches.fluxjobs,
        ObjectWatch.fluxjob_changed,
        FluxJobWriter.fluxjob_changed,
        Canceller.fluxjob_changed,
    ),
    Source(
        "objects of gangs",
        Caches,
        lambda caches, handler: caches.gang_objects.add_handler(handler),
        (ObjectWatch.gang_object_changed,),
    ),
    _kind("PersistentVolumeClaims", lambda caches: caches.storage.claims, ClaimWatch.claim_changed),
    _kind("PersistentVolumes", lambda caches: caches.storage.volumes, ClaimWatch.volume_changed),
    _kind("StorageClasses", lambda caches: caches.storage.classes, ClaimWatch.class_changed),
    _kind("ResourceClaims", lambda caches: caches.devices.claims, DeviceWatch.claim_changed),
    _kind("ResourceClaimTemplates", lambda caches: caches.devices.templates, DeviceWatch.template_changed),
    _kind("DeviceClasses", lambda caches: caches.devices.classes, DeviceWatch.class_changed),
    _kind("Events of failed creations", lambda caches: caches.failed_creations, PodRefusals.event_changed),
    Source(
        "workloads",
        Ledger,
        Ledger.subscribe,
        (
            PortVolumePools.workload_changed,
            NamespaceBudgets.workload_changed,
            Singletons.workload_changed,
            DependencyTracker.workload_changed,
            Requeuer.workload_changed,
            Tracker.workload_changed,
            FluxJobWriter.workload_changed,
            Canceller.workload_changed,
            TimeLimits.workload_changed,
            PreemptionNotices.workload_changed,
            GiveBacks.workload_changed,
            EventReporter.workload_changed,
            WorkStatusWriter.workload_changed,
            MiniClusterKeys.workload_changed,
            PodRefusals.workload_changed,
            Provisioner.workload_changed,
            PodRuleTracker.workload_changed,
            PredictedDurations.workload_changed,
            FlavorWaits.workload_changed,
            Backlogs.workload_changed,
            ChainedStarts.workload_changed,
            StartEstimator.workload_changed,
            Deadlines.workload_changed,
            Growth.workload_changed,
            SubmittedLimits.workload_changed,
            NamespaceQuotas.workload_changed,
            Maintenances.workload_changed,
        ),
    ),
    Source(
        "slots of workloads",
        Ledger,
        Ledger.subscribe_slots,
        (ForeignPods.slots_changed, FluxJobWriter.slots_changed, PodRuleTracker.slots_changed),
    ),
    Source("order of workloads", Ledger, Ledger.subscribe_order, (Backlogs.workload_changed,)),
    Source(
        "blockers of releases",
        ReleaseBlockers,
        ReleaseBlockers.subscribe,
        (IntakeController.enqueue, MiniClusterKeys.enqueue_job_of),
    ),
    Source("refused pods", PodRefusals, PodRefusals.subscribe, (StartupMonitor.look_now,)),
    Source("rules about other pods", PodRuleTracker, PodRuleTracker.subscribe, (Scheduler.soon,)),
    Source("room in quotas", NamespaceQuotas, NamespaceQuotas.subscribe, (Scheduler.soon,)),
    Source("sizes of Jobs", JobResizer, JobResizer.subscribe, (Scheduler.size_missed,)),
    Source("pods of others", ForeignPods, ForeignPods.subscribe, (Scheduler.soon,)),
    Source(
        "times and nodes of reservations",
        ReservationBook,
        ReservationBook.subscribe,
        (FluxReservationWriter.book_changed, Maintenances.resync),
    ),
    Source(
        "words about idle work",
        IdleWork,
        IdleWork.subscribe,
        (FluxJobWriter.idle_changed, Scheduler.idle_changed),
    ),
    Source("fair shares", PriorityKeeper, PriorityKeeper.subscribe, (FluxAccountWriter.shares_changed,)),
)


def subscribe(*parts: object) -> None:
    """Have parts told of the changes of each other, as far as they are the owners of sources.

    Parameters
    ----------
    *parts
        Owners of sources, and those that are told. The ``parts`` of each belong to them too.
    """
    for _ in subscribing(*parts):
        pass


def subscribing(*parts: object) -> Iterator[None]:
    """Do as `subscribe`, one handler after another, so that the caller can let others go on in between:
    a cache tells a new handler of each of its objects, some hundred at a time.
    """
    for source, owner, handler in told(*parts):
        yield from source.add(owner, handler) or ()
        yield


def told(*parts: object) -> Iterator[tuple[Source, object, Handler]]:
    """Yield each source among parts, its owner, and each handler of a part of them, bound to that part."""
    each_once = list({id(part): part for part in _with_parts(parts)}.values())
    for source in SOURCES:
        for owner in each_once:
            if isinstance(owner, source.owner):
                for handler in source.handlers:
                    for part in each_once:
                        if getattr(type(part), handler.__name__, None) is handler:
                            yield source, owner, getattr(part, handler.__name__)


def _with_parts(parts: Iterable[object]) -> Iterator[object]:
    for part in parts:
        yield part
        yield from _with_parts(getattr(part, "parts", ()))
