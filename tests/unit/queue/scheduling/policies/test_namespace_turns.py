"""The refused work of one namespace holds up no other, and in the end everything is asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxqueues import Policy
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    MatchBatch,
    MatchResult,
    MatchVerdict,
    Pool,
)
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of, shape_of
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.namespace_turns import NamespaceTurns
from fluxqueue.queue.scheduling.policies.passes import (
    CycleContext,
    HeldReservation,
    PendingQueue,
    RefusalCache,
)
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.round_driver import RoundDriver

NOW = 1_800_000_000
HEAVY, OTHER = "heavy", "other"
TURN_S = 0.25
POLICIES = [
    Discipline(Policy.FCFS),
    Discipline(Policy.EASY),
    Discipline(Policy.HYBRID, 2),
    Discipline(Policy.CONSERVATIVE, 3),
]


def work(
    number: int, namespace: str = HEAVY, *, nodes: Sequence[str] = (), cpu: int = 4, **values: Any
) -> Workload:
    """Work of one pod on any of these nodes, a family of its own for each list of nodes."""
    requests = {"cpu": Decimal(cpu)}
    placement = PlacementRules(constraint={"hostlist": [*nodes]} if nodes else None)
    jobspec = jobspec_of(
        f"{namespace}/w{number}", [SizedPods(requests, 1)], duration_s=600, placement=placement
    )
    return a_workload(
        f"w{number}",
        id=WorkloadId(number),
        namespace=namespace,
        jobspec=jobspec,
        shape=shape_of(jobspec),
        duration_s=600,
        **values,
    )


@dataclass
class Bench:
    """Rounds over one queue, with a matcher that takes a tenth of a second for a long request,
    and a thousandth for a short one.
    """

    turns: NamespaceTurns
    discipline: Discipline = field(default_factory=Discipline)
    nodes: int = 4
    long_s: float = 0.1
    short_s: float = 0.001
    backlog: Backlog = field(default_factory=Backlog)
    cache: RefusalCache = field(default_factory=RefusalCache)
    reservations: dict[WorkloadId, HeldReservation] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    fluxion: LocalFluxion = field(default_factory=LocalFluxion)
    call: CallContext = field(default_factory=lambda: CallContext(now=NOW))

    async def begin(self, monkeypatch: pytest.MonkeyPatch) -> Bench:
        specs = [
            GraphNodeSpec(f"n{number}", (Pool("cpu", 4_000, 100), Pool("pods", 20)))
            for number in range(self.nodes)
        ]
        await self.fluxion.init("first", nodes=specs, call=self.call)
        matched = self.fluxion.match_batch

        async def match_batch(requests: Sequence[Any], **options: Any) -> MatchBatch:
            batch = await matched(requests, **options)
            answered = requests[: len(batch.results)]
            seconds = tuple(
                self.long_s if len(request.jobspec) > 4_096 else self.short_s for request in answered
            )
            self.asked += [f"w{request.jobid}" for request in answered]
            return replace(batch, overhead_s=sum(seconds), overhead_of_each_s=seconds)

        monkeypatch.setattr(self.fluxion, "match_batch", match_batch)
        return self

    async def hold(self, *nodes: int) -> None:
        """Have other work hold these nodes."""
        for number in nodes:
            held = work(9_000 + number, "running", nodes=[f"n{number}"])
            request = JobMatchRequest(held.jobspec, 9_000 + number)
            batch = await self.fluxion.match_batch([request], call=self.call)
            assert batch.results[0].verdict is MatchVerdict.GRANTED

    async def free(self, number: int) -> None:
        await self.fluxion.apply([CancelJobs([9_000 + number])], call=self.call)
        self.cache.clear()

    async def round(self, *, capacity_changed: bool = False) -> bool:
        """Run a round; return True if another one is to follow."""

        async def identify(workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
            return [FluxionJobId(int(workload.id)) for workload in workloads]

        async def granted(answers: Sequence[tuple[Workload, MatchResult]]) -> None:
            self.started += [workload.name for workload, _ in answers]

        self.asked.clear()
        self.turns.begin_round(capacity_changed=capacity_changed)
        queue = PendingQueue("default", self.backlog, dict(self.reservations), self.cache)
        context = CycleContext(NOW, capacity_changed, turns=self.turns)
        driver = RoundDriver(self.fluxion, identify, granted, turns=self.turns)
        await driver.run(Round([queue], {"default": self.discipline}, context), self.reservations, self.call)
        self.backlog.remove_all([each.id for each in self.backlog if each.name in self.started])
        return self.turns.end_round()


def different(count: int) -> list[Workload]:
    """Work that cannot be compared: each has a long list of other nodes, of which the cluster has one,
    and it is in use.
    """
    absent = [f"absent-node-{number}" for number in range(400)]
    return [work(number, nodes=["n0", f"absent-{number}", *absent]) for number in range(1, count + 1)]


async def test_a_stranger_behind_many_different_requests_starts_in_the_same_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await Bench(NamespaceTurns(TURN_S)).begin(monkeypatch)
    await bench.hold(0)
    bench.backlog.update([*different(200), work(500, OTHER, nodes=["n1"])])

    assert await bench.round()

    assert bench.started == ["w500"]
    assert len(bench.asked) < 10


async def test_the_next_rounds_ask_the_rest_in_order_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await Bench(NamespaceTurns(TURN_S)).begin(monkeypatch)
    await bench.hold(0)
    bench.backlog.update(different(20))
    asked: list[str] = []

    while await bench.round():
        asked += bench.asked
    asked += bench.asked

    assert asked == [f"w{number}" for number in range(1, 21)]


async def test_what_comes_meanwhile_with_a_higher_priority_is_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await Bench(NamespaceTurns(TURN_S)).begin(monkeypatch)
    await bench.hold(0)
    bench.backlog.update(different(20))
    await bench.round()
    bench.backlog.update([work(900, nodes=["n1"], priority=10)])

    await bench.round()

    assert bench.asked[0] == "w900"
    assert bench.started == ["w900"]


async def test_after_nodes_were_freed_the_rest_comes_first_and_then_all_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await Bench(NamespaceTurns(TURN_S)).begin(monkeypatch)
    await bench.hold(0, 1)
    bench.backlog.update(different(5))
    assert await bench.round()
    first = list(bench.asked)
    await bench.free(0)

    assert await bench.round(capacity_changed=True), "the answers of the first round are outdated"
    behind = list(bench.asked)
    await bench.round()

    assert behind[0] not in first
    assert bench.started == [behind[0]]
    assert bench.asked[0] in first


async def test_work_that_starts_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await Bench(NamespaceTurns(TURN_S), nodes=30).begin(monkeypatch)
    bench.backlog.update([work(number, nodes=[f"n{number}"]) for number in range(20)])

    assert not await bench.round()

    assert len(bench.started) == 20


async def test_first_come_first_served_is_never_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await Bench(NamespaceTurns(0.0), Discipline(Policy.FCFS)).begin(monkeypatch)
    await bench.hold(0)
    bench.backlog.update([*different(3), work(500, OTHER, nodes=["n1"])])

    await bench.round()
    await bench.round()

    assert bench.started == []


def busy(answers: int, *seconds: float, took_s: float = 0.0) -> MatchBatch:
    return MatchBatch((MatchResult(MatchVerdict.BUSY),) * answers, "", took_s, (), seconds)


def test_a_turn_is_counted_by_the_length_of_requests_if_no_more_is_known() -> None:
    turns = NamespaceTurns(0.009)
    long = replace(work(1), jobspec="x" * 900)
    short = replace(work(2, OTHER), jobspec="x" * 100)

    turns.begin_round(capacity_changed=False)
    turns.spend([long, short], busy(2, took_s=0.0105))

    assert turns.over == {HEAVY}
    assert turns.had_turn(long)
    assert not turns.had_turn(short)


def test_a_pause_of_a_matcher_that_tells_no_more_ends_no_turn() -> None:
    turns = NamespaceTurns(TURN_S)
    turns.begin_round(capacity_changed=False)
    turns.spend([work(1), work(2)], busy(2, took_s=5.0))
    assert not turns.over


def test_a_short_request_is_charged_with_all_that_it_took() -> None:
    turns = NamespaceTurns(TURN_S)
    turns.begin_round(capacity_changed=False)
    short, long = replace(work(1), jobspec="x" * 10), replace(work(2, OTHER), jobspec="x" * 9_000)
    turns.spend([long, short], busy(2, 0.01, 5.0, took_s=5.01))
    assert turns.over == {HEAVY}


@pytest.mark.parametrize("discipline", POLICIES, ids=lambda each: each.policy.value)
def test_one_namespace_alone_starts_the_same_work_in_one_round_or_in_many(
    monkeypatch: pytest.MonkeyPatch, discipline: Discipline
) -> None:
    async def started(seed: int, longest_s: float) -> tuple[list[str], list[tuple[WorkloadId, int]]]:
        rng = random.Random(seed)
        bench = await Bench(NamespaceTurns(longest_s), discipline, nodes=6).begin(monkeypatch)
        await bench.hold(*rng.sample(range(6), 4))
        waiting = [
            work(
                number,
                nodes=rng.sample([f"n{node}" for node in range(6)], rng.randint(1, 3)),
                cpu=rng.randint(1, 4),
            )
            for number in range(1, 30)
        ]
        bench.backlog.update(waiting)
        rounds = 1
        while await bench.round():
            rounds += 1
            assert rounds < 100
        return bench.started, sorted((each.workload, each.start) for each in bench.reservations.values())

    for seed in range(10):
        assert asyncio.run(started(seed, 0.002)) == asyncio.run(started(seed, float("inf"))), f"seed {seed}"
