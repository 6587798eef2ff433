from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from queue_records import START, Leader, put_back

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.records import Epoch, FluxionJobId, Inheritance, SlotState, Workload
from fluxqueue.queue.store import PodAlreadyPlaced, Store


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


def _jobid(workload: Workload) -> FluxionJobId:
    assert workload.jobid is not None
    return workload.jobid


async def test_job_ids_are_given_once(store: Store) -> None:
    batches = await asyncio.gather(*(store.next_jobids(50) for _ in range(8)))
    given = [jobid for batch in batches for jobid in batch]
    assert len(set(given)) == 400


async def test_a_grant_is_stored_with_its_shares_and_slots(leader: Leader) -> None:
    (workload,) = await leader.submit("lammps")
    grant = await leader.grant_for(workload, ["node-1", "node-2", "node-2"])
    assert await leader.store.grant(leader.epoch, [grant]) == [workload.id]
    (allocation,) = await leader.store.live_allocations()
    assert (allocation.jobid, allocation.workload, allocation.shares, allocation.hosts) == (
        grant.jobid,
        workload.id,
        grant.shares,
        grant.hosts,
    )
    assert (allocation.start, allocation.end, allocation.released_at) == (START, START + timedelta(seconds=600), None)
    assert [(slot.rank, slot.state) for slot in allocation.slots] == [(0, SlotState.FREE), (1, SlotState.FREE), (2, SlotState.FREE)]
    (now,) = await leader.store.workloads([workload.id])
    assert (now.state, now.jobid, now.hosts, now.reason) == (State.ALLOCATED, grant.jobid, "node-[1-2,2]", Reason.NONE)
    assert now.allocated_at is not None


async def test_an_unbounded_grant_has_no_end(leader: Leader) -> None:
    (workload,) = await leader.submit("service", duration_s=None)
    await leader.store.grant(leader.epoch, [await leader.grant_for(workload)])
    assert [allocation.end for allocation in await leader.store.live_allocations()] == [None]


async def test_repeating_a_grant_stores_it_once_and_says_it_stands(leader: Leader) -> None:
    (workload,) = await leader.submit("lammps")
    grant = await leader.grant_for(workload)
    for _ in range(2):
        assert await leader.store.grant(leader.epoch, [grant]) == [workload.id]
    assert len(await leader.store.live_allocations()) == 1
    assert len(await leader.store.history(workload.id)) == 2


async def test_a_grant_for_a_workload_that_ended_meanwhile_is_left_to_the_caller(leader: Leader) -> None:
    cancelled, waiting = await leader.submit("cancelled", "waiting")
    grants = [await leader.grant_for(cancelled), await leader.grant_for(waiting)]
    await leader.store.finish(leader.epoch, [(cancelled.id, State.CANCELLED, Outcome.CANCELLED, "")])
    assert await leader.store.grant(leader.epoch, grants) == [waiting.id]
    assert [allocation.jobid for allocation in await leader.store.live_allocations()] == [grants[1].jobid]


async def test_a_workload_edited_after_it_was_matched_is_not_granted_what_it_was(leader: Leader) -> None:
    edited, same = await leader.submit("edited", "same")
    grants = [replace(await leader.grant_for(found), generation=found.generation) for found in (edited, same)]
    await leader.submit("edited", pods=1, generation=2)
    assert await leader.store.grant(leader.epoch, grants) == [same.id]
    assert (await leader.store.workloads([edited.id]))[0].state is State.PENDING


async def test_a_second_grant_for_a_workload_is_refused(leader: Leader) -> None:
    (workload,) = await leader.allocate("once")
    other = await leader.grant_for(workload, ["node-8", "node-9"])
    assert await leader.store.grant(leader.epoch, [other]) == []
    assert [allocation.jobid for allocation in await leader.store.live_allocations()] == [workload.jobid]


async def test_a_freed_grant_cannot_be_stored_again(leader: Leader) -> None:
    (workload,) = await leader.submit("requeued")
    grant = await leader.grant_for(workload)
    await leader.store.grant(leader.epoch, [grant])
    await leader.store.requeue(leader.epoch, [put_back(workload.id)])
    assert await leader.store.grant(leader.epoch, [grant]) == []
    assert (await leader.store.workloads([workload.id]))[0].state is State.PENDING


async def test_the_table_itself_refuses_a_second_live_grant_and_a_forbidden_transition(leader: Leader, database: str) -> None:
    (workload,) = await leader.allocate("once")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation, match="allocation_one_live_grant"):
            await connection.execute(
                "INSERT INTO fluxqueue.allocation (jobid, workload, shares, granted_at, starts_at, next_release_at)"
                " VALUES (999, %s, '[]', now(), now(), now())",
                (workload.id,),
            )
        with pytest.raises(psycopg.errors.CheckViolation, match="transition_allowed"):
            await connection.execute(
                "INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)"
                " VALUES (%s, now(), 'Running', 'Pending', '', '', 1)",
                (workload.id,),
            )


async def test_a_due_release_is_claimed_once_and_comes_back_when_its_time_is_over(leader: Leader) -> None:
    (workload,) = await leader.allocate("lammps")
    ((claimed, allocation),) = await leader.store.claim_releases(leader.epoch, 10, 60.0)
    assert (claimed, allocation.jobid, allocation.release_attempts) == (workload, workload.jobid, 1)
    assert allocation.hosts == ("node-1", "node-2")
    assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []
    due = await leader.store.next_release_at()
    assert due is not None
    assert timedelta(seconds=50) < due - await leader.store.now() <= timedelta(seconds=60)


async def test_a_claim_that_expired_is_handed_out_again_and_counted(leader: Leader) -> None:
    await leader.allocate("lammps")
    attempts = [(await leader.store.claim_releases(leader.epoch, 10, 0.0))[0][1].release_attempts for _ in range(3)]
    assert attempts == [1, 2, 3]


async def test_a_release_that_failed_is_due_soon_and_later_each_time_but_never_after_its_claim(leader: Leader, database: str) -> None:
    (workload,) = await leader.allocate("lammps")
    waits = []
    for _ in range(5):
        await _due(database)
        assert len(await leader.store.claim_releases(leader.epoch, 10, 3.0)) == 1
        assert await leader.store.release_soon(leader.epoch, [_jobid(workload)]) == [workload.jobid]
        at = await leader.store.next_release_at()
        assert at is not None
        waits.append((at - await leader.store.now()).total_seconds())
    assert waits == [pytest.approx(1, abs=0.5), pytest.approx(2, abs=0.5), *[pytest.approx(3, abs=0.5)] * 3]
    await leader.store.released(leader.epoch, [_jobid(workload)])
    assert await leader.store.release_soon(leader.epoch, [_jobid(workload)]) == []


async def _due(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("UPDATE fluxqueue.allocation SET next_release_at = now() WHERE released_at IS NULL")


async def test_what_a_former_leader_claimed_is_due_again_at_once(leader: Leader) -> None:
    claimed, released = await leader.allocate("claimed", "released")
    await leader.store.claim_releases(leader.epoch, 10, 60.0)
    await leader.store.released(leader.epoch, [_jobid(released)])
    successor = Leader(leader.store, await leader.store.acquire_leadership("replica-1"))
    assert await successor.store.void_claims(successor.epoch) == [claimed.jobid]
    assert [workload.id for workload, _ in await successor.store.claim_releases(successor.epoch, 10, 60.0)] == [claimed.id]


async def test_only_what_can_be_claimed_is_said_to_be_due(leader: Leader) -> None:
    waits, drains = await leader.allocate("waits", "drains")
    await leader.store.claim_releases(leader.epoch, 1, 60.0)
    await leader.store.draining(leader.epoch, [drains.id])
    due = await leader.store.next_release_at()
    assert due is not None
    assert due > await leader.store.now()
    assert (await leader.store.workloads([waits.id]))[0].state is State.ALLOCATED


async def test_twenty_claims_at_once_never_hand_out_a_row_twice(leader: Leader) -> None:
    workloads = await leader.allocate(*(f"job-{number}" for number in range(120)))

    async def claim_all() -> list[FluxionJobId]:
        mine: list[FluxionJobId] = []
        while claimed := await leader.store.claim_releases(leader.epoch, 3, 600.0):
            mine += [allocation.jobid for _, allocation in claimed]
        return mine

    claims = await asyncio.gather(*(claim_all() for _ in range(20)))
    handed_out = sorted(jobid for mine in claims for jobid in mine)
    assert handed_out == sorted(_jobid(workload) for workload in workloads)
    assert sum(bool(mine) for mine in claims) > 1


async def test_only_allocated_workloads_are_released(leader: Leader) -> None:
    running, draining, ended = await leader.allocate("running", "draining", "ended")
    await leader.store.started(leader.epoch, [running.id])
    await leader.store.draining(leader.epoch, [draining.id])
    await leader.store.finish(leader.epoch, [(ended.id, State.CANCELLED, Outcome.CANCELLED, "")])
    assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []


async def test_what_was_released_is_not_claimed_again(leader: Leader) -> None:
    (workload,) = await leader.allocate("lammps")
    assert await leader.store.released(leader.epoch, [_jobid(workload)]) == [workload.jobid]
    assert await leader.store.released(leader.epoch, [_jobid(workload)]) == []
    assert await leader.store.claim_releases(leader.epoch, 10, 60.0) == []
    assert await leader.store.next_release_at() is None
    assert (await leader.store.live_allocations())[0].released_at is not None


async def test_a_failed_release_is_said_until_it_works(leader: Leader) -> None:
    (workload,) = await leader.allocate("lammps")
    await leader.store.release_failed(leader.epoch, _jobid(workload), "the API server answered 503")
    (failing,) = await leader.store.workloads([workload.id])
    assert (failing.reason, failing.message) == (Reason.RELEASE_FAILED, "the API server answered 503")
    await leader.store.released(leader.epoch, [_jobid(workload)])
    assert (await leader.store.workloads([workload.id]))[0].reason is Reason.NONE


async def test_an_overrun_moves_the_end(leader: Leader) -> None:
    (workload,) = await leader.allocate("slow")
    later = START + timedelta(seconds=900)
    assert await leader.store.move_ends(leader.epoch, [(_jobid(workload), later)]) == [workload.jobid]
    assert await leader.store.move_ends(leader.epoch, [(_jobid(workload), later)]) == []
    assert (await leader.store.live_allocations())[0].end == later


async def test_pods_take_free_slots_and_leave_them_for_their_successors(leader: Leader) -> None:
    (workload,) = await leader.allocate("web")
    jobid = _jobid(workload)
    for _ in range(2):
        assert await leader.store.take_slots(leader.epoch, [(jobid, 0, "pod-a", "web-a"), (jobid, 1, "pod-b", "web-b")]) == [
            (jobid, 0),
            (jobid, 1),
        ]
    assert await leader.store.vacate_slots(leader.epoch, [(jobid, 0, "pod-b"), (jobid, 1, "pod-b")]) == [(jobid, 1)]
    assert await leader.store.take_slots(leader.epoch, [(jobid, 1, "pod-c", "web-c")]) == [(jobid, 1)]
    (allocation,) = await leader.store.live_allocations()
    assert [(slot.state, slot.pod_uid, slot.pod_name) for slot in allocation.slots] == [
        (SlotState.TAKEN, "pod-a", "web-a"),
        (SlotState.TAKEN, "pod-c", "web-c"),
    ]


async def test_a_slot_that_is_held_or_ended_is_not_given_to_another_pod(leader: Leader) -> None:
    (workload,) = await leader.allocate("web")
    jobid = _jobid(workload)
    await leader.store.take_slots(leader.epoch, [(jobid, 0, "pod-a", "web-a")])
    await leader.store.end_slots(leader.epoch, [(jobid, 1)])
    wanted = [(jobid, 0, "pod-b", "web-b"), (jobid, 1, "pod-c", "web-c"), (jobid, 7, "pod-d", "web-d")]
    assert await leader.store.take_slots(leader.epoch, wanted) == []


async def test_a_pod_cannot_stand_in_two_slots(leader: Leader) -> None:
    first, second = await leader.allocate("first", "second")
    await leader.store.take_slots(leader.epoch, [(_jobid(first), 0, "pod-a", "a")])
    assert await leader.store.take_slots(leader.epoch, [(_jobid(second), 0, "pod-a", "a")]) == []
    assert await leader.store.take_slots(leader.epoch, [(_jobid(first), 1, "pod-a", "a")]) == []
    with pytest.raises(PodAlreadyPlaced, match="pod-b"):
        await leader.store.take_slots(leader.epoch, [(_jobid(second), 0, "pod-b", "b"), (_jobid(second), 1, "pod-b", "b")])
    taken = [slot for allocation in await leader.store.live_allocations() for slot in allocation.slots if slot.pod_uid]
    assert [(slot.jobid, slot.rank) for slot in taken] == [(first.jobid, 0)]


async def test_a_pod_offered_to_many_slots_at_once_stands_in_one(leader: Leader) -> None:
    workloads = await leader.allocate(*(f"job-{number}" for number in range(10)))
    offers = (leader.store.take_slots(leader.epoch, [(_jobid(workload), 0, "pod-a", "a")]) for workload in workloads)
    outcomes = await asyncio.gather(*offers, return_exceptions=True)
    assert sum(outcome != [] and not isinstance(outcome, PodAlreadyPlaced) for outcome in outcomes) == 1
    taken = [slot for allocation in await leader.store.live_allocations() for slot in allocation.slots if slot.pod_uid]
    assert len(taken) == 1


async def test_a_pod_may_move_on_once_its_slot_ended(leader: Leader) -> None:
    first, second = await leader.allocate("first", "second")
    await leader.store.take_slots(leader.epoch, [(_jobid(first), 0, "pod-a", "a")])
    await leader.store.end_slots(leader.epoch, [(_jobid(first), 0)])
    assert await leader.store.take_slots(leader.epoch, [(_jobid(second), 0, "pod-a", "a")]) == [(second.jobid, 0)]


async def test_the_last_slot_frees_its_allocation_and_only_once(leader: Leader) -> None:
    (workload,) = await leader.allocate("job")
    jobid = _jobid(workload)
    assert await leader.store.end_slots(leader.epoch, [(jobid, 0)]) == []
    assert await leader.store.end_slots(leader.epoch, [(jobid, 0), (jobid, 1)]) == [jobid]
    assert await leader.store.end_slots(leader.epoch, [(jobid, 1)]) == []
    assert await leader.store.live_allocations() == []
    assert (await leader.store.workloads([workload.id]))[0].state is State.ALLOCATED


async def test_slots_that_end_at_the_same_moment_free_their_allocation_exactly_once(leader: Leader) -> None:
    ranks = range(12)
    (workload,) = await leader.submit("wide", pods=len(ranks))
    grant = await leader.grant_for(workload, [f"node-{rank}" for rank in ranks])
    await leader.store.grant(leader.epoch, [grant])
    freed = await asyncio.gather(*(leader.store.end_slots(leader.epoch, [(grant.jobid, rank)]) for rank in ranks))
    assert [jobid for call in freed for jobid in call] == [grant.jobid]


async def test_granting_and_cancelling_at_the_same_moment_leaves_nothing_behind(leader: Leader) -> None:
    workloads = await leader.submit(*(f"job-{number}" for number in range(30)))
    grants = [await leader.grant_for(workload) for workload in workloads]
    ends = [leader.store.finish(leader.epoch, [(w.id, State.CANCELLED, Outcome.CANCELLED, "")]) for w in workloads]
    stored = [leader.store.grant(leader.epoch, [grant]) for grant in grants]
    await asyncio.gather(*(call for pair in zip(stored, ends, strict=True) for call in pair))
    assert await leader.store.live_allocations() == []
    assert {w.state for w in await leader.store.workloads([w.id for w in workloads])} == {State.CANCELLED}


async def test_calls_that_lock_along_different_paths_do_not_block_each_other_for_good(leader: Leader) -> None:
    workloads = await leader.allocate(*(f"job-{number}" for number in range(12)))
    ids = [workload.id for workload in workloads]
    jobids = [_jobid(workload) for workload in workloads]
    for _ in range(5):
        await asyncio.gather(
            leader.store.end_slots(leader.epoch, [(jobid, 0) for jobid in jobids]),
            leader.store.released(leader.epoch, jobids[::-1]),
            leader.store.requeue(leader.epoch, [put_back(each) for each in ids]),
            *(leader.store.release_failed(leader.epoch, jobid, "503") for jobid in jobids),
        )
        grants = [replace(await leader.grant_for(workload)) for workload in workloads]
        assert len(await leader.store.grant(leader.epoch, grants)) == len(ids)
        jobids = [grant.jobid for grant in grants]


async def test_a_waiting_workload_inherits_an_allocation_as_it_is_and_its_former_one_ends(leader: Leader) -> None:
    (gone,) = await leader.allocate("gone")
    await leader.store.released(leader.epoch, [_jobid(gone)])
    await leader.store.take_slots(leader.epoch, [(_jobid(gone), 0, "pod-a", "a")])
    heir, late = await leader.submit("heir", "late")
    wanted = [
        Inheritance(gone=gone.id, heir=found.id, state=State.CANCELLED, outcome=Outcome.CANCELLED, message="the pod was deleted")
        for found in (heir, late)
    ]
    assert await leader.store.inherit(leader.epoch, wanted[:1]) == [heir.id]
    assert await leader.store.inherit(leader.epoch, wanted) == []
    (allocation,) = await leader.store.live_allocations()
    assert (allocation.jobid, allocation.workload, allocation.released_at) == (gone.jobid, heir.id, None)
    assert {slot.state for slot in allocation.slots} == {SlotState.FREE}
    before, after, waiting = await leader.store.workloads([gone.id, heir.id, late.id])
    assert (before.state, before.outcome) == (State.CANCELLED, Outcome.CANCELLED)
    assert (after.state, after.jobid, after.hosts) == (State.ALLOCATED, gone.jobid, gone.hosts)
    assert waiting.state is State.PENDING
    ((claimed, _),) = await leader.store.claim_releases(leader.epoch, 10, 20)
    assert claimed.id == heir.id
    assert [change.after for change in await leader.store.history(heir.id)] == [State.PENDING, State.ALLOCATED]
