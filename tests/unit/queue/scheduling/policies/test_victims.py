import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.queue_builders import EPOCH, a_workload

from fluxqueue.queue.model.records import UNUSED_LAST, WorkloadId
from fluxqueue.queue.scheduling.policies.victims import (
    PreemptionCandidate,
    Victims,
    VictimSearch,
    choose_parts,
    choose_victims,
    is_below,
    preemption_order,
    price,
)

Nodes = dict[int, int]


def candidate(number: int, priority: int = 0, started_s: int = 0) -> PreemptionCandidate:
    return PreemptionCandidate(WorkloadId(number), priority, EPOCH + timedelta(seconds=started_s))


def chosen(
    candidates: list[PreemptionCandidate],
    priority: int,
    nodes: Nodes,
    wanted: int,
    free: int = 0,
    parts: Sequence[PreemptionCandidate] = (),
) -> list[int]:
    """Ids of the victims for work that needs so many nodes, with the number of nodes of each candidate."""
    choice = choose_victims(candidates, priority, parts=parts)
    try:
        trial = next(choice)
        while True:
            trial = choice.send(
                ("n",) if free + sum(nodes[each.workload] for each in trial) >= wanted else ()
            )
    except StopIteration as end:
        return [each.workload for each in end.value]


def test_the_lowest_priority_and_then_the_youngest_is_preempted_first() -> None:
    some = [candidate(1, 5), candidate(2, 0, started_s=10), candidate(3, 0, started_s=20)]
    assert [each.workload for each in preemption_order(some)] == [3, 2, 1]
    assert chosen(some, 9, {1: 1, 2: 1, 3: 1}, wanted=1) == [3]


def test_among_equal_priorities_the_one_that_loses_least_is_preempted_first() -> None:
    some = [
        replace(candidate(number), lost_node_s=lost) for number, lost in ((1, 30.0), (2, 10.0), (3, 20.0))
    ]
    assert [each.workload for each in preemption_order([*some, candidate(4, 5)])] == [2, 3, 1, 4]


def test_what_waits_again_is_preempted_before_what_is_lost_for_good() -> None:
    lost = replace(candidate(1), returns=False)
    some = [lost, replace(candidate(2), lost_node_s=100.0), candidate(3, 5)]
    assert [each.workload for each in preemption_order(some)] == [2, 1, 3]


def test_what_its_owner_needs_is_preempted_last_of_its_priority() -> None:
    needed = replace(candidate(1), needed=True)
    some = [needed, replace(candidate(2), lost_node_s=100.0), candidate(3, 5)]
    assert [each.workload for each in preemption_order(some)] == [2, 1, 3]


def test_one_larger_victim_is_better_than_two() -> None:
    some = [candidate(1, 0, started_s=10), candidate(2, 0, started_s=20), candidate(3, 1)]
    assert chosen(some, 9, {1: 1, 2: 1, 3: 2}, wanted=2) == [3]


def test_several_are_better_than_one_that_loses_more() -> None:
    """Two small Jobs that have just started, beside a wide one that ran for long."""
    small = [replace(candidate(number), lost_node_s=60.0) for number in (1, 2)]
    for lost_s, found in ((121.0, [1, 2]), (120.0, [3])):
        wide = replace(candidate(3), lost_node_s=lost_s)
        assert sorted(chosen([*small, wide], 9, {1: 1, 2: 1, 3: 2}, wanted=2)) == found
        assert sorted(chosen([*small, replace(wide, priority=1)], 9, {1: 1, 2: 1, 3: 2}, wanted=2)) == found


def test_one_is_better_than_several_of_higher_priority_that_lose_less() -> None:
    wide = replace(candidate(3), lost_node_s=1e6)
    small = [candidate(1, 1), candidate(2, 1)]
    assert chosen([wide, *small], 9, {1: 1, 2: 1, 3: 2}, wanted=2) == [3]


@pytest.mark.parametrize(("priority", "found"), [(1, [3]), (0, [2, 1])])
def test_no_pod_of_higher_priority_is_taken_beside_others_where_one_suffices(
    priority: int, found: list[int]
) -> None:
    wide = replace(candidate(3), lost_node_s=1e6)
    pod = replace(candidate(2, priority), of=WorkloadId(9))
    assert chosen([wide, candidate(1)], 9, {1: 1, 2: 1, 3: 2}, wanted=2, parts=[pod]) == found


@pytest.mark.parametrize("last", [{"returns": False}, {"needed": True}], ids=["lost for good", "needed"])
def test_what_comes_last_is_not_taken_alone_where_others_of_its_priority_help(last: dict[str, Any]) -> None:
    some = [candidate(1, 0, started_s=10), candidate(2, 0, started_s=20), replace(candidate(3), **last)]
    assert sorted(chosen(some, 9, {1: 1, 2: 1, 3: 2}, wanted=2)) == [1, 2]
    assert chosen([*some, candidate(4, 1)], 9, {1: 1, 2: 1, 3: 3, 4: 3}, wanted=3) == [3]


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
        assert all(
            free + sum(nodes[each] for each in victims if each != spared) < wanted for spared in victims
        )


# ---- many nodes: what a search finds, and with how many trials ---------------------------------------------

MOST_TRIALS = 75
"""Alone, by bisection in up to two orders, and to be left out."""


def searched(search: VictimSearch, taken: Callable[[Victims], Collection[str]]) -> tuple[Victims, int]:
    """Return what a search finds, and with how many trials."""
    trials = 1
    try:
        victims = next(search)
        while True:
            victims = search.send(taken(victims))
            trials += 1
    except StopIteration as end:
        return end.value, trials


def pods_on(nodes: int, each: int, draw: random.Random) -> dict[str, list[PreemptionCandidate]]:
    """Pods of elastic Jobs by node, each of another loss."""
    return {
        f"n{node}": [
            replace(
                candidate(pod),
                lost_node_s=draw.random() * 3600,
                ranks=(node,),
                of=WorkloadId(pod),
                nodes=frozenset({f"n{node}"}),
            )
            for pod in range(each)
        ]
        for node in range(nodes)
    }


def room_on(
    pods_needed: int, wanted: int, parts: dict[str, list[PreemptionCandidate]]
) -> Callable[[Victims], Collection[str]]:
    """Return which nodes work takes that wants so many on which so many pods are gone:
    as a matcher that goes by the names of nodes.
    """

    def taken(victims: Victims) -> Sequence[str]:
        gone = Counter(node for each in victims for node in each.nodes)
        enough = [node for node in parts if gone[node] >= pods_needed]
        return enough[:wanted] if len(enough) >= wanted else ()

    return taken


def in_both_orders(parts: dict[str, list[PreemptionCandidate]]) -> list[list[Victims]]:
    by_pod = preemption_order(each for pods in parts.values() for each in pods)
    by_node = sorted(parts.values(), key=lambda pods: sum(each.lost_node_s for each in pods))
    return [[(each,) for each in by_pod], [tuple(pods) for pods in by_node]]


@pytest.mark.parametrize(
    ("nodes", "each", "wanted"),
    [(250, 2, 40), (250, 2, 10), (125, 4, 20), (62, 8, 10), (100, 8, 60), (20, 2, 5)],
)
@pytest.mark.parametrize("seed", range(3))
def test_of_many_pods_those_of_the_nodes_end_that_lose_least_together(
    nodes: int, each: int, wanted: int, seed: int
) -> None:
    parts = pods_on(nodes, each, random.Random(seed))
    orders = in_both_orders(parts)
    victims, trials = searched(choose_parts(orders), room_on(each, wanted, parts))
    assert {part.nodes for part in victims} == {unit[0].nodes for unit in orders[1][:wanted]}
    assert len(victims) == wanted * each
    assert trials <= MOST_TRIALS


@pytest.mark.parametrize(("needed", "wanted"), [(1, 40), (4, 40), (7, 10)])
def test_of_many_pods_that_share_nodes_no_more_end_than_are_needed_on_each(needed: int, wanted: int) -> None:
    parts = pods_on(100, 8, random.Random(needed))
    victims, trials = searched(choose_parts(in_both_orders(parts)), room_on(needed, wanted, parts))
    assert sorted(Counter(next(iter(part.nodes)) for part in victims).values()) == [needed] * wanted
    assert trials <= MOST_TRIALS


def test_of_few_victims_those_end_that_lose_least_wherever_the_matcher_went() -> None:
    """With all of them gone the work would go to the first node, where more is lost."""
    held = {1: (1.0, {"n1"}), 2: (6.0, {"n0"}), 3: (8.0, {"n0", "n1"})}
    some = [
        replace(candidate(number), lost_node_s=lost, nodes=frozenset(nodes))
        for number, (lost, nodes) in held.items()
    ]

    def taken(victims: Victims) -> Collection[str]:
        stays = {node for each in some if each not in victims for node in each.nodes}
        return sorted({"n0", "n1"} - stays)[:1]

    victims, _ = searched(choose_victims(some, None), taken)
    assert [each.workload for each in victims] == [1, 3]


held_and_lost = st.tuples(
    st.integers(-1, 1), st.integers(0, 9), st.frozensets(st.integers(0, 7), min_size=1, max_size=3)
)


@given(st.lists(held_and_lost, min_size=2, max_size=8), st.integers(1, 8))
def test_of_up_to_eight_victims_no_other_set_that_suffices_loses_less(
    drawn: list[tuple[int, int, frozenset[int]]], wanted: int
) -> None:
    some = [
        replace(candidate(number, priority), lost_node_s=lost, nodes=frozenset(map(str, nodes)))
        for number, (priority, lost, nodes) in enumerate(drawn)
    ]

    def taken(victims: Collection[PreemptionCandidate]) -> Collection[str]:
        stays = {node for each in some if each not in victims for node in each.nodes}
        return sorted({*map(str, range(8))} - stays)[:wanted] if len(stays) + wanted <= 8 else ()

    victims, trials = searched(choose_victims(some, None), taken)
    enough = [each for size in range(9) for each in combinations(some, size) if taken(each)]
    alone = next((each for each in preemption_order(some) if taken([each])), None)
    if not enough or not enough[0]:
        assert len(victims) == len(enough[:1]), "none helps, or it starts anyway"
    elif alone is None:
        assert price(victims)[:2] == min(price(each)[:2] for each in enough)
    else:
        cheaper = [each for each in some if each.turn <= alone.turn and each.lost_node_s < alone.lost_node_s]
        several = min((price(each)[:2] for each in enough if set(each) <= set(cheaper)), default=None)
        better = several is not None and several[1] < alone.lost_node_s
        assert price(victims)[:2] == (several if better else price([alone])[:2])
    assert trials <= MOST_TRIALS + len(some)


@pytest.mark.parametrize("wanted", range(1, 9))
@pytest.mark.parametrize(("most_removals", "most"), [(32, MOST_TRIALS + 8), (8, 32)])
def test_of_eight_victims_that_are_alike_few_sets_are_tried(
    wanted: int, most_removals: int, most: int
) -> None:
    some = [
        replace(candidate(number), lost_node_s=1.0, nodes=frozenset({str(number)})) for number in range(8)
    ]

    def taken(victims: Victims) -> Collection[str]:
        return sorted({node for each in victims for node in each.nodes}) if len(victims) >= wanted else ()

    victims, trials = searched(choose_victims(some, None, most_removals=most_removals), taken)
    assert len(victims) == wanted
    assert trials <= most
    parts = [(replace(each, of=WorkloadId(9), ranks=(each.workload,)),) for each in some]
    spared, trials = searched(choose_parts([parts, parts], most_removals=most_removals), taken)
    assert len(spared) == wanted
    assert trials <= 2 * most


@pytest.mark.parametrize("priority", [5, 0, -10, UNUSED_LAST])
def test_of_few_victims_none_is_taken_that_is_not_needed(priority: int) -> None:
    some = [replace(candidate(number, priority), lost_node_s=number) for number in range(6)]
    parts = [(replace(each, of=WorkloadId(9), ranks=(number,)),) for number, each in enumerate(some)]

    def taken(victims: Victims) -> Collection[str]:
        return ("n",) if {2, 4} <= {each.workload for each in victims} else ()

    victims, _ = searched(choose_victims(some, None), taken)
    assert [each.workload for each in victims] == [2, 4]
    spared, _ = searched(choose_parts([parts]), taken)
    assert [each.workload for each in spared] == [2, 4]


@pytest.mark.parametrize("count", [5, 40, 100, 300])
def test_of_much_whole_work_only_that_on_the_nodes_which_help_ends(count: int) -> None:
    draw = random.Random(count)
    some = [
        replace(candidate(number), lost_node_s=draw.random(), nodes=frozenset({f"n{number}"}))
        for number in range(500)
    ]
    helping = {f"n{number}" for number in draw.sample(range(500), count)}
    parts = [
        replace(candidate(number), ranks=(number,), of=WorkloadId(number), nodes=frozenset({f"p{number}"}))
        for number in range(600, 800)
    ]
    helping_parts = {f"p{number}" for number in draw.sample(range(600, 800), 50)}

    def taken(victims: Victims) -> Collection[str]:
        gone = {node for each in victims for node in each.nodes}
        return helping | helping_parts if helping | helping_parts <= gone else ()

    victims, trials = searched(choose_victims(some, None, parts=parts), taken)
    assert {node for each in victims for node in each.nodes} == helping | helping_parts
    assert trials <= 2 * MOST_TRIALS
