from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from support.queue_builders import EPOCH, a_workload

from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.policies.victims import PreemptionCandidate, choose_victims, is_below, preemption_order

Nodes = dict[int, int]


def candidate(number: int, priority: int = 0, started_s: int = 0) -> PreemptionCandidate:
    return PreemptionCandidate(WorkloadId(number), priority, EPOCH + timedelta(seconds=started_s))


def chosen(candidates: list[PreemptionCandidate], priority: int, nodes: Nodes, wanted: int, free: int = 0) -> list[int]:
    """Ids of the victims for work that needs so many nodes, with the number of nodes of each candidate."""
    choice = choose_victims(candidates, priority)
    try:
        trial = next(choice)
        while True:
            trial = choice.send(free + sum(nodes[each.workload] for each in trial) >= wanted)
    except StopIteration as end:
        return [each.workload for each in end.value]


def test_the_lowest_priority_and_then_the_youngest_is_preempted_first() -> None:
    some = [candidate(1, 5), candidate(2, 0, started_s=10), candidate(3, 0, started_s=20)]
    assert [each.workload for each in preemption_order(some)] == [3, 2, 1]
    assert chosen(some, 9, {1: 1, 2: 1, 3: 1}, wanted=1) == [3]


def test_among_equal_priorities_the_one_that_loses_least_is_preempted_first() -> None:
    some = [replace(candidate(number), lost_node_s=lost) for number, lost in ((1, 30.0), (2, 10.0), (3, 20.0))]
    assert [each.workload for each in preemption_order([*some, candidate(4, 5)])] == [2, 3, 1, 4]


def test_what_waits_again_is_preempted_before_what_is_lost_for_good() -> None:
    lost = replace(candidate(1), returns=False)
    some = [lost, replace(candidate(2), lost_node_s=100.0), candidate(3, 5)]
    assert [each.workload for each in preemption_order(some)] == [2, 1, 3]


def test_one_larger_victim_is_better_than_two() -> None:
    some = [candidate(1, 0, started_s=10), candidate(2, 0, started_s=20), candidate(3, 1)]
    assert chosen(some, 9, {1: 1, 2: 1, 3: 2}, wanted=2) == [3]


def test_no_victim_is_chosen_if_that_does_not_help() -> None:
    assert chosen([candidate(1), candidate(2)], 9, {1: 1, 2: 1}, wanted=3) == []


def test_work_of_equal_priority_is_no_victim() -> None:
    assert chosen([candidate(1, 9), candidate(2, 10)], 9, {1: 4, 2: 4}, wanted=1) == []


def test_only_work_that_is_below_in_stated_priority_and_in_order_may_be_a_victim() -> None:
    first = a_workload("first", priority=10, added_priority=100)
    assert is_below(a_workload("lower", priority=9, added_priority=100), first)
    assert not is_below(a_workload("equal", priority=10), first)
    assert not is_below(a_workload("ahead", priority=0, added_priority=110), first)


running = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(1, 4)), max_size=30)


@given(running, st.integers(0, 4), st.integers(1, 40), st.integers(0, 10))
def test_victims_suffice_are_all_needed_and_of_lower_priority(
    drawn: list[tuple[int, int, int]], priority: int, wanted: int, free: int
) -> None:
    some = [candidate(number, rank, started) for number, (rank, started, _) in enumerate(drawn)]
    nodes = {number: held for number, (_, _, held) in enumerate(drawn)}
    victims = chosen(some, priority, nodes, wanted, free)
    lower = [each.workload for each in some if each.priority < priority]
    assert set(victims) <= set(lower)
    assert len(set(victims)) == len(victims)
    if not victims:
        assert not lower or free + sum(nodes[each] for each in lower) < wanted
        return
    assert free + sum(nodes[each] for each in victims) >= wanted
    if wanted > free:
        assert all(free + sum(nodes[each] for each in victims if each != spared) < wanted for spared in victims)
