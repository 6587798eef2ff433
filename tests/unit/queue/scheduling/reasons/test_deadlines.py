"""Which waiting work is found to miss its deadline."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.controller_bench import subscribed
from support.queue_builders import EPOCH, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.model.start_conditions import NO_START_CONDITIONS, StartConditions
from fluxqueue.queue.scheduling.reasons.deadlines import Deadlines, missed_deadline

DEADLINE = StartConditions(deadline=EPOCH + timedelta(hours=2))


def due(**changes: Any) -> Workload:
    """An hour of work that is to be done after two."""
    return a_workload(
        "late",
        **{"duration_s": 3600, "start_conditions": DEADLINE, "reason": Reason.WAITING_FOR_NODES, **changes},
    )


def starts(after_h: float | None) -> Estimate:
    return Estimate(position=1, eta=None if after_h is None else EPOCH + timedelta(hours=after_h))


def test_work_that_can_end_in_time_misses_nothing() -> None:
    assert missed_deadline(due(), starts(1), EPOCH) == ""
    assert missed_deadline(due(), None, EPOCH) == ""
    assert missed_deadline(due(start_conditions=NO_START_CONDITIONS), starts(9), EPOCH) == ""


def test_work_that_starts_too_late_is_told_when() -> None:
    message = missed_deadline(due(), starts(1.5), EPOCH)
    assert message.endswith(
        "is to be done by 2026-01-01T02:00:00Z, and is expected to start at 2026-01-01T01:30:00Z and to end "
        "at 2026-01-01T02:30:00Z"
    )


def test_work_that_is_longer_than_the_time_left_needs_no_estimate() -> None:
    assert "even if it started now" in missed_deadline(due(), None, EPOCH + timedelta(hours=1, seconds=1))


class Bench:
    """One workload with a deadline, and its estimate."""

    def __init__(self, row: Workload, estimate: Estimate | None) -> None:
        self.row, self.ledger = row, RecordingLedger((row, None))
        self.estimates: dict[WorkloadId, Estimate] = {row.id: estimate} if estimate is not None else {}
        self.deadlines = subscribed(Deadlines(self.ledger, self.estimates), self.ledger)

    @property
    def reason(self) -> Reason:
        now = self.ledger.get(self.row.id)
        assert now is not None
        return now.reason

    def refine(self, reason: Reason) -> ReasonChange:
        (change,) = self.deadlines.refine(
            [ReasonChange(workload=self.row.id, reason=reason, message="too little is free")]
        )
        return change


async def test_a_new_estimate_beyond_the_deadline_is_stored_once() -> None:
    bench = Bench(due(), starts(3))
    await bench.deadlines.report()
    bench.estimates[bench.row.id] = starts(4)
    await bench.deadlines.report()
    assert (bench.reason, len(bench.ledger.written("set_reasons"))) == (Reason.DEADLINE_UNREACHABLE, 1)


async def test_a_deadline_that_can_be_met_again_leaves_the_reason_to_the_next_cycle() -> None:
    bench = Bench(due(), starts(3))
    await bench.deadlines.report()
    bench.estimates[bench.row.id] = starts(None)
    await bench.deadlines.report()
    assert str(bench.reason) == "DeadlineUnreachable", "without an estimate nothing is better known"
    bench.estimates[bench.row.id] = starts(0.5)
    await bench.deadlines.report()
    assert str(bench.reason) == ""


async def test_a_deadline_that_is_removed_is_missed_no_more() -> None:
    bench = Bench(due(reason=Reason.DEADLINE_UNREACHABLE, start_conditions=NO_START_CONDITIONS), starts(3))
    await bench.deadlines.report()
    assert str(bench.reason) == ""


async def test_work_that_waits_for_something_else_keeps_that_reason() -> None:
    bench = Bench(due(reason=Reason.WAITING_FOR_BEGIN), starts(3))
    await bench.deadlines.report()
    assert bench.reason is Reason.WAITING_FOR_BEGIN
    assert bench.refine(Reason.QUEUE_LIMIT).reason is Reason.QUEUE_LIMIT


async def test_what_a_cycle_finds_is_refined_with_the_message_that_is_known() -> None:
    bench = Bench(due(), starts(3))
    await bench.deadlines.report()
    bench.estimates[bench.row.id] = starts(5)
    change = bench.refine(Reason.WAITING_FOR_NODES)
    assert (change.reason, "2026-01-01T03:00:00Z" in change.message) == (Reason.DEADLINE_UNREACHABLE, True)
