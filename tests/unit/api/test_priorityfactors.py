"""The parts of a priority."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.api.fluxqueues import PriorityWeights
from fluxqueue.api.priorityfactors import DEFAULT_WEIGHTS, Waiting, priority_parts

DAY_S = 86_400.0


@given(
    st.integers(-(2**31), 2**31),
    st.floats(0, 1e9),
    st.floats(0, 1),
    st.integers(1, 10**6),
    st.integers(-(2**31), 2**31),
)
def test_without_weights_a_priority_is_what_it_says(
    priority: int, age_s: float, fair_share: float, pods: int, of_queue: int
) -> None:
    assert (
        priority_parts(Waiting(priority, age_s, fair_share, pods), DEFAULT_WEIGHTS, of_queue).total
        == priority
    )


def test_each_part_has_its_weight_and_the_parts_add_up() -> None:
    weights = PriorityWeights(age=1_000, fair_share=2_000, size=-100, queue=10, priority_class=3)
    parts = priority_parts(Waiting(priority=57, age_s=3.5 * DAY_S, fair_share=0.75, pods=25), weights, 50)
    assert parts == (500, 1_500, -25, 500, 21)
    assert parts.total == 2_496


def test_age_and_size_count_up_to_their_bounds() -> None:
    weights = PriorityWeights(age=1_000, size=100, max_age_seconds=3_600, full_size_pods=8)
    assert priority_parts(Waiting(0, age_s=7_200, pods=400), weights, 0)[:3] == (1_000, 0, 100)
    assert priority_parts(Waiting(0, age_s=-5, pods=4), weights, 0)[:3] == (0, 0, 50)
