"""Owners of which only the last pods can go: what they can spare ends from the last pod on,
with the matcher in process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import pytest
from support.elastic_jobs import ShownPods, held, leaving, replicas, started
from support.queue_bench import START, Bench, a_machine, a_node, job
from support.queue_builders import EPOCH, a_workload, an_allocation
from support.recording_ledger import RecordingLedger
from support.work_counts import assert_linear

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import Policy, Preemption
from fluxqueue.queue.model.given_back import given_ranks
from fluxqueue.queue.model.records import SlotState
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.preemption.elastic_victims import ElasticVictims
from fluxqueue.queue.scheduling.preemption.possible_victims import PossibleVictims


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
    made = ShownPods()
    made.least["brokers"] = 2
    made.in_order |= {"brokers", "web"}
    return made


@pytest.fixture
async def bench(clock: Clock, shown: ShownPods) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy, made.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
        made.shown = shown
        yield made


def ending(bench: Bench) -> list[str]:
    return sorted(row.name for row in bench.ledger.all() if row.state is State.DRAINING)


async def urgent(bench: Bench, pods: int, cpu: str = "8") -> None:
    await bench.submit(job("urgent", pods, cpu, "1h", priority=10))
    await bench.cycle()


async def test_brokers_of_the_highest_ranks_end_though_another_lost_less(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    await started(bench, shown, job("brokers", 4, "8", "1h"))
    clock.now += timedelta(minutes=5)
    shown.pods["brokers"]["brokers-1"] = clock.now
    await urgent(bench, 1)
    assert leaving(bench, "brokers") == [3]
    assert bench.row("brokers").state is State.RUNNING


async def test_no_more_brokers_end_than_leave_their_least(bench: Bench, shown: ShownPods) -> None:
    await started(bench, shown, job("brokers", 4, "8", "1h"))
    await urgent(bench, 3)
    assert (leaving(bench, "brokers"), ending(bench)) == ([], ["brokers"]), "it is preempted as a whole"


async def test_what_was_given_back_is_no_candidate_again(bench: Bench, shown: ShownPods) -> None:
    await started(bench, shown, job("brokers", 4, "8", "1h"))
    await urgent(bench, 1)
    await bench.ledger.end_slots([(held(bench, "brokers").jobid, 3)])
    del shown.pods["brokers"]["brokers-3"]
    await bench.cycle()
    await bench.submit(job("again", 1, "8", "1h", priority=10))
    await bench.cycle()
    assert (leaving(bench, "brokers"), given_ranks(bench.row("brokers"))) == ([2], {2, 3})


async def test_all_after_a_pod_go_with_it_where_only_its_node_helps(
    bench: Bench, shown: ShownPods, clock: Clock
) -> None:
    """The big node is that of the third pod: the fourth one has to go before it."""
    bench.nodes.replace([a_node("m0"), a_node("m1"), a_node("m2", "16"), a_node("m3")])
    for each in replicas(shown, "web", 4, 2):
        await started(bench, shown, each)
    where = {name: held(bench, name).slots[0].node for name in ("web-0", "web-1", "web-2", "web-3")}
    assert where["web-2"] == "m2"
    await urgent(bench, 1, "16")
    assert ending(bench) == ["web-2", "web-3"]


async def test_ordinals_end_from_the_last_one_on(bench: Bench, shown: ShownPods, clock: Clock) -> None:
    for each in replicas(shown, "web", 4, 1):
        await started(bench, shown, each)
    clock.now += timedelta(minutes=5)
    shown.pods["web-1"] = {"web-1-0": clock.now}
    await urgent(bench, 2)
    assert ending(bench) == ["web-2", "web-3"]
    assert " gave 2 of its 4 pods back " in bench.row("web-2").message


def test_what_many_brokers_can_spare_is_found_in_proportion_to_their_number() -> None:
    def prepare(brokers: int) -> Callable[[], object]:
        shown = ShownPods()
        shown.least["brokers"] = 1
        shown.in_order.add("brokers")
        uids = [f"brokers-{rank}" for rank in range(brokers)]
        shown.pods["brokers"] = dict.fromkeys(uids, EPOCH)
        row = a_workload("brokers", uid="brokers", state=State.RUNNING, jobid=7, pods=brokers)
        nodes = [f"n{rank}" for rank in range(brokers)]
        allocation = an_allocation(nodes, states=[SlotState.TAKEN] * brokers, pods=uids)
        ledger = RecordingLedger((row, allocation))
        victims_of = PossibleVictims(EPOCH, {row.queue: Discipline()}, shown)
        elastic = ElasticVictims(ledger, shown, victims_of)
        candidate = victims_of.candidate(row, allocation)
        assert len(elastic.parts([candidate])) == brokers - 1
        return lambda: elastic.parts([candidate])

    assert_linear(prepare)


def test_nothing_before_the_last_slot_ends_as_that_stays() -> None:
    """A Job is known by its slots: three of four brokers were matched alone."""
    shown = ShownPods()
    shown.least["brokers"] = 2
    shown.in_order.add("brokers")
    row = a_workload("brokers", uid="brokers", state=State.RUNNING, jobid=7, pods=4)
    ledger = RecordingLedger((row, allocation := an_allocation(["n3"], pods=["b3"])))
    shown.further["brokers"] = ["b0", "b1", "b2"]
    shown.pods["brokers"] = dict.fromkeys(["b0", "b1", "b2", "b3"], EPOCH)
    for number, uid in enumerate(shown.further["brokers"]):
        pod = a_workload(uid, uid=uid, kind="Pod", state=State.RUNNING, jobid=8 + number)
        ledger.put(pod, an_allocation([f"n{number}"], jobid=8 + number, pods=[uid]))
    victims_of = PossibleVictims(EPOCH, {row.queue: Discipline()}, shown)
    elastic = ElasticVictims(ledger, shown, victims_of)
    assert elastic.parts([victims_of.candidate(row, allocation)]) == []
