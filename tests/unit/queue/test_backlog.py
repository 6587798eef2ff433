"""The pending workloads of a queue as columns: whatever comes, changes or goes, they are those of a backlog made anew."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from queue_builders import a_workload

from fluxqueue.queue.jobspecs import Role, jobspec_of, shape_of
from fluxqueue.queue.policies.backlog import Backlog, key_of
from fluxqueue.queue.records import Workload, WorkloadId

JOBSPECS = [jobspec_of("default/w", [Role({"cpu": Decimal(cores)}, 2)], duration_s=60) for cores in (1, 2)]
PLACES = st.integers(1, 12)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(PLACES, st.integers(0, 2), st.integers(0, 1), st.integers(1, 9)), max_size=5)),
        st.tuples(st.just("take"), st.lists(PLACES, max_size=6)),
    ),
    max_size=12,
)


def work(place: int, priority: int = 0, kind: int = 0, minutes: int = 1) -> Workload:
    jobspec = JOBSPECS[kind]
    return a_workload(
        f"w{place}", id=WorkloadId(place), priority=priority, jobspec=jobspec, shape=shape_of(jobspec), duration_s=60 * minutes
    )


def told(backlog: Backlog) -> list[tuple[Workload, int, int, int]]:
    """Each workload in order, with what its columns say of it."""
    return list(zip(backlog, backlog.counts.tolist(), backlog.durations.tolist(), backlog.millicores.tolist(), strict=True))


@given(CHANGES)
def test_a_changed_backlog_is_that_of_the_workloads_it_was_left_with(changes: list[tuple[str, list[Any]]]) -> None:
    backlog, there = Backlog(), dict[int, Workload]()
    for what, which in changes:
        if what == "put":
            arriving = [work(*each) for each in which]
            backlog.update(arriving)
            there.update({workload.id: workload for workload in arriving})
        else:
            backlog.remove_all(WorkloadId(place) for place in which)
            for place in which:
                there.pop(place, None)
    assert told(backlog) == told(Backlog(there.values()))
    assert [backlog.position(workload.id) for workload in sorted(there.values(), key=key_of)] == list(range(len(there)))
    assert all((WorkloadId(place) in backlog) == (place in there) for place in range(1, 13))


def test_those_that_are_not_there_are_taken_out_without_complaint() -> None:
    backlog = Backlog([work(1), work(2)])
    backlog.remove_all([WorkloadId(3)])
    backlog.remove_all([])
    assert [workload.id for workload in backlog] == [1, 2]
