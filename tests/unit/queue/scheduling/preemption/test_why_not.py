"""What the first that wait are told when nothing is preempted for them."""

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
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Allocation, NewWorkload, Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.victim_views import BudgetShare, Floor, VictimView
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.possible_victims import OnlyJobs
from fluxqueue.queue.scheduling.preemption.trials import PreemptionTrials

HELD = "; nothing is preempted for it: nodes that it needs are held by "


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Shown(OnlyJobs):
    """What the cluster shows of workloads, by uid: a view, or how many of its pods a budget selects that
    allows one to be disrupted.
    """

    def __init__(self, **views: VictimView | int) -> None:
        self._views = views

    def view(self, workload: Workload, _allocation: Allocation) -> VictimView:
        view = self._views.get(workload.uid)
        return view if isinstance(view, VictimView) else VictimView()

    def budgets(self, workload: Workload, _allocation: Allocation) -> Sequence[BudgetShare]:
        pods = self._views.get(workload.uid)
        return [BudgetShare("default", "web", pods, 1)] if isinstance(pods, int) else []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def bench(clock: Clock) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        yield made


async def running(bench: Bench, clock: Clock, *jobs: NewWorkload) -> None:
    """Let Jobs run, each granted a minute after the one before."""
    for described in jobs:
        clock.now += timedelta(minutes=1)
        await bench.submit(described)
        await bench.cycle()
        row = bench.row(described.uid)
        assert row.jobid is not None
        await bench.ledger.mark_released([row.jobid])
        await bench.ledger.mark_started([row.id])


async def told(bench: Bench, *jobs: NewWorkload) -> str:
    """Submit Jobs, run a cycle, and return what the first of them is told of who holds nodes."""
    await bench.submit(*jobs)
    await bench.cycle()
    return said(bench, jobs[0].uid)


def said(bench: Bench, name: str) -> str:
    row = bench.row(name)
    assert (row.state, row.reason) == (State.PENDING, Reason.WAITING_FOR_NODES)
    return row.message.partition(HELD)[2]


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


URGENT = job("urgent", 2, "8", "1h", priority=10)


async def test_the_first_few_are_told_one_after_the_other(bench: Bench, clock: Clock) -> None:
    await running(
        bench, clock, job("high", 2, "8", "1h", priority=20), job("like", 2, "8", "1h", priority=10)
    )
    assert await told(
        bench, job("wide", 3, "8", "30m", priority=10), job("small", 1, "8", "30m", priority=10)
    ) == ("Job default/like (of equal priority) and Job default/high (of higher priority)")
    assert said(bench, "small") == ""
    await bench.cycle()
    assert said(bench, "small") == "Job default/like (of equal priority)"


@pytest.mark.parametrize(("ahead", "why"), [(8, "Job default/a (of equal priority)"), (9, "")])
async def test_only_those_with_few_before_them_are_told(
    bench: Bench, clock: Clock, ahead: int, why: str
) -> None:
    bench.other_queues["other"] = Discipline(Policy.EASY)
    await running(bench, clock, job("a", 4, "8", "1h", priority=10))
    await bench.submit(
        *(
            replace(job(f"first-{number}", 3, "8", "1h", priority=20), queue="other")
            for number in range(ahead)
        )
    )
    assert await told(bench, job("short", 1, "8", "10m", priority=10)) == why


async def test_what_may_be_preempted_is_not_named(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, job("high", 3, "8", "1h", priority=20), job("low", 1, "8", "1h"))
    assert await told(bench, URGENT) == "Job default/high (of higher priority)"
    assert bench.row("low").state is State.RUNNING


async def test_the_least_important_that_would_suffice_is_named(bench: Bench, clock: Clock) -> None:
    bench.preemption_rules = PreemptionRules(min_run_seconds=3600)
    await running(bench, clock, job("like", 2, "8", "1h", priority=10), job("low", 2, "8", "2h"))
    assert await told(bench, URGENT) == "Job default/low (in its minimum run time until 2026-11-21T09:02:00Z)"


async def test_a_few_are_named_and_the_rest_is_counted(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h", priority=10) for name in "abcd"))
    assert await told(bench, job("wide", 4, "8", "1h", priority=10)) == (
        "Job default/d (of equal priority), Job default/c (of equal priority), "
        "Job default/b (of equal priority) and 1 more"
    )


async def test_work_of_other_namespaces_is_not_named(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, *(job(name, 2, "8", "1h", priority=10, namespace=name) for name in "ab"))
    assert (
        await told(bench, job("wide", 4, "8", "1h", priority=10))
        == "work of another namespace (of equal priority) and 1 more"
    )


async def test_work_of_a_queue_without_preemption_is_named_as_such(bench: Bench, clock: Clock) -> None:
    bench.other_queues["quiet"] = Discipline(Policy.EASY)
    await running(bench, clock, replace(job("a", 4, "8", "1h"), queue="quiet"))
    assert await told(bench, URGENT) == "Job default/a (in a queue without preemption)"


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (VictimView("whose owner may not be suspended"), "whose owner may not be suspended"),
        (2, "whose budgets of disruption allow no eviction now"),
    ],
)
async def test_what_the_cluster_does_not_allow_is_said(
    bench: Bench, clock: Clock, view: VictimView | int, why: str
) -> None:
    bench.shown = Shown(a=view)
    await running(bench, clock, job("a", 4, "8", "1h"))
    assert await told(bench, URGENT) == f"Job default/a ({why})"


async def test_work_that_is_guaranteed_its_nodes_is_named(bench: Bench, clock: Clock) -> None:
    documents = [
        make_account("bio", guaranteed={"nodes": 4}),
        make_account("physics", guaranteed={"nodes": 2}),
    ]
    bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))
    await running(bench, clock, replace(job("b", 4, "8", "1h"), account="bio"))
    assert (
        await told(bench, replace(URGENT, account="physics"))
        == "Job default/b (within what is guaranteed to its account)"
    )


async def test_nothing_is_said_where_nothing_that_runs_is_the_cause(bench: Bench, clock: Clock) -> None:
    bench.other_queues["quiet"] = Discipline(Policy.EASY)
    await running(bench, clock, job("a", 4, "8", "1h", priority=20))
    waiting = (
        job("never", 9, "8", "1h", priority=10),
        replace(job("quiet", 4, "8", "1h", priority=10), queue="quiet"),
    )
    await bench.submit(*waiting)
    await bench.cycle()
    assert all("preempted" not in bench.row(each.uid).message for each in waiting)


async def test_it_is_withdrawn_when_it_is_not_so_any_more(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, job("a", 2, "8", "1h", priority=20), job("b", 2, "8", "1h", priority=30))
    assert await told(bench, job("wide", 4, "8", "1h", priority=10)) == (
        "Job default/a (of higher priority) and Job default/b (of higher priority)"
    )
    await end(bench, "a")
    await bench.cycle()
    assert said(bench, "wide") == ""
    clock.now += timedelta(seconds=10)
    await bench.cycle()
    assert said(bench, "wide") == "Job default/b (of higher priority)"
    bench.preemption = Preemption.NEVER
    await bench.cycle()
    assert said(bench, "wide") == ""


async def test_it_is_withdrawn_from_work_for_which_something_is_preempted(bench: Bench, clock: Clock) -> None:
    bench.preemption_rules = PreemptionRules(min_run_seconds=600)
    await running(bench, clock, job("a", 4, "8", "1h"))
    assert await told(bench, URGENT) == "Job default/a (in its minimum run time until 2026-11-21T08:11:00Z)"
    clock.now += timedelta(minutes=10)
    await bench.cycle()
    assert bench.row("a").state is State.DRAINING
    assert said(bench, "urgent") == ""


async def test_it_stays_as_it_is_from_cycle_to_cycle_and_a_new_leader_withdraws_what_it_does_not_know(
    bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(bench, clock, job("a", 4, "8", "1h", priority=20))
    assert await told(bench, URGENT) == "Job default/a (of higher priority)"
    before = bench.row("urgent").message
    written: list[Any] = []
    set_reasons = bench.store.set_reasons

    async def write(*args: Any, **more: Any) -> Any:
        written.append(args)
        return await set_reasons(*args, **more)

    monkeypatch.setattr(bench.store, "set_reasons", write)
    for _ in range(3):
        clock.now += timedelta(seconds=20)
        await bench.cycle()
    assert bench.row("urgent").message == before
    assert written == []


async def test_a_workload_is_looked_at_once_in_ten_seconds_however_much_changes(
    bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(
        bench,
        clock,
        job("a", 2, "8", "1h", priority=20),
        *(job(name, 1, "8", "1h", priority=10) for name in "bc"),
    )
    tried: list[int] = []
    nodes = PreemptionTrials.nodes

    async def count(self: PreemptionTrials, *args: Any) -> frozenset[str]:
        tried.append(1)
        return await nodes(self, *args)

    monkeypatch.setattr(PreemptionTrials, "nodes", count)
    assert await told(bench, job("wide", 4, "8", "1h", priority=10)) != ""
    first = len(tried)
    assert 0 < first <= 16
    await end(bench, "b")
    await bench.submit(job("d", 1, "8", "1h", priority=20))
    await bench.cycle()
    assert len(tried) == first


async def test_nobody_is_named_where_a_reservation_begins_too_soon_for_victims_to_end(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, job("low", 2, "8", "30m"), job("high", 2, "8", "30m", priority=20))
    begins = clock.now + timedelta(hours=1, seconds=30)  # the victims may take a minute to end
    bench.reserve("course", start=begins.strftime("%Y-%m-%dT%H:%M:%S"), nodes=["n0", "n1", "n2", "n3"])
    assert await told(bench, URGENT) == ""
    assert bench.row("low").state is State.RUNNING


async def test_nobody_is_named_where_what_may_end_only_as_a_whole_is_in_the_way(
    bench: Bench, clock: Clock
) -> None:
    owner = ReplicaOwner("default", "PyTorchJob", "train")
    bench.shown = Shown(worker=VictimView(floor=Floor(owner, 1, "worker", as_whole=True)))
    await running(bench, clock, job("worker", 2, "8", "1h"), job("high", 2, "8", "1h", priority=20))
    assert await told(bench, URGENT) == ""
    assert bench.row("worker").state is State.RUNNING
