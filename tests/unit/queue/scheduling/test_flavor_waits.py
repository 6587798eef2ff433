"""Queues with flavors: when work gets nodes of which flavor, what it is told, and what that costs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_node
from support.queue_bench import START, Bench, a_leader, a_machine
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Flavor, Policy
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import JobMatchRequest, MatchBatch
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.cluster.context import QueueDefaults
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import Ending, Requeue
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.scheduling import flavor_waits
from fluxqueue.queue.scheduling.reservations import estimates

FLAVORS = tuple(
    Flavor(name, {"type": name}, wait_s)
    for name, wait_s in (("reserved", 0), ("spot", 600), ("demand", 1_200))
)


class Clock:
    """The time of a bench."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@asynccontextmanager
async def machine(policy: Policy = Policy.EASY, **counts: int) -> AsyncIterator[tuple[Bench, Clock]]:
    """So many nodes of 8 cores of each flavor."""
    clock = Clock()
    async with a_machine(clock) as bench:
        bench.policy = policy
        show_nodes(bench, counts)
        yield bench, clock


def show_nodes(bench: Bench, counts: Mapping[str, int]) -> None:
    bench.nodes.replace(
        [
            msgspec.convert(
                make_node(f"{flavor}-{number}", cpu="8")
                .uid(f"uid-{flavor}-{number}")
                .label("type", flavor)
                .build(),
                Node,
            )
            for flavor, count in counts.items()
            for number in range(count)
        ]
    )


def work(
    name: str,
    pods: int = 1,
    duration: str = "1h",
    flavors: Sequence[Flavor] = FLAVORS,
    priority: int = 0,
    selector: Mapping[str, str] | None = None,
) -> NewWorkload:
    """A Job whose pods need a node each, in a queue with flavors."""
    builder = make_job(name).namespace("default").indexed(pods).cpu("8").suspended()
    builder = builder.annotation("fluxqueue/suspended-by", "webhook")
    builder = builder.annotation("fluxqueue/duration", duration)
    builder = builder.annotation("fluxqueue/priority", str(priority))
    if selector:
        builder = builder.with_("spec.template.spec.nodeSelector", selector)
    queues = {"default": QueueDefaults(flavors=tuple(flavors))}
    described = describe_job(a_job(builder, uid=name), around(queues=queues))
    assert described is not None
    return described


def nodes_of(bench: Bench, name: str) -> list[str]:
    allocation = bench.ledger.allocation(bench.row(name).id)
    return [share.node for share in allocation.shares] if allocation is not None else []


async def run(bench: Bench, *works: NewWorkload) -> None:
    await bench.submit(*works)
    await bench.cycle()


async def test_work_gets_a_flavor_when_it_has_waited_for_it() -> None:
    async with machine(reserved=1, spot=1, demand=1) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b"), work("c", duration="10h"))
        assert nodes_of(bench, "a") == ["reserved-0"]
        clock.later(599)
        await bench.cycle()
        assert bench.row("b").state is State.PENDING
        clock.later(1)
        await bench.cycle()
        assert nodes_of(bench, "b") == ["spot-0"]
        clock.later(600)
        await bench.cycle()
        assert nodes_of(bench, "c") == ["demand-0"]


async def test_work_starts_in_the_first_flavor_within_the_second_of_its_submission() -> None:
    async with machine(Policy.FCFS, reserved=2, spot=1) as (bench, clock):
        clock.later(0.25)
        await run(bench, work("a"), work("b"), work("c"))
        assert (nodes_of(bench, "a"), nodes_of(bench, "b")) == (["reserved-0"], ["reserved-1"])
        assert "'reserved' too" not in bench.row("c").message
        assert "it may use flavor 'spot' too" in bench.row("c").message


async def test_the_wait_counts_from_the_submission_of_each_workload() -> None:
    async with machine(reserved=1, spot=2) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b", duration="10h"))
        clock.later(300)
        await run(bench, work("c", duration="10h"))
        clock.later(300)
        await bench.cycle()
        assert nodes_of(bench, "b") == ["spot-0"]
        assert bench.row("c").state is State.PENDING
        clock.later(300)
        await bench.cycle()
        assert nodes_of(bench, "c") == ["spot-1"]


async def test_the_reason_says_which_flavor_comes_next_and_when() -> None:
    async with machine(reserved=1, spot=1, demand=1) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b", 2), work("c"))
        at = f"{START + timedelta(seconds=600):%Y-%m-%dT%H:%M:%SZ}"
        assert bench.row("c").message.endswith(f"; it may use flavor 'spot' too from {at} on")
        clock.later(600)
        await run(bench, work("d", duration="10h"))
        assert "'spot' too" not in bench.row("b").message
        assert bench.row("d").message.count("it may use flavor") == 1


async def test_work_that_is_not_asked_about_is_told_of_each_flavor_in_its_time() -> None:
    async with machine(Policy.FCFS, reserved=1) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b"), work("c"))
        for passed, told in ((0, "spot"), (600, "demand"), (600, "")):
            clock.later(passed)
            await bench.cycle()
            _, _, named = bench.row("c").message.partition("it may use flavor ")
            assert named.partition(" too")[0] == (f"'{told}'" if told else "")


async def test_work_that_a_reservation_keeps_out_is_told_so_once() -> None:
    async with machine(reserved=2, spot=1) as (bench, clock):
        await run(bench, work("a", duration="20h"))
        await run(bench, work("wide", 2, duration="10h"), work("long", duration="30h"))
        assert bench.row("long").reason is Reason.BLOCKED_BY_RESERVATION
        assert "it may use flavor 'spot' too" in bench.row("long").message
        tried, trial = list[int](), bench.fluxion.trial

        async def counted(requests: Sequence[JobMatchRequest], **options: Any) -> MatchBatch:
            tried.append(len(requests))
            return await trial(requests, **options)

        bench.fluxion.trial = counted  # type: ignore[method-assign,assignment]
        for _ in range(3):
            clock.later(1)
            await bench.cycle()
        assert not tried


async def test_the_estimate_is_when_a_later_flavor_may_be_used() -> None:
    async with machine(reserved=1, spot=1) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b"))
        estimate = bench.scheduler.estimates.get(bench.row("b").id)
        assert estimate is not None
        assert (estimate.eta, estimate.reserved) == (START + timedelta(seconds=600), True)
        clock.later(600)
        await bench.cycle()
        assert nodes_of(bench, "b") == ["spot-0"]


async def test_what_is_refused_to_younger_work_is_not_refused_to_work_that_waited_longer() -> None:
    async with machine(reserved=1, spot=1) as (bench, clock):
        await run(bench, work("a", duration="15m"))
        await run(bench, work("old", duration="9h"))
        clock.later(599)
        await run(bench, work("young", priority=10))
        clock.later(1)
        await bench.cycle()
        assert nodes_of(bench, "old") == ["spot-0"]
        assert bench.row("young").message.startswith("node reserved-0 is reserved for it")


async def test_a_new_leader_goes_on_with_the_same_times() -> None:
    async with machine(reserved=1, spot=1) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b"))
        clock.later(300)
        matcher = LocalFluxion()
        async with a_leader(bench.store, bench.nodes, matcher, clock) as following:
            following.policy = Policy.EASY
            await following.cycle()
            clock.later(299)
            await following.cycle()
            assert following.row("b").state is State.PENDING
            clock.later(1)
            await following.cycle()
            assert nodes_of(following, "b") == ["spot-0"]
        await matcher.close()


async def test_work_that_selects_nodes_waits_for_their_flavor() -> None:
    async with machine(reserved=1, spot=1) as (bench, clock):
        await run(bench, work("a", selector={"type": "spot"}))
        clock.later(599)
        await bench.cycle()
        assert bench.row("a").state is State.PENDING
        clock.later(1)
        await bench.cycle()
        assert nodes_of(bench, "a") == ["spot-0"]


async def test_equal_work_is_answered_by_a_few_questions_when_a_flavor_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a slow machine five seconds pass here, after which estimates ask twenty questions."""
    monkeypatch.setattr(estimates, "_EVERY_S", 3600.0)
    async with machine(reserved=1) as (bench, clock):
        await run(bench, work("a", duration="10h"))
        await run(bench, *(work(f"w{number}", flavors=FLAVORS[:2]) for number in range(200)))
        asked, match_batch = list[int](), bench.fluxion.match_batch

        async def counted(requests: Sequence[JobMatchRequest], **options: Any) -> MatchBatch:
            asked.append(len(requests))
            return await match_batch(requests, **options)

        bench.fluxion.match_batch = counted  # type: ignore[method-assign,assignment]
        for passed in (300, 300, 1):
            clock.later(passed)
            await bench.cycle()
        assert 0 < sum(asked) < 12
        assert not bench.scheduler._phases._flavors._next


async def test_nothing_is_kept_of_work_that_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flavor_waits, "_MOST_OVER", 8)
    async with machine(Policy.FCFS, reserved=1, spot=1) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b"))
        waits = bench.scheduler._phases._flavors
        for number in range(30):
            await run(bench, work(f"w{number}"))
            row = bench.row(f"w{number}")
            await bench.ledger.finish([Ending(row.id, State.CANCELLED, Outcome.CANCELLED)])
        await bench.cycle()
        assert waits._next.keys() == {bench.row("b").id}
        assert len(waits._openings) <= 10
        clock.later(600)
        await bench.cycle()
        assert nodes_of(bench, "b") == ["spot-0"]
        assert not waits._next


async def test_work_can_never_start_only_if_no_flavor_could_hold_it() -> None:
    async with machine(reserved=1, spot=2) as (bench, _):
        await run(bench, work("wide", 2), work("wider", 3))
        assert bench.row("wide").reason is Reason.WAITING_FOR_NODES
        assert bench.row("wide").message.startswith("2 nodes are reserved for it from")
        assert bench.row("wider").reason is Reason.UNSATISFIABLE
        assert (
            "flavor 'spot': wants 3 pods, the empty cluster holds 2; flavor 'demand': "
            in bench.row("wider").message
        )
        assert "it may use" not in bench.row("wider").message


async def test_work_of_a_lost_node_restarts_elsewhere_before_all_that_came_later() -> None:
    async with machine(reserved=1, spot=2) as (bench, clock):
        await run(bench, work("a", duration="10h"), work("b", duration="10h"), work("c", duration="10h"))
        clock.later(600)
        await bench.cycle()
        assert (nodes_of(bench, "b"), nodes_of(bench, "c")) == (["spot-0"], ["spot-1"])
        await run(bench, work("d", duration="1h"))
        show_nodes(bench, {"reserved": 1, "spot": 1})
        lost = bench.row("c")
        await bench.ledger.requeue([Requeue(workload=lost.id, reason=Reason.NONE, message="lost its node")])
        await bench.submit(work("c", duration="10h"))  # it is read again
        assert bench.row("c").submitted_at == lost.submitted_at
        await bench.ledger.finish([Ending(bench.row("a").id, State.COMPLETED, Outcome.SUCCEEDED)])
        await bench.cycle()
        assert nodes_of(bench, "c") == ["reserved-0"]
        assert bench.row("d").state is State.PENDING


async def test_without_flavors_a_request_is_as_before() -> None:
    plain = work("a", flavors=())
    assert "flavors" not in plain.jobspec
    async with machine(spot=1) as (bench, _):
        await run(bench, plain)
        assert nodes_of(bench, "a") == ["spot-0"]
        assert bench.scheduler._phases._flavors.next_opening == float("inf")


@pytest.mark.parametrize("policy", Policy)
async def test_no_work_ever_has_a_flavor_before_its_wait_or_two_flavors(policy: Policy) -> None:
    chance = random.Random(policy)
    wait_s = {each.name: each.wait_seconds for each in FLAVORS}
    async with machine(policy, reserved=2, spot=2, demand=1) as (bench, clock):
        running: dict[str, datetime] = {}
        used: Counter[str] = Counter()
        for number in range(40):
            minutes, pods = chance.choice((5, 15, 60)), chance.choice((1, 1, 2))
            urgent = chance.choice((0, 0, 5))
            await bench.submit(work(f"w{number}", pods, f"{minutes}m", priority=urgent))
            clock.later(chance.choice((1, 120, 400)))
            over = [name for name, end in running.items() if end <= clock.now]
            await bench.ledger.finish(
                [Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED) for name in over]
            )
            for name in over:
                del running[name]
            await bench.cycle()
            for row in bench.ledger.all():
                if row.name in running or row.state is State.PENDING:
                    continue
                (flavor,) = {node.partition("-")[0] for node in nodes_of(bench, row.name)}
                assert (clock.now - row.submitted_at).total_seconds() >= wait_s[flavor]
                used[flavor] += 1
                running[row.name] = clock.now + timedelta(seconds=row.duration_s or 0)
        assert used.keys() == wait_s.keys()
