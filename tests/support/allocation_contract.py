"""The contract of grants, releases and slots: run against Postgres and against the store in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from support.queue_records import START, Leader, a_requeue

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.changes import Ending, Replacement, SlotWrites, TakenSlot
from fluxqueue.queue.model.records import (
    FluxionJobId,
    Reservation,
    SlotState,
    Workload,
    WorkloadId,
)
from fluxqueue.queue.model.requeue_records import RequeueState
from fluxqueue.queue.store import PodAlreadyPlaced
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, SlotUpdate


def _jobid(workload: Workload) -> FluxionJobId:
    assert workload.jobid is not None
    return workload.jobid


def granted(delta: Delta) -> list[WorkloadId]:
    """Return the workloads whose grants a call stored."""
    return [allocation.workload for allocation in delta.allocations]


def slots_in(delta: Delta) -> list[tuple[FluxionJobId, int]]:
    """Return the slots that a call changed."""
    return [(update.jobid, update.rank) for update in delta.slot_updates]


class AllocationContract:
    """Grants, releases and slots."""

    async def test_each_job_id_is_issued_once(self, leader: Leader) -> None:
        batches = await asyncio.gather(*(leader.store.next_jobids(50) for _ in range(8)))
        given = [jobid for batch in batches for jobid in batch]
        assert len(set(given)) == 400

    async def test_a_grant_is_stored_with_its_shares_and_slots(self, leader: Leader) -> None:
        (workload,) = await leader.submit("lammps")
        grant = await leader.grant_for(workload, ["node-1", "node-2", "node-2"])
        assert granted(await leader.store.grant(leader.epoch, [grant])) == [workload.id]
        (allocation,) = await leader.store.live_allocations()
        assert (allocation.jobid, allocation.workload, allocation.shares, allocation.hosts) == (
            grant.jobid,
            workload.id,
            grant.shares,
            grant.hosts,
        )
        assert (allocation.start, allocation.end, allocation.released_at) == (
            START,
            START + timedelta(seconds=600),
            None,
        )
        assert [(slot.rank, slot.state) for slot in allocation.slots] == [
            (0, SlotState.FREE),
            (1, SlotState.FREE),
            (2, SlotState.FREE),
        ]
        (now,) = await leader.store.workloads([workload.id])
        assert (now.state, now.jobid, now.hosts, now.reason) == (
            State.ALLOCATED,
            grant.jobid,
            "node-[1-2,2]",
            Reason.NONE,
        )
        assert now.allocated_at is not None

    async def test_the_first_estimate_is_kept_to_the_end_and_when_it_waits_again(
        self, leader: Leader
    ) -> None:
        (workload,) = await leader.submit("lammps")
        first, later = START + timedelta(hours=1), START + timedelta(hours=2)
        await leader.store.grant(leader.epoch, [replace(await leader.grant_for(workload), promised_at=first)])
        await leader.store.requeue(leader.epoch, [a_requeue(workload.id)])
        (again,) = await leader.store.workloads([workload.id])
        assert again.promised_at == first
        grant = replace(await leader.grant_for(again), generation=again.generation, promised_at=later)
        delta = await leader.store.grant(leader.epoch, [grant])
        assert [update.promised_at for update in delta.workload_updates] == [first]
        await leader.store.finish(
            leader.epoch, [Ending(workload=workload.id, state=State.COMPLETED, outcome=Outcome.SUCCEEDED)]
        )
        (ended,) = await leader.store.workloads([workload.id])
        assert (ended.promised_at, ended.state) == (first, State.COMPLETED)

    async def test_without_an_estimate_the_first_reserved_start_is_kept(self, leader: Leader) -> None:
        (workload,) = await leader.submit("lammps")
        (jobid,) = await leader.store.next_jobids(1)
        first = START + timedelta(hours=1)
        made = Reservation(
            workload=workload.id, jobid=jobid, first_start=first, start=first, end=None, shares=()
        )
        await leader.store.reserve(leader.epoch, [made], [])
        await leader.store.grant(leader.epoch, [await leader.grant_for(workload)])
        (granted_row,) = await leader.store.workloads([workload.id])
        assert granted_row.promised_at == first

    async def test_an_unbounded_grant_has_no_end(self, leader: Leader) -> None:
        (workload,) = await leader.submit("service", duration_s=None)
        await leader.store.grant(leader.epoch, [await leader.grant_for(workload)])
        assert [allocation.end for allocation in await leader.store.live_allocations()] == [None]

    async def test_a_repeated_grant_is_stored_once_and_returned_as_it_is(self, leader: Leader) -> None:
        (workload,) = await leader.submit("lammps")
        grant = await leader.grant_for(workload)
        for _ in range(2):
            assert granted(await leader.store.grant(leader.epoch, [grant])) == [workload.id]
        assert len(await leader.store.live_allocations()) == 1
        assert len(await leader.store.history(workload.id)) == 2

    async def test_a_grant_for_a_workload_that_ended_meanwhile_is_left_to_the_caller(
        self, leader: Leader
    ) -> None:
        cancelled, waiting = await leader.submit("cancelled", "waiting")
        grants = [await leader.grant_for(cancelled), await leader.grant_for(waiting)]
        await leader.store.finish(
            leader.epoch, [Ending(cancelled.id, State.CANCELLED, Outcome.CANCELLED, "")]
        )
        assert granted(await leader.store.grant(leader.epoch, grants)) == [waiting.id]
        assert [allocation.jobid for allocation in await leader.store.live_allocations()] == [grants[1].jobid]

    async def test_a_workload_edited_after_its_match_is_not_granted(self, leader: Leader) -> None:
        edited, same = await leader.submit("edited", "same")
        grants = [
            replace(await leader.grant_for(each), generation=each.generation) for each in (edited, same)
        ]
        await leader.submit("edited", pods=1, generation=2)
        assert granted(await leader.store.grant(leader.epoch, grants)) == [same.id]
        assert (await leader.store.workloads([edited.id]))[0].state is State.PENDING

    async def test_a_second_grant_for_a_workload_is_refused(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("once")
        other = await leader.grant_for(workload, ["node-8", "node-9"])
        assert granted(await leader.store.grant(leader.epoch, [other])) == []
        assert [allocation.jobid for allocation in await leader.store.live_allocations()] == [workload.jobid]

    async def test_a_freed_grant_cannot_be_stored_again(self, leader: Leader) -> None:
        (workload,) = await leader.submit("requeued")
        grant = await leader.grant_for(workload)
        await leader.store.grant(leader.epoch, [grant])
        await leader.store.requeue(leader.epoch, [a_requeue(workload.id)])
        assert granted(await leader.store.grant(leader.epoch, [grant])) == []
        assert (await leader.store.workloads([workload.id]))[0].state is State.PENDING

    async def test_a_due_release_is_claimed_once_until_the_claim_ends(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("lammps")
        ((claimed, allocation),) = await leader.store.claim_releases(leader.epoch, 10, 60.0)
        assert (claimed, allocation.jobid, allocation.release_attempts) == (workload, workload.jobid, 1)
        assert allocation.hosts == ("node-1", "node-2")
        assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []
        due = await leader.store.next_release_at()
        assert due is not None
        assert timedelta(seconds=50) < due - await leader.store.now() <= timedelta(seconds=60)

    async def test_a_grant_may_be_claimed_by_its_own_leader(self, leader: Leader) -> None:
        (workload,) = await leader.submit("lammps")
        delta = await leader.store.grant(leader.epoch, [await leader.grant_for(workload)], 60.0)
        assert delta.allocations == tuple(await leader.store.live_allocations())
        assert delta.allocations[0].release_attempts == 1
        assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []
        successor = Leader(leader.store, await leader.store.acquire_leadership("replica-1"))
        assert await successor.store.void_claims(successor.epoch) == [delta.allocations[0].jobid]
        ((_, allocation),) = await successor.store.claim_releases(successor.epoch, 10, 60.0)
        assert allocation.release_attempts == 2

    async def test_writes_about_slots_are_made_together(self, leader: Leader) -> None:
        starting, ending, draining = await leader.allocate("starting", "ending", "draining")
        writes = SlotWrites(
            released=[_jobid(starting), _jobid(ending)],
            taken=[
                TakenSlot(_jobid(starting), 0, "pod-a", "a"),
                TakenSlot(_jobid(starting), 1, "pod-b", "b"),
            ],
            started=[starting.id],
            ended=[(_jobid(ending), 0), (_jobid(draining), 0)],
            draining=[draining.id],
            endings=[Ending(ending.id, State.COMPLETED, Outcome.SUCCEEDED)],
            finished={_jobid(ending)},
        )
        deltas = await leader.store.write_slots(leader.epoch, writes)
        states = {
            each.id: each.state
            for each in await leader.store.workloads([starting.id, ending.id, draining.id])
        }
        assert states == {starting.id: State.RUNNING, ending.id: State.COMPLETED, draining.id: State.DRAINING}
        assert [jobid for delta in deltas for jobid in delta.freed] == [ending.jobid]
        assert [each.jobid for delta in deltas for each in delta.allocation_updates] == [
            starting.jobid,
            ending.jobid,
        ]
        assert {
            each.jobid: each.released_at is not None for each in await leader.store.live_allocations()
        } == {
            starting.jobid: True,
            draining.jobid: False,
        }
        assert [each for delta in deltas for each in delta.ended] == [ending.id]
        slots = {
            (slot.jobid, slot.rank): slot.state
            for each in await leader.store.live_allocations()
            for slot in each.slots
        }
        assert slots == {
            (starting.jobid, 0): SlotState.TAKEN,
            (starting.jobid, 1): SlotState.TAKEN,
            (draining.jobid, 0): SlotState.ENDED,
            (draining.jobid, 1): SlotState.FREE,
        }

    async def test_a_time_limit_is_kept_while_work_drains_and_is_an_outcome(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("limited")
        await leader.store.mark_started(leader.epoch, [workload.id])
        limited = RequeueState(time_limit=await leader.store.now())
        await leader.store.set_requeue_states(leader.epoch, {workload.id: limited})
        await leader.store.mark_draining(leader.epoch, [workload.id])
        (draining,) = await leader.store.workloads([workload.id])
        assert (draining.state, draining.requeue_state) == (State.DRAINING, limited)
        await leader.store.finish(
            leader.epoch, [Ending(workload.id, State.FAILED, Outcome.TIME_LIMIT, "too long")]
        )
        (ended,) = await leader.store.workloads([workload.id])
        assert (ended.state, ended.outcome, ended.message) == (State.FAILED, Outcome.TIME_LIMIT, "too long")

    async def test_of_writes_about_slots_none_is_made_if_one_is_refused(self, leader: Leader) -> None:
        first, second = await leader.allocate("first", "second")
        twice = [TakenSlot(_jobid(first), 0, "pod-a", "a"), TakenSlot(_jobid(second), 0, "pod-a", "a")]
        with pytest.raises(PodAlreadyPlaced):
            await leader.store.write_slots(leader.epoch, SlotWrites(taken=twice, started=[first.id]))
        assert [each.state for each in await leader.store.workloads([first.id])] == [State.ALLOCATED]

    async def test_a_release_whose_claim_ended_is_claimed_again_and_counted(self, leader: Leader) -> None:
        await leader.allocate("lammps")
        attempts = [
            (await leader.store.claim_releases(leader.epoch, 10, 0.0))[0][1].release_attempts
            for _ in range(3)
        ]
        assert attempts == [1, 2, 3]

    async def test_a_release_claimed_by_a_former_leader_is_due_again_at_once(self, leader: Leader) -> None:
        claimed, released = await leader.allocate("claimed", "released")
        await leader.store.claim_releases(leader.epoch, 10, 60.0)
        await leader.store.mark_released(leader.epoch, [_jobid(released)])
        successor = Leader(leader.store, await leader.store.acquire_leadership("replica-1"))
        assert await successor.store.void_claims(successor.epoch) == [claimed.jobid]
        assert [
            workload.id for workload, _ in await successor.store.claim_releases(successor.epoch, 10, 60.0)
        ] == [claimed.id]

    async def test_only_a_release_that_can_be_claimed_is_due(self, leader: Leader) -> None:
        waits, drains = await leader.allocate("waits", "drains")
        await leader.store.claim_releases(leader.epoch, 1, 60.0)
        await leader.store.mark_draining(leader.epoch, [drains.id])
        due = await leader.store.next_release_at()
        assert due is not None
        assert due > await leader.store.now()
        assert (await leader.store.workloads([waits.id]))[0].state is State.ALLOCATED

    async def test_twenty_concurrent_claims_never_return_an_allocation_twice(self, leader: Leader) -> None:
        workloads = await leader.allocate(*(f"job-{number}" for number in range(120)))

        async def claim_all() -> list[FluxionJobId]:
            mine: list[FluxionJobId] = []
            while claimed := await leader.store.claim_releases(leader.epoch, 3, 600.0):
                mine += [allocation.jobid for _, allocation in claimed]
            return mine

        claims = await asyncio.gather(*(claim_all() for _ in range(20)))
        claimed_ids = sorted(jobid for mine in claims for jobid in mine)
        assert claimed_ids == sorted(_jobid(workload) for workload in workloads)
        assert sum(bool(mine) for mine in claims) > 1

    async def test_only_allocated_workloads_are_released(self, leader: Leader) -> None:
        running, draining, ended = await leader.allocate("running", "draining", "ended")
        await leader.store.mark_started(leader.epoch, [running.id])
        await leader.store.mark_draining(leader.epoch, [draining.id])
        await leader.store.finish(leader.epoch, [Ending(ended.id, State.CANCELLED, Outcome.CANCELLED, "")])
        assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []

    async def test_released_work_is_not_claimed_again(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("lammps")
        (update,) = (await leader.store.mark_released(leader.epoch, [_jobid(workload)])).allocation_updates
        assert update.released_at is not None
        assert await leader.store.mark_released(leader.epoch, [_jobid(workload)]) == Delta()
        assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []
        assert await leader.store.next_release_at() is None
        assert (await leader.store.live_allocations())[0].released_at is not None

    async def test_a_failed_release_is_the_reason_until_one_succeeds(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("lammps")
        await leader.store.mark_release_failed(leader.epoch, _jobid(workload), "the API server answered 503")
        (failing,) = await leader.store.workloads([workload.id])
        assert (failing.reason, failing.message) == (Reason.RELEASE_FAILED, "the API server answered 503")
        await leader.store.mark_released(leader.epoch, [_jobid(workload)])
        assert (await leader.store.workloads([workload.id]))[0].reason is Reason.NONE

    async def test_an_overrun_moves_the_end(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("slow")
        later = START + timedelta(seconds=900)
        moved = Delta(allocation_updates=(AllocationUpdate(jobid=_jobid(workload), end=later),))
        assert await leader.store.move_ends(leader.epoch, [(_jobid(workload), later)]) == moved
        assert await leader.store.move_ends(leader.epoch, [(_jobid(workload), later)]) == Delta()
        assert (await leader.store.live_allocations())[0].end == later

    async def test_a_vacated_slot_is_taken_by_the_next_pod(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("web")
        jobid = _jobid(workload)
        for _ in range(2):
            taken = [TakenSlot(jobid, 0, "pod-a", "web-a"), TakenSlot(jobid, 1, "pod-b", "web-b")]
            assert slots_in(await leader.store.take_slots(leader.epoch, taken)) == [(jobid, 0), (jobid, 1)]
        vacated = await leader.store.vacate_slots(leader.epoch, [(jobid, 0, "pod-b"), (jobid, 1, "pod-b")])
        assert vacated == Delta(slot_updates=(SlotUpdate(jobid=jobid, rank=1, state=SlotState.FREE),))
        assert slots_in(
            await leader.store.take_slots(leader.epoch, [TakenSlot(jobid, 1, "pod-c", "web-c")])
        ) == [(jobid, 1)]
        (allocation,) = await leader.store.live_allocations()
        assert [(slot.state, slot.pod_uid, slot.pod_name) for slot in allocation.slots] == [
            (SlotState.TAKEN, "pod-a", "web-a"),
            (SlotState.TAKEN, "pod-c", "web-c"),
        ]

    async def test_a_slot_that_is_held_or_ended_is_not_given_to_another_pod(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("web")
        jobid = _jobid(workload)
        await leader.store.take_slots(leader.epoch, [TakenSlot(jobid, 0, "pod-a", "web-a")])
        await leader.store.end_slots(leader.epoch, [(jobid, 1)])
        wanted = [
            TakenSlot(jobid, 0, "pod-b", "web-b"),
            TakenSlot(jobid, 1, "pod-c", "web-c"),
            TakenSlot(jobid, 7, "pod-d", "web-d"),
        ]
        assert await leader.store.take_slots(leader.epoch, wanted) == Delta()

    async def test_a_pod_cannot_take_two_slots(self, leader: Leader) -> None:
        first, second = await leader.allocate("first", "second")
        await leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(first), 0, "pod-a", "a")])
        assert (
            await leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(second), 0, "pod-a", "a")])
            == Delta()
        )
        assert (
            await leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(first), 1, "pod-a", "a")])
            == Delta()
        )
        with pytest.raises(PodAlreadyPlaced, match="pod-b"):
            await leader.store.take_slots(
                leader.epoch, [TakenSlot(_jobid(second), rank, "pod-b", "b") for rank in (0, 1)]
            )
        taken = [
            slot
            for allocation in await leader.store.live_allocations()
            for slot in allocation.slots
            if slot.pod_uid
        ]
        assert [(slot.jobid, slot.rank) for slot in taken] == [(first.jobid, 0)]

    async def test_a_pod_offered_many_slots_at_once_takes_one(self, leader: Leader) -> None:
        workloads = await leader.allocate(*(f"job-{number}" for number in range(10)))
        offers = (
            leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(workload), 0, "pod-a", "a")])
            for workload in workloads
        )
        outcomes = await asyncio.gather(*offers, return_exceptions=True)
        assert (
            sum(outcome != Delta() and not isinstance(outcome, PodAlreadyPlaced) for outcome in outcomes) == 1
        )
        taken = [
            slot
            for allocation in await leader.store.live_allocations()
            for slot in allocation.slots
            if slot.pod_uid
        ]
        assert len(taken) == 1

    async def test_a_pod_may_take_another_slot_once_its_own_ended(self, leader: Leader) -> None:
        first, second = await leader.allocate("first", "second")
        await leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(first), 0, "pod-a", "a")])
        await leader.store.end_slots(leader.epoch, [(_jobid(first), 0)])
        assert slots_in(
            await leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(second), 0, "pod-a", "a")])
        ) == [(second.jobid, 0)]

    async def test_the_last_slot_frees_its_allocation_and_only_once(self, leader: Leader) -> None:
        (workload,) = await leader.allocate("job")
        jobid = _jobid(workload)
        assert (await leader.store.end_slots(leader.epoch, [(jobid, 0)])).freed == ()
        assert (await leader.store.end_slots(leader.epoch, [(jobid, 0), (jobid, 1)])).freed == (jobid,)
        assert (await leader.store.end_slots(leader.epoch, [(jobid, 1)])).freed == ()
        assert await leader.store.live_allocations() == []
        assert (await leader.store.workloads([workload.id]))[0].state is State.ALLOCATED

    async def test_slots_that_end_concurrently_free_their_allocation_once(self, leader: Leader) -> None:
        ranks = range(12)
        (workload,) = await leader.submit("wide", pods=len(ranks))
        grant = await leader.grant_for(workload, [f"node-{rank}" for rank in ranks])
        await leader.store.grant(leader.epoch, [grant])
        calls = await asyncio.gather(
            *(leader.store.end_slots(leader.epoch, [(grant.jobid, rank)]) for rank in ranks)
        )
        assert [jobid for call in calls for jobid in call.freed] == [grant.jobid]

    async def test_a_grant_and_a_concurrent_cancellation_leave_nothing(self, leader: Leader) -> None:
        workloads = await leader.submit(*(f"job-{number}" for number in range(30)))
        grants = [await leader.grant_for(workload) for workload in workloads]
        ends = [
            leader.store.finish(leader.epoch, [Ending(w.id, State.CANCELLED, Outcome.CANCELLED, "")])
            for w in workloads
        ]
        stored = [leader.store.grant(leader.epoch, [grant]) for grant in grants]
        await asyncio.gather(*(call for pair in zip(stored, ends, strict=True) for call in pair))
        assert await leader.store.live_allocations() == []
        assert {w.state for w in await leader.store.workloads([w.id for w in workloads])} == {State.CANCELLED}

    async def test_calls_that_lock_in_different_order_all_complete(self, leader: Leader) -> None:
        workloads = await leader.allocate(*(f"job-{number}" for number in range(12)))
        ids = [workload.id for workload in workloads]
        jobids = [_jobid(workload) for workload in workloads]
        for _ in range(5):
            await asyncio.gather(
                leader.store.end_slots(leader.epoch, [(jobid, 0) for jobid in jobids]),
                leader.store.mark_released(leader.epoch, jobids[::-1]),
                leader.store.requeue(leader.epoch, [a_requeue(each) for each in ids]),
                *(leader.store.mark_release_failed(leader.epoch, jobid, "503") for jobid in jobids),
            )
            grants = [await leader.grant_for(workload) for workload in workloads]
            assert len(granted(await leader.store.grant(leader.epoch, grants))) == len(ids)
            jobids = [grant.jobid for grant in grants]

    async def test_a_replacement_gets_the_unchanged_allocation(self, leader: Leader) -> None:
        (former,) = await leader.allocate("former")
        await leader.store.mark_released(leader.epoch, [_jobid(former)])
        await leader.store.take_slots(leader.epoch, [TakenSlot(_jobid(former), 0, "pod-a", "a")])
        taker, late = await leader.submit("taker", "late")
        wanted = [
            Replacement(
                replaced=former.id,
                replacement=each.id,
                state=State.CANCELLED,
                outcome=Outcome.CANCELLED,
                message="the pod was deleted",
            )
            for each in (taker, late)
        ]
        delta = await leader.store.replace(leader.epoch, wanted[:1])
        assert (delta.ended, [update.id for update in delta.workload_updates]) == ((former.id,), [taker.id])
        assert await leader.store.replace(leader.epoch, wanted) == Delta()
        (allocation,) = await leader.store.live_allocations()
        assert (allocation.jobid, allocation.workload, allocation.released_at) == (
            former.jobid,
            taker.id,
            None,
        )
        assert {slot.state for slot in allocation.slots} == {SlotState.FREE}
        before, after, waiting = await leader.store.workloads([former.id, taker.id, late.id])
        assert (before.state, before.outcome) == (State.CANCELLED, Outcome.CANCELLED)
        assert (after.state, after.jobid, after.hosts) == (State.ALLOCATED, former.jobid, former.hosts)
        assert waiting.state is State.PENDING
        ((claimed, _),) = await leader.store.claim_releases(leader.epoch, 10, 20)
        assert claimed.id == taker.id
        assert [change.after for change in await leader.store.history(taker.id)] == [
            State.PENDING,
            State.ALLOCATED,
        ]
