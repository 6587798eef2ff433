"""Random small clusters that are full of work of all kinds, in queues that preempt, with the real scheduling
and a clock that tests advance.

A world is drawn from a number, so a fault is made again by it. It has up to five nodes and eight workloads
that run: Jobs, pod groups that nobody creates again, moldable Jobs, MiniClusters and Deployments with a
least, each with a priority, an account, a start and perhaps a checkpoint; and up to three that wait.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec
from support.builders import make_account
from support.elastic_jobs import ShownPods, moldable, replicas, run
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules, QueueLimits
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.records import Allocation, NewWorkload, ReleaseMode, Workload, WorkloadId
from fluxqueue.queue.model.victim_views import BudgetShare, Return, VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline

__all__ = ["MixedWorld", "Work", "make_mixed_world", "running_world"]

NODE = 8
"""Cores of a node."""
KINDS = ("job", "job", "group", "moldable", "brokers", "replicas")
ACCOUNTS = ("bio", "chem", "physics")
"""Nothing is guaranteed to the first."""
PATIENT = "patient"
"""A queue whose work runs a minimum time."""


@dataclass(frozen=True)
class Work:
    """Work that runs or waits.

    Attributes
    ----------
    cpu
        Cores of each pod.
    least
        With how few pods it goes on, if its kind can.
    minutes
        From its start until the next one's.
    saved
        True if it told of a checkpoint when all others ran.
    spared
        True if a budget of disruption allows nothing of it.
    """

    name: str
    kind: str
    pods: int
    cpu: int
    priority: int
    least: int = 1
    minutes: int = 1
    saved: bool = False
    spared: bool = False
    account: str = ""
    queue: str = "default"


@dataclass(frozen=True)
class MixedWorld:
    """What runs and what waits, in a cluster of so many nodes; by account, how many nodes are guaranteed."""

    nodes: int
    running: tuple[Work, ...]
    waiting: tuple[Work, ...]
    guaranteed: tuple[tuple[str, int], ...] = ()
    grace_s: int = 0
    min_run_s: int = 0
    most_nodes: int | None = None


def make_mixed_world(seed: int, *, guarantees: bool = False) -> MixedWorld:
    """Return a world; with ``guarantees`` one in which some account has one."""
    draw = random.Random(seed)
    nodes = draw.randint(2, 5)
    accounts = ACCOUNTS if guarantees else draw.choice([(), ACCOUNTS])
    sizes = draw.choice([(NODE,), (NODE // 2, NODE), (2, NODE // 2)])
    running: list[Work] = []
    left = nodes * NODE
    while left and len(running) < 8:
        work = _drawn(draw, f"r{len(running)}", draw.choice(KINDS), sizes, left, accounts, 2)
        if work is None:
            break
        running.append(work)
        left -= work.pods * work.cpu
    waiting = [
        _drawn(draw, f"w{number}", "job", sizes, nodes * NODE, accounts[1:] if guarantees else accounts, 3)
        for number in range(draw.choice([1, 1, 2, 3]))
    ]
    return MixedWorld(
        nodes,
        tuple(running),
        tuple(filter(None, waiting)),
        tuple((name, draw.randint(1, nodes)) for name in accounts[1:] if draw.random() < 0.7),
        grace_s=draw.choice([0, 0, 120]),
        min_run_s=draw.choice([0, 600]),
        most_nodes=draw.choice([None, None, None, draw.randint(1, nodes)]),
    )


def _drawn(
    draw: random.Random,
    name: str,
    kind: str,
    sizes: Sequence[int],
    cores: int,
    accounts: Sequence[str],
    priorities: int,
) -> Work | None:
    cpu = draw.choice(sizes)
    if cores < cpu:
        return None
    pods = draw.randint(1, min(cores // cpu, 4))
    return Work(
        name,
        kind,
        pods,
        cpu,
        priority=draw.randint(0, priorities),
        least=draw.randint(1, pods),
        minutes=draw.randint(1, 20),
        saved=draw.random() < 0.2,
        spared=kind in ("group", "replicas") and draw.random() < 0.2,
        account=draw.choice(accounts) if accounts else "",
        queue=draw.choice(["default", PATIENT]),
    )


class ShownMix(ShownPods):
    """What the cluster shows of the work of a world."""

    def __init__(self, world: MixedWorld) -> None:
        super().__init__()
        self.saved_at: datetime | None = None
        self._works = {each.name: each for each in world.running}
        for each in world.running:
            if each.kind == "brokers":
                self.least[each.name] = each.least
                self.in_order.add(each.name)

    def work(self, workload: Workload) -> Work | None:
        """Return what a workload is a part of; None of work that waited."""
        return self._works.get(workload.name) or self._works.get(workload.name.rpartition("-")[0])

    def view(self, workload: Workload, allocation: Allocation) -> VictimView:
        work = self.work(workload)
        if work is not None and work.kind == "group":
            shown = VictimView(returns=Return.LOST)
        else:
            shown = super().view(workload, allocation)
        return replace(shown, checkpoint=self.saved_at) if work is not None and work.saved else shown

    def budgets(self, workload: Workload, allocation: Allocation) -> Sequence[BudgetShare]:
        work = self.work(workload)
        if work is None or not work.spared:
            return ()
        return [BudgetShare("default", work.name, len(allocation.open_slots), 0)]


class RunningWorld:
    """A world in which all runs that has room, and nothing waits yet.

    Attributes
    ----------
    now
        The clock.
    """

    def __init__(self, world: MixedWorld) -> None:
        self.now = START
        self.world = world
        self.shown = ShownMix(world)
        self.bench: Bench
        self._described: dict[str, NewWorkload] = {}

    def row(self, workload: WorkloadId) -> Workload:
        """Return a workload that has not ended."""
        row = self.bench.ledger.get(workload)
        assert row is not None
        return row

    async def start(self) -> None:
        """Start what runs."""
        for work in self.world.running:
            made = self._workloads(work)
            await self.submit(*made)
            await self.bench.cycle()
            await self.run_what_started()
            waits = [self.bench.row(each.uid).id for each in made]
            waits = [each for each in waits if self.row(each).state is State.PENDING]
            await self.bench.ledger.finish(
                [Ending(each, State.CANCELLED, Outcome.CANCELLED) for each in waits]
            )
            self.now += timedelta(minutes=work.minutes)
        self.shown.saved_at = self.now
        for work in self.world.running:
            if work.saved:
                for uid in [each for each in self.shown.pods if each.rpartition("-")[0] == work.name]:
                    self.shown.pods[uid] = dict.fromkeys(self.shown.pods[uid], self.now)
                if work.name in self.shown.pods:
                    self.shown.pods[work.name] = dict.fromkeys(self.shown.pods[work.name], self.now)
        self.now += timedelta(seconds=90)

    async def submit(self, *made: NewWorkload) -> None:
        """Submit work as the intake describes it."""
        self._described |= {each.uid: each for each in made}
        await self.bench.submit(*made)

    async def wait(self) -> None:
        """Submit what waits, and run a cycle."""
        for work in self.world.waiting:
            self.now += timedelta(seconds=1)
            await self.submit(*self._workloads(work))
        await self.bench.cycle()

    async def run_what_started(self) -> None:
        """Have the pods run of all that has nodes."""
        for row in self.bench.ledger.all():
            if row.state is State.ALLOCATED:
                await run(self.bench, self.shown, row.uid)

    def _workloads(self, work: Work) -> list[NewWorkload]:
        cpu, priority = str(work.cpu), work.priority
        if work.kind == "replicas":
            made = replicas(self.shown, work.name, work.pods, work.least, cpu=cpu, priority=priority)
        elif work.kind == "moldable":
            made = [moldable(work.name, work.pods, work.least, cpu=cpu, priority=str(priority))]
        else:
            made = [job(work.name, work.pods, cpu, "1h", priority=priority)]
        if work.kind == "group":
            made = [replace(made[0], kind="PodGroup", release_mode=ReleaseMode.GROUP)]
        return [replace(each, account=work.account, queue=work.queue) for each in made]

    # ---- what is preempted ---------------------------------------------------------------------------------

    @property
    def stopping(self) -> dict[WorkloadId, datetime | None]:
        """What work is told to stop for, and when the last of it may be stopped."""
        told = [row.requeue_state for row, _ in self.bench.ledger.evicting()]
        back = [row.requeue_state.given_back for row, _ in self.bench.ledger.giving_back()]
        stops = [(each.preempted_for, each.stop_at) for each in told]
        stops += [(each.preempted_for, each.stop_at) for each in back if each is not None]
        return {
            WorkloadId(first): max((at for key, at in stops if key == first and at), default=None)
            for first, _ in stops
        }

    async def end_victims(self, after_s: int = 0) -> list[str]:
        """End all whose grace is over since so long, and return what waits again:
        Jobs; nobody creates the others again.
        """
        ledger, now = self.bench.ledger, self.now - timedelta(seconds=after_s)
        over = [row for row, _ in ledger.evicting() if (row.requeue_state.stop_at or now) <= now]
        back = [
            (row, its, given)
            for row, its in ledger.giving_back()
            if (given := row.requeue_state.given_back) is not None and given.stop_at <= now
        ]
        await ledger.end_slots(
            [(its.jobid, rank) for row, its, _ in back for rank in leaving_ranks(row, its)]
        )
        for row, its, given in back:
            gone = {slot.pod_uid for slot in its.slots if slot.rank in given.ranks}
            self.shown.pods[row.uid] = {
                uid: since for uid, since in self.shown.pods[row.uid].items() if uid not in gone
            }
        for row in over:
            self.shown.pods.pop(row.uid, None)
        jobs = [row for row in over if row.kind == "Job"]
        await ledger.requeue([Requeue(workload=row.id, reason=Reason.PREEMPTED, message="") for row in jobs])
        await ledger.finish(
            [Ending(row.id, State.CANCELLED, Outcome.CANCELLED) for row in over if row.kind != "Job"]
        )
        await self.bench.submit(*(self._described[row.uid] for row in jobs))
        return [row.uid for row in jobs]


@asynccontextmanager
async def running_world(world: MixedWorld) -> AsyncIterator[RunningWorld]:
    """Start a world."""
    made = RunningWorld(world)
    async with a_machine(lambda: made.now) as bench:
        made.bench = bench
        bench.nodes.replace([a_node(f"n{number}", str(NODE)) for number in range(world.nodes)])
        bench.policy, bench.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        bench.preemption_rules = PreemptionRules(grace_seconds=world.grace_s)
        bench.limits = QueueLimits(nodes=world.most_nodes) if world.most_nodes is not None else None
        bench.other_queues = {
            PATIENT: Discipline(
                Policy.EASY,
                preemption=Preemption.LOWER_PRIORITY,
                preemption_rules=PreemptionRules(
                    min_run_seconds=world.min_run_s, grace_seconds=world.grace_s
                ),
            )
        }
        guaranteed = dict(world.guaranteed)
        documents = [
            make_account(name, **({"guaranteed": {"nodes": guaranteed[name]}} if name in guaranteed else {}))
            for name in ACCOUNTS
        ]
        bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))
        bench.shown = made.shown
        await made.start()
        yield made
