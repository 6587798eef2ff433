"""The index of planned ends says what the ends themselves say."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from support.queue_bench import START

from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.store.planned_end_index import PlannedEndIndex

SECONDS = st.integers(0, 9)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.one_of(st.none(), st.just("drop"), SECONDS)), max_size=40),
    SECONDS,
)
def test_ends_are_found_by_time_after_any_changes(steps: list[tuple[int, int | str | None]], at: int) -> None:
    index, ends = PlannedEndIndex(), dict[FluxionJobId, int]()
    now = START + timedelta(seconds=at)
    for number, what in steps:
        jobid = FluxionJobId(number)
        if isinstance(what, int):
            ends[jobid] = what
            index.put(jobid, START + timedelta(seconds=what))
        else:
            ends.pop(jobid, None)
            index.drop(jobid) if what else index.put(jobid, None)
        due = sorted((end, jobid) for jobid, end in ends.items() if end <= at)
        assert index.until(now) == [jobid for _, jobid in due]
        first = min((end for end in ends.values() if end > at), default=None)
        assert index.first_after(now) == (START + timedelta(seconds=first) if first is not None else None)


def test_ends_that_move_again_and_again_do_not_pile_up() -> None:
    index = PlannedEndIndex()
    for number in range(10_000):
        index.put(FluxionJobId(1), START + timedelta(seconds=number))
    assert len(index._heap) < 1_100
    assert index.until(START + timedelta(days=1)) == [1]
