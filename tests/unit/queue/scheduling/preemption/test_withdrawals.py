"""Preemption that is withdrawn: what was told to stop goes on, or stops for other work,
if nobody needs its nodes as they did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs
from support.builders import make_pod
from support.elastic_jobs import ShownPods, leaving, moldable, pods_end, started
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.changes import Ending, ReasonChange
from fluxqueue.queue.model.given_back import given_back_message, given_ranks
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.scheduling.preemption.trials import PreemptionTrials
from fluxqueue.queue.store.ledger import Ledger

GRACE_S = 600


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown() -> ShownPods:
    return ShownPods()


@pytest.fixture
async def bench(clock: Clock, shown: ShownPods) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        made.preemption_rules = PreemptionRules(grace_seconds=GRACE_S)
        made.shown = shown
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


async def gone(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.CANCELLED, Outcome.CANCELLED)])


async def held(bench: Bench, name: str) -> None:
    await bench.ledger.set_reasons(
        [ReasonChange(workload=bench.row(name).id, reason=Reason.HELD, message="held")]
    )


async def made_less_important(bench: Bench, name: str) -> None:
    await bench.submit(job(name, 1, "8", "1h", priority=0))


async def in_a_queue_without_preemption(bench: Bench, _name: str) -> None:
    bench.preemption = Preemption.NEVER


async def starts_elsewhere(bench: Bench, name: str) -> None:
    bench.nodes.replace([*bench.nodes.list(), a_node("new")])
    await bench.cycle()
    assert bench.row(name).state is State.ALLOCATED


def states(bench: Bench, names: str) -> str:
    return "".join(name for name in names if bench.row(name).state is State.DRAINING)


async def same_in_a_new_graph(bench: Bench) -> None:
    """Check that the graph is what it becomes if it is filled from the tables."""
    before = await graph_of(bench)
    bench.graph.invalidate()
    await bench.cycle()
    assert await graph_of(bench) == before


async def graph_of(bench: Bench) -> dict[int, tuple[int, tuple[tuple[str, int], ...]]]:
    jobs = await bench.fluxion.list_jobs(call=bench.graph.call(), with_shares=True)
    return {
        each.jobid: (each.end, tuple(sorted((share.node, share.slots["pod"]) for share in each.shares)))
        for each in jobs
    }


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (gone, "the work that it was to make room for is gone"),
        (held, "waits for something else"),
        (starts_elsewhere, "has started on other nodes"),
        (made_less_important, "may not preempt it any more"),
        (in_a_queue_without_preemption, "may not preempt it any more"),
    ],
)
async def test_a_victim_in_its_grace_goes_on_if_the_other_is(
    bench: Bench, clock: Clock, why: object, words: str
) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    planned = bench.ledger.allocation(bench.row("d").id)
    assert planned is not None
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert states(bench, "abcd") == "d"
    assert callable(why)
    await why(bench, "urgent")
    await bench.cycle()
    row = bench.row("d")
    assert (row.state, row.reason, row.message, row.requeues) == (State.RUNNING, Reason.NONE, "", 0)
    assert (row.requeue_state.stop_at, row.requeue_state.preempted_for) == (None, 0)
    history = await bench.store.history(row.id)
    assert (history[-1].before, history[-1].after) == (State.DRAINING, State.RUNNING)
    assert words in history[-1].detail
    assert await bench.store.requeue_reasons(row.id, 10) == [], "it lost no nodes"
    await bench.cycle()
    again = bench.ledger.allocation(row.id)
    assert again is not None
    assert again.end == planned.end
    await same_in_a_new_graph(bench)


async def test_nothing_is_withdrawn_while_it_is_needed_or_after_the_grace(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    for _ in range(3):
        await bench.cycle()
        clock.now += timedelta(seconds=GRACE_S / 4)
    assert states(bench, "abcd") == "d"
    clock.now += timedelta(seconds=GRACE_S)
    await gone(bench, "urgent")
    await bench.cycle()
    assert states(bench, "abcd") == "d", "it is being stopped"


async def test_other_work_takes_over_what_it_needs_and_the_rest_goes_on(bench: Bench, clock: Clock) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert states(bench, "abcd") == "cd"
    stop_at = bench.row("d").requeue_state.stop_at
    await bench.submit(job("next", 1, "8", "1h", priority=5))
    clock.now += timedelta(seconds=60)
    await bench.cycle()
    await gone(bench, "urgent")
    await bench.cycle()
    assert states(bench, "abcd") == "d"
    row = bench.row("d")
    assert (row.requeue_state.stop_at, row.requeue_state.preempted_for) == (stop_at, bench.row("next").id), (
        "at the time that it was told"
    )
    assert "preempted by Job default/next" in row.message
    assert [each.detail for each in await bench.store.requeue_reasons(row.id, 10)] == [row.message]
    await bench.cycle()
    await same_in_a_new_graph(bench)
    await gone(bench, "next")
    await bench.cycle()
    assert states(bench, "abcd") == ""


async def test_work_that_is_more_important_than_the_other_is_not_evicted_for_it_in_the_end(
    bench: Bench, clock: Clock
) -> None:
    """The priority of the work that waits is lowered: the victim would take its nodes back at once."""
    await running(bench, clock, job("a", 4, "8", "1h", priority=3))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert states(bench, "a") == "a"
    await bench.submit(job("urgent", 1, "8", "1h", priority=2))
    await bench.cycle()
    assert states(bench, "a") == ""


async def test_pods_that_were_to_be_given_back_stay_if_the_other_is_gone(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    before = await graph_of(bench)
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert leaving(bench, "wide") == [2, 3]
    await gone(bench, "urgent")
    await bench.cycle()
    row = bench.row("wide")
    assert (leaving(bench, "wide"), row.requeue_state.given_back, row.state) == ([], None, State.RUNNING)
    await bench.cycle()
    assert await graph_of(bench) == before
    await same_in_a_new_graph(bench)


async def test_a_slot_that_ended_meanwhile_stays_given_back(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    await pods_end(bench, shown, "wide", 3)
    await gone(bench, "urgent")
    await bench.cycle()
    row = bench.row("wide")
    assert (leaving(bench, "wide"), given_ranks(row)) == ([], {3})
    assert row.requeue_state.given_back is not None
    assert (
        row.requeue_state.given_back.message
        == "Job default/wide gave 1 of its pods back and goes on with the others"
    )
    await bench.cycle()
    await same_in_a_new_graph(bench)
    assert bench.graph.rebuilds == 2


async def test_other_work_takes_over_pods_that_were_to_be_given_back(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    given = bench.row("wide").requeue_state.given_back
    assert given is not None
    await bench.submit(job("next", 1, "8", "1h", priority=5))
    clock.now += timedelta(seconds=60)
    await bench.cycle()
    await gone(bench, "urgent")
    await bench.cycle()
    again = bench.row("wide").requeue_state.given_back
    assert again is not None
    assert (again.ranks, again.stop_at, again.preempted_for) == ((3,), given.stop_at, bench.row("next").id)
    await bench.cycle()
    await same_in_a_new_graph(bench)
    await pods_end(bench, shown, "wide", 3)
    await bench.cycle()
    assert bench.row("next").state is State.ALLOCATED


async def a_grown_pod(bench: Bench, shown: ShownPods, clock: Clock) -> None:
    """Let a moldable Job of three pods run that has grown by one, minutes later."""
    await started(bench, shown, moldable("wide", 3, 1))
    clock.now += timedelta(minutes=5)
    await started(bench, shown, replace(moldable("grown", 1, 1), kind="Pod", priority=-1_000_000))
    shown.pods["wide"]["grown"] = clock.now
    shown.further["wide"] = ["grown"]


async def test_a_job_that_gave_pods_back_and_then_stops_as_a_whole_has_all_its_grace(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    await bench.submit(job("next", 4, "8", "1h", priority=5))
    clock.now += timedelta(seconds=500)
    await bench.cycle()
    await gone(bench, "urgent")
    await bench.cycle()
    row, stop_at = bench.row("wide"), clock.now + timedelta(seconds=GRACE_S)
    assert row.state is State.DRAINING
    assert row.requeue_state == RequeueState(stop_at=stop_at, preempted_for=bench.row("next").id), (
        "two of its pods were not told before"
    )
    assert f"with a grace until {stop_at:%Y-%m-%dT%H:%M:%SZ}" in row.message
    assert row in await bench.store.live_workloads()
    await bench.cycle()
    await same_in_a_new_graph(bench)
    await gone(bench, "next")
    await bench.cycle()
    assert bench.row("wide").state is State.RUNNING
    await bench.cycle()
    await same_in_a_new_graph(bench)


async def test_a_job_whose_pods_were_all_told_as_it_stopped_gives_some_back_at_that_time(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await a_grown_pod(bench, shown, clock)
    await bench.submit(job("urgent", 4, "8", "1h", priority=10), job("next", 2, "8", "1h", priority=5))
    await bench.cycle()
    await bench.cycle()
    stop_at = clock.now + timedelta(seconds=GRACE_S)
    assert [bench.row(name).state for name in ("wide", "grown")] == [State.DRAINING, State.DRAINING]
    clock.now += timedelta(seconds=500)
    await gone(bench, "urgent")
    await bench.cycle()
    given = bench.row("wide").requeue_state.given_back
    assert given is not None
    assert (leaving(bench, "wide"), bench.row("grown").state) == ([2], State.DRAINING)
    assert [given.stop_at, bench.row("grown").requeue_state.stop_at] == [stop_at, stop_at]
    assert f"with a grace until {stop_at:%Y-%m-%dT%H:%M:%SZ}, " in given.message
    await bench.cycle()
    await same_in_a_new_graph(bench)


async def test_a_pod_by_which_a_job_grew_stops_when_it_was_told_and_a_slot_that_was_not_has_all_the_grace(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await a_grown_pod(bench, shown, clock)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    told, first = bench.row("grown"), clock.now + timedelta(seconds=GRACE_S)
    assert (told.state, told.requeue_state.stop_at) == (State.DRAINING, first)
    clock.now += timedelta(seconds=300)
    await bench.submit(job("next", 1, "8", "1h", priority=5))
    await bench.cycle()
    await gone(bench, "urgent")
    await bench.cycle()
    told = bench.row("grown")
    assert (told.requeue_state.stop_at, told.requeue_state.preempted_for) == (first, bench.row("next").id)
    clock.now += timedelta(seconds=200)
    await bench.submit(job("last", 2, "8", "1h", priority=4))
    await bench.cycle()
    await gone(bench, "next")
    await bench.cycle()
    given, second = bench.row("wide").requeue_state.given_back, clock.now + timedelta(seconds=GRACE_S)
    assert given is not None
    assert (leaving(bench, "wide"), given.stop_at) == ([2], second)
    assert bench.row("grown").requeue_state.stop_at == first
    assert f"with a grace until {second:%Y-%m-%dT%H:%M:%SZ} at the latest, " in given.message


async def test_a_pod_by_which_a_job_grew_and_that_was_not_told_has_all_the_grace(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await a_grown_pod(bench, shown, clock)
    shown.pods["wide"]["wide-2"] = clock.now + timedelta(minutes=1)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    given = bench.row("wide").requeue_state.given_back
    assert (leaving(bench, "wide"), bench.row("grown").state) == ([2], State.RUNNING)
    assert given is not None
    clock.now += timedelta(seconds=300)
    shown.pods["wide"]["grown"] = clock.now
    await bench.submit(job("next", 2, "8", "1h", priority=5))
    await bench.cycle()
    await gone(bench, "urgent")
    await bench.cycle()
    again = bench.row("wide").requeue_state.given_back
    assert again is not None
    assert (leaving(bench, "wide"), again.stop_at) == ([2], given.stop_at)
    assert bench.row("grown").requeue_state.stop_at == clock.now + timedelta(seconds=GRACE_S)


async def test_a_pod_by_which_a_job_grew_goes_on_and_its_job_gave_nothing_back(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await a_grown_pod(bench, shown, clock)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert "gave 1 of its 4 pods back" in given_back_message(bench.row("wide"))
    await gone(bench, "urgent")
    await bench.cycle()
    assert bench.row("grown").state is State.RUNNING
    assert bench.row("wide").requeue_state.given_back is None
    assert bench.row("wide") in await bench.store.live_workloads()


@pytest.mark.parametrize("pods", [1, 4], ids=["given back", "with its Job"])
async def test_a_pod_by_which_a_job_grew_goes_on_if_its_job_may_not_be_preempted_any_more(
    bench: Bench, shown: ShownPods, clock: Clock, pods: int
) -> None:
    await a_grown_pod(bench, shown, clock)
    await bench.submit(job("urgent", pods, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert bench.row("grown").state is State.DRAINING
    await bench.submit(job("urgent", pods, "8", "1h", priority=0))
    await bench.cycle()
    assert [bench.row(name).state for name in ("grown", "wide")] == [State.RUNNING, State.RUNNING]
    assert bench.row("wide").requeue_state == RequeueState()


async def test_a_job_whose_slots_have_ended_goes_on_with_a_pod_by_which_it_grew(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await a_grown_pod(bench, shown, clock)
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert (leaving(bench, "wide"), bench.row("grown").state) == ([2], State.DRAINING)
    await pods_end(bench, shown, "wide", 2)
    await gone(bench, "urgent")
    await bench.cycle()
    assert (bench.row("grown").state, given_ranks(bench.row("wide"))) == (State.RUNNING, {2})
    assert (
        given_back_message(bench.row("wide"))
        == "Job default/wide gave 1 of its pods back and goes on with the others"
    )


async def test_what_a_job_gave_back_stays_said_if_its_pod_has_ended(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await a_grown_pod(bench, shown, clock)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    await gone(bench, "grown")
    for _ in range(2):
        await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED
    assert "gave 1 of its 4 pods back" in given_back_message(bench.row("wide"))


async def test_a_leader_that_ends_after_the_commit_leaves_a_victim_that_goes_on(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await gone(bench, "urgent")
    ids = {bench.row("d").id: "Job default/d goes on"}
    await bench.ledger.evict([], {}, ids)
    other = Ledger(bench.store, bench.ledger.epoch, clock)
    await other.load()
    assert other.contents() == bench.ledger.contents()
    assert bench.row("d").state is State.RUNNING
    await bench.ledger.evict([], {}, ids)
    assert [each.after for each in await bench.store.history(bench.row("d").id)].count(State.RUNNING) == 2, (
        "once more changes nothing"
    )


async def test_a_victim_goes_on_if_more_important_work_comes_that_its_nodes_do_not_help(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, job("a", 3, "8", "1h", priority=20), job("b", 1, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert states(bench, "ab") == "b"
    await bench.submit(job("wide", 4, "8", "1h", priority=15))
    await bench.cycle()
    assert states(bench, "ab") == "", "the nodes would go to nobody before the other ends"
    assert (await bench.store.history(bench.row("b").id))[-1].detail == (
        "Job default/b goes on: Job default/urgent, for which it was to make room, "
        "would not start if it ended"
    )


async def told_beside_a_free_node(bench: Bench, clock: Clock) -> None:
    """Have a Job on one node told to stop for one that needs a free node too."""
    await running(bench, clock, job("a", 2, "8", "1h", priority=20), job("b", 1, "8", "1h"))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert states(bench, "ab") == "b"


async def more_important_work_starts(bench: Bench) -> None:
    await bench.submit(job("w", 1, "8", "10h", priority=30))


async def a_foreign_pod_takes_the_free_node(bench: Bench) -> None:
    foreign = make_pod("foreign").uid("foreign").on_node("n3").cpu("4").phase("Running")
    bench.pods.apply(msgspec.convert(foreign.with_("metadata.resourceVersion", "1").build(), Pod))


@pytest.mark.parametrize("taken", [more_important_work_starts, a_foreign_pod_takes_the_free_node])
async def test_a_victim_goes_on_if_a_free_node_is_taken_that_the_other_needs_too(
    bench: Bench, clock: Clock, taken: Callable[[Bench], Awaitable[None]]
) -> None:
    await told_beside_a_free_node(bench, clock)
    await taken(bench)
    clock.now += timedelta(seconds=5)
    await bench.cycle()
    assert (bench.row("urgent").state, states(bench, "ab")) == (State.PENDING, "")
    assert "would not start" in (await bench.store.history(bench.row("b").id))[-1].detail
    await bench.cycle()
    assert (states(bench, "ab"), bench.graph.rebuilds) == ("", 1)


async def test_a_victim_stops_if_what_takes_the_free_node_has_ended_by_then(
    bench: Bench, clock: Clock
) -> None:
    await told_beside_a_free_node(bench, clock)
    await bench.submit(job("short", 1, "8", "5m"))
    for _ in range(3):
        clock.now += timedelta(seconds=5)
        await bench.cycle()
    assert (bench.row("short").state, states(bench, "ab")) == (State.ALLOCATED, "b")


async def test_a_victim_goes_on_if_the_other_may_not_preempt_the_rest_any_more(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, job("a", 2, "8", "1h", priority=3), job("b", 2, "8", "1h", priority=1))
    await bench.submit(job("urgent", 4, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert states(bench, "ab") == "ab"
    await bench.submit(job("urgent", 4, "8", "1h", priority=2))
    await bench.cycle()
    assert states(bench, "ab") == "b"
    await bench.cycle()
    assert states(bench, "ab") == ""


async def test_more_important_work_that_comes_later_takes_the_victims_over(
    bench: Bench, clock: Clock
) -> None:
    await running(bench, clock, job("a", 3, "8", "1h", priority=20), job("b", 1, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    stop_at = bench.row("b").requeue_state.stop_at
    await bench.submit(job("later", 1, "8", "1h", priority=15))
    clock.now += timedelta(seconds=30)
    await bench.cycle()
    state = bench.row("b").requeue_state
    assert (state.preempted_for, state.stop_at) == (bench.row("later").id, stop_at)


async def test_the_matcher_is_asked_again_only_if_something_changed(
    bench: Bench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(bench, clock, *(job(name, 1, "8", "1h") for name in "abcd"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    asked = 0
    nodes = PreemptionTrials.nodes

    async def counted(*args: Any) -> frozenset[str]:
        nonlocal asked
        asked += 1
        return await nodes(*args)

    monkeypatch.setattr(PreemptionTrials, "nodes", counted)
    for _ in range(3):
        await bench.cycle()
    assert asked == 0
    await bench.submit(job("first", 1, "8", "1h", priority=20))
    await bench.cycle()
    assert asked > 0


async def test_pods_that_are_being_ended_are_not_taken_over(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    row = bench.row("wide")
    given = row.requeue_state.given_back
    assert given is not None
    clock.now += timedelta(seconds=GRACE_S)
    await bench.ledger.evict(
        [], {row.id: structs.replace(given, ranks=(3,))}, {row.id: "Job default/wide goes on"}
    )
    assert bench.row("wide") == row
