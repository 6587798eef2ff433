from __future__ import annotations

from datetime import timedelta

import pytest
from queue_records import Leader, found, put_back

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.records import NO_WISHES, Epoch, ReasonChange, Wishes, WorkloadId
from fluxqueue.queue.states import ENDED, LIVE, TRANSITIONS
from fluxqueue.queue.store import IllegalTransition, Store


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


async def test_a_new_workload_is_pending_with_a_line_of_history(leader: Leader) -> None:
    (stored,) = await leader.store.upsert(leader.epoch, [found("lammps", priority=7, duration_s=None)])
    assert stored.inserted
    assert stored.changed
    workload = stored.workload
    assert (workload.state, workload.reason, workload.priority, workload.duration_s) == (State.PENDING, Reason.NONE, 7, None)
    assert await leader.store.workload_by_uid("uid-lammps") == workload
    (line,) = await leader.store.history(workload.id)
    assert (line.before, line.after, line.epoch) == (None, State.PENDING, leader.epoch)
    assert line.at >= workload.submitted_at


async def test_finding_the_same_again_changes_nothing(leader: Leader) -> None:
    finds = [found(f"job-{number}") for number in range(20)]
    first = await leader.store.upsert(leader.epoch, finds)
    again = await leader.store.upsert(leader.epoch, finds)
    assert [(now.inserted, now.changed) for now in again] == [(False, False)] * 20
    assert [now.workload for now in again] == [now.workload for now in first]


async def test_wishes_come_back_as_they_were_and_leave_with_the_workload(leader: Leader) -> None:
    wishes = Wishes(hold=True, queue="gpu", priority=-3, duration_s=90)
    (workload,) = await leader.submit("steered", wishes=wishes)
    assert workload.wishes == wishes
    (pending,) = await leader.store.pending()
    assert pending.wishes == wishes
    (plain,) = await leader.submit("plain")
    assert plain.wishes == NO_WISHES
    await leader.store.finish(leader.epoch, [(workload.id, State.CANCELLED, Outcome.CANCELLED, "")])
    await leader.store.forget(leader.epoch, await leader.store.now() + timedelta(seconds=1))
    forgotten = await leader.store.workload_by_uid(workload.uid)
    assert forgotten is not None
    assert forgotten.wishes == NO_WISHES


async def test_a_find_that_stands_twice_in_a_batch_is_taken_once_as_last_said(leader: Leader) -> None:
    answers = await leader.store.upsert(leader.epoch, [found("twice"), found("other"), found("twice", priority=3)])
    assert [answer.workload.name for answer in answers] == ["twice", "other", "twice"]
    assert answers[0].workload == answers[2].workload
    assert answers[0].workload.priority == 3


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"priority": 5},
        {"queue": "gpu"},
        {"jobspec": "{}"},
        {"shape": "shape-b"},
        {"pods": 4},
        {"duration_s": None},
        {"duration_assumed": True},
        {"reason": Reason.HELD, "message": "held by its FluxJob"},
        {"wishes": Wishes(hold=True)},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_changed_pending_workload_is_brought_up_to_date_and_keeps_its_place(leader: Leader, change: dict[str, object]) -> None:
    (before,) = await leader.submit("edited")
    (now,) = await leader.store.upsert(leader.epoch, [found("edited", **change)])
    assert now.changed
    assert not now.inserted
    assert {name: getattr(now.workload, name) for name in change} == change
    assert (now.workload.id, now.workload.submitted_at) == (before.id, before.submitted_at)


async def test_a_reason_of_the_scheduler_survives_the_sweep_but_not_a_new_specification(leader: Leader) -> None:
    (workload,) = await leader.submit("big")
    reason = ReasonChange(workload=workload.id, reason=Reason.UNSATISFIABLE, message="no node has 900 cores")
    assert await leader.store.set_reasons(leader.epoch, [reason]) == [workload.id]
    (swept,) = await leader.store.upsert(leader.epoch, [found("big")])
    assert (swept.changed, swept.workload.reason) == (False, Reason.UNSATISFIABLE)
    (raised,) = await leader.store.upsert(leader.epoch, [found("big", priority=9)])
    assert raised.workload.reason is Reason.UNSATISFIABLE
    (edited,) = await leader.store.upsert(leader.epoch, [found("big", priority=9, shape="smaller", generation=2)])
    assert (edited.workload.reason, edited.workload.message) == (Reason.NONE, "")


async def test_a_hold_of_the_intake_comes_and_goes(leader: Leader) -> None:
    (held,) = await leader.submit("held", reason=Reason.USER_SUSPENDED, message="suspended by its owner")
    assert held.blocked
    (resumed,) = await leader.store.upsert(leader.epoch, [found("held")])
    assert (resumed.workload.reason, resumed.workload.message, resumed.workload.blocked) == (Reason.NONE, "", False)


async def test_reasons_are_written_only_where_they_differ_and_the_workload_is_pending(leader: Leader) -> None:
    waiting, same = await leader.submit("waiting", "same")
    (running,) = await leader.allocate("running")
    said = [ReasonChange(workload=w.id, reason=Reason.WAITING_FOR_NODES, message="2 nodes short") for w in (waiting, same, running)]
    assert await leader.store.set_reasons(leader.epoch, said[1:2]) == [same.id]
    assert await leader.store.set_reasons(leader.epoch, said) == [waiting.id]
    assert (await leader.store.workloads([running.id]))[0].reason is Reason.NONE


async def test_a_reason_of_a_live_workload_is_said_when_asked_for(leader: Leader) -> None:
    (pending,) = await leader.submit("pending")
    (live,) = await leader.allocate("live")
    said = [ReasonChange(workload=w.id, reason=Reason.BIND_FAILED, message="node-1 filled up") for w in (pending, live)]
    assert await leader.store.set_reasons(leader.epoch, said, live=True) == [live.id]


async def test_pending_comes_by_priority_then_submit_time_then_id(leader: Leader) -> None:
    for name, priority in [("a", 0), ("b", 10), ("c", 0), ("d", 10), ("e", -1)]:
        await leader.submit(name, priority=priority)
    await leader.submit("f", "g")
    await leader.allocate("gone")
    assert [workload.name for workload in await leader.store.pending()] == ["b", "d", "a", "c", "f", "g", "e"]


async def test_live_workloads_are_those_that_hold_something(leader: Leader) -> None:
    await leader.submit("pending")
    allocated, running, draining, ended = await leader.allocate("allocated", "running", "draining", "ended")
    await leader.store.started(leader.epoch, [running.id, draining.id])
    await leader.store.draining(leader.epoch, [draining.id])
    await leader.store.finish(leader.epoch, [(ended.id, State.COMPLETED, Outcome.SUCCEEDED, "")])
    assert [(w.id, w.state) for w in await leader.store.live_workloads()] == [
        (allocated.id, State.ALLOCATED),
        (running.id, State.RUNNING),
        (draining.id, State.DRAINING),
    ]


async def _in_state(leader: Leader, state: State) -> WorkloadId:
    """A workload that was led to a state."""
    (workload,) = await leader.submit("walker") if state is State.PENDING else await leader.allocate("walker")
    ids = [workload.id]
    if state in (State.RUNNING, State.DRAINING):
        assert await leader.store.started(leader.epoch, ids) == ids
    if state is State.DRAINING:
        assert await leader.store.draining(leader.epoch, ids) == ids
    if state in ENDED:
        await leader.store.finish(leader.epoch, [(workload.id, state, Outcome.UNKNOWN, "")])
    return workload.id


async def _try(leader: Leader, workload: WorkloadId, after: State) -> None:
    """Ask for a move in the one way the store has for it."""
    match after:
        case State.ALLOCATED:
            (found_now,) = await leader.store.workloads([workload])
            await leader.store.grant(leader.epoch, [await leader.grant_for(found_now)])
        case State.RUNNING:
            await leader.store.started(leader.epoch, [workload])
        case State.DRAINING:
            await leader.store.draining(leader.epoch, [workload])
        case State.PENDING:
            (found_now,) = await leader.store.workloads([workload])
            await leader.store.requeue(leader.epoch, [put_back(workload)])
            await leader.store.take_up_again(leader.epoch, [found_now.uid])
        case _:
            await leader.store.finish(leader.epoch, [(workload, after, Outcome.FAILED, "ended")])


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
async def test_a_workload_moves_along_the_arrows_and_no_other_way(leader: Leader, before: State, after: State) -> None:
    workload = await _in_state(leader, before)
    was = await leader.store.history(workload)
    await _try(leader, workload, after)
    (now,) = await leader.store.workloads([workload])
    lines = (await leader.store.history(workload))[len(was) :]
    if after in TRANSITIONS[before]:
        assert now.state is after
        assert [(line.before, line.after) for line in lines] == [(before, after)]
    else:
        assert now.state is before
        assert lines == []
    live = await leader.store.live_allocations()
    assert bool(live) == (now.state in LIVE)


async def test_a_workload_cannot_end_in_a_state_that_is_no_end(leader: Leader) -> None:
    (workload,) = await leader.submit("odd")
    with pytest.raises(IllegalTransition, match="cannot end as Running"):
        await leader.store.finish(leader.epoch, [(workload.id, State.RUNNING, Outcome.SUCCEEDED, "")])
    with pytest.raises(IllegalTransition, match="outcome none"):
        await leader.store.finish(leader.epoch, [(workload.id, State.FAILED, Outcome.NONE, "")])


async def test_finishing_frees_the_allocation_and_ends_its_slots_in_one_go(leader: Leader) -> None:
    (workload,) = await leader.allocate("done")
    assert workload.jobid is not None
    await leader.store.take_slots(leader.epoch, [(workload.jobid, 0, "pod-0", "done-0")])
    freed = await leader.store.finish(leader.epoch, [(workload.id, State.COMPLETED, Outcome.SUCCEEDED, "all pods succeeded")])
    assert freed == [workload.jobid]
    (allocation,) = await leader.store.allocations([workload.jobid])
    assert not allocation.live
    assert [(slot.state, slot.pod_uid) for slot in allocation.slots] == [("ended", "pod-0"), ("ended", None)]
    (ended,) = await leader.store.workloads([workload.id])
    assert (ended.outcome, ended.message, ended.jobid) == (Outcome.SUCCEEDED, "all pods succeeded", workload.jobid)
    assert ended.finished_at is not None
    assert await leader.store.finish(leader.epoch, [(workload.id, State.FAILED, Outcome.FAILED, "late")]) == []
    assert (await leader.store.workloads([workload.id]))[0] == ended


async def test_requeueing_keeps_the_submit_time_and_counts(leader: Leader) -> None:
    (workload,) = await leader.allocate("again")
    back = put_back(workload.id, Reason.START_TIMEOUT, "pods did not come")
    ids, freed = await leader.store.requeue(leader.epoch, [back])
    assert ids == [workload.id]
    assert freed == [workload.jobid]
    (waiting,) = await leader.store.pending()
    assert (waiting.submitted_at, waiting.requeues, waiting.allocated_at) == (workload.submitted_at, 1, None)
    assert (waiting.reason, waiting.message) == (Reason.START_TIMEOUT, "pods did not come")
    grant = await leader.grant_for(waiting, ["node-3", "node-3"])
    assert await leader.store.grant(leader.epoch, [grant]) == [workload.id]
    (second,) = await leader.store.live_allocations()
    assert (second.jobid, second.hosts) == (grant.jobid, ("node-3", "node-3"))


async def test_an_ended_workload_stays_ended_however_often_it_is_found(leader: Leader) -> None:
    (workload,) = await leader.submit("cancelled")
    await leader.store.finish(leader.epoch, [(workload.id, State.CANCELLED, Outcome.CANCELLED, "by its FluxJob")])
    (again,) = await leader.store.upsert(leader.epoch, [found("cancelled", generation=2)])
    assert (again.inserted, again.changed, again.workload.state) == (False, False, State.CANCELLED)


async def test_a_forgotten_workload_is_remembered_in_history_and_never_taken_in_again(leader: Leader) -> None:
    old, kept = await leader.allocate("old", "kept")
    assert old.jobid is not None
    await leader.store.finish(leader.epoch, [(old.id, State.COMPLETED, Outcome.SUCCEEDED, "fine")])
    later = await leader.store.now() + timedelta(seconds=1)
    assert await leader.store.forget(leader.epoch, later) == 1
    assert await leader.store.forget(leader.epoch, later) == 0
    assert [count.workloads for count in await leader.store.counts()] == [1]
    assert await leader.store.allocations([old.jobid]) == []
    remembered = await leader.store.workload_by_uid("uid-old")
    assert remembered is not None
    assert (remembered.id, remembered.jobspec, remembered.outcome, remembered.hosts) == (old.id, "", Outcome.SUCCEEDED, "node-[1-2]")
    assert [line.after for line in await leader.store.history(old.id)] == [State.PENDING, State.ALLOCATED, State.COMPLETED]
    (again,) = await leader.store.upsert(leader.epoch, [found("old")])
    assert (again.inserted, again.changed, again.workload) == (False, False, remembered)
    assert [workload.id for workload in await leader.store.live_workloads()] == [kept.id]


async def test_counts_add_up_by_queue_state_and_reason(leader: Leader) -> None:
    await leader.submit("a", "b", queue="gpu", pods=3)
    await leader.submit("c", queue="gpu", reason=Reason.HELD)
    await leader.allocate("d")
    counts = [(c.queue, c.state, c.reason, c.workloads, c.pods) for c in await leader.store.counts()]
    assert counts == [
        ("default", State.ALLOCATED, Reason.NONE, 1, 2),
        ("gpu", State.PENDING, Reason.NONE, 2, 6),
        ("gpu", State.PENDING, Reason.HELD, 1, 2),
    ]


async def test_a_cancelled_workload_is_taken_up_again_as_if_it_had_just_come_and_no_other_is(leader: Leader) -> None:
    cancelled, done = await leader.submit("cancelled", "done")
    await leader.store.finish(
        leader.epoch,
        [(cancelled.id, State.CANCELLED, Outcome.CANCELLED, "by its user"), (done.id, State.COMPLETED, Outcome.SUCCEEDED, "")],
    )
    (again,) = await leader.store.take_up_again(leader.epoch, [cancelled.uid, done.uid])
    assert (again.id, again.state, again.outcome, again.finished_at, again.jobid) == (cancelled.id, State.PENDING, Outcome.NONE, None, None)
    assert again.submitted_at > cancelled.submitted_at
    assert again.blocked
    assert await leader.store.take_up_again(leader.epoch, [cancelled.uid]) == [again]
    assert [change.after for change in await leader.store.history(cancelled.id)] == [State.PENDING, State.CANCELLED, State.PENDING]
