"""A queue on a real Postgres with a real matcher, driven cycle by cycle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
from builders import make_job, make_node
from queue_builders import a_job, around

from fluxqueue.api.fluxqueues import Policy, Preemption, Provision, QueueLimits
from fluxqueue.api.objects import Node, Pod
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.fluxion.messages import NodeSpec
from fluxqueue.fluxion.nodes import graph_node
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.controllers.foreign import ForeignPods
from fluxqueue.queue.controllers.graph import GraphKeeper
from fluxqueue.queue.controllers.scheduler import Scheduler
from fluxqueue.queue.intake import describe_job
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.policies.rounds import Discipline
from fluxqueue.queue.provisioning import Prospects
from fluxqueue.queue.records import NewWorkload, Workload
from fluxqueue.queue.store import Store
from fluxqueue.queue.tasks import ControlTask, Trigger


class Bench:
    """A queue with four nodes of 8 cores, whose control tasks are asked for and not run."""

    def __init__(
        self, store: Store, ledger: Ledger, fluxion: LocalFluxion, nodes: ObjectStore[Node], prospects: Prospects | None = None
    ) -> None:
        self.store, self.ledger, self.fluxion, self.nodes = store, ledger, fluxion, nodes
        self.asked: list[ControlTask] = []
        self.pods: ObjectStore[Pod] = ObjectStore()
        self.graph = GraphKeeper(fluxion, ledger, nodes, _spec, "lonode", ForeignPods(self.pods, ledger))
        self.policy = Policy.FCFS
        self.limits: QueueLimits | None = None
        self.preemption = Preemption.NEVER
        self.match_policy = ""
        self.provision = Provision.NONE
        self.other_queues: dict[str, Discipline] = {}
        self.scheduler = Scheduler(ledger, self.graph, Trigger(self._note), self._disciplines, prospects=prospects)

    def _disciplines(self) -> dict[str, Discipline]:
        own = Discipline(
            self.policy,
            limits=self.limits,
            preemption=self.preemption,
            match_policy=self.match_policy,
            provision=self.provision,
        )
        return {"default": own, **self.other_queues}

    async def _note(self, task: ControlTask) -> None:
        self.asked.append(task)

    async def submit(self, *found: NewWorkload) -> None:
        """Take in what the intake found."""
        await self.ledger.take_in(found)

    async def cycle(self) -> None:
        """Run one cycle, which must succeed."""
        await self.scheduler.cycle()
        assert self.scheduler.last_error == ""

    def row(self, name: str) -> Workload:
        """The workload of a Job, which must not have ended."""
        found = self.ledger.by_uid(name)
        assert found is not None
        return found

    async def held(self) -> dict[int, dict[str, int]]:
        """What Fluxion holds: job -> node -> slots."""
        jobs = await self.fluxion.list_jobs(call=self.graph.call(), with_shares=True)
        return {job.jobid: {share.node: share.slots["pod"] for share in job.shares} for job in jobs}


def _spec(node: Node) -> NodeSpec:
    return graph_node(node).spec


def a_node(name: str, cpu: str = "8", *, cordoned: bool = False) -> Node:
    """A node of so many cores."""
    builder = make_node(name).uid(f"uid-{name}").allocatable(cpu=cpu, memory="32Gi", pods="110")
    if cordoned:
        builder = builder.with_("metadata.resourceVersion", "2").cordoned()
    return msgspec.convert(builder.build(), Node)


def job(
    name: str, pods: int, cpu: str, duration: str | None = None, priority: int | None = None, namespace: str = "default"
) -> NewWorkload:
    """What the intake makes of an Indexed Job."""
    builder = make_job(name).namespace(namespace).indexed(pods).cpu(cpu).suspended().annotation("fluxqueue/suspended-by", "webhook")
    if duration is not None:
        builder = builder.annotation("fluxqueue/duration", duration)
    if priority is not None:
        builder = builder.annotation("fluxqueue/priority", str(priority))
    found = describe_job(a_job(builder, uid=name), around())
    assert found is not None
    return found


@asynccontextmanager
async def a_leader(
    store: Store,
    nodes: ObjectStore[Node],
    fluxion: LocalFluxion,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    prospects: Prospects | None = None,
) -> AsyncIterator[Bench]:
    """Whoever leads from now on, with the queue loaded."""
    epoch = await store.acquire_leadership("test")
    ledger = Ledger(store, epoch, clock)
    await ledger.load()
    yield Bench(store, ledger, fluxion, nodes, prospects)
