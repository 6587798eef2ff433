"""Trials of preemption with the matcher in process:
who must be gone, who is asked first, and that nothing changes by them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxqueues import QueueLimits
from fluxqueue.queue.scheduling.graph.match_rules import NoMatchRules
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.preemption.trials import Attempt, Gone, PreemptionTrials, Standing


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine(lambda: START) as made:
        await made.submit(job("low", 3, "8", "1h"), job("high", 1, "8", "1h"))
        await made.cycle()
        yield made


async def fits(
    bench: Bench,
    name: str,
    without: Sequence[str],
    ahead: Sequence[str] = (),
    limits: QueueLimits | None = None,
) -> bool:
    trials = PreemptionTrials(bench.ledger, bench.graph, NoMatchRules())
    attempt = Attempt(bench.row(name), tuple(map(bench.row, ahead)), frozenset(), limits, ())
    gone = [
        allocation
        for each in without
        if (allocation := bench.ledger.allocation(bench.row(each).id)) is not None
    ]
    quotas = Quotas({"default": limits} if limits is not None else {}, bench.ledger.live())
    return bool(await trials.nodes(attempt, Gone(gone), Standing({}, quotas, {})))


async def test_work_fits_only_without_enough_victims_and_the_graph_stays_as_it_is(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"))
    before = await bench.held()
    assert [await fits(bench, "wide", gone) for gone in ((), ("high",), ("low",))] == [False, False, True]
    assert await bench.held() == before


async def test_work_that_comes_first_takes_its_nodes_first(bench: Bench) -> None:
    await bench.submit(job("first", 1, "8", "1h"), job("wide", 3, "8", "1h"))
    assert not await fits(bench, "wide", ("low",), ahead=("first",))
    assert await fits(bench, "wide", ("low", "high"), ahead=("first",))


async def test_what_is_over_a_limit_then_does_not_fit(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"))
    assert not await fits(bench, "wide", ("low",), limits=QueueLimits(nodes=3))
    assert await fits(bench, "wide", ("low",), limits=QueueLimits(nodes=4))
