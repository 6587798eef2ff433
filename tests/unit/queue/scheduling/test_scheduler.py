"""Cycles of the scheduler with the matcher in process:
failures of the matcher, wake-ups, and the order of a cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.queue_bench import START, Bench, a_machine, a_node, job

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, Policy, QueueLimits
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.rpc.failures import InternalError
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.queue.model.changes import Ending, ReasonChange
from fluxqueue.queue.model.records import NewWorkload, Workload
from fluxqueue.queue.model.requeue_records import NodeRefusal, RequeueState
from fluxqueue.queue.model.start_conditions import StartConditions
from fluxqueue.queue.scheduling.policies.refusals import EXPLAINED
from fluxqueue.queue.scheduling.reasons.wait_reasons import WaitReasons
from fluxqueue.queue.store.errors import StoreError
from fluxqueue.queue.tasks.triggers import ControlTask


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
async def bench(clock: Clock) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy = Policy.EASY
        yield made


async def requested(bench: Bench, task: ControlTask) -> None:
    """Wait until the scheduler requests a control task."""
    async with asyncio.timeout(60):
        while task not in bench.asked:
            await asyncio.sleep(0.01)


async def test_a_grant_requests_a_release(bench: Bench) -> None:
    await bench.submit(job("a", 1, "8"))
    await bench.cycle()
    assert bench.row("a").state is State.ALLOCATED
    assert bench.asked == [ControlTask.RELEASE]


async def test_a_cycle_without_work_requests_nothing(bench: Bench) -> None:
    await bench.cycle()
    assert bench.asked == []


async def test_while_the_matcher_is_away_work_has_a_reason_and_a_cycle_is_requested(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submit(job("a", 1, "8"))

    async def away(*_args: object, **_kwargs: object) -> str:
        raise FluxionError("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(bench.fluxion, "init", away)
        await bench.scheduler.cycle()
    assert bench.scheduler.last_error == "no connection"
    assert bench.row("a").message == "nothing is started at present: no connection"
    await requested(bench, ControlTask.SCHEDULE)
    await bench.cycle()
    assert bench.row("a").state is State.ALLOCATED


async def test_a_grant_that_could_not_be_stored_keeps_no_nodes_of_the_matcher(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submit(job("a", 4, "8"))

    async def fail(*_args: object, **_kwargs: object) -> None:
        raise StoreError("the row cannot be stored")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "grant", fail)
        with pytest.raises(StoreError):
            await bench.scheduler.cycle()
    row = bench.row("a")
    await bench.ledger.set_reasons(
        [ReasonChange(workload=row.id, reason=Reason.INVALID_REQUEST, message="set apart")]
    )
    await bench.submit(job("b", 4, "8"))
    await bench.cycle()
    assert bench.row("b").state is State.ALLOCATED


@pytest.mark.parametrize("policy", [Policy.FCFS, Policy.EASY])
async def test_work_returns_to_a_node_that_refused_it_once_its_time_is_over(
    bench: Bench, clock: Clock, policy: Policy
) -> None:
    bench.policy = policy
    await bench.submit(job("runs", 3, "8"))
    await bench.cycle()
    await bench.submit(job("displaced", 1, "8"))
    until = START + timedelta(minutes=10)
    refusing = RequeueState(starts=1, failure="it is full", refused={"n3": NodeRefusal(START, until)})
    await bench.ledger.set_requeue_states({bench.row("displaced").id: refusing})
    await bench.cycle()
    await bench.cycle()
    assert bench.row("displaced").state is State.PENDING
    clock.now = until + timedelta(seconds=1)
    await bench.cycle()
    assert bench.row("displaced").hosts == "n3"


async def test_work_that_was_told_of_an_absent_matcher_gets_another_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = [job(f"w{number}", 4, "8", "1h") for number in range(3)]
    await bench.submit(job("runs", 4, "8", "1h"), *waiting)

    async def away(*_args: object, **_kwargs: object) -> str:
        raise FluxionError("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(bench.fluxion, "init", away)
        await bench.scheduler.cycle()
    assert "nothing is started" in bench.row("w2").message
    await bench.cycle()
    assert bench.row("w2").reason is Reason.WAITING_FOR_NODES
    assert "nothing is started" not in bench.row("w2").message


async def test_a_graph_that_the_matcher_lost_is_filled_again_with_the_reservation(bench: Bench) -> None:
    await bench.submit(job("runs", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    before = bench.ledger.reservations()
    await bench.fluxion.init("lonode", nodes=[], call=bench.graph.call())
    assert not await bench.graph.alive()
    await bench.cycle()
    assert bench.ledger.reservations() == before
    assert await bench.held() == {
        bench.row("runs").jobid: {"n0": 1, "n1": 1, "n2": 1},
        before[0].jobid: {f"n{number}": 1 for number in range(4)},
    }


async def test_an_overrun_moves_the_reservation_behind_it(bench: Bench, clock: Clock) -> None:
    await bench.submit(job("runs", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    clock.now += timedelta(hours=1, seconds=1)
    await bench.cycle()
    (reservation,) = bench.ledger.reservations()
    assert reservation.start == START + timedelta(hours=1, minutes=6)
    assert reservation.cause == "Job default/runs runs beyond its stated duration"


async def test_a_reason_names_the_reservation_that_is_held_and_no_former_one(
    bench: Bench, clock: Clock
) -> None:
    await bench.submit(job("runs", 3, "8", "1h"), job("all", 4, "8", "1h"))
    await bench.cycle()
    assert "reserved for it from 2026-11-21T09:00:00Z" in bench.row("all").message
    clock.now += timedelta(hours=1, seconds=1)
    await bench.cycle()
    assert "reserved for it from 2026-11-21T09:06:00Z" in bench.row("all").message
    await bench.submit(job("urgent", 4, "8", "1h", priority=5))
    await bench.cycle()
    assert [each.workload for each in bench.ledger.reservations()] == [bench.row("urgent").id]
    assert "reserved for it" not in bench.row("all").message


async def test_work_that_is_held_or_asks_for_something_else_loses_its_reservation(bench: Bench) -> None:
    await bench.submit(job("runs", 4, "8", "1h"), job("next", 4, "8", "1h"))
    await bench.cycle()
    assert [each.workload for each in bench.ledger.reservations()] == [bench.row("next").id]
    await bench.submit(job("next", 2, "8", "1h"))
    await bench.cycle()
    assert [len(each.shares) for each in bench.ledger.reservations()] == [2]
    await bench.submit(replace(job("next", 2, "8", "1h"), reason=Reason.HELD, message="it is held"))
    await bench.cycle()
    assert bench.ledger.reservations() == []


async def behind_a_reservation(bench: Bench) -> None:
    """One node is free until all four are reserved, and work that is too long for that waits.
    The second is refused with the first.
    """
    runs, longer = job("runs", 3, "8", "1h"), job("longer", 1, "8", "9h")
    await bench.submit(
        runs, job("all", 4, "8", "1h"), job("next", 4, "8", "1h"), job("long", 1, "8", "8h"), longer
    )
    await bench.cycle()
    assert "reserved for Job default/all from 2026-11-21T09:00:00Z" in bench.row("longer").message


async def test_a_reason_names_no_start_of_other_work_that_has_moved(bench: Bench, clock: Clock) -> None:
    await behind_a_reservation(bench)
    clock.now += timedelta(hours=1, seconds=1)
    await bench.cycle()
    assert "reserved for Job default/all from 2026-11-21T09:06:00Z" in bench.row("longer").message


async def test_a_reason_names_no_work_that_waits_no_more(bench: Bench) -> None:
    await behind_a_reservation(bench)
    await bench.ledger.finish([Ending(bench.row("all").id, State.CANCELLED, Outcome.CANCELLED)])
    await bench.cycle()
    assert "reserved for Job default/next from 2026-11-21T09:00:00Z" in bench.row("longer").message


async def test_a_reason_of_a_former_leader_names_what_is_reserved_now(bench: Bench) -> None:
    await behind_a_reservation(bench)
    text = (
        "would start now, but not end before nodes are needed that are reserved for Job default/gone from "
        "2026-11-21T08:30:00Z on"
    )
    await bench.ledger.set_reasons(
        [ReasonChange(workload=bench.row("longer").id, reason=Reason.BLOCKED_BY_RESERVATION, message=text)]
    )
    await bench.cycle()
    assert "reserved for Job default/all from 2026-11-21T09:00:00Z" in bench.row("longer").message


async def test_a_deadline_that_is_edited_is_named_in_the_next_cycle(bench: Bench) -> None:
    def late(deadline: datetime) -> NewWorkload:
        return replace(job("late", 4, "8", "1h"), start_conditions=StartConditions(deadline=deadline))

    await bench.submit(job("runs", 4, "8", "3h"), late(START + timedelta(hours=2)))
    await bench.cycle()
    assert "is to be done by 2026-11-21T10:00:00Z" in bench.row("late").message
    await bench.submit(late(START + timedelta(hours=3)))
    await bench.cycle()
    assert "is to be done by 2026-11-21T11:00:00Z" in bench.row("late").message
    await bench.submit(late(START + timedelta(hours=9)))
    await bench.cycle()
    assert bench.row("late").reason is Reason.WAITING_FOR_NODES
    assert "reserved for it from 2026-11-21T11:00:00Z" in bench.row("late").message


async def test_work_that_can_meet_its_deadline_again_is_told_at_once_why_it_waits(bench: Bench) -> None:
    late = replace(
        job("late", 4, "8", "1h"), start_conditions=StartConditions(deadline=START + timedelta(hours=3))
    )
    await bench.submit(job("runs", 2, "8", "3h"), job("runs-too", 2, "8", "1h"), late)
    await bench.cycle()
    assert bench.row("late").reason is Reason.DEADLINE_UNREACHABLE
    await bench.ledger.finish([Ending(bench.row("runs").id, State.COMPLETED, Outcome.SUCCEEDED)])
    await bench.cycle()
    assert "reserved for it from 2026-11-21T09:00:00Z" in bench.row("late").message


async def test_a_reservation_that_is_about_to_begin_requests_a_cycle(bench: Bench, clock: Clock) -> None:
    await bench.submit(job("runs", 4, "8", "1h"), job("next", 4, "8", "1h"))
    await bench.cycle()
    bench.asked.clear()
    clock.now += timedelta(hours=1, seconds=-0.2)
    await bench.cycle()
    await requested(bench, ControlTask.SCHEDULE)


async def test_an_edit_of_a_queue_requests_a_cycle_and_an_equal_spec_does_not(bench: Bench) -> None:
    before, after = FluxQueue(spec=FluxQueueSpec()), FluxQueue(spec=FluxQueueSpec(policy=Policy.FCFS))
    bench.scheduler.queue_changed(Change(ChangeKind.MODIFIED, before, before))
    await asyncio.sleep(0.1)
    assert bench.asked == []
    bench.scheduler.queue_changed(Change(ChangeKind.MODIFIED, before, after))
    await requested(bench, ControlTask.SCHEDULE)


async def test_a_refused_grant_is_freed_and_its_workload_checked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submit(job("a", 1, "8"))
    workload = bench.row("a").id

    async def refuse(grants: list[object]) -> list[object]:
        return grants

    monkeypatch.setattr(bench.ledger, "grant", refuse)
    await bench.cycle()
    assert bench.asked == []
    await requested(bench, ControlTask.SCHEDULE)
    assert bench.ledger.allocation(workload) is None


async def test_a_request_on_which_the_matcher_fails_keeps_no_other_from_its_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cycle failed on it after the match: nobody had a reason or an estimate,
    and the graph was filled again and again.
    """
    await bench.submit(
        job("runs", 4, "8", "1h"), job("bad", 1, "3", "1h", priority=5), job("waits", 2, "8", "1h")
    )
    bad = bench.row("bad").jobspec

    def fails(name: str) -> None:
        answer = getattr(bench.fluxion, name)

        async def failing(asked: Any, *args: Any, **options: Any) -> Any:
            if bad in ([asked] if isinstance(asked, str) else [each.jobspec for each in asked]):
                raise InternalError(f"{name} failed with INTERNAL: KeyError")
            return await answer(asked, *args, **options)

        monkeypatch.setattr(bench.fluxion, name, failing)

    for name in ("match_batch", "satisfy", "trial"):
        fails(name)
    await bench.cycle()
    assert (bench.row("bad").reason, bench.row("waits").reason) == (
        Reason.INVALID_REQUEST,
        Reason.WAITING_FOR_NODES,
    )
    assert [each.eta is not None for each in bench.scheduler.estimates.values()] == [True]


async def test_what_is_told_of_its_limit_is_not_looked_at_again_until_something_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    is_told = WaitReasons._is_told

    def counted(reasons: WaitReasons, workload: Workload) -> bool:
        looked_at.append(workload.name)
        return is_told(reasons, workload)

    monkeypatch.setattr(WaitReasons, "_is_told", counted)
    bench.limits = QueueLimits(running=1)
    await bench.submit(*(job(f"w{number}", 1, "1") for number in range(EXPLAINED + 20)))
    await bench.cycle()
    await bench.cycle()
    looked_at.clear()
    await bench.cycle()
    assert looked_at == []
    await bench.submit(job("comes", 1, "1"))
    await bench.cycle()
    assert bench.row("comes").reason is Reason.QUEUE_LIMIT
    await bench.cycle()
    assert looked_at == ["comes", "comes"]
    bench.nodes.apply(a_node("n0", cordoned=True))
    looked_at.clear()
    await bench.cycle()
    assert len(looked_at) == 20, "what never fits may be other work now"
