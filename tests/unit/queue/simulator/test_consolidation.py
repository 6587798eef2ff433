"""What consolidation does to a scattered trace, and whom it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

import pytest

from fluxqueue.api.fluxqueues import Consolidation, Policy, PreemptionRules
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.metrics import Summary, summarise
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

HOUR_S = 3_600
NODES, CORES = 8, 4


def small(submit_s: int, hours: float) -> TraceJob:
    return TraceJob(0, submit_s, 1, round(hours * HOUR_S), round(hours * HOUR_S))


def wide(submit_s: int, nodes: int, hours: float = 1) -> TraceJob:
    return TraceJob(0, submit_s, nodes, round(hours * HOUR_S), round(hours * HOUR_S))


def scattered_trace(seed: int) -> Trace:
    """Two days of small jobs that run for hours on single cores, and every few hours one of three nodes."""
    chance = random.Random(seed)
    jobs: list[TraceJob] = []
    at, rate = 0.0, 0.65 * NODES * CORES / (5 * HOUR_S)
    while at < 48 * HOUR_S:
        at += chance.expovariate(rate)
        jobs.append(small(int(at), chance.uniform(2, 8)))
    at = 0.0
    while at < 48 * HOUR_S:
        at += chance.uniform(0.6, 1.4) * 4 * HOUR_S
        jobs.append(wide(int(at), 3))
    return Trace("scattered", NODES, numbered(jobs)).scattered(CORES)


async def simulated(
    trace: Trace, rules: Consolidation, checkpoint_s: int = 600, grace_s: int = 0
) -> tuple[Sequence[SimulatedJob], Summary]:
    discipline = Discipline(
        Policy.EASY, consolidation=rules, preemption_rules=PreemptionRules(grace_seconds=grace_s)
    )
    simulation = Simulation(trace, discipline, checkpoint_s=checkpoint_s)
    ran = await simulation.run()
    return ran, summarise(ran, trace.nodes, cycles=simulation.cycles, seconds=0, cores=trace.cores)


async def test_wide_jobs_of_a_scattered_trace_wait_half_as_long_and_nothing_less_is_used() -> None:
    waits: dict[bool, list[int]] = {False: [], True: []}
    used: dict[bool, float] = {False: 0.0, True: 0.0}
    for seed in (1, 2, 3):
        for moves in (False, True):
            ran, summary = await simulated(scattered_trace(seed), Consolidation(enabled=moves))
            waits[moves] += [each.wait_s for each in ran if each.job.nodes > 1]
            used[moves] += summary.utilisation
            assert bool(summary.moves) is moves
    assert median(waits[False]) > HOUR_S
    assert median(waits[True]) <= median(waits[False]) / 2
    assert used[True] >= 0.995 * used[False]


def two_nodes_half_used(hours: float = 10) -> Trace:
    """Small jobs on both of two nodes of two cores, after those beside them have ended; then a wide one."""
    jobs = (small(0, hours), small(0, 0.1), small(0, hours), small(0, 0.1), small(0, 0.1), wide(400, 2, 1))
    return Trace("two", 3, numbered(jobs)).scattered(2)


@pytest.mark.parametrize("checkpoint_s", [0, 100])
async def test_a_moved_job_goes_on_from_its_last_checkpoint(checkpoint_s: int) -> None:
    ran, summary = await simulated(two_nodes_half_used(), Consolidation(enabled=True), checkpoint_s)
    (moved,) = (each for each in ran if each.moved)
    first = ran[-1]
    assert (first.start_s, summary.moves) == (400, 1)
    left_s = moved.job.runtime_s - (400 if checkpoint_s else 0)
    assert (moved.start_s, moved.end_s) == (400, 400 + left_s)
    assert moved.wait_s == 0


async def test_a_job_that_ran_too_long_since_its_last_checkpoint_is_not_moved() -> None:
    rules = Consolidation(enabled=True, max_lost_seconds=399)
    _, summary = await simulated(two_nodes_half_used(), rules, checkpoint_s=0)
    assert summary.moves == 0
    _, summary = await simulated(two_nodes_half_used(), rules, checkpoint_s=300)
    assert summary.moves == 1


async def test_nothing_is_moved_that_costs_more_than_is_won() -> None:
    """The wide job would start soon anyway."""
    ran, summary = await simulated(two_nodes_half_used(0.15), Consolidation(enabled=True), checkpoint_s=0)
    assert (summary.moves, ran[-1].start_s) == (0, 540)


async def test_a_moved_job_goes_on_for_its_grace() -> None:
    ran, summary = await simulated(two_nodes_half_used(), Consolidation(enabled=True), 100, grace_s=50)
    assert (ran[-1].start_s, summary.moves) == (450, 1)
