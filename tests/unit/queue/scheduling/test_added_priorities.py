"""What weights add to priorities: the same as the formula, for each kind of work and each age."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxqueues import PriorityWeights
from fluxqueue.api.priorityfactors import Waiting, priority_parts
from fluxqueue.queue.model.fair_share import FairShare, UserShare
from fluxqueue.queue.scheduling.added_priorities import AddedPriorities

weights = st.builds(
    PriorityWeights,
    age=st.integers(0, 10**9),
    fair_share=st.integers(0, 10**9),
    size=st.integers(-(10**9), 10**9),
    queue=st.integers(0, 10**6),
    priority_class=st.integers(0, 10**6),
)
work = st.tuples(
    st.integers(-(2**31), 2**31), st.integers(1, 500), st.sampled_from(["", "a", "b"]), st.integers(0, 10**7)
)


@given(weights, st.integers(-100, 100), st.lists(work, min_size=1, max_size=8))
def test_it_is_the_formula(
    rules: PriorityWeights, of_queue: int, jobs: list[tuple[int, int, str, int]]
) -> None:
    factors = {"a": 0.5, "b": 1.0}
    added = AddedPriorities(
        {"default": (rules, of_queue)},
        {name: FairShare(0, 0, 0, each) for name, each in factors.items()},
        EPOCH,
    )
    for priority, pods, account, waited_s in jobs:
        row = a_workload(
            priority=priority, pods=pods, account=account, submitted_at=EPOCH - timedelta(seconds=waited_s)
        )
        parts = priority_parts(Waiting(priority, waited_s, factors.get(account, 0.0), pods), rules, of_queue)
        assert priority + added.of(row) == parts.total


def test_a_queue_without_weights_adds_nothing() -> None:
    added = AddedPriorities({}, {"a": FairShare(0, 0, 0, 1.0)}, EPOCH)
    assert not added.any
    assert added.of(a_workload(account="a")) == 0


def test_work_of_a_user_has_the_factor_of_that_user_and_work_of_all_others_that_of_the_account() -> None:
    share = FairShare(
        0, 0, 0, 1.0, users={"alice": UserShare(5.0, 0.75), "system:serviceaccounts:md": UserShare(1.0, 0.5)}
    )
    added = AddedPriorities({"default": (PriorityWeights(fair_share=100), 0)}, {"a": share}, EPOCH)
    rows = [
        a_workload(account="a", namespace="md", submitted_by=user)
        for user in ("alice", "bob", "", "system:serviceaccount:md:robot")
    ]
    assert [added.of(row) for row in rows] == [75, 100, 50, 50]
