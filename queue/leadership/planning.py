"""The parts of a leader that decide what starts where:
Fluxion's graph, the scheduler, and the provisioner where nodes can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.pods import PodSpec
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.daemonsets import DaemonSets
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.cluster.nodes import NodeReader
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.cluster.reservations import node_view
from fluxqueue.queue.cluster.victims import Victims
from fluxqueue.queue.config import Matcher, node_rules
from fluxqueue.queue.leadership.context import Controller, LeaderContext
from fluxqueue.queue.leadership.node_recounts import NodeRecounts
from fluxqueue.queue.model.prices import rates_of
from fluxqueue.queue.release.job_resizer import JobResizer
from fluxqueue.queue.requeue.maintenances import Maintenances
from fluxqueue.queue.requeue.requeuer import Requeuer
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShapes, possible_nodes
from fluxqueue.queue.scheduling.graph.pod_rule_tracker import PodRuleTracker
from fluxqueue.queue.scheduling.limits.guarantees import Guarantees, held_nodes
from fluxqueue.queue.scheduling.limits.namespace_quotas import NamespaceQuotas
from fluxqueue.queue.scheduling.policies.disciplines import Discipline, disciplines_of, without_plan
from fluxqueue.queue.scheduling.priority_keeper import PriorityKeeper
from fluxqueue.queue.scheduling.provisioning.kept_nodes import KeptNodes
from fluxqueue.queue.scheduling.provisioning.leftover_requests import LeftoverRequests
from fluxqueue.queue.scheduling.provisioning.provisioner import Provisioner
from fluxqueue.queue.scheduling.reservations.reservation_book import ReservationBook
from fluxqueue.queue.scheduling.scheduler import Scheduler
from fluxqueue.queue.scheduling.surroundings import Surroundings
from fluxqueue.queue.status.fluxaccount_writer import GuaranteesShown
from fluxqueue.queue.status.fluxjob_status import published_promise
from fluxqueue.queue.status.fluxreservation_writer import FluxReservationWriter

__all__ = ["Capacity", "Planning", "make_capacity", "make_planning"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The graph in Fluxion and what it is filled from.

    Attributes
    ----------
    port_volume_pools
        Host ports, volumes and devices that the graph counts for each node.
    foreign_pods
        Pods of others and what they take of each node.
    graph
        Keeps Fluxion's graph equal to the cluster and the tables.
    """

    port_volume_pools: PortVolumePools
    foreign_pods: ForeignPods
    graph: GraphKeeper

    @property
    def parts(self) -> tuple[object, ...]:
        """Those that are told of changes."""
        return self.port_volume_pools, self.foreign_pods, self.graph


@dataclass(frozen=True, slots=True)
class Planning:
    """The scheduler, what keeps its order, and the controllers that follow it.

    Attributes
    ----------
    priorities
        Keeps use, fair shares and the order of work.
    controllers
        That one, a provisioner and what keeps nodes where nodes can be added (else what deletes their
        requests), what resizes Jobs, and what reservations need.
    guaranteed
        Returns what is guaranteed to accounts and used of it now.
    parts
        Those that are told of changes.
    """

    scheduler: Scheduler
    priorities: PriorityKeeper
    controllers: tuple[Controller, ...]
    guaranteed: Callable[[], GuaranteesShown]
    parts: tuple[object, ...]


def make_capacity(context: LeaderContext, fluxion: Fluxion) -> Capacity:
    """Build what the graph is filled from."""
    caches, ledger, config = context.caches, context.ledger, context.config
    port_volume_pools = PortVolumePools(
        ledger, caches.storage.limits, caches.devices.capacity, caches.devices.extended
    )
    foreign_pods = ForeignPods(
        caches.pods,
        ledger,
        _daemonsets(caches),
        port_volume_pools,
        caches.storage.attached,
        caches.devices.taken,
    )
    node_reader = NodeReader(node_rules(config), context.recorder)
    graph = GraphKeeper(
        fluxion, ledger, caches.nodes, node_reader, config.policy, foreign_pods, port_volume_pools
    )
    return Capacity(port_volume_pools, foreign_pods, graph)


def make_planning(context: LeaderContext, capacity: Capacity, requeuer: Requeuer) -> Planning:
    """Build the scheduler and what follows it.

    Parameters
    ----------
    context
        Of the leader.
    capacity
        Of its nodes.
    requeuer
        Evicts workloads that are preempted, and those on nodes in maintenance.
    """
    caches, ledger = context.caches, context.ledger
    node_shapes = possible_nodes(context.config.node_shapes, node_rules(context.config))
    provisioners = (
        (Provisioner(context.api, caches, ledger, context.recorder), KeptNodes(context.api, caches, ledger))
        if node_shapes
        else (LeftoverRequests(context.api, caches.own_namespace),)
    )
    quotas = NamespaceQuotas(caches, ledger)
    victims = Victims(caches, requeuer.owners.may_suspend, ledger.wall)
    resizer = JobResizer(context.api, caches, ledger, context.recorder)
    book, writer, maintenances = _make_reservations(context, requeuer)
    around = Surroundings(
        accounts=lambda: caches.accounts.tree,
        room=quotas.room,
        victims=victims,
        published=lambda workload: published_promise(caches.fluxjob_of(workload.uid), workload),
        sizes=resizer,
        rules=PodRuleTracker(caches, ledger),
        book=book,
    )
    scheduler = Scheduler(
        ledger,
        capacity.graph,
        context.trigger,
        _disciplines(context),
        requeuer.evict,
        NodeShapes(node_shapes),
        around,
    )
    recounts = NodeRecounts(caches, capacity.foreign_pods, scheduler.soon)
    priorities = _make_priorities(context, scheduler)
    _price_grants(context)

    def guaranteed() -> GuaranteesShown:
        return Guarantees(caches.accounts.tree, held_nodes(ledger.live())).shown

    controllers = (priorities, *provisioners, resizer, writer, maintenances)
    parts = (scheduler, quotas, victims, recounts, book, *controllers)
    return Planning(scheduler, priorities, controllers, guaranteed, parts)


def _make_reservations(
    context: LeaderContext, requeuer: Requeuer
) -> tuple[ReservationBook, FluxReservationWriter, Maintenances]:
    """Build what knows FluxReservations, and the controllers that show and enforce them."""
    caches, ledger = context.caches, context.ledger
    book = ReservationBook(
        ledger, lambda: caches.reservations.plans, lambda: map(node_view, caches.nodes.list())
    )
    writer = FluxReservationWriter(context.api, caches, ledger, lambda: book.booked, context.recorder)
    maintenances = Maintenances(
        context.api,
        caches,
        ledger,
        lambda: book.booked if book.ready else None,
        requeuer.evict,
        requeuer.end_graces,
        context.recorder,
    )
    return book, writer, maintenances


def _disciplines(context: LeaderContext) -> Callable[[], Mapping[str, Discipline]]:
    """Return a function that returns what the FluxQueues say, as far as the matcher can do it."""
    fluxqueues, foreign = context.caches.fluxqueues, context.config.matcher is Matcher.FOREIGN

    def disciplines() -> Mapping[str, Discipline]:
        stated = disciplines_of(fluxqueues.list())
        return {name: without_plan(each) for name, each in stated.items()} if foreign else stated

    return disciplines


def _make_priorities(context: LeaderContext, scheduler: Scheduler) -> PriorityKeeper:
    fair_share = context.config.fair_share
    return PriorityKeeper(
        context.ledger,
        context.caches.fluxqueues,
        lambda: context.caches.accounts.tree,
        half_life_s=fair_share.half_life_seconds,
        resource_weights=fair_share.weights,
        reordered=scheduler.soon,
    )


def _price_grants(context: LeaderContext) -> None:
    """Have the ledger store with each grant what it costs, if there are prices."""
    entries, nodes, ledger = context.config.prices.entries, context.caches.nodes, context.ledger

    def labels_of(name: str) -> Mapping[str, str]:
        node = nodes.get("", name)
        return (node.metadata.labels if node is not None else None) or {}

    if entries:
        ledger.price = lambda shares: rates_of(entries, shares, labels_of, ledger.wall())


def _daemonsets(caches: Caches) -> DaemonSets:
    def complete(daemonset: DaemonSet) -> PodSpec:
        spec, cluster = daemonset.spec.template.spec, caches.cluster_context(daemonset.metadata.namespace)
        return with_defaults(
            spec, cluster.limit_ranges, cluster.runtime_classes.get(spec.runtime_class_name or "")
        )

    return DaemonSets(caches.daemonsets, caches.nodes, complete)
