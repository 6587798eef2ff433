"""A queue with a real matcher, driven cycle by cycle:
on a real Postgres, or on a store in memory (`a_machine`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import msgspec
from support.builders import Json, make_job, make_node, make_reservation
from support.memory_store import MemoryStore
from support.queue_builders import a_job, around

from fluxqueue.api.clusterobjects import DaemonSet
from fluxqueue.api.fluxqueues import (
    AtLimit,
    Consolidation,
    Policy,
    Preemption,
    PreemptionRules,
    Provision,
    QueueLimits,
)
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.fluxion.messages import GraphNodeSpec
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.daemonsets import DaemonSets
from fluxqueue.queue.cluster.devices import ClusterDevices
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.cluster.port_volume_pools import PortVolumePools
from fluxqueue.queue.cluster.reservations import node_view
from fluxqueue.queue.cluster.storage import ClusterStorage
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.accounts import NO_ACCOUNTS
from fluxqueue.queue.model.records import NewWorkload, Workload
from fluxqueue.queue.model.reservation_plans import ReservationPlan, plan_of
from fluxqueue.queue.scheduling.graph.graph_keeper import GraphKeeper
from fluxqueue.queue.scheduling.graph.match_rules import MatchRules, NoMatchRules
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShapes
from fluxqueue.queue.scheduling.graph.pod_rule_tracker import PodRuleTracker
from fluxqueue.queue.scheduling.growth import JobSizes, NoJobSizes
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs, ShownVictims
from fluxqueue.queue.scheduling.reservations.reservation_book import ReservationBook
from fluxqueue.queue.scheduling.scheduler import Scheduler
from fluxqueue.queue.scheduling.surroundings import Surroundings
from fluxqueue.queue.store import Store
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class _Latest:
    """Answers as what a bench has by then."""

    def __init__(self, now: Callable[[], object]) -> None:
        self._now = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now(), name)


class Bench:
    """A queue with four nodes of 8 cores. Its control tasks are requested and recorded, not run."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        fluxion: LocalFluxion,
        nodes: ObjectCache[Node],
        node_shapes: NodeShapes | None = None,
        caches: Caches | None = None,
    ) -> None:
        self.store, self.ledger, self.fluxion, self.nodes = store, ledger, fluxion, nodes
        self.asked: list[ControlTask] = []
        self.pods: ObjectCache[Pod] = caches.pods if caches is not None else ObjectCache()
        self.storage = caches.storage if caches is not None else ClusterStorage()
        self.devices = ClusterDevices(counted=True, find_node=lambda name: nodes.get("", name))
        self.port_volume_pools = PortVolumePools(
            ledger, self.storage.limits, self.devices.capacity, self.devices.extended
        )
        self.daemonsets: ObjectCache[DaemonSet] = ObjectCache()
        foreign = ForeignPods(
            self.pods,
            ledger,
            DaemonSets(self.daemonsets, nodes),
            self.port_volume_pools,
            self.storage.attached,
            self.devices.taken,
        )
        self.pods.add_handler(foreign.pod_changed)
        subscribe(ledger, foreign)
        self.devices.subscribe(
            lambda found: foreign.recount(
                found if found is not None else [each.metadata.name for each in nodes.list()]
            )
        )
        self.daemonsets.add_handler(
            lambda _change: foreign.recount_daemonsets(node.metadata.name for node in nodes.list())
        )
        self.graph = GraphKeeper(fluxion, ledger, nodes, _spec, "lonode", foreign, self.port_volume_pools)
        nodes.add_handler(self.graph.specs.node_changed)
        self.policy = Policy.FCFS
        self.limits: QueueLimits | None = None
        self.preemption = Preemption.NEVER
        self.preemption_rules = PreemptionRules()
        self.match_policy, self.consolidation = "", Consolidation()
        self.at_limit = AtLimit.SKIP
        self.provision = Provision.NONE
        self.other_queues: dict[str, Discipline] = {}
        self.accounts = NO_ACCOUNTS
        self.reservations: Mapping[str, ReservationPlan] = {}
        self.book = ReservationBook(ledger, lambda: self.reservations, lambda: map(node_view, nodes.list()))
        nodes.add_handler(self.book.node_changed)
        self.shown: ShownVictims = OnlyJobs()
        self.sizes: JobSizes = NoJobSizes()
        rules = PodRuleTracker(caches, ledger) if caches is not None else NoMatchRules()
        around = self._around(rules)
        self.scheduler = Scheduler(
            ledger, self.graph, Trigger(self._note), self._disciplines, node_shapes=node_shapes, around=around
        )
        subscribe(ledger, self.graph, self.scheduler)
        if caches is not None:
            subscribe(caches, rules)

    def _around(self, rules: MatchRules) -> Surroundings:
        return Surroundings(
            accounts=lambda: self.accounts,
            victims=cast("ShownVictims", _Latest(lambda: self.shown)),
            sizes=cast("JobSizes", _Latest(lambda: self.sizes)),
            rules=rules,
            book=self.book,
        )

    def _disciplines(self) -> dict[str, Discipline]:
        own = Discipline(
            self.policy,
            limits=self.limits,
            preemption=self.preemption,
            preemption_rules=self.preemption_rules,
            match_policy=self.match_policy,
            provision=self.provision,
            at_limit=self.at_limit,
            consolidation=self.consolidation,
        )
        return {"default": own, **self.other_queues}

    def _note(self, task: ControlTask) -> None:
        self.asked.append(task)

    def reserve(self, name: str, **spec: Any) -> None:
        """Create or change a FluxReservation."""
        plan = plan_of(msgspec.convert(make_reservation(name, **spec), FluxReservation))
        self.reservations = {**self.reservations, name: plan}

    async def submit(self, *workloads: NewWorkload) -> None:
        """Submit workloads as the intake describes them."""
        await self.ledger.upsert(workloads)

    async def cycle(self) -> None:
        """Run one cycle, which must succeed."""
        await self.scheduler.cycle()
        assert self.scheduler.last_error == ""

    def row(self, name: str) -> Workload:
        """Return the workload of a Job, which must not have ended."""
        workload = self.ledger.by_uid(name)
        assert workload is not None
        return workload

    async def held(self) -> dict[int, dict[str, int]]:
        """Return the slots in Fluxion: job -> node -> slots."""
        jobs = await self.fluxion.list_jobs(call=self.graph.call(), with_shares=True)
        return {job.jobid: {share.node: share.slots["pod"] for share in job.shares} for job in jobs}


def _spec(node: Node, taken: Mapping[str, Decimal]) -> GraphNodeSpec:
    return graph_node(node, taken=taken).spec


def a_node(name: str, cpu: str = "8", *, cordoned: bool = False) -> Node:
    """Return a node with this many cores."""
    builder = make_node(name).uid(f"uid-{name}").allocatable(cpu=cpu, memory="32Gi", pods="110")
    if cordoned:
        builder = builder.with_("metadata.resourceVersion", "2").cordoned()
    return msgspec.convert(builder.build(), Node)


def job(
    name: str,
    pods: int,
    cpu: str,
    duration: str | None = None,
    priority: int | None = None,
    namespace: str = "default",
    host_ports: Sequence[int] = (),
    tolerations: Sequence[Json] = (),
    reservation: str = "",
) -> NewWorkload:
    """Return the intake's description of an Indexed Job."""
    builder = (
        make_job(name)
        .namespace(namespace)
        .indexed(pods)
        .cpu(cpu)
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    if duration is not None:
        builder = builder.annotation("fluxqueue/duration", duration)
    if priority is not None:
        builder = builder.annotation("fluxqueue/priority", str(priority))
    if reservation:
        builder = builder.annotation("fluxqueue/reservation", reservation)
    if host_ports:
        builder = builder.host_ports(*host_ports)
    builder = builder.with_("spec.template.spec.tolerations", [*tolerations])
    plans = {reservation: ReservationPlan(reservation, reservation)} if reservation else {}
    described = describe_job(a_job(builder, uid=name), around(reservations=plans))
    assert described is not None
    return described


@asynccontextmanager
async def a_leader(
    store: Store,
    nodes: ObjectCache[Node],
    fluxion: LocalFluxion,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    node_shapes: NodeShapes | None = None,
    caches: Caches | None = None,
) -> AsyncIterator[Bench]:
    """Become the leader and load the queue. With caches, rules about other pods apply."""
    epoch = await store.acquire_leadership("test")
    ledger = Ledger(store, epoch, clock)
    await ledger.load()
    yield Bench(store, ledger, fluxion, nodes, node_shapes, caches)


@asynccontextmanager
async def a_machine(
    clock: Callable[[], datetime] = lambda: START, caches: Caches | None = None
) -> AsyncIterator[Bench]:
    """A queue in memory with four nodes of 8 cores, or with the nodes of the caches."""
    nodes: ObjectCache[Node] = caches.nodes if caches is not None else ObjectCache()
    if caches is None:
        nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(MemoryStore(clock), nodes, matcher, clock, caches=caches) as bench:
        yield bench
    await matcher.close()
