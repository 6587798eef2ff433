"""Guarantees in random worlds of work of all kinds: what is guaranteed to an account is back within a minute
and the grace of those that borrow it, for one workload after the other.

``GUARANTEE_WORLDS`` sets how many worlds, ``GUARANTEE_SEED`` the first; a fault names its world.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from datetime import timedelta

from support.mixed_worlds import MixedWorld, RunningWorld, make_mixed_world, running_world

from fluxqueue.api.fluxjobs import State
from fluxqueue.fluxion.messages import JobMatchRequest, MatchVerdict
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.guarantees import Guarantees, held_nodes

WORLDS = int(os.environ.get("GUARANTEE_WORLDS", "20"))
SEED = int(os.environ.get("GUARANTEE_SEED", "0"))
STEP_S, PODS_STOP_S, WITHIN_S = 5, 10, 60


def waiting(world: RunningWorld) -> list[Workload]:
    """What is within a guarantee and waits."""
    rows = [row for row in world.bench.ledger.all() if row.state is State.PENDING and row.comes_first]
    return sorted(rows, key=lambda row: (-row.order_priority, row.submitted_at, row.id))


async def kept_back(world: RunningWorld) -> str:
    """Return what waits within a guarantee, though victims stop for it, or it could start without work that
    may be taken from accounts without a guarantee.
    """
    bench, now = world.bench, world.now
    guarantees = Guarantees(bench.accounts, held_nodes(bench.ledger.live()))
    names = dict(world.world.guaranteed)
    gone = []
    for row, allocation in bench.ledger.live():
        work = world.shown.work(row)
        ran_s = (now - allocation.start).total_seconds()
        least_s = world.world.min_run_s if row.queue != "default" else 0
        if row.account not in names and not (work and work.spared) and ran_s > least_s + WITHIN_S:
            gone += [*bench.graph.jobs.of(allocation.jobid)]
    rows = waiting(world)
    for row in rows:
        if row.id in world.stopping:
            return row.name
    asked = [
        JobMatchRequest(row.jobspec, row.id + 10**9, reserve=False, duration_s=row.duration_s or 0)
        for row in rows
    ]
    answers = (await bench.fluxion.trial(asked, without=gone, call=bench.graph.call())).results
    before: list[tuple[Workload, list[str]]] = []
    for row, answer in zip(rows, answers, strict=True):
        nodes = [share.node for share in answer.shares]
        if answer.verdict is MatchVerdict.GRANTED and guarantees.covers(row, nodes, before):
            return row.name
        before.append((row, nodes))
    return ""


async def restored(world: MixedWorld) -> tuple[str, int]:
    """Return what is kept back after a minute and the grace for each that waited within a guarantee, and for
    how many something was preempted.
    """
    helped = set[WorkloadId]()
    async with running_world(world) as live:
        await live.wait()
        for _ in range(0, (WITHIN_S + world.grace_s) * (len(world.waiting) + 1), STEP_S):
            helped |= live.stopping.keys()
            live.now += timedelta(seconds=STEP_S)
            await live.end_victims(PODS_STOP_S)
            await live.bench.cycle()
            await live.run_what_started()
        return await kept_back(live), len(helped)


async def test_what_is_guaranteed_is_back_within_a_minute_and_the_grace() -> None:
    faults, counts = [], Counter[int]()
    for seed in range(SEED, SEED + WORLDS):
        world = replace(make_mixed_world(seed, guarantees=True), most_nodes=None)
        fault, taken = await restored(world)
        counts[min(taken, 2)] += 1
        faults += [f"world {seed}: {fault} waits"] if fault else []
    assert not faults, "\n".join(faults)
    assert counts[1] > WORLDS / 4, "worlds in which something is taken back"
