"""Moldable Jobs give pods back before anything is evicted, with the matcher in process:
which, and that no other work takes them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.elastic_jobs import ShownPods, held, leaving, moldable, pods_end, started
from support.queue_bench import START, Bench, a_machine, job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import Policy, Preemption, PreemptionRules, QueueLimits
from fluxqueue.api.texts import time_text
from fluxqueue.queue.model.changes import Eviction
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.moldable import planned_duration_s, started_pods
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.model.victim_views import VictimView
from fluxqueue.queue.scheduling.graph.graph_jobs import DRAIN_S, leaving_job
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.preemption import preemptor as preemption
from fluxqueue.queue.scheduling.preemption.elastic_endings import ElasticEndings
from fluxqueue.queue.scheduling.preemption.elastic_work import ElasticWork


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
        made.shown = shown
        yield made


def nodes_of(bench: Bench, name: str) -> list[str]:
    return sorted(slot.node for slot in held(bench, name).open_slots)


async def test_a_job_gives_back_as_few_pods_as_the_other_needs_and_goes_on(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    clock.now += timedelta(minutes=20)
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    row = bench.row("wide")
    assert (row.state, leaving(bench, "wide")) == (State.RUNNING, [2, 3])
    assert row.requeue_state.given_back is not None
    assert row.requeue_state.given_back.message == (
        f"Job default/wide (priority 0) gave 2 of its 4 pods back at {time_text(clock.now)}, "
        "40 node-minutes lost, "
        "so that Job default/urgent (priority 10) starts: it went on with 2"
    )
    assert (started_pods(row), planned_duration_s(row)) == (2, 7200)
    await bench.cycle()
    assert leaving(bench, "wide") == [2, 3], "nothing more is taken while these end"
    reserved = bench.ledger.reservation(bench.row("urgent").id)
    assert reserved is not None
    assert reserved.start <= clock.now + timedelta(minutes=2)
    await pods_end(bench, shown, "wide", 2, 3)
    await bench.cycle()
    assert (nodes_of(bench, "urgent"), nodes_of(bench, "wide")) == (["n2", "n3"], ["n0", "n1"])
    assert leaving(bench, "wide") == []
    assert given_ranks(bench.row("wide")) == {2, 3}


async def test_what_is_given_back_counts_against_limits_until_its_pods_have_ended(
    bench: Bench, shown: ShownPods
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    urgent = bench.row("urgent")

    def refused(cores: int) -> bool:
        return (
            Quotas({urgent.queue: QueueLimits(cores=cores)}, bench.ledger.live()).refusal(urgent) is not None
        )

    assert (leaving(bench, "wide"), refused(47), refused(48)) == ([2, 3], True, False)
    await pods_end(bench, shown, "wide", 3)
    assert (refused(39), refused(40)) == (True, False)
    await pods_end(bench, shown, "wide", 2)
    assert (refused(31), refused(32)) == (True, False)


async def test_no_other_work_takes_what_is_free_before_the_rest(bench: Bench, shown: ShownPods) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    await bench.submit(job("small", 1, "8", "30m"))
    await pods_end(bench, shown, "wide", 3)
    await bench.cycle()
    assert [bench.row(name).state for name in ("urgent", "small")] == [State.PENDING, State.PENDING]
    await pods_end(bench, shown, "wide", 1, 2)
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED


async def test_no_more_is_taken_if_the_pods_end_during_a_cycle(
    bench: Bench, shown: ShownPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    ensure = bench.graph.ensure

    async def ensure_and_end() -> None:
        await ensure()
        await pods_end(bench, shown, "wide", 2, 3)

    with monkeypatch.context() as during:
        during.setattr(bench.graph, "ensure", ensure_and_end)
        await bench.cycle()
    assert (bench.row("wide").state, leaving(bench, "wide")) == (State.RUNNING, [])
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED


async def test_a_job_is_evicted_only_if_what_it_can_spare_does_not_suffice(
    bench: Bench, shown: ShownPods
) -> None:
    await started(bench, shown, moldable("wide", 4, 2))
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    await bench.cycle()
    assert (bench.row("wide").state, leaving(bench, "wide")) == (State.DRAINING, [])


async def test_pods_are_given_back_before_a_younger_job_of_lower_priority_is_evicted(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 3, 1))
    clock.now += timedelta(minutes=20)
    await started(bench, shown, job("rigid", 1, "8", "1h", priority=-1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert (bench.row("rigid").state, leaving(bench, "wide")) == (State.RUNNING, [1, 2])


async def test_what_is_given_back_counts_beside_those_that_are_evicted(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 2, 1))
    clock.now += timedelta(minutes=1)
    await started(bench, shown, job("a", 1, "8", "1h"), job("b", 1, "8", "1h"))
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    await bench.cycle()
    evicted = [name for name in ("wide", "a", "b") if bench.row(name).state is State.DRAINING]
    assert (evicted, leaving(bench, "wide")) == (["a", "b"], [1])


async def test_the_pods_that_lose_least_end(bench: Bench, shown: ShownPods, clock: Clock) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    clock.now += timedelta(minutes=20)
    shown.pods["wide"]["wide-0"] = clock.now
    shown.pods["wide"]["wide-2"] -= timedelta(minutes=5)
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert leaving(bench, "wide") == [0, 3]


async def test_a_pod_that_grew_ends_before_a_slot_that_loses_as_much(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 3, 1))
    grown = replace(moldable("grown", 1, 1), kind="Pod", priority=-1_000_000)
    await started(bench, shown, grown)
    shown.pods["wide"]["grown"] = clock.now
    shown.further["wide"] = ["grown"]
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert (bench.row("grown").state, bench.row("wide").state, leaving(bench, "wide")) == (
        State.DRAINING,
        State.RUNNING,
        [],
    )
    assert re.match(
        r"Job default/wide \(priority 0\) gave 1 of its 4 pods back at .* it went on with 3",
        bench.row("grown").message,
    )


async def test_a_pod_that_grew_and_ends_while_it_is_chosen_breaks_no_cycle(
    bench: Bench, shown: ShownPods, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(bench, shown, moldable("wide", 3, 1))
    await started(bench, shown, replace(moldable("grown", 1, 1), kind="Pod", priority=-1_000_000))
    shown.pods["wide"]["grown"] = clock.now
    shown.further["wide"] = ["grown"]
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    gone, held_by, given_back = bench.row("grown").id, ElasticWork.held, ElasticEndings.given_back

    def given_back_later(self: ElasticEndings, *chosen: Any) -> Any:
        monkeypatch.setattr(
            ElasticWork, "held", lambda self, each: [] if each == gone else held_by(self, each)
        )
        return given_back(self, *chosen)

    monkeypatch.setattr(ElasticEndings, "given_back", given_back_later)
    await bench.cycle()
    assert (bench.row("wide").state, leaving(bench, "wide")) == (State.RUNNING, [])


async def test_a_victim_that_ended_while_its_eviction_was_stored_fails_no_cycle(
    bench: Bench, shown: ShownPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(bench, shown, job("victim", 4, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    in_words = ElasticEndings.in_words

    def in_words_later(self: ElasticEndings, *chosen: Any) -> list[str]:
        monkeypatch.setattr(ElasticWork, "held", lambda *_: [])
        return in_words(self, *chosen)

    monkeypatch.setattr(ElasticEndings, "in_words", in_words_later)
    await bench.cycle()
    assert bench.row("victim").state is State.DRAINING


async def test_the_further_pods_of_a_job_are_free_with_it_and_end_with_it(
    bench: Bench, shown: ShownPods
) -> None:
    await started(bench, shown, job("wide", 2, "8", "1h"))
    await started(bench, shown, replace(job("grown", 1, "8", "1h"), kind="Pod"))
    shown.further["wide"] = ["grown"]
    await bench.submit(job("urgent", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert [bench.row(name).state for name in ("wide", "grown")] == [State.DRAINING, State.DRAINING]


async def test_pods_in_namespaces_without_jobs_are_not_read_as_further_pods(
    bench: Bench, shown: ShownPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(bench, shown, moldable("wide", 2, 1))
    await started(
        bench,
        shown,
        *(
            replace(job(name, 1, "8", "1h", priority=20), kind="Pod", namespace=name)
            for name in ("web", "api")
        ),
    )
    read, shown_view = list[str](), shown.view

    def view(workload: Workload, allocation: Allocation) -> VictimView:
        read.append(workload.uid)
        return shown_view(workload, allocation)

    monkeypatch.setattr(shown, "view", view)
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert (leaving(bench, "wide"), read) == ([1], ["wide"])


async def test_the_graph_is_the_same_after_it_was_filled_again(bench: Bench, shown: ShownPods) -> None:
    await started(bench, shown, moldable("wide", 8, 1, cpu="4"))
    await bench.submit(job("urgent", 1, "4", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    before = await bench.held()
    jobid = held(bench, "wide").jobid
    (node,) = before[leaving_job(jobid)]
    assert before[leaving_job(jobid)] == {node: 1}
    assert sum(before[jobid].values()) == 7
    bench.graph.invalidate()
    await bench.cycle()
    assert await bench.held() == before
    await pods_end(bench, shown, "wide", *leaving(bench, "wide"))
    await bench.cycle()
    after = await bench.held()
    assert leaving_job(jobid) not in after
    assert nodes_of(bench, "urgent") == [node]


async def test_pods_that_take_long_to_end_keep_their_nodes(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    for _ in range(4):
        await bench.cycle()
        clock.now += timedelta(seconds=50)
    assert (bench.row("urgent").state, leaving(bench, "wide")) == (State.PENDING, [3])
    clock.now += timedelta(minutes=6)
    await bench.cycle()
    assert leaving(bench, "wide") == [2, 3], "a pod that does not end is waited for no longer"


async def test_the_grace_and_the_minimum_run_time_hold_for_pods_too(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(min_run_seconds=600, grace_seconds=120)
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert leaving(bench, "wide") == []
    clock.now += timedelta(minutes=10)
    await bench.cycle()
    given = bench.row("wide").requeue_state.given_back
    assert given is not None
    assert given.stop_at == clock.now + timedelta(seconds=120)


async def test_slots_end_after_the_grace_also_in_a_graph_that_was_filled_again(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=300)
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    planned = leaving_job(held(bench, "wide").jobid)
    before = (await bench.graph.fluxion.info(planned, call=bench.graph.call())).end
    assert before == int(clock.now.timestamp()) + 300 + DRAIN_S
    bench.graph.invalidate()
    await bench.cycle()
    assert (await bench.graph.fluxion.info(planned, call=bench.graph.call())).end == before


async def test_what_a_job_gives_back_near_its_end_is_not_planned_beyond_that(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    """The nodes are reserved from the end of the Job on."""
    bench.preemption_rules = PreemptionRules(grace_seconds=300)
    await started(bench, shown, moldable("wide", 4, 1, duration="10m"))
    clock.now += timedelta(minutes=7)
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert leaving(bench, "wide") == [1, 2, 3]
    stat = await bench.graph.fluxion.stat(per_node=True, call=bench.graph.call())
    assert [use.node for use in stat.node_use if use.closed] == []
    assert bench.graph.rebuilds == 1


async def test_a_slot_that_ends_beside_one_that_is_given_back_loses_no_graph(
    bench: Bench, shown: ShownPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(bench, shown, moldable("wide", 8, 1, cpu="4"))
    await bench.submit(job("urgent", 1, "4", "1h", priority=10))
    await bench.cycle()
    (given,) = leaving(bench, "wide")
    slots = held(bench, "wide").slots
    (beside,) = (slot.rank for slot in slots if slot.node == slots[given].node and slot.rank != given)
    ensure = bench.graph.ensure

    async def ensure_and_end() -> None:
        await ensure()
        await pods_end(bench, shown, "wide", beside)

    with monkeypatch.context() as during:
        during.setattr(bench.graph, "ensure", ensure_and_end)
        await bench.cycle()
    await pods_end(bench, shown, "wide", given)
    await bench.cycle()
    assert (bench.graph.rebuilds, bench.row("urgent").state) == (1, State.ALLOCATED)
    assert sum((await bench.held())[held(bench, "wide").jobid].values()) == 6


async def test_a_job_whose_given_pods_do_not_end_is_evicted_with_their_nodes(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, moldable("wide", 4, 1))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    clock.now += timedelta(minutes=7)
    await bench.submit(job("all", 4, "8", "1h", priority=20))
    await bench.cycle()
    assert bench.row("wide").state is State.DRAINING


async def test_a_job_of_which_only_given_slots_are_left_loses_no_graph(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=300)
    await started(bench, shown, moldable("wide", 4, 1, duration="4m"))
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    await pods_end(bench, shown, "wide", 0)
    await bench.cycle()
    clock.now += timedelta(minutes=4)
    await bench.cycle()
    await bench.ledger.evict(
        [Eviction(workload=bench.row("wide").id, reason=Reason.NODES_UNAVAILABLE, message="")]
    )
    await bench.cycle()
    assert (bench.graph.rebuilds, leaving(bench, "wide")) == (1, [1, 2, 3])


async def test_the_nodes_of_the_pods_that_lose_least_together_are_taken(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    """Each of two nodes has a young pod and an old one, two others have pods of an age between."""
    await started(bench, shown, moldable("wide", 8, 1, cpu="4"))
    clock.now += timedelta(minutes=60)
    slots = held(bench, "wide").slots
    minutes = {"n0": [1, 50], "n1": [20, 20], "n2": [50, 2], "n3": [21, 21]}
    for slot in slots:
        shown.pods["wide"][f"wide-{slot.rank}"] = clock.now - timedelta(minutes=minutes[slot.node].pop())
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    assert {slots[rank].node for rank in leaving(bench, "wide")} == {"n1", "n3"}
    assert len(leaving(bench, "wide")) == 4


async def test_elastic_work_gives_pods_back_beyond_all_whole_work_that_is_searched(
    bench: Bench, shown: ShownPods, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "_MOST_CANDIDATES", 1)
    await started(bench, shown, moldable("wide", 2, 1))
    clock.now += timedelta(minutes=20)
    await started(bench, shown, job("young", 2, "8", "1h"))
    await bench.submit(job("urgent", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert (bench.row("young").state, leaving(bench, "wide")) == (State.RUNNING, [1])


async def test_it_is_tried_again_once_elastic_work_beyond_that_has_run_enough(
    bench: Bench, shown: ShownPods, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "_MOST_CANDIDATES", 1)
    bench.preemption_rules = PreemptionRules(min_run_seconds=600)
    await started(bench, shown, job("young", 1, "8", "1h"))
    clock.now += timedelta(minutes=5)
    await started(bench, shown, moldable("wide", 3, 1))
    clock.now += timedelta(minutes=5)
    await bench.submit(job("urgent", 2, "8", "1h", priority=10))
    await bench.cycle()
    await bench.cycle()
    assert leaving(bench, "wide") == []
    clock.now += timedelta(minutes=5)
    await bench.cycle()
    assert (bench.row("young").state, leaving(bench, "wide")) == (State.RUNNING, [1, 2])


async def test_work_is_told_for_what_it_waits_since_when_and_until_when_at_most(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    bench.preemption_rules = PreemptionRules(grace_seconds=120)
    await started(bench, shown, moldable("wide", 2, 1))
    clock.now += timedelta(minutes=20)
    await started(bench, shown, job("a", 1, "8", "1h"), job("b", 1, "8", "1h"))
    await bench.submit(job("urgent", 3, "8", "1h", priority=10))
    begun = clock.now
    await bench.cycle()
    words = (
        "; it waits for Job default/a, Job default/b and 1 pod of Job default/wide to end, "
        f"since {time_text(begun)}, "
        f"at most until {time_text(begun + timedelta(seconds=420))}: 20 node-minutes lost"
    )
    told = bench.row("urgent").message
    assert sorted(
        told.partition("; it waits for ")[2].split(" to end")[0].replace(" and ", ", ").split(", ")
    ) == [
        "1 pod of Job default/wide",
        "Job default/a",
        "Job default/b",
    ]
    assert told.partition(" to end")[2] == words.partition(" to end")[2]
    clock.now += timedelta(seconds=60)
    await bench.cycle()
    assert bench.row("urgent").message.partition(" to end")[2] == words.partition(" to end")[2], (
        "until it is over"
    )
    clock.now += timedelta(seconds=361)
    bench.preemption = Preemption.NEVER
    await bench.cycle()
    assert "it waits for" not in bench.row("urgent").message
