"""Preemption with the matcher in process: who is evicted, for whom, and when nobody is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Requeue
from fluxqueue.queue.model.records import Allocation, NewWorkload, Workload
from fluxqueue.queue.model.victim_views import NO_VICTIM, BudgetShare, Return, VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs
from fluxqueue.queue.scheduling.preemption.trials import Attempt, Gone, PreemptionTrials
from fluxqueue.queue.scheduling.preemption.why_not import WhyNot


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Shown(OnlyJobs):
    """What the cluster shows of workloads, by uid, and the budgets of disruption that select their pods."""

    def __init__(self, **views: VictimView) -> None:
        self._views = views
        self.shares: dict[str, BudgetShare] = {}

    def view(self, workload: Workload, _allocation: Allocation) -> VictimView:
        return self._views.get(workload.uid, VictimView())

    def budgets(self, workload: Workload, _allocation: Allocation) -> Sequence[BudgetShare]:
        return [share] if (share := self.shares.get(workload.uid)) is not None else []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def bench(clock: Clock) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        yield made


async def running(bench: Bench, clock: Clock, *jobs: NewWorkload, released: bool = True) -> None:
    """Let Jobs run, each granted a minute after the one before."""
    for described in jobs:
        clock.now += timedelta(minutes=1)
        await bench.submit(described)
        await bench.cycle()
        row = bench.row(described.uid)
        assert row.jobid is not None
        if released:
            await bench.ledger.mark_released([row.jobid])
            await bench.ledger.mark_started([row.id])


def draining(bench: Bench, names: Sequence[str]) -> str:
    return "".join(name for name in names if bench.row(name).state is State.DRAINING)


async def test_the_youngest_of_the_lowest_priority_is_evicted(bench: Bench, clock: Clock) -> None:
    await running(
        bench, clock, job("a", 2, "8", "1h", priority=5), job("b", 1, "8", "1h"), job("c", 1, "8", "1h")
    )
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "abc") == "c"
    assert bench.row("c").message == (
        "Job default/c (priority 0) was preempted by Job default/urgent (priority 10): "
        "it is requeued and keeps its submit time"
    )


async def test_no_second_victim_is_chosen_while_one_drains(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert draining(bench, "abcd") == "d"


async def test_a_victim_that_never_stops_does_not_end_preemption_for_others(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "abcd") == "d"
    clock.now += timedelta(minutes=4)
    await bench.cycle()
    assert draining(bench, "abcd") == "d"
    clock.now += timedelta(minutes=2)
    await bench.cycle()
    assert draining(bench, "abcd") == "cd"


async def test_no_second_victim_is_chosen_if_the_first_ends_during_a_cycle(
    bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(bench, clock, job("a", 2, "8", "1h", priority=1), job("b", 2, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "ab") == "b"
    ensure = bench.graph.ensure

    async def ensure_and_requeue() -> None:
        await ensure()
        await bench.ledger.requeue([Requeue(workload=bench.row("b").id, reason=Reason.PREEMPTED, message="")])

    with monkeypatch.context() as during:
        during.setattr(bench.graph, "ensure", ensure_and_requeue)
        await bench.cycle()
    assert draining(bench, "a") == ""
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED


async def test_no_work_is_evicted_if_that_does_not_let_the_other_start(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, job("high", 3, "8", "1h", priority=20), job("a", 1, "8", "1h"))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, ["high", "a"]) == ""


async def test_work_that_nobody_creates_again_is_taken_last_and_told_so(bench: Bench, clock: Clock) -> None:
    bench.shown = Shown(b=VictimView(returns=Return.LOST), c=NO_VICTIM)
    kinds = (replace(job(name, 1, "8", "1h"), kind="Pod") for name in "bc")
    await running(bench, clock, job("a", 2, "8", "1h"), *kinds)
    for urgent, evicted in (("u1", "a"), ("u2", "")):
        await bench.submit(job(urgent, 2, "8", "1h", priority=10))
        await bench.cycle()
        assert draining(bench, "abc") == evicted
        if evicted:
            await bench.ledger.requeue(
                [Requeue(workload=bench.row("a").id, reason=Reason.PREEMPTED, message="")]
            )
            await bench.cycle()
            assert bench.row("u1").state is State.ALLOCATED
    await bench.submit(job("u3", 1, "8", "1h", priority=20))
    await bench.cycle()
    assert draining(bench, "abc") == "b"
    assert bench.row("b").message.endswith(": it is evicted and nobody creates it again, so submit it again")


async def test_work_that_a_budget_does_not_allow_is_spared_and_the_next_is_taken(
    bench: Bench, clock: Clock
) -> None:
    shown = Shown()
    shown.shares = {"c": BudgetShare("default", "web", 1, 0), "d": BudgetShare("default", "web", 1, 0)}
    bench.shown = shown
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "abcd") == "b"


async def test_work_that_a_budget_keeps_running_is_looked_at_again(bench: Bench, clock: Clock) -> None:
    shown = Shown()
    shown.shares = {"a": BudgetShare("default", "web", 1, 0)}
    bench.shown = shown
    await running(bench, clock, job("a", 4, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert (draining(bench, "a"), bench.scheduler._phases._preemptor.retry_after_s) == ("", 10)
    shown.shares = {"a": BudgetShare("default", "web", 1, 1)}
    await bench.cycle()
    assert draining(bench, "a") == "a"


async def test_without_a_view_of_the_cluster_only_jobs_are_preempted(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, *(replace(job(name, 1, "8", "1h"), kind="Pod") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "abcd") == ""


@pytest.mark.parametrize(("left_s", "preempted"), [(20, ""), (60, "b")])
async def test_work_that_is_about_to_start_preempts_nothing(
    bench: Bench, clock: Clock, left_s: int, preempted: str
) -> None:
    await running(bench, clock, job("a", 3, "8", "1h", priority=20), job("b", 1, "8", "1h"))
    clock.now += timedelta(minutes=59) - timedelta(seconds=left_s)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, ["b"]) == preempted


@pytest.mark.parametrize(("ahead", "preempted"), [(100, "low"), (101, "")])
async def test_nothing_is_preempted_for_work_behind_more_than_a_hundred(
    bench: Bench, clock: Clock, ahead: int, preempted: str
) -> None:
    bench.other_queues["other"] = Discipline(Policy.EASY)
    await running(bench, clock, job("high", 3, "8", "1h", priority=30), job("low", 1, "8", "1h"))
    await bench.submit(
        *(
            replace(job(f"first-{number}", 4, "8", "1h", priority=20), queue="other")
            for number in range(ahead)
        )
    )
    await bench.submit(job("urgent", 1, "8", "10m", priority=10))
    await bench.cycle()
    assert draining(bench, ["low"]) == preempted


async def test_a_job_that_is_not_released_yet_is_no_victim(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, job("a", 4, "8", "1h"), released=False)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "a") == ""


async def test_a_job_whose_release_is_stored_with_the_next_slots_may_be_a_victim(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"), released=False)
    jobid = bench.row("d").jobid
    assert jobid is not None
    await bench.ledger.note_released([jobid])
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "abcd") == "d"


async def test_work_that_waits_for_its_reservation_keeps_no_other_from_preempting(
    bench: Bench, clock: Clock
) -> None:
    bench.reserve("course", start="2026-11-21T12:00:00", nodes=["n0"])
    await running(bench, clock, job("a", 4, "8", "1h"))
    await bench.submit(
        job("course", 1, "8", "30m", priority=20, reservation="course"),
        job("urgent", 1, "8", "1h", priority=10),
    )
    await bench.cycle()
    assert bench.row("course").reason is Reason.RESERVATION
    assert draining(bench, "a") == "a"


async def test_a_queue_without_preemption_loses_no_work(bench: Bench, clock: Clock) -> None:
    bench.preemption = Preemption.NEVER
    await running(bench, clock, job("a", 4, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "a") == ""


async def test_work_is_spared_until_it_ran_for_its_least_time(bench: Bench, clock: Clock) -> None:
    bench.preemption_rules = PreemptionRules(min_run_seconds=600)
    await running(bench, clock, job("a", 4, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, "a") == ""
    clock.now += timedelta(minutes=10)
    await bench.cycle()
    assert draining(bench, "a") == "a"


async def test_a_victim_with_a_grace_is_evicted_with_its_time_and_planned_to_end_after_it(
    bench: Bench, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=120)
    await running(bench, clock, job("a", 4, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    row = bench.row("a")
    assert row.requeue_state.stop_at == clock.now + timedelta(seconds=120)
    await bench.cycle()
    allocation = bench.ledger.allocation(row.id)
    assert allocation is not None
    assert allocation.end == clock.now + timedelta(seconds=180)


async def test_the_one_that_saved_what_it_has_is_evicted_before_a_younger_one(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, job("saved", 2, "8", "1h"), job("b", 2, "8", "1h"))
    clock.now += timedelta(minutes=5)
    bench.shown = Shown(saved=VictimView(checkpoint=clock.now))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert draining(bench, ["saved", "b"]) == "saved"


async def test_work_that_no_victims_would_help_does_not_keep_the_next_from_preempting(
    bench: Bench, clock: Clock
) -> None:
    await running(
        bench, clock, job("high", 2, "8", "1h", priority=20), job("a", 1, "8", "1h"), job("b", 1, "8", "1h")
    )
    await bench.submit(job("wide", 3, "8", "1h", priority=11))
    await bench.submit(job("urgent", 1, "8", "30m", priority=10))
    await bench.cycle()
    assert draining(bench, ["high", "a", "b"]) == "b"
    assert bench.row("b").message.startswith(
        "Job default/b (priority 0) was preempted by Job default/urgent (priority 10)"
    )


async def test_a_strict_queue_preempts_for_nobody_behind_its_first(bench: Bench, clock: Clock) -> None:
    bench.policy = Policy.FCFS
    await running(
        bench, clock, job("high", 2, "8", "1h", priority=20), job("a", 1, "8", "1h"), job("b", 1, "8", "1h")
    )
    await bench.submit(job("wide", 3, "8", "1h", priority=11))
    await bench.submit(job("urgent", 1, "8", "30m", priority=10))
    await bench.cycle()
    assert draining(bench, ["high", "a", "b"]) == ""


async def test_what_was_tried_in_vain_is_not_tried_again_until_something_is_freed(
    bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(bench, clock, job("high", 3, "8", "1h", priority=20), job("a", 1, "8", "1h"))
    tried: list[str] = []
    nodes = PreemptionTrials.nodes

    async def count(self: PreemptionTrials, attempt: Attempt, victims: Gone, *more: Any) -> frozenset[str]:
        tried.append(attempt.workload.uid)
        return await nodes(self, attempt, victims, *more)

    async def find_nothing(*_: Any) -> None:
        """Do not ask why nothing is preempted."""

    monkeypatch.setattr(PreemptionTrials, "nodes", count)
    monkeypatch.setattr(WhyNot, "find", find_nothing)
    await bench.submit(
        *(job(f"wide{number}", 2 + number % 3, "8", f"{number + 1}h", priority=10) for number in range(10))
    )
    await bench.cycle()
    await bench.cycle()
    assert tried == ["wide0", "wide1", "wide2", "wide3"]


def guarantee(bench: Bench, **nodes: int) -> None:
    """Make the accounts ``physics``, ``bio`` and ``chem``, with so many nodes guaranteed."""
    documents = [
        make_account(name, **({"guaranteed": {"nodes": nodes[name]}} if name in nodes else {}))
        for name in ("physics", "bio", "chem")
    ]
    bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))


def of(account: str, name: str, nodes: int, **more: Any) -> NewWorkload:
    return replace(job(name, nodes, "8", "1h", **more), account=account)


async def test_an_account_takes_back_what_is_guaranteed_to_it_from_one_that_borrows(
    bench: Bench, clock: Clock
) -> None:
    guarantee(bench, physics=2, bio=2)
    await running(bench, clock, of("bio", "b", 2, priority=9), of("chem", "c", 2, priority=9))
    await bench.submit(of("chem", "earlier", 2, priority=20), of("physics", "mine", 1))
    await bench.cycle()
    assert draining(bench, ["b", "c"]) == "c"
    assert bench.row("c").message == (
        "Job default/c was preempted by Job default/mine, "
        "to whose account 'physics' the resources are guaranteed: "
        "it is requeued and keeps its submit time"
    )
    await bench.ledger.requeue([Requeue(workload=bench.row("c").id, reason=Reason.PREEMPTED, message="")])
    await bench.cycle()
    assert bench.row("mine").state is State.ALLOCATED
    assert [bench.row(name).state for name in ("c", "earlier")] == [State.PENDING] * 2


async def test_nothing_is_taken_back_beyond_the_guarantee_or_from_within_another(
    bench: Bench, clock: Clock
) -> None:
    guarantee(bench, physics=2, bio=2)
    await running(bench, clock, of("bio", "b", 2), of("chem", "c", 2))
    await bench.submit(of("physics", "three", 3))
    await bench.cycle()
    assert draining(bench, ["b", "c"]) == ""
    guarantee(bench, physics=4, bio=2)
    await bench.cycle()
    assert draining(bench, ["b", "c"]) == ""


async def test_an_account_that_uses_its_guarantee_takes_nothing_more(bench: Bench, clock: Clock) -> None:
    guarantee(bench, physics=2)
    await running(bench, clock, of("physics", "p", 2), of("chem", "c", 2))
    await bench.submit(of("physics", "more", 1))
    await bench.cycle()
    assert draining(bench, ["p", "c"]) == ""


async def test_of_an_account_no_more_is_taken_once_it_is_within_its_guarantee(
    bench: Bench, clock: Clock
) -> None:
    guarantee(bench, physics=2, bio=2)
    await running(bench, clock, *(of("bio", name, 1) for name in "abcd"))
    await bench.submit(of("physics", "two", 2))
    await bench.cycle()
    assert draining(bench, "abcd") == "cd"


async def test_work_within_a_guarantee_is_not_preempted_for_the_priority_of_another_account(
    bench: Bench, clock: Clock
) -> None:
    guarantee(bench, physics=4)
    await running(bench, clock, of("physics", "p", 4))
    await bench.submit(of("chem", "urgent", 1, priority=10))
    await bench.cycle()
    assert draining(bench, "p") == ""
    await bench.submit(of("physics", "own", 1, priority=10))
    await bench.cycle()
    assert draining(bench, "p") == "p"


async def test_work_of_a_queue_without_preemption_is_not_taken_back(bench: Bench, clock: Clock) -> None:
    bench.preemption = Preemption.NEVER
    guarantee(bench, physics=2)
    await running(bench, clock, of("chem", "c", 4))
    await bench.submit(of("physics", "mine", 1))
    await bench.cycle()
    assert draining(bench, "c") == ""


async def test_covered_work_of_a_queue_without_preemption_takes_from_a_queue_with_it(
    bench: Bench, clock: Clock
) -> None:
    bench.other_queues = {"quiet": Discipline(Policy.EASY)}
    guarantee(bench, physics=2)
    await running(bench, clock, of("chem", "c", 4))
    await bench.submit(replace(of("physics", "mine", 1), queue="quiet"))
    await bench.cycle()
    assert draining(bench, "c") == "c"


async def test_the_least_run_time_and_the_grace_hold_for_what_is_taken_back(
    bench: Bench, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(min_run_seconds=600, grace_seconds=120)
    guarantee(bench, physics=2)
    await running(bench, clock, of("chem", "c", 4))
    await bench.submit(of("physics", "mine", 1))
    await bench.cycle()
    assert draining(bench, "c") == ""
    clock.now += timedelta(minutes=10)
    await bench.cycle()
    assert bench.row("c").requeue_state.stop_at == clock.now + timedelta(seconds=120)


@pytest.mark.parametrize("between", [False, True])
async def test_later_work_takes_no_free_node_that_work_behind_the_first_needs(
    bench: Bench, clock: Clock, between: bool
) -> None:
    """The first has the one reservation of its queue, and nothing helps it. The other has victims. All that
    has none is asked about together, also what comes before the other.
    """
    await running(bench, clock, job("high", 1, "8", "1h", priority=30), job("a", 1, "8", "1h"))
    await running(bench, clock, job("b", 1, "8", "1h", priority=9))
    await bench.submit(job("wide", 4, "8", "1h", priority=20), job("urgent", 2, "8", "30m", priority=10))
    await bench.cycle()
    assert draining(bench, ["high", "a", "b"]) == "a"
    if between:
        await bench.submit(job("between", 3, "7", "1h", priority=15))
    await bench.submit(job("later", 1, "4", "10m", priority=5))
    await bench.cycle()
    assert bench.row("later").state is State.PENDING
    await bench.ledger.requeue([Requeue(workload=bench.row("a").id, reason=Reason.PREEMPTED, message="")])
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED


async def test_work_of_higher_priority_does_not_wait_for_what_others_stop_for(
    bench: Bench, clock: Clock
) -> None:
    """It arrives when the other has its reservation already. Work of equal priority still waits."""
    await running(bench, clock, job("high", 1, "8", "1h", priority=30), job("a", 1, "8", "1h"))
    await running(bench, clock, job("b", 1, "8", "1h", priority=9))
    await bench.submit(job("wide", 4, "8", "1h", priority=20), job("urgent", 2, "8", "30m", priority=10))
    await bench.cycle()
    assert draining(bench, ["high", "a", "b"]) == "a"
    await bench.cycle()
    await bench.submit(job("equal", 1, "4", "20m", priority=10))
    await bench.cycle()
    assert bench.row("equal").state is State.PENDING
    await bench.submit(job("higher", 1, "8", "20m", priority=15))
    await bench.cycle()
    assert bench.row("higher").state is State.ALLOCATED
