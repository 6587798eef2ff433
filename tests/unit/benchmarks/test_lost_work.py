"""The model of the choice that preemption is compared with, and the traces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lost_work import KINDS, mixed_trace, newest_first

from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, Victims

START = datetime(2026, 11, 28, tzinfo=UTC)


def candidate(number: int, priority: int, started_s: int) -> PreemptionCandidate:
    return PreemptionCandidate(WorkloadId(number), priority, START + timedelta(seconds=started_s))


def victims(nodes: dict[int, int], wanted: int, *running: PreemptionCandidate) -> list[int]:
    search = newest_first(running, 9)
    try:
        tried = next(search)
        while True:
            enough = sum(nodes[each.workload] for each in tried) >= wanted
            tried = search.send(("n",) if enough else ())
    except StopIteration as end:
        chosen: Victims = end.value
        return sorted(each.workload for each in chosen)


@pytest.mark.parametrize(("wanted", "found"), [(1, [2]), (2, [1, 2]), (3, [2, 3]), (9, [])])
def test_the_lowest_priority_ends_first_then_the_newest_and_none_that_is_not_needed(
    wanted: int, found: list[int]
) -> None:
    running = [candidate(1, 0, 10), candidate(2, 0, 20), candidate(3, 1, 30), candidate(4, 9, 40)]
    assert victims({1: 1, 2: 1, 3: 2, 4: 9}, wanted, *running) == found


def test_a_mixed_trace_has_all_kinds_and_its_load() -> None:
    trace = mixed_trace(1, 2_000, 1.0)
    assert len(trace.jobs) == 2_000
    assert {each.user for each in trace.jobs} == {each.name for each in KINDS}
    assert trace.load == pytest.approx(1.0, rel=0.01)
    assert all(each.checkpoint_s == 0 for each in trace.jobs if each.user in ("urgent", "serving"))
