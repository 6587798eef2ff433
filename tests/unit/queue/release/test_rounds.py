"""A round of releases: what is under way delays nothing else, and what has ended is stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.changes import SlotWrites
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload
from fluxqueue.queue.release.rounds import ReleaseResult, ReleaseRound
from fluxqueue.queue.store import StaleLeader

WITHIN_S = 60.0


class Bench:
    """Allocated workloads that are due, and releases that end when the test says so."""

    def __init__(self, count: int) -> None:
        self.ledger = RecordingLedger()
        self.begun: list[FluxionJobId] = []
        self.results: dict[FluxionJobId, asyncio.Future[ReleaseResult]] = {}
        self._something = asyncio.Event()
        self.add(*range(1, count + 1))
        self.ledger.now += timedelta(minutes=1)

    def add(self, *jobids: int) -> None:
        """Add workloads with these allocations, due for release."""
        for jobid in jobids:
            row = a_workload(f"job-{jobid}", id=jobid, uid=f"uid-{jobid}", state=State.ALLOCATED, jobid=jobid)
            self.ledger.put(row, replace(an_allocation(["n0"], jobid=jobid), released_at=None))

    async def release(self, _workload: Workload, allocation: Allocation) -> ReleaseResult:
        """A release that ends when its result is set."""
        self.begun.append(allocation.jobid)
        self._something.set()
        return await self.results.setdefault(allocation.jobid, asyncio.get_running_loop().create_future())

    def end(self, jobids: Sequence[int], result: ReleaseResult = ReleaseResult.RELEASED) -> None:
        """Set the results of releases that have begun."""
        for jobid in jobids:
            self.results[FluxionJobId(jobid)].set_result(result)

    async def until_begun(self, count: int) -> None:
        """Wait until so many releases have begun, and for their first step."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.begun) < count:
                self._something.clear()
                await self._something.wait()

    def start(self) -> asyncio.Task[None]:
        """Start a round."""
        return asyncio.create_task(ReleaseRound(self.ledger, self.release).run())


async def test_what_ends_together_is_stored_together() -> None:
    bench = Bench(3)
    round_ = bench.start()
    await bench.until_begun(3)
    bench.end([1, 2, 3])
    await asyncio.wait_for(round_, WITHIN_S)
    assert bench.ledger.written("note_released") == [1, 2, 3]
    await bench.ledger.write_slots(SlotWrites())
    assert not any(bench.ledger.releasing(FluxionJobId(jobid)) for jobid in (1, 2, 3))


async def test_a_release_that_takes_long_delays_neither_the_others_nor_what_becomes_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fluxqueue.queue.release.rounds._STORE_EVERY_S", 0.0)
    bench = Bench(2)
    round_ = bench.start()
    await bench.until_begun(2)
    bench.end([2])
    bench.add(3)
    await bench.until_begun(3)
    assert bench.ledger.written("note_released") == [2]
    bench.end([1, 3])
    await asyncio.wait_for(round_, WITHIN_S)
    assert bench.ledger.written("note_released") == [2, 1, 3]


async def test_no_more_than_there_is_room_for_are_claimed() -> None:
    bench = Bench(100)
    round_ = bench.start()
    await bench.until_begun(64)
    bench.end(range(1, 33))
    await bench.until_begun(96)
    assert bench.ledger.written("note_released") == list(range(1, 33))
    bench.end(range(33, 97))
    await bench.until_begun(100)
    bench.end(range(97, 101))
    await asyncio.wait_for(round_, WITHIN_S)
    assert sorted(bench.ledger.written("note_released")) == list(range(1, 101))


async def test_what_the_api_server_did_not_answer_is_due_again_soon() -> None:
    bench = Bench(2)
    round_ = bench.start()
    await bench.until_begun(2)
    bench.end([1], ReleaseResult.UNAVAILABLE)
    bench.end([2], ReleaseResult.STORED)
    await asyncio.wait_for(round_, WITHIN_S)
    assert (bench.ledger.written("retry_releases_soon"), bench.ledger.written("note_released")) == ([1], [])


async def test_an_error_ends_the_round_when_all_releases_are_accounted_for() -> None:
    bench = Bench(2)
    round_ = bench.start()
    await bench.until_begun(2)
    bench.results[FluxionJobId(1)].set_exception(StaleLeader("another leads"))
    await asyncio.sleep(0)
    bench.add(3)
    bench.end([2])
    with pytest.raises(StaleLeader):
        await asyncio.wait_for(round_, WITHIN_S)
    assert (bench.begun, bench.ledger.written("note_released")) == ([1, 2], [2])
    assert not bench.ledger.releasing(FluxionJobId(1))


async def test_a_cancelled_round_ends_its_releases() -> None:
    bench = Bench(1)
    round_ = bench.start()
    await bench.until_begun(1)
    round_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await round_
    assert bench.results[FluxionJobId(1)].cancelled()
    assert not bench.ledger.releasing(FluxionJobId(1))
