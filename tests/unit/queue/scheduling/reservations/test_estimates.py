"""Estimates of starts: the plan ahead, its range, and how often it is made."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.controller_bench import subscribed
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.dependencies import parse_dependencies
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, QueueLimits
from fluxqueue.fluxion.messages import JobMatchRequest, MatchBatch
from fluxqueue.fluxion.rpc.failures import DeadlinePassed
from fluxqueue.queue.metrics import START_ERROR_SECONDS
from fluxqueue.queue.model.changes import Ending, ReasonChange
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.model.start_conditions import StartConditions, track
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import CycleContext, HeldReservation
from fluxqueue.queue.scheduling.reservations.estimates import StartEstimator, nothing_published

NOW = int(START.timestamp())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_machine() as made:
        await made.submit(job("runs", 4, "8", "1h"))
        await made.cycle()
        yield made


def an_estimator(
    bench: Bench, published: Callable[[Workload], datetime | None] = nothing_published
) -> StartEstimator:
    return subscribed(StartEstimator(bench.ledger, bench.graph, published), bench.ledger)


async def waiting(bench: Bench, *names: str) -> dict[str, Backlog]:
    await bench.submit(*(job(name, 4, "8", "1h") for name in names))
    return {"default": Backlog(bench.row(name) for name in names)}


async def test_pending_work_is_planned_one_after_the_other(bench: Bench) -> None:
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a", "b")
    assert await estimator.update(backlogs, {}, CycleContext(NOW)) == 0
    estimates = [estimator.estimates[bench.row(name).id] for name in ("a", "b")]
    assert [each.position for each in estimates] == [1, 2]
    assert [each.eta for each in estimates] == [START + timedelta(hours=1), START + timedelta(hours=2)]
    assert {each.eta_soonest for each in estimates} == {START}, "without history the range begins now"
    assert not any(each.reserved for each in estimates)


async def test_work_that_waits_for_pending_work_is_estimated_after_its_end(bench: Bench) -> None:
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
    after = msgspec.structs.replace(track(parse_dependencies("ok:job/a")[0]), target="a")
    reason = Reason.WAITING_FOR_DEPENDENCY
    await bench.submit(
        replace(job("b", 1, "1", "1h"), reason=reason, start_conditions=StartConditions(after=(after,)))
    )
    await estimator.update(backlogs, {}, CycleContext(NOW))
    estimate = estimator.estimates[bench.row("b").id]
    assert (estimate.position, estimate.eta, estimate.eta_first) == (
        None,
        START + timedelta(hours=2),
        START + timedelta(hours=2),
    )


async def test_the_first_estimate_stays_although_others_follow_or_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow(monkeypatch, 0.0)
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a", "b")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    first = START + timedelta(hours=2)
    clock.now_s += 100
    await estimator.update({"default": Backlog([bench.row("a")])}, {}, CycleContext(NOW))
    assert (bench.row("b").id in estimator.estimates, estimator.promised(bench.row("b"))) == (False, first)
    clock.now_s += 100
    await estimator.update({"default": Backlog([bench.row("b")])}, {}, CycleContext(NOW))
    estimate = estimator.estimates[bench.row("b").id]
    assert (estimate.eta, estimate.eta_first) == (START + timedelta(hours=1), first)


async def test_positions_are_those_of_now_between_two_plans(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow(monkeypatch, 0.0)
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a", "b", "c")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    await waiting(bench, "new")
    backlogs = {"default": Backlog(map(bench.row, ("b", "new", "c")))}
    clock.now_s += 2
    assert await estimator.update(backlogs, {}, CycleContext(NOW)) > 0, "it is too early for a plan"
    b, c = (estimator.estimates[bench.row(name).id] for name in ("b", "c"))
    assert (b.position, b.eta, c.position) == (1, START + timedelta(hours=2), 2)
    assert bench.row("new").id not in estimator.estimates


async def test_a_reservation_is_the_estimate_before_a_reason_names_it(bench: Bench) -> None:
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a", "b")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    a, b = (bench.row(name).id for name in ("a", "b"))
    before = dict(estimator.estimates)
    new = WorkloadId(b + 1)
    reserved = {
        a: HeldReservation(a, FluxionJobId(7), NOW + 600, NOW + 4_200),
        new: HeldReservation(new, FluxionJobId(8), NOW, NOW),
    }
    for start in (NOW + 600, NOW + 300):
        estimator.follow_reservations({**reserved, a: replace(reserved[a], start=start)}, NOW)
        shown = estimator.estimates[a]
        assert (shown.eta, shown.reserved, shown.position) == (
            START + timedelta(seconds=start - NOW),
            True,
            1,
        )
        assert shown.eta_first == before[a].eta_first
        assert estimator.estimates.keys() == before.keys(), (
            "work that has no place in the plan yet gets it there"
        )
        assert estimator.estimates[b] is before[b]
    estimator.follow_reservations({}, NOW)
    assert (estimator.estimates[a].eta, estimator.estimates[a].reserved) == (
        START + timedelta(minutes=5),
        False,
    )


async def test_what_a_former_leader_published_is_the_first_estimate(bench: Bench) -> None:
    backlogs = await waiting(bench, "a")
    estimator = an_estimator(bench, lambda each: START + timedelta(minutes=7) if each.name == "a" else None)
    await estimator.update(backlogs, {}, CycleContext(NOW))
    assert estimator.estimates[bench.row("a").id].eta_first == START + timedelta(minutes=7)


def early_starts() -> float:
    """Return by how many seconds work started earlier than first estimated, in all."""
    return sum(
        sample.value
        for metric in START_ERROR_SECONDS.collect()
        for sample in metric.samples
        if sample.name.endswith("_sum") and sample.labels["start"] == "early"
    )


async def test_work_keeps_the_first_estimate_of_its_start() -> None:
    async with a_machine() as bench:
        before = early_starts()
        await bench.submit(job("runs", 4, "8", "1h", priority=1), job("a", 4, "8", "1h"))
        await bench.cycle()
        await bench.ledger.finish(
            [Ending(workload=bench.row("runs").id, state=State.COMPLETED, outcome=Outcome.SUCCEEDED)]
        )
        await bench.cycle()
        started = bench.row("a")
        assert (started.allocated_at, started.promised_at) == (START, START + timedelta(hours=1))
        assert early_starts() - before == pytest.approx(3_600), "the metric has the error of the estimate"


async def test_a_plan_leaves_the_graph_as_it_was(bench: Bench) -> None:
    before = await bench.held()
    estimator = an_estimator(bench)
    await estimator.update(await waiting(bench, "a", "b"), {}, CycleContext(NOW))
    assert await bench.held() == before


async def test_an_update_soon_after_another_returns_the_delay(bench: Bench) -> None:
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    assert 0 < await estimator.update(backlogs, {}, CycleContext(NOW)) <= 5
    assert await estimator.update({"default": Backlog()}, {}, CycleContext(NOW)) == 0


async def test_first_come_first_served_plans_no_start_before_that_ahead() -> None:
    async with a_machine() as bench:
        await bench.submit(job("runs", 3, "8", "1h"))
        await bench.cycle()
        await bench.submit(job("whole", 4, "8", "1h"), job("small", 1, "1", "1m"))
        backlogs, starts = {"default": Backlog(bench.row(name) for name in ("whole", "small"))}, {}
        for policy in (Policy.FCFS, Policy.EASY):
            estimator = an_estimator(bench)
            await estimator.update(backlogs, {}, CycleContext(NOW), {"default": Discipline(policy=policy)})
            starts[policy] = [estimator.estimates[bench.row(name).id].eta for name in ("whole", "small")]
    assert starts[Policy.FCFS] == [START + timedelta(hours=1), START + timedelta(hours=2)]
    assert starts[Policy.EASY] == [START + timedelta(hours=1), START]


async def test_first_come_first_served_expects_nothing_behind_work_of_which_nothing_is_known() -> None:
    async with a_machine() as bench:
        await bench.submit(replace(job("forever", 1, "8"), duration_s=None))
        await bench.cycle()
        await bench.submit(job("whole", 4, "8", "1h"), job("small", 1, "1", "1m"))
        backlogs, starts = {"default": Backlog(bench.row(name) for name in ("whole", "small"))}, {}
        for policy in (Policy.FCFS, Policy.EASY):
            estimator = an_estimator(bench)
            await estimator.update(backlogs, {}, CycleContext(NOW), {"default": Discipline(policy=policy)})
            starts[policy] = [estimator.estimates[bench.row(name).id].eta for name in ("whole", "small")]
    assert starts[Policy.FCFS] == [None, None]
    assert starts[Policy.EASY] == [None, START]


async def test_first_come_first_served_keeps_no_former_start_before_that_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = slow(monkeypatch, 0.0)
    fcfs = {"default": Discipline(policy=Policy.FCFS)}
    async with a_machine() as bench:
        await bench.submit(job("long", 3, "8", "1h"), job("short", 1, "8", "30m"))
        await bench.cycle()
        await bench.submit(job("whole", 4, "8", "1h"), job("small", 1, "1", "1m"))
        estimator = an_estimator(bench)
        await estimator.update({"default": Backlog([bench.row("small")])}, {}, CycleContext(NOW), fcfs)
        clock.now_s, clock.step_s = 100.0, 0.3  # time for one of them
        await estimator.update(
            {"default": Backlog(map(bench.row, ("whole", "small")))}, {}, CycleContext(NOW), fcfs
        )
        starts = [estimator.estimates[bench.row(name).id].eta for name in ("whole", "small")]
    assert starts == [START + timedelta(hours=1)] * 2


class SlowMachine:
    """A monotonic clock on which everything takes long."""

    def __init__(self, step_s: float = 0.2) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def monotonic(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def slow(monkeypatch: pytest.MonkeyPatch, step_s: float = 0.2) -> SlowMachine:
    clock = SlowMachine(step_s)
    for module in ("estimates", "plan_ahead"):
        monkeypatch.setattr(f"fluxqueue.queue.scheduling.reservations.{module}.time", clock)
    return clock


async def test_many_are_planned_at_once_also_first_come_first_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch, 0.1)
    estimator, backlogs = (
        an_estimator(bench),
        await waiting(bench, *(f"w{number}" for number in range(30))),
    )
    await estimator.update(backlogs, {}, CycleContext(NOW), {"default": Discipline(policy=Policy.FCFS)})
    starts = [estimator.estimates[bench.row(f"w{number}").id].eta for number in range(30)]
    assert starts == [START + timedelta(hours=1 + number) for number in range(30)]


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_planned_at_once_is_what_is_planned_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch, 0.0)
    draw = random.Random(seed)
    plans = []
    async with a_machine() as bench:
        await bench.submit(job("runs", 3, "8", "1h"), job("small", 1, "4", "20m"))
        await bench.cycle()
        names = [f"w{number}" for number in range(12)]
        for name in names:
            await bench.submit(
                job(name, draw.randint(1, 4), draw.choice(["2", "8"]), draw.choice(["1m", "10m", "1h"]))
            )
        for at_once in (1, 20):
            monkeypatch.setattr("fluxqueue.queue.scheduling.reservations.plan_ahead._AT_ONCE", at_once)
            estimator, backlogs = (
                an_estimator(bench),
                {"default": Backlog(map(bench.row, names))},
            )
            await estimator.update(
                backlogs, {}, CycleContext(NOW), {"default": Discipline(policy=Policy.FCFS)}
            )
            plans.append([estimator.estimates[bench.row(name).id].eta for name in names])
    assert plans[0] == plans[1]
    assert None not in plans[0]
    assert plans[0] == sorted(plans[0])  # type: ignore[type-var]  # none is None


async def test_a_busy_queue_does_not_take_the_plans_of_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow(monkeypatch)
    await waiting(bench, "a", "b")
    backlogs = {"busy": Backlog([bench.row("a")]), "other": Backlog([bench.row("b")])}
    estimator = an_estimator(bench)
    planned = []
    for _ in range(2):
        await estimator.update(backlogs, {}, CycleContext(NOW))
        planned.append(
            [name for name in ("a", "b") if estimator.estimates[bench.row(name).id].eta is not None]
        )
        clock.now_s += 100
    assert planned == [["a"], ["a", "b"]]


async def test_planning_takes_a_twentieth_of_the_time_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow(monkeypatch)
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    clock.now_s += 6
    assert await estimator.update(backlogs, {}, CycleContext(NOW)) > 0, (
        "the first took more than half a second"
    )


@pytest.mark.parametrize("policy", [Policy.EASY, Policy.FCFS])
async def test_a_matcher_that_answers_a_part_is_asked_for_the_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    estimator = an_estimator(bench)
    backlogs = await waiting(bench, *(f"w{number}" for number in range(30)))
    matched = bench.graph.fluxion.match_batch

    async def first_two(requests: Sequence[JobMatchRequest], **options: Any) -> MatchBatch:
        return await matched(requests[:2], **options)

    monkeypatch.setattr(bench.graph.fluxion, "match_batch", first_two)
    before = await bench.graph.fluxion.list_jobs(call=bench.graph.call())
    await estimator.update(backlogs, {}, CycleContext(NOW), {"default": Discipline(policy=policy)})
    starts = [estimator.estimates[bench.row(f"w{number}").id].eta for number in range(30)]
    assert starts == [START + timedelta(hours=1 + number) for number in range(30)]
    assert await bench.graph.fluxion.list_jobs(call=bench.graph.call()) == before


async def test_a_plan_on_which_the_matcher_fails_is_not_asked_for_again_soon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow(monkeypatch, 0.0)
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    asked = []

    async def fails(_requests: Sequence[JobMatchRequest], **_options: Any) -> MatchBatch:
        asked.append(clock.now_s)
        clock.now_s += 30
        raise DeadlinePassed("no answer within 30 s")

    monkeypatch.setattr(bench.graph.fluxion, "match_batch", fails)
    clock.now_s = 6
    assert await estimator.update(backlogs, {}, CycleContext(NOW)) > 0
    assert not bench.graph.call().instance, "what the plan reserved may be in it"
    assert estimator.estimates[bench.row("a").id].eta == START + timedelta(hours=1)
    for clock.now_s in (50, 100, 590, 700):
        await estimator.update(backlogs, {}, CycleContext(NOW))
    assert asked == [6, 700]


async def test_a_shape_that_fits_no_cluster_takes_no_position(bench: Bench) -> None:
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
    await bench.submit(job("b", 1, "1", "1m"))
    backlogs["default"].update([bench.row("b")])
    await estimator.update(backlogs, {}, CycleContext(NOW, unsatisfiable={bench.row("a").shape: None}))  # type: ignore[dict-item]  # only its keys are read
    assert bench.row("a").id not in estimator.estimates
    assert estimator.estimates[bench.row("b").id].position == 1


async def test_work_that_waits_for_a_limit_has_a_position_and_no_estimate(bench: Bench) -> None:
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
    limited = ReasonChange(
        workload=bench.row("a").id, reason=Reason.QUEUE_LIMIT, message="the queue is at a limit"
    )
    await bench.ledger.set_reasons([limited])
    await estimator.update(backlogs, {}, CycleContext(NOW))
    estimate = estimator.estimates[bench.row("a").id]
    assert (estimate.position, estimate.eta) == (1, None)


async def test_work_that_would_be_over_a_limit_at_its_planned_start_has_no_estimate(bench: Bench) -> None:
    estimator = an_estimator(bench)
    await bench.submit(*(job(name, 1, "1", "1h") for name in ("a", "b", "c")))
    rows = [bench.row(name) for name in ("a", "b", "c")]
    quotas = Quotas({"default": QueueLimits(running=2)}, bench.ledger.live())
    await estimator.update({"default": Backlog(rows)}, {}, CycleContext(NOW, quotas=quotas))
    assert [estimator.estimates[each.id].eta for each in rows] == [START + timedelta(hours=1)] * 2 + [None]


async def test_nothing_is_expected_to_start_after_work_without_an_end() -> None:
    async with a_machine() as bench:
        await bench.submit(replace(job("forever", 1, "8"), duration_s=None))
        await bench.cycle()
        assert bench.row("forever").state is State.ALLOCATED
        estimator, backlogs = an_estimator(bench), await waiting(bench, "a")
        await estimator.update(backlogs, {}, CycleContext(NOW))
        assert estimator.estimates[bench.row("a").id].eta is None


async def test_a_former_estimate_goes_once_nothing_is_known_of_the_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow(monkeypatch, 0.0)
    estimator, backlogs = an_estimator(bench), await waiting(bench, "a", "b")
    await estimator.update(backlogs, {}, CycleContext(NOW))
    clock.now_s += 100
    limited = ReasonChange(
        workload=bench.row("a").id, reason=Reason.QUEUE_LIMIT, message="the queue is at a limit"
    )
    await bench.ledger.set_reasons([limited])
    await estimator.update(backlogs, {}, CycleContext(NOW))
    assert [estimator.estimates[bench.row(name).id].eta for name in ("a", "b")] == [
        None,
        START + timedelta(hours=1),
    ]


async def test_work_that_begins_later_starts_no_sooner_if_others_end_early(bench: Bench) -> None:
    estimator, begin_at = an_estimator(bench), START + timedelta(minutes=30)
    conditions = StartConditions(begin_at=begin_at)
    await bench.submit(
        replace(job("b", 1, "1", "1h"), reason=Reason.WAITING_FOR_BEGIN, start_conditions=conditions)
    )
    await estimator.update({}, {}, CycleContext(NOW))
    estimate = estimator.estimates[bench.row("b").id]
    assert (estimate.eta, estimate.eta_soonest) == (begin_at, begin_at)


async def test_starts_teach_how_accurate_estimates_are(bench: Bench) -> None:
    names = [f"w{number}" for number in range(10)]
    estimator = an_estimator(bench)
    await estimator.update(await waiting(bench, *names), {}, CycleContext(NOW))
    for name in names:
        eta = estimator.estimates[bench.row(name).id].eta
        assert eta is not None
        estimator.started([bench.row(name).id], NOW + int((eta - START).total_seconds()) // 2)
    assert estimator.estimate_history.low == pytest.approx(0.5)
