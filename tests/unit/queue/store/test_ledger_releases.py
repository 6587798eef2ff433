"""Who starts much at once does not delay the release of others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from support.memory_store import memory_ledger
from support.queue_builders import a_new_workload, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.records import Grant


async def test_the_job_of_a_stranger_is_among_the_first_releases_beside_a_crowd() -> None:
    ledger = await memory_ledger()
    await ledger.upsert(
        [
            *(a_new_workload(f"crowd-{number}") for number in range(200)),
            a_new_workload("own", namespace="stranger"),
        ]
    )
    jobids = await ledger.next_jobids(201)
    shares, now = (NodeShare("n0", {"pod": 1}),), ledger.clock()
    await ledger.grant(
        [
            Grant(workload=row.id, jobid=jobid, shares=shares, hosts=("n0",), start=now, end=None)
            for row, jobid in zip(ledger.pending(), jobids, strict=True)
        ]
    )
    first = [workload.name for workload, _ in await ledger.claim_releases(2)]
    assert "job-own" in first
    assert len(await ledger.claim_releases(500)) == 199


async def test_releases_that_are_due_again_take_turns_too() -> None:
    ledger = RecordingLedger()
    for number in range(1, 402):
        namespace = "crowd" if number < 401 else "stranger"
        row = a_workload(
            id=number, uid=f"uid-{number}", namespace=namespace, state=State.ALLOCATED, jobid=number
        )
        ledger.put(row, replace(an_allocation(["n0"], jobid=number), released_at=None))
    ledger.now += timedelta(minutes=1)
    assert [allocation.jobid for _, allocation in await ledger.claim_releases(2)] == [1, 401]
    assert len(await ledger.claim_releases(500)) == 399
    assert await ledger.claim_releases(500) == []
