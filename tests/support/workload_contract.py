"""The contract of workloads: run against Postgres and against the store in memory."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from support.queue_records import START, Leader, a_requeue, described

from fluxqueue.api.dependencies import parse_dependencies
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Ending, Eviction, ReasonChange, TakenSlot, Withdrawal
from fluxqueue.queue.model.records import (
    FluxionJobId,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES, SpecOverrides
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS, StartConditions, track
from fluxqueue.queue.model.states import ENDED, LIVE, TRANSITIONS
from fluxqueue.queue.store import IllegalTransition
from fluxqueue.queue.store.deltas import Delta


async def _in_state(leader: Leader, state: State) -> WorkloadId:
    """Bring a new workload into a state."""
    (workload,) = await leader.submit("walker") if state is State.PENDING else await leader.allocate("walker")
    ids = [workload.id]
    if state in (State.RUNNING, State.DRAINING):
        assert (await leader.store.mark_started(leader.epoch, ids)).changed == ids
    if state is State.DRAINING:
        assert (await leader.store.mark_draining(leader.epoch, ids)).changed == ids
    if state in ENDED:
        await leader.store.finish(leader.epoch, [Ending(workload.id, state, Outcome.UNKNOWN, "")])
    return workload.id


async def _try(leader: Leader, workload: WorkloadId, after: State) -> None:
    """Request a move to a state from the store."""
    (row,) = await leader.store.workloads([workload])
    match after:
        case State.ALLOCATED | State.RUNNING if row.state is State.DRAINING:
            await leader.store.evict(
                leader.epoch, [Eviction(workload=workload, reason=Reason.PREEMPTED, message="")]
            )
            await leader.store.evict(leader.epoch, [], {}, [_withdrawal(row, after)])
        case State.ALLOCATED:
            await leader.store.grant(leader.epoch, [await leader.grant_for(row)])
        case State.RUNNING:
            await leader.store.mark_started(leader.epoch, [workload])
        case State.DRAINING:
            await leader.store.mark_draining(leader.epoch, [workload])
        case State.PENDING:
            await leader.store.requeue(leader.epoch, [a_requeue(workload)])
            await leader.store.resubmit(leader.epoch, [row.uid])
        case _:
            await leader.store.finish(leader.epoch, [Ending(workload, after, Outcome.FAILED, "ended")])


def _withdrawal(row: Workload, after: State, end: datetime | None = None) -> Withdrawal:
    state = RequeueState(losses=1)
    return Withdrawal(
        workload=row.id,
        state=after,
        requeue_state=state,
        jobid=row.jobid or FluxionJobId(0),
        end=end,
        message="it goes on",
    )


class WorkloadContract:
    """Workloads, their states, reasons and history."""

    async def test_a_new_workload_is_pending_with_one_transition(self, leader: Leader) -> None:
        (workload,) = (
            await leader.store.upsert(leader.epoch, [described("lammps", priority=7, duration_s=None)])
        ).workloads
        assert (workload.state, workload.reason, workload.priority, workload.duration_s) == (
            State.PENDING,
            Reason.NONE,
            7,
            None,
        )
        assert await leader.store.workloads_by_uid(["uid-lammps"]) == [workload]
        (line,) = await leader.store.history(workload.id)
        assert (line.before, line.after, line.epoch) == (None, State.PENDING, leader.epoch)
        assert line.at >= workload.submitted_at

    @pytest.mark.parametrize("offset_s", [-60, 3600, None])
    async def test_work_that_ended_unseen_began_between_its_grant_and_its_end(
        self, leader: Leader, offset_s: int | None
    ) -> None:
        (workload,) = await leader.submit("short")
        await _try(leader, workload.id, State.ALLOCATED)
        (granted,) = await leader.store.workloads([workload.id])
        assert granted.allocated_at is not None
        began_at = None if offset_s is None else granted.allocated_at + timedelta(seconds=offset_s)
        delta = await leader.store.finish(
            leader.epoch, [Ending(workload.id, State.COMPLETED, Outcome.SUCCEEDED, began_at=began_at)]
        )
        (ended,) = await leader.store.workloads([workload.id])
        expected = None if offset_s is None else granted.allocated_at if offset_s < 0 else ended.finished_at
        assert ended.started_at == expected
        assert [ending.began_at for ending, _ in delta.endings] == [expected]

    async def test_start_conditions_are_stored_edited_and_gone_after_a_new_submission(
        self, leader: Leader
    ) -> None:
        after = msgspec.structs.replace(
            track(parse_dependencies("start:job/a+10m")[0]), target="uid-a", not_before=START
        )
        conditions = StartConditions(after=(after,), begin_at=START, singleton="train")
        (workload,) = await leader.submit("lammps", start_conditions=conditions)
        assert (workload.start_conditions, await leader.store.pending()) == (conditions, [workload])
        assert (
            await leader.store.upsert(leader.epoch, [described("lammps", start_conditions=conditions)])
        ).changed == []
        edited = StartConditions(singleton="train")
        (changed,) = (
            await leader.store.upsert(leader.epoch, [described("lammps", start_conditions=edited)])
        ).workloads
        assert changed.start_conditions == edited
        await leader.store.finish(leader.epoch, [Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, "")])
        (again,) = (await leader.store.resubmit(leader.epoch, [workload.uid])).workloads
        assert again.start_conditions == NO_START_CONDITIONS

    async def test_the_same_description_again_changes_nothing(self, leader: Leader) -> None:
        finds = [described(f"job-{number}") for number in range(20)]
        first = await leader.store.upsert(leader.epoch, finds)
        again = await leader.store.upsert(leader.epoch, finds)
        assert [workload.uid for workload in first.workloads] == [new.uid for new in finds]
        assert again == Delta()

    async def test_overrides_are_stored_and_deleted_with_the_workload(self, leader: Leader) -> None:
        overrides = SpecOverrides(hold=True, queue="gpu", priority=-3, duration_s=90)
        (workload,) = await leader.submit("steered", overrides=overrides)
        assert workload.overrides == overrides
        (pending,) = await leader.store.pending()
        assert pending.overrides == overrides
        (plain,) = await leader.submit("plain")
        assert plain.overrides == NO_OVERRIDES
        await leader.store.finish(leader.epoch, [Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, "")])
        await leader.store.forget(leader.epoch, await leader.store.now() + timedelta(seconds=1))
        (forgotten,) = await leader.store.workloads_by_uid([workload.uid])
        assert forgotten.overrides == NO_OVERRIDES

    async def test_the_account_of_a_workload_stays_from_its_grant_on_also_in_history(
        self, leader: Leader
    ) -> None:
        (pending,) = await leader.submit("live", account="physics", submitted_by="alice")
        await leader.store.grant(leader.epoch, [await leader.grant_for(pending)])
        assert await leader.store.upsert(leader.epoch, [described("live", account="bio")]) == Delta()
        await leader.store.finish(leader.epoch, [Ending(pending.id, State.COMPLETED, Outcome.SUCCEEDED, "")])
        later = await leader.store.now() + timedelta(seconds=1)
        await leader.store.prune_allocations(leader.epoch, later)
        await leader.store.prune_allocations(leader.epoch, later)
        assert await leader.store.forget(leader.epoch, later) == 1
        (forgotten,) = await leader.store.workloads_by_uid([pending.uid])
        assert (forgotten.account, forgotten.submitted_by) == ("physics", "alice")

    async def test_the_last_of_two_descriptions_in_a_batch_counts(self, leader: Leader) -> None:
        delta = await leader.store.upsert(
            leader.epoch, [described("twice"), described("other"), described("twice", priority=3)]
        )
        assert [(workload.name, workload.priority) for workload in delta.workloads] == [
            ("twice", 3),
            ("other", 0),
        ]

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
            {"overrides": SpecOverrides(hold=True)},
            {"account": "physics"},
            {"submitted_by": "alice"},
        ],
        ids=lambda change: next(iter(change)),
    )
    async def test_a_changed_pending_workload_is_updated_and_keeps_its_submit_time(
        self, leader: Leader, change: dict[str, object]
    ) -> None:
        (before,) = await leader.submit("edited")
        (now,) = (await leader.store.upsert(leader.epoch, [described("edited", **change)])).workloads
        assert {name: getattr(now, name) for name in change} == change
        assert (now.id, now.submitted_at) == (before.id, before.submitted_at)

    async def test_the_schedulers_reason_survives_a_sweep_but_not_a_new_specification(
        self, leader: Leader
    ) -> None:
        (workload,) = await leader.submit("big")
        reason = ReasonChange(
            workload=workload.id, reason=Reason.UNSATISFIABLE, message="no node has 900 cores"
        )
        assert (await leader.store.set_reasons(leader.epoch, [reason])).changed == [workload.id]
        assert await leader.store.upsert(leader.epoch, [described("big")]) == Delta()
        (raised,) = (await leader.store.upsert(leader.epoch, [described("big", priority=9)])).workloads
        assert raised.reason is Reason.UNSATISFIABLE
        (edited,) = (
            await leader.store.upsert(
                leader.epoch, [described("big", priority=9, shape="smaller", generation=2)]
            )
        ).workloads
        assert (edited.reason, edited.message) == (Reason.NONE, "")

    @pytest.mark.parametrize("reason", list(Reason))
    async def test_every_reason_can_be_stored(self, leader: Leader, reason: Reason) -> None:
        (workload,) = await leader.submit("waits")
        await leader.store.set_reasons(
            leader.epoch, [ReasonChange(workload=workload.id, reason=reason, message="why")]
        )
        assert (await leader.store.workloads([workload.id]))[0].reason is reason

    async def test_a_reason_of_the_intake_is_set_and_cleared(self, leader: Leader) -> None:
        (held,) = await leader.submit("held", reason=Reason.USER_SUSPENDED, message="suspended by its owner")
        assert held.blocked
        (resumed,) = (await leader.store.upsert(leader.epoch, [described("held")])).workloads
        assert (resumed.reason, resumed.message, resumed.blocked) == (Reason.NONE, "", False)

    async def test_only_reasons_that_differ_are_written_and_only_of_pending_workloads(
        self, leader: Leader
    ) -> None:
        waiting, same = await leader.submit("waiting", "same")
        (running,) = await leader.allocate("running")
        changes = [
            ReasonChange(workload=w.id, reason=Reason.WAITING_FOR_NODES, message="2 nodes short")
            for w in (waiting, same, running)
        ]
        assert (await leader.store.set_reasons(leader.epoch, changes[1:2])).changed == [same.id]
        assert (await leader.store.set_reasons(leader.epoch, changes)).changed == [waiting.id]
        assert (await leader.store.workloads([running.id]))[0].reason is Reason.NONE

    async def test_the_reason_of_a_live_workload_is_written_on_request(self, leader: Leader) -> None:
        (pending,) = await leader.submit("pending")
        (live,) = await leader.allocate("live")
        changes = [
            ReasonChange(workload=w.id, reason=Reason.BIND_FAILED, message="node-1 filled up")
            for w in (pending, live)
        ]
        assert (await leader.store.set_reasons(leader.epoch, changes, live=True)).changed == [live.id]

    async def test_pending_work_is_ordered_by_priority_then_submit_time_then_id(self, leader: Leader) -> None:
        for name, priority in [("a", 0), ("b", 10), ("c", 0), ("d", 10), ("e", -1)]:
            await leader.submit(name, priority=priority)
        await leader.submit("f", "g")
        await leader.allocate("gone")
        assert [workload.name for workload in await leader.store.pending()] == [
            "b",
            "d",
            "a",
            "c",
            "f",
            "g",
            "e",
        ]

    async def test_a_workload_may_keep_the_submit_time_of_another(self, leader: Leader) -> None:
        (job,) = await leader.allocate("job")
        (later,) = await leader.submit("later")
        (pod,) = await leader.submit("pod", submitted_at=job.submitted_at)
        assert pod.submitted_at == job.submitted_at < later.submitted_at
        assert [workload.name for workload in await leader.store.pending()] == ["pod", "later"]
        (again,) = (
            await leader.store.upsert(
                leader.epoch, [described("pod", submitted_at=later.submitted_at, priority=1)]
            )
        ).workloads
        assert again.submitted_at == job.submitted_at, "the submit time never changes"

    async def test_live_workloads_are_those_with_an_allocation(self, leader: Leader) -> None:
        await leader.submit("pending")
        allocated, running, draining, ended = await leader.allocate(
            "allocated", "running", "draining", "ended"
        )
        await leader.store.mark_started(leader.epoch, [running.id, draining.id])
        await leader.store.mark_draining(leader.epoch, [draining.id])
        await leader.store.finish(leader.epoch, [Ending(ended.id, State.COMPLETED, Outcome.SUCCEEDED, "")])
        assert [(w.id, w.state) for w in await leader.store.live_workloads()] == [
            (allocated.id, State.ALLOCATED),
            (running.id, State.RUNNING),
            (draining.id, State.DRAINING),
        ]

    @pytest.mark.parametrize("before", State)
    @pytest.mark.parametrize("after", State)
    async def test_a_workload_moves_only_along_the_arrows(
        self, leader: Leader, before: State, after: State
    ) -> None:
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

    async def test_a_workload_cannot_end_in_a_state_that_is_not_final(self, leader: Leader) -> None:
        (workload,) = await leader.submit("odd")
        with pytest.raises(IllegalTransition, match="cannot end as Running"):
            await leader.store.finish(
                leader.epoch, [Ending(workload.id, State.RUNNING, Outcome.SUCCEEDED, "")]
            )
        with pytest.raises(IllegalTransition, match="outcome none"):
            await leader.store.finish(leader.epoch, [Ending(workload.id, State.FAILED, Outcome.NONE, "")])

    async def test_an_ending_frees_the_allocation_and_its_slots_at_once(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("done")
        assert workload.jobid is not None
        await leader.store.take_slots(leader.epoch, [TakenSlot(workload.jobid, 0, "pod-0", "done-0")])
        ending = Ending(workload.id, State.COMPLETED, Outcome.SUCCEEDED, "all pods succeeded")
        delta = await leader.store.finish(leader.epoch, [ending])
        assert (delta.ended, delta.unreserved, delta.freed) == (
            (workload.id,),
            (workload.id,),
            (workload.jobid,),
        )
        (allocation,) = await leader.store.allocations([workload.jobid])
        assert not allocation.live
        assert [(slot.state, slot.pod_uid) for slot in allocation.slots] == [(SlotState.ENDED, None)] * 2
        (ended,) = await leader.store.workloads([workload.id])
        assert (ended.outcome, ended.message, ended.jobid) == (
            Outcome.SUCCEEDED,
            "all pods succeeded",
            workload.jobid,
        )
        assert ended.finished_at is not None
        assert delta.endings == ((ending, ended.finished_at),)
        assert (
            await leader.store.finish(
                leader.epoch, [Ending(workload.id, State.FAILED, Outcome.FAILED, "late")]
            )
        ).freed == ()
        assert (await leader.store.workloads([workload.id]))[0] == ended

    async def test_a_requeue_keeps_the_submit_time_and_is_counted(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("again")
        back = a_requeue(workload.id, Reason.START_TIMEOUT, "pods did not come")
        delta = await leader.store.requeue(leader.epoch, [back])
        assert (delta.changed, delta.freed) == ([workload.id], (workload.jobid,))
        (waiting,) = await leader.store.pending()
        assert (waiting.submitted_at, waiting.requeues, waiting.allocated_at) == (
            workload.submitted_at,
            1,
            None,
        )
        assert (waiting.reason, waiting.message) == (Reason.START_TIMEOUT, "pods did not come")
        grant = await leader.grant_for(waiting, ["node-3", "node-3"])
        assert (await leader.store.grant(leader.epoch, [grant])).changed == [workload.id]
        (second,) = await leader.store.live_allocations()
        assert (second.jobid, second.hosts) == (grant.jobid, ("node-3", "node-3"))

    async def test_an_ended_workload_stays_ended_when_described_again(self, leader: Leader) -> None:
        (workload,) = await leader.submit("cancelled")
        await leader.store.finish(
            leader.epoch, [Ending(workload.id, State.CANCELLED, Outcome.CANCELLED, "by its FluxJob")]
        )
        assert await leader.store.upsert(leader.epoch, [described("cancelled", generation=2)]) == Delta()
        assert (await leader.store.workloads([workload.id]))[0].state is State.CANCELLED

    async def test_the_last_reasons_of_requeues_are_kept(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("unlucky")
        for number in range(4):
            back = Eviction(
                workload=workload.id, reason=Reason.BIND_FAILED, message=f"pod {number} was refused"
            )
            await leader.store.evict(leader.epoch, [back])
            await leader.store.requeue(
                leader.epoch, [a_requeue(workload.id, Reason.BIND_FAILED, f"pod {number} was refused")]
            )
            (waiting,) = await leader.store.workloads([workload.id])
            await leader.store.grant(leader.epoch, [await leader.grant_for(waiting)])
        await leader.store.requeue(leader.epoch, [a_requeue(workload.id, Reason.RELEASE_FAILED, "refused")])
        last = await leader.store.requeue_reasons(workload.id, 3)
        assert [(line.reason, line.detail) for line in last] == [
            ("BindFailed", "pod 2 was refused"),
            ("BindFailed", "pod 3 was refused"),
            ("ReleaseFailed", "refused"),
        ]

    async def test_a_preemption_that_is_withdrawn_is_no_loss_and_what_is_evicted_again_is_one(
        self, leader: Leader
    ) -> None:
        goes_on, again = await leader.allocate("goes-on", "again")
        await leader.store.mark_started(leader.epoch, [goes_on.id, again.id])
        told = [
            Eviction(workload=each.id, reason=Reason.PREEMPTED, message="by another")
            for each in (goes_on, again)
        ]
        await leader.store.evict(leader.epoch, told)
        withdrawals = [
            _withdrawal(each, State.RUNNING, START + timedelta(days=1)) for each in (goes_on, again)
        ]
        by_a_third = Eviction(workload=again.id, reason=Reason.PREEMPTED, message="by a third")
        delta = await leader.store.evict(leader.epoch, [by_a_third], {}, withdrawals)
        assert delta.changed == [goes_on.id, again.id]
        rows = await leader.store.workloads([goes_on.id, again.id])
        assert [(row.state, row.reason, row.message, row.requeue_state.losses) for row in rows] == [
            (State.RUNNING, Reason.NONE, "", 1),
            (State.DRAINING, Reason.PREEMPTED, "by a third", 1),
        ]
        assert [row.started_at is not None for row in rows] == [True, True]
        assert {each.end for each in await leader.store.live_allocations()} == {START + timedelta(days=1)}
        losses = [[line.detail for line in await leader.store.requeue_reasons(each.id, 10)] for each in rows]
        assert losses == [[], ["by a third"]]
        (last,) = (await leader.store.history(goes_on.id))[-1:]
        assert (last.before, last.after, last.detail) == (State.DRAINING, State.RUNNING, "it goes on")
        assert await leader.store.evict(leader.epoch, [], {}, withdrawals[:1]) == Delta(), (
            "it goes on already"
        )

    async def test_counts_add_up_by_queue_state_and_reason(self, leader: Leader) -> None:
        await leader.submit("a", "b", queue="gpu", pods=3)
        await leader.submit("c", queue="gpu", reason=Reason.HELD)
        await leader.allocate("d")
        counts = [(c.queue, c.state, c.reason, c.workloads, c.pods) for c in await leader.store.counts()]
        assert counts == [
            ("default", State.ALLOCATED, Reason.NONE, 1, 2),
            ("gpu", State.PENDING, Reason.NONE, 2, 6),
            ("gpu", State.PENDING, Reason.HELD, 1, 2),
        ]

    async def test_only_a_cancelled_workload_can_be_resubmitted(self, leader: Leader) -> None:
        cancelled, done = await leader.submit("cancelled", "done")
        await leader.store.finish(
            leader.epoch,
            [
                Ending(cancelled.id, State.CANCELLED, Outcome.CANCELLED, "by its user"),
                Ending(done.id, State.COMPLETED, Outcome.SUCCEEDED, ""),
            ],
        )
        (again,) = (await leader.store.resubmit(leader.epoch, [cancelled.uid, done.uid])).workloads
        assert (again.id, again.state, again.outcome, again.finished_at, again.jobid) == (
            cancelled.id,
            State.PENDING,
            Outcome.NONE,
            None,
            None,
        )
        assert again.submitted_at > cancelled.submitted_at
        assert again.blocked
        assert (await leader.store.resubmit(leader.epoch, [cancelled.uid])).workloads == (again,)
        assert [change.after for change in await leader.store.history(cancelled.id)] == [
            State.PENDING,
            State.CANCELLED,
            State.PENDING,
        ]
