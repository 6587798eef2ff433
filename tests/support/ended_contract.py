"""The contract of workloads that have ended: run against Postgres and against the store in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from support.queue_records import Leader

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.traces import EndedWorkload

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


async def finish(leader: Leader, *workloads: Workload) -> None:
    await leader.store.finish(
        leader.epoch, [Ending(each.id, State.FAILED, Outcome.FAILED, "exit code 3") for each in workloads]
    )


async def read(
    leader: Leader, at: datetime = BEGIN, after: int = 0, settled_s: float = 0, limit: int = 100
) -> list[EndedWorkload]:
    return await leader.store.ended_after(at, WorkloadId(after), settled_s=settled_s, limit=limit)


class EndedContract:
    """What has ended, in its order."""

    async def test_ends_are_read_in_their_order_without_gap_or_repetition(self, leader: Leader) -> None:
        together, alone = await leader.allocate("a", "b", "c"), await leader.allocate("d")
        await leader.submit("waits")
        await finish(leader, *together)
        await finish(leader, *alone)
        found: list[str] = []
        at, after = BEGIN, 0
        while page := await read(leader, at, after, limit=2):
            found += [each.workload.name for each in page]
            last = page[-1].workload
            assert last.finished_at is not None
            at, after = last.finished_at, last.id
        assert found == [each.name for each in sorted(together, key=lambda each: each.id)] + [
            each.name for each in alone
        ]

    async def test_an_end_is_read_once_it_is_settled(self, leader: Leader) -> None:
        await finish(leader, *await leader.allocate("a"))
        assert await read(leader, settled_s=60) == []
        assert await read(leader, at=datetime.now(UTC) + timedelta(hours=1)) == []
        assert len(await read(leader)) == 1

    async def test_of_an_ended_workload_its_transitions_and_releases_are_known(self, leader: Leader) -> None:
        await leader.allocate("other")
        (workload,) = await leader.allocate("a")
        assert workload.jobid is not None
        await leader.store.mark_released(leader.epoch, [workload.jobid])
        await finish(leader, workload)
        (ended,) = await read(leader)
        assert [each.after for each in ended.transitions] == [State.PENDING, State.ALLOCATED, State.FAILED]
        assert [jobid for jobid, _ in ended.releases] == [workload.jobid]
