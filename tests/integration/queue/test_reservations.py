"""Reservations in whole cycles: how they are made, kept, moved, explained,
and restored by the next leader.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.builders import make_job, make_node
from support.queue_bench import Bench, a_leader, a_node, job
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import BackfillDurations, FluxQueueSpec, Planning, Policy, ReservedNodes
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import JobMode
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import NewWorkload, Reservation
from fluxqueue.queue.model.users import programs_of
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline, disciplines_of
from fluxqueue.queue.scheduling.policies.passes import CycleContext
from fluxqueue.queue.scheduling.reservations.estimates import StartEstimator, nothing_published
from fluxqueue.queue.store import Store

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(4)])
    return cache


@pytest.fixture
async def bench(
    store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion, clock: Clock
) -> AsyncIterator[Bench]:
    async with a_leader(store, nodes, fluxion, clock) as made:
        made.policy = Policy.EASY
        yield made


def reservation(bench: Bench, name: str) -> Reservation:
    held = bench.ledger.reservation(bench.row(name).id)
    assert held is not None
    return held


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


async def test_the_blocked_head_gets_a_reservation_and_only_shorter_work_is_backfilled(bench: Bench) -> None:
    await bench.submit(
        job("wide", 3, "8", "1h"),
        job("all", 4, "8", "1h"),
        job("long", 1, "8", "2h"),
        job("short", 1, "8", "30m"),
    )
    await bench.cycle()
    assert reservation(bench, "all").start == START + timedelta(hours=1)
    assert {share.node for share in reservation(bench, "all").shares} == {"n0", "n1", "n2", "n3"}
    assert bench.row("short").state is State.ALLOCATED
    assert bench.row("long").reason in (Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION)
    assert "2026-11-21T09:00:00Z" in bench.row("all").message


async def test_the_reason_of_work_behind_a_reservation_names_its_holder(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"), job("long", 1, "8", "2h"))
    await bench.cycle()
    assert bench.row("long").reason is Reason.BLOCKED_BY_RESERVATION
    assert "reserved for Job default/all from 2026-11-21T09:00:00Z on" in bench.row("long").message


async def test_the_reason_of_work_behind_a_reservation_names_no_work_of_another_namespace(
    bench: Bench,
) -> None:
    others = [
        job(name, pods, "8", "1h", namespace="b") for name, pods in (("wide", 3), ("secret-project", 4))
    ]
    await bench.submit(*others, job("long", 1, "8", "2h"))
    await bench.cycle()
    assert bench.row("long").reason is Reason.BLOCKED_BY_RESERVATION
    assert "reserved for work of another namespace from 2026-11-21T09:00:00Z on" in bench.row("long").message
    assert "secret-project" not in bench.row("long").message


async def test_reserved_work_starts_on_its_nodes_and_the_reservation_is_deleted(
    bench: Bench, clock: Clock
) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    clock.advance(hours=1)
    await end(bench, "wide")
    await bench.cycle()
    assert (bench.row("all").state, bench.row("all").hosts) == (State.ALLOCATED, "n[0-3]")
    assert await bench.store.reservations() == []


async def test_an_early_end_moves_the_start_forward_and_the_first_start_is_kept(
    bench: Bench, clock: Clock
) -> None:
    await bench.submit(job("a", 2, "8", "2h"), job("b", 2, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    assert reservation(bench, "all").start == START + timedelta(hours=2)
    clock.advance(minutes=5)
    await end(bench, "a")
    await bench.cycle()
    (stored,) = await bench.store.reservations()
    assert (stored.first_start, stored.start) == (START + timedelta(hours=2), START + timedelta(hours=1))


async def test_conservative_reserves_up_to_the_depth(bench: Bench) -> None:
    bench.policy = Policy.CONSERVATIVE
    await bench.submit(job("now", 4, "8", "1h"), *(job(f"w{number}", 4, "8", "1h") for number in range(3)))
    await bench.cycle()
    assert [reservation(bench, f"w{number}").start - START for number in range(3)] == [
        timedelta(hours=hours) for hours in (1, 2, 3)
    ]


async def test_a_reservation_leaves_what_is_free_to_others_if_its_queue_says_so(
    bench: Bench, clock: Clock
) -> None:
    planning = Planning(reserved_nodes=ReservedNodes.FREE_LAST)
    bench.other_queues = {"default": Discipline(Policy.EASY, planning=planning)}
    await bench.submit(job("short", 1, "8", "1h"), job("rest", 3, "8", "2h"))
    await bench.cycle()
    clock.advance(minutes=5)
    await end(bench, "short")
    await bench.submit(job("wide", 3, "8", "1h"), job("long", 1, "8", "9h"))
    await bench.cycle()
    assert reservation(bench, "wide").start == START + timedelta(hours=2)
    assert bench.row("long").state is State.ALLOCATED


PREDICTING = Discipline(Policy.EASY, planning=Planning(backfill_durations=BackfillDurations.PREDICTED))


async def short_runs(bench: Bench, clock: Clock) -> None:
    """Have two Jobs end that stated an hour.
    Postgres notes starts by its own clock, so they ran for less than a minute there.
    """
    await bench.submit(job("one", 1, "8", "1h"), job("two", 1, "8", "1h"))
    await bench.cycle()
    await bench.ledger.mark_started([bench.row(name).id for name in ("one", "two")])
    clock.advance(minutes=10)
    await end(bench, "one")
    await end(bench, "two")


async def test_work_that_is_predicted_to_end_before_a_reservation_backfills(
    bench: Bench, clock: Clock
) -> None:
    bench.other_queues = {"default": PREDICTING}
    await short_runs(bench, clock)
    began = clock()
    await bench.submit(job("base", 2, "8", "1h"), job("wide", 4, "8", "1h"), job("next", 2, "8", "3h"))
    await bench.cycle()
    assert reservation(bench, "wide").start == began + timedelta(hours=1)
    allocation = bench.ledger.allocation(bench.row("next").id)
    assert allocation is not None
    assert allocation.end == began + timedelta(minutes=1), "it stated three hours"
    await bench.cycle()
    allocation = bench.ledger.allocation(bench.row("next").id)
    assert allocation is not None
    assert allocation.end == began + timedelta(hours=1), "up to the reservation nothing is in its way"
    clock.advance(hours=1, seconds=1)
    await end(bench, "base")
    await bench.cycle()
    assert reservation(bench, "wide").start == began + timedelta(hours=3), (
        "it is promised by what was stated again"
    )
    assert "runs longer than predicted" in (await bench.store.reservations())[0].cause


async def test_a_new_leader_predicts_from_the_tables(
    bench: Bench, store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion, clock: Clock
) -> None:
    await short_runs(bench, clock)
    assert [key for key, _ in await store.last_run_times()] == [(programs_of("default"), "", "default")] * 2
    async with a_leader(store, nodes, fluxion, clock) as second:
        second.other_queues = {"default": PREDICTING}
        await second.submit(job("base", 2, "8", "1h"), job("wide", 4, "8", "1h"), job("next", 2, "8", "3h"))
        await second.cycle()
        assert second.row("next").state is State.ALLOCATED


async def test_no_prediction_runs_into_what_is_set_aside_for_people(bench: Bench, clock: Clock) -> None:
    bench.other_queues = {"default": PREDICTING}
    await short_runs(bench, clock)
    start = clock() + timedelta(hours=1)
    bench.reserve(
        "works",
        start=start.isoformat(),
        end=(start + timedelta(hours=1)).isoformat(),
        maintenance=True,
        nodes={"count": 4},
    )
    await bench.submit(job("base", 2, "8", "50m"), job("wide", 4, "8", "1h"), job("next", 2, "8", "3h"))
    await bench.cycle()
    assert bench.row("next").state is State.PENDING


async def test_hybrid_reserves_for_the_first_few(bench: Bench) -> None:
    bench.other_queues = {"default": Discipline(Policy.HYBRID, 2)}
    await bench.submit(job("now", 4, "8", "1h"), *(job(f"w{number}", 4, "8", "1h") for number in range(3)))
    await bench.cycle()
    stored = {each.workload for each in await bench.store.reservations()}
    assert stored == {bench.row(f"w{number}").id for number in range(2)}


async def test_the_next_leader_keeps_the_reservations(
    bench: Bench, store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion, clock: Clock
) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    before = reservation(bench, "all")
    async with a_leader(store, nodes, fluxion, clock) as second:
        second.policy = Policy.EASY
        await second.submit(job("long", 1, "8", "2h"))
        await second.cycle()
        assert reservation(second, "all") == before
        assert second.row("long").state is State.PENDING
        modes = {job.jobid: job.mode for job in await fluxion.list_jobs(call=second.graph.call())}
        assert modes[before.jobid] is JobMode.RESERVED


async def test_an_overrun_moves_the_reservation_on_its_nodes_with_its_cause(
    bench: Bench, clock: Clock
) -> None:
    await bench.submit(job("late", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    clock.advance(hours=1, seconds=1)
    await bench.cycle()
    (_, allocation), *_ = bench.ledger.live()
    assert allocation.end == START + timedelta(hours=1, minutes=6)
    moved = reservation(bench, "all")
    assert moved.start == START + timedelta(hours=1, minutes=6)
    assert moved.first_start == START + timedelta(hours=1)
    assert "Job default/late runs beyond its stated duration" in moved.cause


async def test_work_of_higher_priority_comes_before_a_reservation(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    await bench.submit(job("urgent", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert reservation(bench, "urgent").start == START + timedelta(hours=1)
    assert bench.ledger.reservation(bench.row("all").id) is None
    assert bench.ledger.first_start(bench.row("all").id) == START + timedelta(hours=1)


async def test_cancelled_work_leaves_no_reservation(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"), job("long", 1, "8", "2h"))
    await bench.cycle()
    await bench.ledger.finish([Ending(bench.row("all").id, State.CANCELLED, Outcome.CANCELLED)])
    await bench.cycle()
    assert bench.row("long").state is State.ALLOCATED
    assert await bench.store.reservations() == []


async def test_a_queue_changed_to_fcfs_loses_its_reservations(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    bench.policy = Policy.FCFS
    await bench.cycle()
    assert await bench.store.reservations() == []
    assert len(await bench.held()) == 1


async def test_a_reservation_moves_away_from_a_node_that_goes_down(
    bench: Bench, nodes: ObjectCache[Node]
) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("two", 2, "8", "1h"))
    await bench.cycle()
    on = {share.node for share in reservation(bench, "two").shares}
    down = min(on)
    nodes.apply(a_node(down, cordoned=True))
    await bench.cycle()
    moved = reservation(bench, "two")
    assert down not in {share.node for share in moved.shares}
    assert down in moved.cause


async def test_all_pending_work_has_a_position_and_an_estimate(bench: Bench) -> None:
    await bench.submit(job("now", 4, "8", "1h"), *(job(f"w{number}", 4, "8", "1h") for number in range(3)))
    await bench.cycle()
    seen = [bench.scheduler.estimates[bench.row(f"w{number}").id] for number in range(3)]
    assert [each.position for each in seen] == [1, 2, 3]
    assert [each.eta for each in seen] == [START + timedelta(hours=hours) for hours in (1, 2, 3)]
    assert [each.reserved for each in seen] == [True, False, False]
    assert len(await bench.held()) == 2


async def test_an_update_of_estimates_that_is_too_early_returns_its_delay(bench: Bench) -> None:
    await bench.submit(job("now", 4, "8", "1h"), job("first", 4, "8", "1h"))
    await bench.cycle()
    estimator, context = (
        StartEstimator(bench.ledger, bench.graph, nothing_published),
        CycleContext(int(START.timestamp())),
    )
    waiting = {"default": Backlog([bench.row("first")])}
    assert await estimator.update(waiting, {}, context) == 0
    assert 0 < await estimator.update(waiting, {}, context) <= 5
    assert await estimator.update({"default": Backlog()}, {}, context) == 0


async def test_deletion_of_a_queue_drops_its_reservations_and_its_work_keeps_its_order(bench: Bench) -> None:
    await bench.submit(job("now", 4, "8", "1h"), job("next", 4, "8", "1h"))
    await bench.cycle()
    submitted = bench.row("next").submitted_at
    gone = replace(job("next", 4, "8", "1h"), reason=Reason.UNKNOWN_QUEUE, message="the queue does not exist")
    await bench.submit(gone)
    await bench.cycle()
    assert bench.ledger.reservation(bench.row("next").id) is None
    assert len(await bench.held()) == 1
    assert bench.row("now").state is State.ALLOCATED
    await bench.submit(job("next", 4, "8", "1h"))
    await bench.cycle()
    assert reservation(bench, "next").start == START + timedelta(hours=1)
    assert bench.row("next").submitted_at == submitted


def test_the_discipline_of_a_queue_is_that_of_its_fluxqueue() -> None:
    assert disciplines_of(()) == {"default": Discipline(FluxQueueSpec().policy)}


# ---- nodes that change -------------------------------------------------------------------------------------


_versions = itertools.count(10)


def labelled(name: str, **labels: str) -> Node:
    """A node of 8 cores."""
    builder = make_node(name).uid(f"uid-{name}").allocatable(cpu="8", memory="32Gi", pods="110")
    builder = builder.with_("metadata.resourceVersion", str(next(_versions)))
    for key, value in labels.items():
        builder = builder.label(key, value)
    return msgspec.convert(builder.build(), Node)


def of_disk(name: str, pods: int, duration: str) -> NewWorkload:
    """A Job for nodes with the label ``disk=ssd``."""
    builder = (
        make_job(name).indexed(pods).cpu("8").suspended().annotation("fluxqueue/suspended-by", "webhook")
    )
    builder = builder.annotation("fluxqueue/duration", duration).with_(
        "spec.template.spec.nodeSelector", {"disk": "ssd"}
    )
    described = describe_job(a_job(builder, uid=name), around())
    assert described is not None
    return described


async def test_a_reservation_ends_with_the_label_of_its_node_and_returns_with_it(
    bench: Bench, nodes: ObjectCache[Node]
) -> None:
    nodes.replace([labelled("n0", disk="ssd"), labelled("n1")])
    await bench.submit(job("running", 2, "8", "1h"), of_disk("picky", 1, "1h"))
    await bench.cycle()
    assert reservation(bench, "picky").start == START + timedelta(hours=1)
    nodes.replace([labelled("n0"), labelled("n1")])
    await bench.cycle()
    assert bench.ledger.reservation(bench.row("picky").id) is None
    assert bench.row("picky").reason is Reason.UNSATISFIABLE
    nodes.replace([labelled("n0", disk="ssd"), labelled("n1")])
    await bench.cycle()
    assert reservation(bench, "picky").start == START + timedelta(hours=1)
    assert bench.row("picky").reason is Reason.WAITING_FOR_NODES


async def test_work_starts_on_a_node_that_loses_the_label_another_reserved_it_for(
    bench: Bench, nodes: ObjectCache[Node]
) -> None:
    nodes.replace([labelled("n0", disk="ssd"), labelled("n1", disk="ssd")])
    await bench.submit(job("running", 1, "8", "1h"), of_disk("pair", 2, "1h"), job("other", 1, "8", "2h"))
    await bench.cycle()
    assert bench.row("other").state is State.PENDING
    nodes.replace([labelled("n0", disk="ssd"), labelled("n1")])
    await bench.cycle()
    assert bench.row("other").state is State.ALLOCATED


async def test_a_reservation_moves_to_another_node_when_its_own_loses_the_label(
    bench: Bench, nodes: ObjectCache[Node]
) -> None:
    nodes.replace([labelled("n0", disk="ssd"), labelled("n1", disk="ssd")])
    await bench.submit(job("running", 2, "8", "1h"), of_disk("picky", 1, "1h"))
    await bench.cycle()
    nodes.replace([labelled("n0"), labelled("n1", disk="ssd")])
    await bench.cycle()
    moved = reservation(bench, "picky")
    assert ([share.node for share in moved.shares], moved.start) == (["n1"], START + timedelta(hours=1))
    assert moved.cause == "its nodes are gone, changed, filled up or set aside"


# ---- priority across queues --------------------------------------------------------------------------------


async def test_a_reservation_displaced_by_another_queue_is_planned_again_with_its_cause(bench: Bench) -> None:
    bench.other_queues["urgent"] = Discipline(Policy.EASY)
    await bench.submit(job("half", 2, "8", "11h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    assert reservation(bench, "all").start == START + timedelta(hours=11)
    await bench.submit(replace(job("now", 2, "8", "24h", priority=1000), queue="urgent"))
    await bench.cycle()
    assert bench.row("now").state is State.ALLOCATED
    (stored,) = await bench.store.reservations()
    assert (stored.first_start, stored.start) == (START + timedelta(hours=11), START + timedelta(hours=24))
    assert (
        stored.cause
        == "its nodes went to Job default/now of priority 1000 in the queue 'urgent': its own is 0"
    )


async def test_a_reason_names_no_reservation_that_yields(bench: Bench) -> None:
    bench.other_queues["urgent"] = Discipline(Policy.FCFS)
    await bench.submit(job("half", 2, "8", "2h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    await bench.submit(replace(job("wide", 3, "8", "24h", priority=1000), queue="urgent"))
    await bench.cycle()
    assert bench.row("wide").reason is Reason.WAITING_FOR_NODES


async def test_work_whose_priority_is_raised_displaces_reservations_of_other_queues(bench: Bench) -> None:
    bench.other_queues["urgent"] = Discipline(Policy.EASY)
    await bench.submit(job("half", 2, "8", "2h"), job("all", 4, "8", "1h"))
    await bench.submit(replace(job("other", 2, "8", "24h"), queue="urgent"))
    await bench.cycle()
    assert bench.row("other").state is State.PENDING
    await bench.submit(replace(job("other", 2, "8", "24h", priority=1), queue="urgent"))
    await bench.cycle()
    assert bench.row("other").state is State.ALLOCATED
