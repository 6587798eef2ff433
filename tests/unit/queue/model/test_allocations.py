"""What is asked about one slot of a large allocation does not cost a look at all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.queue_builders import an_allocation
from support.work_counts import assert_linear

from fluxqueue.queue.model.records import Allocation

QUESTIONS: dict[str, Callable[[Allocation, int], object]] = {
    "slot of a pod": lambda allocation, number: allocation.slot_of(f"p{number}"),
    "share of a node": lambda allocation, number: allocation.share_on(f"n{number}"),
    "slots for a pod": lambda allocation, number: allocation.open_slots_for(f"p{number}", f"n{number}"),
    "is it one of its pods": lambda allocation, number: f"p{number}" in allocation.pod_uids,
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_all_pods_together_cost_in_proportion_to_their_number(
    question: Callable[[Allocation, int], object],
) -> None:
    def ask(pods: int) -> Callable[[], object]:
        allocation = an_allocation(
            [f"n{each}" for each in range(pods)], pods=[f"p{each}" for each in range(pods)]
        )
        return lambda: [question(allocation, number) for number in range(pods)]

    assert_linear(ask)


def test_a_slot_is_found_by_its_pod() -> None:
    allocation = an_allocation(["n0", "n1"], pods=["p0", None])
    assert allocation.slot_of("p0") == allocation.slots[0]
    assert allocation.slot_of("p1") is None
