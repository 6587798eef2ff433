"""The pending workloads of a queue as columns: after any changes they equal those of a new backlog."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.queue_builders import a_workload

from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of, shape_of
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.backlog import Backlog, key_of

JOBSPECS = [
    jobspec_of("default/w", [SizedPods({"cpu": Decimal(cores)}, 2)], duration_s=60) for cores in (1, 2)
]
PLACES = st.integers(1, 12)
CHANGES = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.lists(st.tuples(PLACES, st.integers(0, 2), st.integers(0, 1), st.integers(1, 9)), max_size=5),
        ),
        st.tuples(st.just("take"), st.lists(PLACES, max_size=6)),
    ),
    max_size=12,
)


def work(place: int, priority: int = 0, kind: int = 0, minutes: int = 1) -> Workload:
    jobspec = JOBSPECS[kind]
    return a_workload(
        f"w{place}",
        id=WorkloadId(place),
        priority=priority,
        jobspec=jobspec,
        shape=shape_of(jobspec),
        duration_s=60 * minutes,
    )


def told(backlog: Backlog) -> list[tuple[Workload, int, int, int]]:
    """Each workload in order, with count, duration and cpu."""
    kinds = [backlog.request_kind(position) for position in range(len(backlog))]
    return [
        (workload, count, duration, millicores)
        for workload, (_, count, duration), millicores in zip(
            backlog, kinds, backlog.amounts_of_shapes("cpu")[backlog.shapes].tolist(), strict=True
        )
    ]


@given(CHANGES)
def test_a_changed_backlog_equals_a_new_one_of_the_same_workloads(
    changes: list[tuple[str, list[Any]]],
) -> None:
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
    assert [backlog.position(workload.id) for workload in sorted(there.values(), key=key_of)] == list(
        range(len(there))
    )
    assert all((WorkloadId(place) in backlog) == (place in there) for place in range(1, 13))


def test_removal_of_unknown_workloads_has_no_effect() -> None:
    backlog = Backlog([work(1), work(2)])
    backlog.remove_all([WorkloadId(3)])
    backlog.remove_all([])
    assert [workload.id for workload in backlog] == [1, 2]


def test_what_no_workload_has_any_more_is_forgotten() -> None:
    kept, last = work(1), work(2, minutes=9_000)
    backlog = Backlog([kept])
    family = backlog.request_kind(0)[0]
    for minutes in range(2, 9_000):
        backlog.update([work(2, minutes=minutes)])
    backlog.update([last])
    assert len(backlog.request_kinds().counts) < 6_000
    assert backlog.request_kind(0)[0] == family
    assert told(backlog) == told(Backlog([kept, last]))


def test_work_with_other_open_flavors_is_another_family_and_stays_one() -> None:
    young, younger = (replace(work(place), closed_flavors=1) for place in (1, 2))
    backlog = Backlog([young, younger, work(3)])
    first, second, third = (backlog.request_kind(row)[0] for row in range(3))
    assert first == second != third
    assert backlog.family_number(backlog.family_text(0)) == first
    kinds = backlog.request_kinds()
    assert kinds.group_of(first) not in (None, kinds.group_of(third))
    backlog.update([work(1), work(2)])
    assert {backlog.request_kind(row)[0] for row in range(3)} == {third}


def test_families_with_closed_flavors_are_forgotten_with_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluxqueue.queue.scheduling.policies.backlog._MOST_UNUSED", 0)
    backlog = Backlog([replace(work(1), closed_flavors=2), work(2, kind=1)])
    waiting = backlog.family_text(0)
    for place in (1, 3, 4):
        backlog.update([work(place, kind=1, minutes=place)])
    backlog.remove(WorkloadId(1))
    backlog._forget_unused()
    assert backlog.family_number(waiting) is None
