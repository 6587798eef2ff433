"""Preemption in all small worlds: no more work ends than is needed, and none for work that does not start.

Each world has a few nodes, up to three Jobs that run and one or two that wait, in all sizes and priorities.
What the queue does is judged by the queue without preemption: the same world is made again, with some of the
victims gone. ``FLUXQUEUE_PREEMPTION_NODES`` sets how many nodes there are where two wait.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.records import Allocation, NewWorkload, Workload
from fluxqueue.queue.model.victim_views import BudgetShare
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs

NODES = int(os.environ.get("FLUXQUEUE_PREEMPTION_NODES", "3"))
ACCOUNTS = ("chem", "physics")
"""By rank; two nodes are guaranteed to the second."""
Ranked = tuple[int, int]
"""Pods, and rank."""


@dataclass(frozen=True)
class World:
    """What runs and what waits, in a cluster of so many nodes.

    Attributes
    ----------
    cpu
        Of each pod: the half or all of a node.
    queues
        The second that waits is in a queue of its own if there are two.
    guaranteed
        True if ranks are accounts, else they are priorities.
    spared
        So many of what runs are selected by a budget of disruption that allows nothing.
    """

    nodes: int
    running: tuple[Ranked, ...]
    waiting: tuple[Ranked, ...]
    cpu: str = "8"
    queues: int = 1
    guaranteed: bool = False
    spared: int = 0

    @property
    def full(self) -> bool:
        """True if no node is free."""
        return sum(pods for pods, _ in self.running) * (1 if self.cpu == "8" else 0.5) == self.nodes

    @property
    def on(self) -> list[str]:
        """Names of what runs."""
        return [f"r{number}" for number in range(len(self.running))]

    @property
    def heads(self) -> list[str]:
        """Names of what waits."""
        return [f"w{number}" for number in range(len(self.waiting))]

    def described(self, name: str, ranked: Ranked) -> NewWorkload:
        """Return a Job as the intake describes it."""
        pods, rank = ranked
        made = job(name, pods, self.cpu, "1h", priority=0 if self.guaranteed else rank)
        made = replace(made, queue="other") if name == "w1" and self.queues > 1 else made
        return replace(made, account=ACCOUNTS[min(rank, 1)]) if self.guaranteed else made


def worlds(nodes: int, waiting: int, ranks: Sequence[int] = (1, 2), **rest: Any) -> Iterator[World]:
    """All worlds of a kind in which at least one that waits does not fit."""
    most = nodes * 2 if rest.get("cpu") == "4" else nodes
    sizes = range(1, most + 1)
    for count in (1, 2, 3):
        for running in itertools.combinations_with_replacement(itertools.product(sizes, (0, 1)), count):
            free = most - sum(pods for pods, _ in running)
            for heads in itertools.product(itertools.product(sizes, ranks), repeat=waiting):
                if 0 <= free < max(pods for pods, _ in heads):
                    yield World(nodes, running, heads, **rest)


class Shown(OnlyJobs):
    """A budget that allows nothing selects some workloads, by uid."""

    def __init__(self, spared: Sequence[str]) -> None:
        self._spared = spared

    def budgets(self, workload: Workload, _allocation: Allocation) -> Sequence[BudgetShare]:
        return [BudgetShare("default", "web", 1, 0)] if workload.uid in self._spared else []


@asynccontextmanager
async def made(
    world: World, preemption: Preemption, gone: Sequence[str] = (), grace_s: int = 0
) -> AsyncIterator[Bench]:
    """A queue in which the work of a world runs, without what is gone, and the other waits;
    one cycle is over.
    """
    now = START
    async with a_machine(lambda: now) as bench:
        bench.policy, bench.preemption = Policy.EASY, preemption
        bench.preemption_rules = PreemptionRules(grace_seconds=grace_s)
        bench.other_queues = {"other": Discipline(Policy.EASY, preemption=preemption)}
        bench.shown = Shown(world.on[: world.spared])
        bench.nodes.replace([a_node(f"n{number}") for number in range(world.nodes)])
        if world.guaranteed:
            documents = [make_account(ACCOUNTS[0]), make_account(ACCOUNTS[1], guaranteed={"nodes": 2})]
            bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))
        for name, ranked in zip(world.on, world.running, strict=True):
            now += timedelta(minutes=1)
            await bench.submit(world.described(name, ranked))
        await bench.cycle()
        for row in map(bench.row, world.on):
            assert row.jobid is not None
            await bench.ledger.mark_released([row.jobid])
            await bench.ledger.mark_started([row.id])
        await bench.ledger.mark_draining([bench.row(name).id for name in gone])
        await requeue(bench, gone)
        assert in_state(bench, gone, State.PENDING) == [*gone]
        for name, ranked in zip(world.heads, world.waiting, strict=True):
            now += timedelta(minutes=1)
            await bench.submit(world.described(name, ranked))
        await bench.cycle()
        yield bench


async def requeue(bench: Bench, names: Iterable[str]) -> None:
    await bench.ledger.requeue(
        [Requeue(workload=bench.row(name).id, reason=Reason.PREEMPTED, message="") for name in names]
    )


async def read_again(bench: Bench, world: World, names: Iterable[str]) -> None:
    """Have the intake read requeued work, so that it is matched again, and run a cycle."""
    ranked = dict(zip(world.on, world.running, strict=True))
    await bench.submit(*(world.described(name, ranked[name]) for name in names))
    await bench.cycle()


def in_state(bench: Bench, names: Iterable[str], state: State) -> list[str]:
    return [name for name in names if bench.row(name).state is state]


async def starts_without(world: World, name: str, gone: Sequence[str]) -> bool:
    """Return whether waiting work starts if some of what runs is gone, and nothing is preempted."""
    async with made(world, Preemption.NEVER, gone) as bench:
        return bench.row(name).state is State.ALLOCATED


async def judge(world: World) -> tuple[str, int]:
    """Say what is wrong with what the queue preempts in a world, and return how much it preempts."""
    async with made(world, Preemption.LOWER_PRIORITY) as bench:
        victims = in_state(bench, world.on, State.DRAINING)
        if not victims:
            return await missed(world, bench), 0
        if set(victims) & set(world.on[: world.spared]):
            return "work is preempted that is spared", len(victims)
        (named,) = {
            bench.row(name).message.split(" by Job default/")[1].split()[0].rstrip(",") for name in victims
        }
        if bench.row(named).state is not State.PENDING:
            return f"{victims} end for {named}, which does not wait", len(victims)
        await requeue(bench, victims)
        await read_again(bench, world, victims)
        if bench.row(named).state is not State.ALLOCATED:
            return f"{victims} end for {named}, which does not start", len(victims)
    for spared in victims if len(victims) > 1 else ():
        if await starts_without(world, named, [each for each in victims if each != spared]):
            return f"{victims} end for {named}, and {spared} need not", len(victims)
    return "", len(victims)


async def missed(world: World, bench: Bench) -> str:
    """Say for which only work that waits something of lower priority could have been preempted."""
    if world.guaranteed or len(world.waiting) > 1:
        return ""
    ranks = dict(zip(world.on, (rank for _, rank in world.running), strict=True))
    lower = [name for name in world.on[world.spared :] if ranks[name] < world.waiting[0][1]]
    waits = bench.row("w0").state is State.PENDING
    return (
        "w0 waits, and what it could preempt would suffice"
        if waits and lower and await starts_without(world, "w0", lower)
        else ""
    )


async def judge_all(kind: Iterable[World]) -> None:
    faults, counts = list[str](), list[int]()
    for world in kind:
        fault, count = await judge(world)
        counts.append(count)
        faults += [f"{world}: {fault}"] if fault else []
    assert not faults, "\n".join(faults)
    assert max(counts) > 1
    assert sum(map(bool, counts)) >= 10, "worlds in which something is preempted"


@pytest.mark.parametrize("rest", [{}, {"spared": 1}], ids=["all", "one spared"])
async def test_no_more_work_ends_than_one_that_starts_needs(rest: dict[str, Any]) -> None:
    await judge_all(worlds(3, 1, **rest))


async def test_no_more_work_ends_than_needed_where_pods_share_nodes() -> None:
    await judge_all(world for world in worlds(2, 1, cpu="4") if world.full)


async def test_no_work_ends_for_one_of_two_that_does_not_start() -> None:
    """Of equal rank the second may have a reservation, which does not yield to the first in another queue:
    then that needs more nodes.
    """
    of_two_ranks = (
        world for world in worlds(NODES, 2, queues=2) if world.waiting[0][1] != world.waiting[1][1]
    )
    await judge_all(world for world in of_two_ranks if world.full)


async def test_no_work_of_accounts_that_borrow_ends_in_vain() -> None:
    await judge_all(world for world in worlds(NODES, 2, (0, 1), guaranteed=True) if world.full)


async def test_nodes_go_back_to_the_victims_if_the_other_is_gone() -> None:
    for world in worlds(3, 1):
        async with made(world, Preemption.LOWER_PRIORITY) as bench:
            victims = in_state(bench, world.on, State.DRAINING)
            await bench.ledger.finish([Ending(bench.row("w0").id, State.CANCELLED, Outcome.CANCELLED)])
            await requeue(bench, victims)
            await read_again(bench, world, victims)
            assert in_state(bench, victims, State.ALLOCATED) == victims, world


async def test_what_was_told_to_stop_stops_for_the_next_as_if_nobody_had_been_before_or_goes_on() -> None:
    """The first of two that wait is gone within the grace."""
    stopped, taken_over = 0, 0
    for world in (world for world in worlds(NODES, 2) if world.full):
        async with made(world, Preemption.LOWER_PRIORITY, grace_s=600) as bench:
            victims = in_state(bench, world.on, State.DRAINING)
            named = {bench.row(name).requeue_state.preempted_for for name in victims}
            first = next((name for name in world.heads if bench.row(name).id in named), "")
            if not first:
                continue
            (other,) = (name for name in world.heads if name != first)
            await bench.cycle()
            assert in_state(bench, world.on, State.DRAINING) == victims, (
                f"{world}: nothing changes while it is needed"
            )
            await bench.ledger.finish([Ending(bench.row(first).id, State.CANCELLED, Outcome.CANCELLED)])
            await bench.cycle()
            after = in_state(bench, world.on, State.DRAINING)
            assert {bench.row(name).requeue_state.preempted_for for name in after} <= {bench.row(other).id}, (
                world
            )
            assert in_state(bench, world.on, State.RUNNING) == [
                name for name in world.on if name not in after
            ], world
            assert bench.graph.rebuilds == 1
        async with made(
            replace(world, waiting=(world.waiting[int(other[1:])],)), Preemption.LOWER_PRIORITY
        ) as alone:
            assert after == in_state(alone, world.on, State.DRAINING), world
        stopped, taken_over = stopped + 1, taken_over + bool(after)
    assert min(stopped - taken_over, taken_over) >= 10, "worlds of both kinds"


async def test_nothing_stops_in_vain_if_more_important_work_starts_at_once_on_a_free_node() -> None:
    """What is told to stop is what would be, had that work run before."""
    stopped, gone_on = 0, 0
    kinds = itertools.chain(worlds(3, 1), worlds(2, 1, cpu="4"))
    for world in (world for world in kinds if not world.full):
        async with made(world, Preemption.LOWER_PRIORITY, grace_s=600) as bench:
            victims = in_state(bench, world.on, State.DRAINING)
            if not victims:
                continue
            await bench.submit(job("at-once", 1, world.cpu, "1h", priority=3))
            await bench.cycle()
            assert bench.row("at-once").state is State.ALLOCATED, world
            await bench.cycle()
            after = in_state(bench, world.on, State.DRAINING)
            assert bench.graph.rebuilds == 1
        before = replace(world, running=(*world.running, (1, 3)))
        async with made(before, Preemption.LOWER_PRIORITY) as alone:
            assert after == in_state(alone, world.on, State.DRAINING), world
        stopped, gone_on = stopped + bool(after), gone_on + (after != victims)
    assert min(stopped, gone_on) >= 10, "worlds of both kinds"
