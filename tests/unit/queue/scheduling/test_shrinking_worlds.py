"""Shrinking in all small worlds: no more pods end than the work needs that starts, and no Job goes below its
least.

Each world has a few nodes, one or two moldable Jobs or Deployments that run in all sizes and with every
least, and one Job that waits. What must end is counted anew here, from the nodes that the pods have.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from support.elastic_jobs import ShownPods, held, leaving, moldable, replicas, run
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.queue.model.records import FluxionJobId, Slot

NODE = 8
"""Cores of a node."""


@dataclass(frozen=True)
class World:
    """What runs, as pods, least and priority, and what waits with priority 1: pods of so many cores."""

    nodes: int
    cpu: int
    running: tuple[tuple[int, int, int], ...]
    waits: int
    waits_cpu: int

    @property
    def names(self) -> list[str]:
        """Names of what runs."""
        return [f"r{number}" for number in range(len(self.running))]


def worlds(nodes: int, cpu: int, waits_cpu: int) -> Iterator[World]:
    """All worlds of full nodes, with pods of one size that run and pods of one size that wait."""
    most = nodes * NODE // cpu
    kinds = [
        (pods, least, priority)
        for pods in range(1, most + 1)
        for least in range(1, pods + 1)
        for priority in (0, 1)
    ]
    for count in (1, 2):
        for running in itertools.combinations_with_replacement(kinds, count):
            if sum(pods for pods, _, _ in running) == most:
                for waits in range(1, nodes * NODE // waits_cpu + 1):
                    yield World(nodes, cpu, running, waits, waits_cpu)


Unit = tuple[str, int, str]
"""Job, rank and node of a pod."""


def fits(world: World, units: list[Unit], gone: set[Unit]) -> bool:
    """Return whether what waits would fit if these pods were gone."""
    free = Counter(dict.fromkeys((f"n{number}" for number in range(world.nodes)), NODE))
    for unit in units:
        free[unit[2]] -= 0 if unit in gone else world.cpu
    return sum(cores // world.waits_cpu for cores in free.values()) >= world.waits


def spared(world: World, units: list[Unit]) -> Iterator[set[Unit]]:
    """All that may be given back together."""
    may = [unit for unit in units if world.running[int(unit[0][1:])][2] < 1]
    for size in range(1, len(may) + 1):
        for chosen in itertools.combinations(may, size):
            counts = Counter(unit[0] for unit in chosen)
            if all(
                counts[name] <= pods - least
                for name, (pods, least, _) in zip(world.names, world.running, strict=True)
            ):
                yield set(chosen)


def slots_of(bench: Bench, name: str) -> Sequence[Slot]:
    allocation = bench.ledger.allocation(bench.row(name).id)
    return allocation.slots if allocation is not None else ()


class Jobs:
    """What runs are moldable Jobs."""

    def __init__(self, bench: Bench, shown: ShownPods, world: World) -> None:
        self.bench, self.shown, self.world = bench, shown, world

    async def start(self) -> None:
        for name, (pods, least, priority) in zip(self.world.names, self.world.running, strict=True):
            await self.bench.submit(
                moldable(name, pods, least, cpu=str(self.world.cpu), priority=str(priority))
            )
            await self.bench.cycle()
            await run(self.bench, self.shown, name)

    def units(self) -> list[Unit]:
        return [
            (name, slot.rank, slot.node) for name in self.world.names for slot in slots_of(self.bench, name)
        ]

    def ending(self, units: list[Unit]) -> tuple[list[str], set[Unit]]:
        """What is evicted as a whole, and the pods without which the others go on."""
        evicted = [name for name in self.world.names if self.bench.row(name).state is State.DRAINING]
        return evicted, {
            unit for unit in units if unit[0] not in evicted and unit[1] in leaving(self.bench, unit[0])
        }

    def slot(self, unit: Unit) -> tuple[FluxionJobId, int]:
        return held(self.bench, unit[0]).jobid, unit[1]


class Deployments(Jobs):
    """What runs are Deployments with a floor: each pod is a workload of its own."""

    async def start(self) -> None:
        for name, (pods, least, priority) in zip(self.world.names, self.world.running, strict=True):
            made = replicas(self.shown, name, pods, least, cpu=str(self.world.cpu), priority=priority)
            await self.bench.submit(*made)
            await self.bench.cycle()
            await run(self.bench, self.shown, *(each.uid for each in made))

    def units(self) -> list[Unit]:
        return [
            (name, number, slot.node)
            for name, (pods, _, _) in zip(self.world.names, self.world.running, strict=True)
            for number in range(pods)
            for slot in slots_of(self.bench, f"{name}-{number}")
        ]

    def ending(self, units: list[Unit]) -> tuple[list[str], set[Unit]]:
        gone = {unit for unit in units if self.bench.row(f"{unit[0]}-{unit[1]}").state is State.DRAINING}
        counts = Counter(unit[0] for unit in gone)
        below = [
            name
            for name, (pods, least, _) in zip(self.world.names, self.world.running, strict=True)
            if counts[name] > pods - least
        ]
        return below, {unit for unit in gone if unit[0] not in below}

    def slot(self, unit: Unit) -> tuple[FluxionJobId, int]:
        return held(self.bench, f"{unit[0]}-{unit[1]}").jobid, 0


async def judge(bench: Bench, kind: Jobs, world: World) -> tuple[str, int]:
    """Say what is wrong with what is given back in a world, and return how many pods that are."""
    units = kind.units()
    await bench.submit(job("waits", world.waits, str(world.waits_cpu), "1h", priority=1))
    await bench.cycle()
    evicted, gone = kind.ending(units)
    enough = [chosen for chosen in spared(world, units) if fits(world, units, chosen)]
    if gone and gone not in spared(world, units):
        return f"{gone} end, which may not", len(gone)
    if evicted:
        return (f"{evicted} are evicted, and pods would suffice" if enough else ""), len(gone)
    if not gone:
        return ("nothing is given back, and it would suffice" if enough else ""), 0
    if not fits(world, units, gone):
        return f"{gone} end in vain", len(gone)
    if any(fits(world, units, gone - {unit}) for unit in gone):
        return f"{gone} end, and one of them need not", len(gone)
    if world.cpu == NODE and len(gone) > min(map(len, enough)):
        return f"{gone} end, and fewer would do", len(gone)
    await bench.ledger.end_slots([kind.slot(unit) for unit in gone])
    await bench.cycle()
    if bench.row("waits").state is not State.ALLOCATED:
        return f"{gone} end for what does not start", len(gone)
    moved = {*kind.units()} - {*units}
    return (f"{moved} moved" if moved else ""), len(gone)


@pytest.mark.parametrize("kind", [Jobs, Deployments])
@pytest.mark.parametrize(
    ("nodes", "cpu", "waits_cpu"),
    [(4, 8, 8), (3, 4, 8), (2, 4, 4)],
    ids=["a node each", "halves for wholes", "halves for halves"],
)
async def test_no_more_pods_end_than_needed_and_none_below_the_least(
    nodes: int, cpu: int, waits_cpu: int, kind: type[Jobs]
) -> None:
    faults, counts = list[str](), list[int]()
    for world in worlds(nodes, cpu, waits_cpu):
        shown = ShownPods()
        async with a_machine(lambda: START) as bench:
            bench.policy, bench.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
            bench.shown = shown
            bench.nodes.replace([a_node(f"n{number}") for number in range(nodes)])
            running = kind(bench, shown, world)
            await running.start()
            fault, count = await judge(bench, running, world)
        counts.append(count)
        faults += [f"{world}: {fault}"] if fault else []
    assert not faults, "\n".join(faults)
    assert max(counts) > 1
    assert sum(map(bool, counts)) >= 10, "worlds in which pods are given back"
