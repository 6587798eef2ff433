"""Consolidation in all small worlds: what is moved restarts at once, the first starts, and it pays.

Each world has three nodes of 8 cores with up to two small Jobs on each, and one that needs whole nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.fluxqueues import Consolidation, Policy
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.records import NewWorkload

CORES = 8
NODES = 3
ON_A_NODE = ((), (2,), (5,), (2, 4))
"""Cores of the small Jobs on a node."""


@dataclass(frozen=True)
class World:
    """What runs on each node, how many whole nodes are wanted, and for how many minutes the small Jobs of the
    first node ran; those of the others ran shorter.
    """

    nodes: tuple[tuple[int, ...], ...]
    wanted: int
    minutes: int = 12

    @property
    def smalls(self) -> dict[str, int]:
        """Cores of each small Job."""
        return {
            f"s{number}-{place}": cores
            for number, on_node in enumerate(self.nodes)
            for place, cores in enumerate(on_node)
        }

    @property
    def can_be_made(self) -> bool:
        """True if the small Jobs of so many nodes fit on the others, in their order on the first that has
        room.
        """
        return any(
            self._fits(emptied) for emptied in itertools.combinations(range(len(self.nodes)), self.wanted)
        )

    def _fits(self, emptied: Sequence[int]) -> bool:
        free = [CORES - sum(each) for number, each in enumerate(self.nodes) if number not in emptied]
        for cores in (cores for number in emptied for cores in self.nodes[number]):
            place = next((number for number, left in enumerate(free) if left >= cores), None)
            if place is None:
                return False
            free[place] -= cores
        return True


def worlds() -> Iterator[World]:
    """All worlds in which the first does not start anyway."""
    for nodes in itertools.product(ON_A_NODE, repeat=NODES):
        for wanted in (1, 2):
            if sum(not each for each in nodes) < wanted:
                yield World(nodes, wanted)


def described(name: str, world: World) -> NewWorkload:
    return job(name, 1, str(world.smalls[name]), "10h")


@asynccontextmanager
async def made(world: World) -> AsyncIterator[Bench]:
    now = START
    async with a_machine(lambda: now) as bench:
        bench.policy, bench.consolidation = Policy.EASY, Consolidation(enabled=True)
        bench.nodes.replace([a_node(f"n{number}") for number in range(NODES)])
        fillers = []
        for number, on_node in enumerate(world.nodes):
            names = [name for name in world.smalls if name.startswith(f"s{number}-")]
            left = CORES - sum(on_node)
            works = [described(name, world) for name in names]
            if left:
                fillers.append(f"f{number}")
                works.append(job(fillers[-1], 1, str(left), "10h"))
            for each in works:
                await bench.submit(each)
                await bench.cycle()
                row = bench.row(each.uid)
                assert row.jobid is not None
                assert row.hosts == f"n{number}"
                await bench.ledger.mark_released([row.jobid])
                await bench.ledger.mark_started([row.id])
            now += timedelta(minutes=world.minutes / NODES)
        await bench.ledger.finish(
            [Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED) for name in fillers]
        )
        await bench.submit(job("first", world.wanted, str(CORES), "1h"))
        await bench.cycle()
        yield bench


async def judge(world: World) -> tuple[str, int]:
    """Say what is wrong with what is moved in a world, and return how much that is."""
    async with made(world) as bench:
        moved = [name for name in world.smalls if bench.row(name).state is State.DRAINING]
        if not moved:
            return ("it could be made room for" if world.can_be_made else ""), 0
        room = bench.row("first").requeue_state.room
        if room is None or room.won_node_s <= room.lost_node_s:
            return f"{moved} are moved, which does not pay: {room}", len(moved)
        lost_s = sum(bench.row(name).requeue_state.moved is None for name in moved)
        if lost_s:
            return f"it is not stored that {moved} are moved", len(moved)
        for name in moved:  # one after the other: they do not end at once
            row = bench.row(name)
            await bench.ledger.requeue([Requeue(workload=row.id, reason=row.reason, message=row.message)])
            await bench.submit(described(name, world))
            await bench.cycle()
        await bench.cycle()
        waiting = [name for name in ("first", *moved) if bench.row(name).state is not State.ALLOCATED]
        return f"{moved} are moved, and {waiting} do not start" if waiting else "", len(moved)


async def test_what_is_moved_fits_elsewhere_and_the_first_starts() -> None:
    faults, counts = list[str](), list[int]()
    for world in worlds():
        fault, count = await judge(world)
        counts.append(count)
        faults += [f"{world}: {fault}"] if fault else []
    assert not faults, "\n".join(faults)
    assert max(counts) > 1
    assert sum(map(bool, counts)) >= 10, "worlds in which something is moved"
