"""Planning on the wall clock in a real queue: what is promised, kept, said and found again by the next leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import FluxQueueSpec, Policy
from fluxqueue.api.objects import Node
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.fluxion.messages import Mode
from fluxqueue.kube.store import Store as ObjectStore
from fluxqueue.queue.controllers.outlook import Outlook
from fluxqueue.queue.controllers.scheduler import disciplines_of
from fluxqueue.queue.ledger import Ending
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.passes import Moment
from fluxqueue.queue.policies.rounds import Discipline
from fluxqueue.queue.records import Reservation
from fluxqueue.queue.store import Store

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nodes() -> ObjectStore[Node]:
    found: ObjectStore[Node] = ObjectStore()
    found.replace([a_node(f"n{number}") for number in range(4)])
    return found


@pytest.fixture
async def fluxion() -> AsyncIterator[LocalFluxion]:
    matcher = LocalFluxion()
    yield matcher
    await matcher.close()


@pytest.fixture
async def bench(store: Store, nodes: ObjectStore[Node], fluxion: LocalFluxion, clock: Clock) -> AsyncIterator[Bench]:
    async with a_leader(store, nodes, fluxion, clock) as made:
        made.policy = Policy.EASY
        yield made


def promise(bench: Bench, name: str) -> Reservation:
    found = bench.ledger.reservation(bench.row(name).id)
    assert found is not None
    return found


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


async def test_the_blocked_head_is_promised_nodes_at_the_earliest_time_and_later_work_may_pass_only_if_it_ends_before(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"), job("long", 1, "8", "2h"), job("short", 1, "8", "30m"))
    await bench.cycle()
    assert promise(bench, "all").start == START + timedelta(hours=1)
    assert {share.node for share in promise(bench, "all").shares} == {"n0", "n1", "n2", "n3"}
    assert bench.row("short").state is State.ALLOCATED
    assert bench.row("long").reason in (Reason.WAITING_FOR_NODES, Reason.BLOCKED_BY_RESERVATION)
    assert "2026-11-21T09:00:00Z" in bench.row("all").message


async def test_who_is_kept_out_by_a_reservation_is_told_whose(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"), job("long", 1, "8", "2h"))
    await bench.cycle()
    assert bench.row("long").reason is Reason.BLOCKED_BY_RESERVATION
    assert "Job default/all" in bench.row("long").message


async def test_a_promise_comes_true_on_the_promised_nodes_and_leaves_the_table(bench: Bench, clock: Clock) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    clock.pass_(hours=1)
    await end(bench, "wide")
    await bench.cycle()
    assert (bench.row("all").state, bench.row("all").hosts) == (State.ALLOCATED, "n[0-3]")
    assert await bench.store.reservations() == []


async def test_an_early_end_brings_the_start_forward_and_the_first_promise_is_remembered(bench: Bench, clock: Clock) -> None:
    await bench.submit(job("a", 2, "8", "2h"), job("b", 2, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    assert promise(bench, "all").start == START + timedelta(hours=2)
    clock.pass_(minutes=5)
    await end(bench, "a")
    await bench.cycle()
    (stored,) = await bench.store.reservations()
    assert (stored.first_start, stored.start) == (START + timedelta(hours=2), START + timedelta(hours=1))


async def test_conservative_promises_to_all_up_to_the_depth(bench: Bench) -> None:
    bench.policy = Policy.CONSERVATIVE
    await bench.submit(job("now", 4, "8", "1h"), *(job(f"w{number}", 4, "8", "1h") for number in range(3)))
    await bench.cycle()
    assert [promise(bench, f"w{number}").start - START for number in range(3)] == [timedelta(hours=hours) for hours in (1, 2, 3)]


async def test_the_next_leader_keeps_what_was_promised(
    bench: Bench, store: Store, nodes: ObjectStore[Node], fluxion: LocalFluxion, clock: Clock
) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    before = promise(bench, "all")
    async with a_leader(store, nodes, fluxion, clock) as second:
        second.policy = Policy.EASY
        await second.submit(job("long", 1, "8", "2h"))
        await second.cycle()
        assert promise(second, "all") == before
        assert second.row("long").state is State.PENDING
        modes = {job.jobid: job.mode for job in await fluxion.list_jobs(call=second.graph.call())}
        assert modes[before.jobid] is Mode.RESERVED


async def test_work_that_overruns_is_believed_anew_and_who_was_promised_its_nodes_is_told(bench: Bench, clock: Clock) -> None:
    await bench.submit(job("late", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    clock.pass_(hours=1, seconds=1)
    await bench.cycle()
    (_, allocation), *_ = bench.ledger.live()
    assert allocation.end == START + timedelta(hours=1, minutes=6)
    moved = promise(bench, "all")
    assert moved.start == START + timedelta(hours=1, minutes=6)
    assert moved.first_start == START + timedelta(hours=1)
    assert "Job default/late runs longer than it said" in moved.cause


async def test_work_of_higher_priority_goes_before_a_promise_and_says_so(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    await bench.submit(job("urgent", 4, "8", "1h", priority=10))
    await bench.cycle()
    assert promise(bench, "urgent").start == START + timedelta(hours=1)
    assert bench.ledger.reservation(bench.row("all").id) is None
    assert bench.ledger.first_start(bench.row("all").id) == START + timedelta(hours=1)


async def test_who_leaves_the_queue_leaves_no_reservation_behind(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"), job("long", 1, "8", "2h"))
    await bench.cycle()
    await bench.ledger.finish([Ending(bench.row("all").id, State.CANCELLED, Outcome.CANCELLED)])
    await bench.cycle()
    assert bench.row("long").state is State.ALLOCATED
    assert await bench.store.reservations() == []


async def test_a_queue_turned_strict_gives_its_promises_up(bench: Bench) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    bench.policy = Policy.FCFS
    await bench.cycle()
    assert await bench.store.reservations() == []
    assert len(await bench.held()) == 1


async def test_a_node_that_goes_down_takes_the_promises_on_it_with_it(bench: Bench, nodes: ObjectStore[Node]) -> None:
    await bench.submit(job("wide", 3, "8", "1h"), job("two", 2, "8", "1h"))
    await bench.cycle()
    on = {share.node for share in promise(bench, "two").shares}
    down = min(on)
    nodes.apply(a_node(down, cordoned=True))
    await bench.cycle()
    moved = promise(bench, "two")
    assert down not in {share.node for share in moved.shares}
    assert down in moved.cause


async def test_everyone_waiting_is_told_a_place_and_a_time(bench: Bench) -> None:
    await bench.submit(job("now", 4, "8", "1h"), *(job(f"w{number}", 4, "8", "1h") for number in range(3)))
    await bench.cycle()
    seen = [bench.ledger.estimates[bench.row(f"w{number}").id] for number in range(3)]
    assert [each.position for each in seen] == [1, 2, 3]
    assert [each.eta for each in seen] == [START + timedelta(hours=hours) for hours in (1, 2, 3)]
    assert [each.reserved for each in seen] == [True, False, False]
    assert len(await bench.held()) == 2


async def test_estimates_that_were_too_soon_are_asked_for_again(bench: Bench) -> None:
    await bench.submit(job("now", 4, "8", "1h"), job("first", 4, "8", "1h"))
    await bench.cycle()
    outlook, moment = Outlook(bench.ledger, bench.graph), Moment(int(START.timestamp()))
    waiting = {"default": Backlog([bench.row("first")])}
    assert await outlook.look(waiting, {}, moment) == 0
    assert 0 < await outlook.look(waiting, {}, moment) <= 5
    assert await outlook.look({"default": Backlog()}, {}, moment) == 0


async def test_what_was_promised_in_a_queue_that_is_deleted_is_given_up_and_its_work_keeps_its_place(bench: Bench) -> None:
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
    assert promise(bench, "next").start == START + timedelta(hours=1)
    assert bench.row("next").submitted_at == submitted


def test_the_policy_of_a_queue_is_its_fluxqueues() -> None:
    assert disciplines_of(()) == {"default": Discipline(FluxQueueSpec().policy)}
