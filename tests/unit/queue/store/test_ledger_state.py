"""The leader's copy: what it keeps for a cycle equals what its rows say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.queue_bench import START
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.records import Allocation, FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.store.deltas import AllocationUpdate, Delta, WorkloadUpdate
from fluxqueue.queue.store.ledger_rows import TableContents
from fluxqueue.queue.store.ledger_state import LedgerState

IDS = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["grant", "free", "end", "remnant"]), IDS, st.none()),
        st.tuples(st.sampled_from(["message", "move"]), IDS, st.integers(1, 9)),
        st.tuples(st.just("look"), st.none(), st.none()),
        st.tuples(st.just("load"), st.none(), st.none()),
    ),
    max_size=30,
)


def work(number: int) -> Workload:
    return a_workload(f"w{number}", id=WorkloadId(number), uid=f"uid-{number}")


def allocation(number: int, *, remnant: bool = False) -> Allocation:
    jobid = FluxionJobId(number + 10 * remnant)
    return Allocation(
        jobid=jobid,
        workload=WorkloadId(number),
        shares=(),
        granted_at=START,
        start=START,
        end=START,
        remnant=remnant,
    )


@given(STEPS)
def test_live_work_is_that_of_the_rows_after_any_changes(steps: list[tuple[str, Any, Any]]) -> None:
    state = LedgerState(lambda: START)
    rows = {number: work(number) for number in range(1, 5)}
    held: dict[int, Allocation] = {}
    left: dict[int, Allocation] = {}
    state.apply(Delta(workloads=tuple(rows.values())))

    def wanted() -> list[tuple[Workload, Allocation]]:
        return [(rows[int(each.workload)], each) for each in (*held.values(), *left.values())]

    def agree() -> None:
        assert list(state.live()) == wanted()
        at = START + timedelta(seconds=4)
        ends = [(each.end or at, each.jobid) for _, each in wanted()]
        assert [each.jobid for _, each in state.planned_to_end(at)] == [
            jobid for end, jobid in sorted(ends) if end <= at
        ]
        assert state.next_planned_end(at) == min((end for end, _ in ends if end > at), default=None)

    for what, which, more in steps:
        if what == "grant" and which in rows and which not in held:
            held[which] = allocation(which)
            state.apply(Delta(allocations=(held[which],)))
        elif what == "remnant" and which in rows and which not in left:
            left[which] = allocation(which, remnant=True)
            state.apply(Delta(allocations=(left[which],)))
        elif what == "free" and held.pop(which, None) is not None:
            state.apply(Delta(freed=(FluxionJobId(which),)))
        elif what == "message" and which in rows:
            update = WorkloadUpdate(id=WorkloadId(which), message=str(more))
            rows[which] = update.of(rows[which])
            state.apply(Delta(workload_updates=(update,)))
        elif what == "move" and which in held:
            change = AllocationUpdate(jobid=FluxionJobId(which), end=START + timedelta(seconds=more))
            held[which] = change.of(held[which])
            state.apply(Delta(allocation_updates=(change,)))
        elif what == "end" and which in rows and which not in left:
            held.pop(which, None)
            del rows[which]
            state.apply(Delta(freed=(FluxionJobId(which),), ended=(WorkloadId(which),)))
        elif what == "look":
            agree()
        elif what == "load":
            contents = TableContents([*rows.values()], [*held.values(), *left.values()], [])
            list(state.loading_contents(contents, []))
    agree()


def test_work_that_drains_to_wait_again_is_found_with_its_allocation() -> None:
    state = LedgerState(lambda: START)
    rows = [work(number) for number in range(1, 4)]
    state.apply(Delta(workloads=tuple(rows), allocations=tuple(allocation(number) for number in (1, 2))))
    drains = [
        WorkloadUpdate(id=WorkloadId(1), state=State.DRAINING, reason=Reason.PREEMPTED),
        WorkloadUpdate(id=WorkloadId(2), state=State.DRAINING, reason=Reason.NONE),
        WorkloadUpdate(id=WorkloadId(3), state=State.DRAINING, reason=Reason.PREEMPTED),
    ]
    state.apply(Delta(workload_updates=tuple(drains)))
    assert [(row.id, each.jobid) for row, each in state.evicting()] == [(1, 1)]
    state.apply(
        Delta(
            workload_updates=(WorkloadUpdate(id=WorkloadId(1), state=State.PENDING),),
            freed=(FluxionJobId(1),),
        )
    )
    assert state.evicting() == []


def test_rows_are_loaded_in_parts_and_nobody_sees_some_of_them() -> None:
    state = LedgerState(lambda: START)
    state.apply(Delta(workloads=tuple(work(number) for number in range(1, 4))))
    rows = [work(number) for number in range(3, 10_000)]
    parts, seen = 0, set()
    for _ in state.loading_contents(TableContents(rows, [], []), []):
        parts += 1
        seen.add(len(state.all()))
        state.added_priority = lambda row: int(row.id == 7)
    assert (parts, seen) == (4, {3})
    assert (len(state.all()), state.by_uid("uid-1")) == (9_997, None)
    told: list[WorkloadId] = []
    state.subscribe(told.append)
    while state.tell_loaded(1_000):
        pass
    assert sorted(told) == list(range(1, 10_000))
    assert state.pending()[0].id == 7, "what is added to priorities changed while they were loaded"
