"""Preemption in random worlds of work of all kinds: no other victims that would do lose less, what they end
for starts, and if it cannot any more, their nodes are theirs first.

All subsets of what could end are tried with the same matcher. Three things are known not to be found or
foreseen, and are counted: at most one in a hundred worlds. ``PREEMPTION_WORLDS`` sets how many worlds,
``PREEMPTION_SEED`` the first; a fault names its world, and `make_mixed_world` makes it again.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.mixed_worlds import RunningWorld, make_mixed_world, running_world
from support.queue_bench import a_node

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.fluxion.messages import JobMatchRequest, MatchVerdict
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.reasons import LIMIT_REASONS
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.scheduling.policies.backlog import key_of
from fluxqueue.queue.scheduling.policies.victims import (
    PreemptionCandidate,
    Victims,
    _is_before,
    preemption_order,
)
from fluxqueue.queue.scheduling.preemption.elastic_victims import ElasticVictims
from fluxqueue.queue.scheduling.preemption.preemptor import Preemptor, _Candidates
from fluxqueue.queue.scheduling.preemption.trials import Attempt, PreemptionTrials, Standing

WORLDS = int(os.environ.get("PREEMPTION_WORLDS", "60"))
SEED = int(os.environ.get("PREEMPTION_SEED", "0"))
MOST_ROUNDS = 20
_PROBE = FluxionJobId(1 << 40)
MOST = 8
"""Whole victims, and pods that can be spared, of which all subsets are tried."""


def subsets(some: Sequence[PreemptionCandidate], least: int = 0) -> Iterator[Victims]:
    for size in range(least, len(some) + 1):
        yield from itertools.combinations(some, size)


def lost(victims: Sequence[PreemptionCandidate]) -> float:
    return sum(each.lost_node_s for each in victims)


@dataclass
class Judge:
    """Compares what is chosen with all that could be."""

    faults: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    async def compare(
        self,
        chosen: Victims,
        attempt: Attempt,
        could_be: _Candidates,
        trials: PreemptionTrials,
        standing: Standing,
        elastic: ElasticVictims,
    ) -> None:
        known: dict[frozenset[PreemptionCandidate], bool] = {}

        async def enough(victims: Sequence[PreemptionCandidate]) -> bool:
            key = frozenset(elastic.closed(victims))
            if key not in known:
                known[key] = bool(await trials.nodes(attempt, elastic.gone(victims), standing))
            return known[key]

        parts = elastic._every_part(could_be.elastic)
        if len(parts) > MOST or len(could_be.wholes) > MOST:
            self.seen["too many"] += 1
            return
        spared = [each for each in map(elastic.closed, subsets(parts)) if self._spares(each, elastic)]
        best: tuple[Any, ...] | None = None
        only_parts = [each for each in spared if each and await enough(each)]
        if only_parts:
            best = min((max(e.priority for e in each), lost(each)) for each in only_parts)
            kind = "parts"
        else:
            kind, best = await self._best_wholes(could_be, elastic, enough)
        if best is None:
            self.seen["nothing helps"] += 1
            if chosen:
                self.faults.append(f"{chosen} end in vain")
            return
        self.seen[kind] += 1
        if not chosen and not await enough((*could_be.wholes, *could_be.elastic)):
            self.seen["known"] += 1  # with more gone, work that is before it takes the nodes
        elif not chosen:
            self.faults.append(f"nothing ends, {kind} {best} would do")
        elif kind == "parts" and any(each not in parts for each in chosen):
            self.seen["known"] += 1  # other pods of an owner would do than those that lose least
        elif not await enough(chosen):
            self.faults.append(f"{chosen} do not suffice")
        elif (price := self._price(kind, chosen, parts)) > best:
            self.faults.append(f"{kind}: {price} rather than {best}")
        elif kind == "several":
            wholes = [each for each in chosen if each not in parts]
            units = [part for (part,) in elastic.parts(could_be.elastic)]
            for given in map(elastic.closed, subsets(units)):
                if lost(given) + lost(wholes) < lost(chosen) and await enough((*given, *wholes)):
                    self.faults.append(f"{chosen} end, and {given} beside {wholes} would do")

    def _price(self, kind: str, chosen: Victims, parts: Sequence[PreemptionCandidate]) -> tuple[Any, ...]:
        wholes = [each for each in chosen if each not in parts]
        if kind == "parts":
            return (float("inf"),) if wholes else (max(e.priority for e in chosen), lost(chosen))
        if kind == "one":
            return (len(chosen), *preemption_order_key(chosen[0]))
        return max(each.turn for each in wholes), lost(wholes), len(wholes)

    async def _best_wholes(
        self, could_be: _Candidates, elastic: ElasticVictims, enough: Callable[..., Awaitable[bool]]
    ) -> tuple[str, tuple[Any, ...] | None]:
        """Return the lowest price of whole victims, beside the pods of each owner that lose least."""
        units = elastic.parts(could_be.elastic)
        spared = [elastic.closed(each) for each in subsets([part for (part,) in units])]
        wholes = elastic.beside(could_be.wholes, units)
        alone: PreemptionCandidate | None = None
        for each in preemption_order(wholes):
            if await enough([each]):
                alone, wholes = each, [other for other in wholes if _is_before(other, each)]
                break
        best: tuple[Any, ...] | None = None
        for some in subsets(wholes, 1):
            evicted = {each.workload for each in some}
            for given in spared:
                if any({each.of, each.workload} & evicted for each in given):
                    continue
                price = max(each.turn for each in some), lost(some), len(some), lost(given)
                if (best is None or price < best) and await enough((*given, *some)):
                    best = price
        if alone and (best is None or not (alone.turn[1] or best[1] + best[3] < alone.lost_node_s)):
            return "one", (1, *preemption_order_key(alone))
        return "several", best and best[:3]

    def _spares(self, parts: Victims, elastic: ElasticVictims) -> bool:
        """True if the owners of these pods can spare all of them."""
        owners: dict[object, list[PreemptionCandidate]] = {}
        for each in parts:
            owners.setdefault(each.floor.key if each.floor else each.of, []).append(each)
        return all(len(each) <= elastic.work.can_spare(each) for each in owners.values())


def preemption_order_key(each: PreemptionCandidate) -> tuple[Any, ...]:
    return each.turn, each.loss


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    made, choose = Judge(), Preemptor._choose

    async def judged(
        self: Preemptor, attempt: Attempt, could_be: _Candidates, standing: Standing, elastic: ElasticVictims
    ) -> Victims:
        chosen = await choose(self, attempt, could_be, standing, elastic)
        await made.compare(chosen, attempt, could_be, self._trials, standing, elastic)
        return chosen

    monkeypatch.setattr(Preemptor, "_choose", judged)
    return made


async def carry_through(world: RunningWorld, judge: Judge) -> None:
    """End victims and run cycles until nothing is preempted any more."""
    for _ in range(MOST_ROUNDS):
        if not (firsts := world.stopping):
            return
        world.now = max(filter(None, [*firsts.values(), world.now]))
        await world.end_victims()
        await world.bench.cycle()
        for row in map(world.bench.ledger.get, firsts):
            judge.seen["carried through"] += 1
            if row is not None and row.state is State.ALLOCATED:
                continue
            if world.world.guaranteed:
                judge.seen["known"] += 1  # what ended changed whose work is covered, and that comes first
            else:
                judge.faults.append(f"work ended for {row and row.name}, which does not start")
        await world.run_what_started()
        await world.bench.cycle()
    judge.faults.append("preemption never ends")


async def lose_the_first(world: RunningWorld, judge: Judge, *, gone: bool) -> None:
    """End victims of work that cannot start any more: it is gone, or a node is.
    Nothing that comes after a victim in order starts on nodes that this could have.
    """
    if not (firsts := world.stopping):
        return
    bench = world.bench
    world.now = max(filter(None, [*firsts.values(), world.now]))
    waits = await world.end_victims()
    if gone:
        await bench.ledger.finish([Ending(each, State.CANCELLED, Outcome.CANCELLED) for each in firsts])
    else:
        bench.nodes.apply(a_node("n0", cordoned=True))
    await bench.cycle()
    started = [row for row in bench.ledger.all() if row.state is State.ALLOCATED]
    for victim in (row for row in map(bench.row, waits) if row.state is State.PENDING):
        later = [  # a reservation of another queue yields only to a higher priority
            row
            for row in started
            if key_of(row) > key_of(victim)
            and (row.queue == victim.queue or row.order_priority < victim.order_priority)
        ]
        held = [job for row in later if row.jobid is not None for job in bench.graph.jobs.of(row.jobid)]
        asked = JobMatchRequest(victim.jobspec, _PROBE, duration_s=victim.duration_s or 0)
        answer = (await bench.fluxion.trial([asked], without=held, call=bench.graph.call())).results[0]
        if held and answer.verdict is MatchVerdict.GRANTED and victim.reason not in LIMIT_REASONS:
            judge.faults.append(f"{victim.name} waits, and {[row.name for row in later]} took its nodes")
    judge.seen["lost"] += 1


async def test_no_other_victims_lose_less_and_what_they_end_for_starts(judge: Judge) -> None:
    faults = []
    for seed in range(SEED, SEED + WORLDS):
        judge.faults.clear()
        async with running_world(make_mixed_world(seed)) as world:
            await world.wait()
            if seed % 4 < 2:
                await carry_through(world, judge)
            else:
                await lose_the_first(world, judge, gone=seed % 4 == 2)
        faults += [f"world {seed}: {each}" for each in judge.faults]
    assert not faults, "\n".join(faults)
    kinds = ("parts", "one", "several", "nothing helps", "carried through", "lost")
    assert min(judge.seen[each] for each in kinds) > WORLDS / 60, judge.seen
    assert judge.seen["known"] <= 2 + WORLDS / 100, judge.seen
