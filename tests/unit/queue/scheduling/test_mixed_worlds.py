"""Preemption in random worlds of work of all kinds: no other victims that would do lose less, and what they end
for starts.

All subsets of what could end are tried with the same matcher. ``PREEMPTION_WORLDS`` sets how many worlds,
``PREEMPTION_SEED`` the first; a fault names its world, and `make_mixed_world` makes it again.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.mixed_worlds import make_mixed_world, running_world

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.scheduling.elastic_victims import ElasticVictims
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, Victims, preemption_order
from fluxqueue.queue.scheduling.preemption import Preemptor, _Candidates
from fluxqueue.queue.scheduling.preemption_trials import Attempt, PreemptionTrials, Standing

WORLDS = int(os.environ.get("PREEMPTION_WORLDS", "60"))
SEED = int(os.environ.get("PREEMPTION_SEED", "0"))
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
            kind, best = await self._best_wholes(could_be, spared, elastic, enough, parts)
        if best is None:
            self.seen["nothing helps"] += 1
            if chosen:
                self.faults.append(f"{chosen} end in vain")
            return
        self.seen[kind] += 1
        if not chosen:
            self.faults.append(f"nothing ends, {kind} {best} would do")
        elif not await enough(chosen):
            self.faults.append(f"{chosen} do not suffice")
        elif (price := self._price(kind, chosen, parts)) > best:
            self.faults.append(f"{kind}: {price} rather than {best}")

    def _price(self, kind: str, chosen: Victims, parts: Sequence[PreemptionCandidate]) -> tuple[Any, ...]:
        wholes = [each for each in chosen if each not in parts]
        if kind == "parts":
            return (float("inf"),) if wholes else (max(e.priority for e in chosen), lost(chosen))
        if kind == "one":
            return (len(chosen), *preemption_order_key(chosen[0]))
        return max(each.turn for each in wholes), lost(wholes), lost(chosen)

    async def _best_wholes(
        self, could_be: Any, spared: Any, elastic: Any, enough: Any, parts: Any
    ) -> tuple[str, tuple[Any, ...] | None]:
        wholes = elastic.beside(could_be.wholes, elastic.parts(could_be.elastic))
        for each in preemption_order(wholes):
            if await enough([each]):
                before = [other for other in wholes if other.turn < each.turn] if each.turn[1] else []
                if any([await enough((*before, *given)) for given in spared if before]):
                    break
                return "one", (1, *preemption_order_key(each))
        best = None
        for some in subsets(wholes, 1):
            evicted = {each.workload for each in some}
            for given in spared:
                if any({each.of, each.workload} & evicted for each in given):
                    continue
                price = max(each.turn for each in some), lost(some), lost(some) + lost(given)
                if (best is None or price < best) and await enough((*given, *some)):
                    best = price
        return "several", best

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


async def test_no_other_victims_lose_less_and_what_they_end_for_starts(judge: Judge) -> None:
    faults = []
    for seed in range(SEED, SEED + WORLDS):
        judge.faults.clear()
        async with running_world(make_mixed_world(seed)) as world:
            await world.wait()
            for _ in range(20):
                if not world.stopping:
                    break
                firsts = world.stopping
                world.now = max(filter(None, [*firsts.values(), world.now]))
                await world.end_victims()
                await world.bench.cycle()
                for first in firsts:
                    row = world.bench.ledger.get(first)
                    if row is None or row.state is not State.ALLOCATED:
                        judge.faults.append(f"work ended for {row and row.name}, which does not start")
                        break
                    judge.seen["carried through"] += 1
                await world.run_what_started()
                await world.bench.cycle()
        faults += [f"world {seed}: {each}" for each in judge.faults]
    print(judge.seen)
    assert not faults, "\n".join(faults)
