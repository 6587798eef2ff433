"""Requests below levels of the topology, also compared with every possible placement."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest
from support.fluxion_builders import NOW, ask, check_books, engine, jobspec, nodes, slot

from fluxqueue.fluxion.changes import AddNodes, CancelJobs, CancelPart, SetAdvanceReservations
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import (
    AdvanceReservation,
    CallContext,
    GraphNodeSpec,
    Level,
    MatchResult,
    MatchVerdict,
    NodeShare,
    Pool,
)


def node(name: str, slots: int, *levels: tuple[str, str]) -> GraphNodeSpec:
    return GraphNodeSpec(
        name, (Pool("cpu", slots * 100, 100),), tuple(Level(kind, value) for kind, value in levels)
    )


def racks(*sizes: int, each: int = 4, zones: int = 1) -> tuple[GraphNodeSpec, ...]:
    """Racks of so many nodes with four slots each; racks change between zones."""
    return tuple(
        node(f"r{number}n{index}", each, ("zone", f"z{number % zones}"), ("rack", f"r{number}"))
        for number, size in enumerate(sizes)
        for index in range(size)
    )


def below(kind: str, *inside: dict[str, Any], count: int = 1, label: str = "group") -> dict[str, Any]:
    return {"type": kind, "count": count, "label": label, "with": list(inside)}


def in_rack(count: int, **options: Any) -> str:
    return jobspec(below("rack", slot(count, cpu=100)), **options)


def placed(result: MatchResult) -> dict[str, int]:
    return {share.node: sum(share.slots.values()) for share in result.shares}


def by_rack(result: MatchResult) -> dict[str, int]:
    found: Counter[str] = Counter()
    for share in result.shares:
        found[share.node.partition("n")[0]] += sum(share.slots.values())
    return dict(found)


def test_a_required_level_takes_the_domain_that_holds_least_of_those_that_hold_all() -> None:
    made = engine(*racks(3, 2, 1))
    assert by_rack(ask(made, in_rack(4))) == {"r2": 4}
    assert by_rack(ask(made, in_rack(5))) == {"r1": 5}
    assert by_rack(ask(made, in_rack(5))) == {"r0": 5}, "r1 has three slots left"
    check_books(made)


def test_what_no_domain_holds_now_waits_although_the_cluster_has_room() -> None:
    made = engine(*racks(2, 2))
    ask(made, jobspec(nodes(2, slot(1, cpu=100)), constraints={"hostlist": ["r0n0,r1n0"]}))
    result = ask(made, in_rack(8))
    assert result.verdict is MatchVerdict.BUSY
    assert result.reason == "no rack has free 8 slots: r0 has the most: 7"
    assert (result.shortages[0].wanted, result.shortages[0].available, result.shortages[0].level) == (
        8,
        7,
        "rack",
    )


def test_what_no_domain_could_ever_hold_is_unsatisfiable_with_the_largest() -> None:
    result = ask(engine(*racks(2, 3)), in_rack(13))
    assert (result.verdict, result.reason) == (
        MatchVerdict.UNSATISFIABLE,
        "no rack holds 13 slots: the largest holds 12",
    )


def test_a_level_that_no_node_has_is_unsatisfiable_and_named() -> None:
    result = ask(engine(node("n", 4)), in_rack(1))
    assert result.verdict is MatchVerdict.UNSATISFIABLE
    assert (
        result.reason
        == "wants to be below one rack, and no node is below any: label the nodes, or ask for another level"
    )


def test_a_node_without_the_level_is_not_used() -> None:
    made = engine(node("bare", 8), *racks(1))
    assert placed(ask(made, in_rack(4))) == {"r0n0": 4}
    assert ask(made, in_rack(1)).verdict is MatchVerdict.BUSY


def test_a_resource_that_no_node_has_is_explained_without_the_level() -> None:
    result = ask(engine(*racks(2)), jobspec(below("rack", slot(1, cpu=500))))
    assert result.reason == "no node has 0.5 cpu: the largest has 0.4 cpu in all"


def test_a_reservation_is_for_the_first_time_at_which_one_domain_holds_all() -> None:
    made = engine(*racks(2, 2))
    ask(made, jobspec(nodes(1, slot(4, cpu=100)), duration=100, constraints={"hostlist": ["r0n0"]}))
    ask(made, jobspec(nodes(1, slot(4, cpu=100)), duration=200, constraints={"hostlist": ["r1n0"]}))
    ask(made, jobspec(nodes(1, slot(4, cpu=100)), duration=300, constraints={"hostlist": ["r0n1"]}))
    result = ask(made, in_rack(8), reserve=True)
    assert (result.verdict, result.at, by_rack(result)) == (MatchVerdict.RESERVED, 1_200, {"r1": 8}), (
        "eight are free at 1100, not in one rack"
    )
    check_books(made)


def test_backfill_never_moves_the_reservation_of_a_rack() -> None:
    made = engine(*racks(2))
    ask(made, jobspec(nodes(1, slot(4, cpu=100)), duration=100))
    reserved = ask(made, in_rack(8, duration=500), 7, reserve=True)
    assert reserved.at == 1_100
    assert ask(made, in_rack(4, duration=101)).verdict is MatchVerdict.BUSY
    assert ask(made, in_rack(4, duration=100)).verdict is MatchVerdict.GRANTED
    later = ask(made, in_rack(8, duration=500), 7, call=CallContext(now=1_100), reserve=True)
    assert (later.verdict, by_rack(later)) == (MatchVerdict.BUSY, {}) or later.verdict is MatchVerdict.GRANTED


def test_a_preferred_level_comes_as_low_as_possible() -> None:
    made = engine(*racks(2, 1, 2, zones=2))
    wants = jobspec(below("rack", slot(8, cpu=100), label="preferred"))
    assert by_rack(ask(made, wants)) == {"r0": 8}
    assert by_rack(ask(made, wants)) == {"r2": 8}, "one rack, although its zone is the larger one"
    again = engine(*racks(1, 2, 1, zones=2))
    ask(again, jobspec(nodes(1, slot(1, cpu=100)), constraints={"hostlist": ["r1n0"]}))
    assert by_rack(ask(again, wants)) == {"r0": 4, "r2": 4}, "no rack has eight, so one zone with them"
    assert (
        ask(again, jobspec(below("rack", slot(7, cpu=100), label="preferred"))).verdict
        is MatchVerdict.GRANTED
    )


def test_a_preferred_level_fits_wherever_the_request_fits_without_it() -> None:
    made = engine(*racks(1, 1, 1), node("bare", 4))
    result = ask(made, jobspec(below("rack", slot(14, cpu=100), label="preferred")))
    assert (by_rack(result)["r0"], placed(result)["bare"]) == (4, 2), "nodes outside of all racks come last"


def test_what_one_domain_does_not_hold_uses_as_few_as_possible() -> None:
    made = engine(*racks(1, 3, 2, 1))
    result = ask(made, jobspec(below("rack", slot(16, cpu=100), label="preferred")))
    assert by_rack(result) == {"r1": 12, "r0": 4}, "the largest whole, and the rest where it fits best"


def test_a_preferred_level_stays_below_the_required_one() -> None:
    made = engine(*racks(1, 2, 1, zones=2))
    both = jobspec(below("zone", below("rack", slot(6, cpu=100), label="preferred")))
    assert by_rack(ask(made, both)) == {"r1": 6}
    assert by_rack(ask(made, both)) == {"r0": 4, "r2": 2}
    assert ask(made, both).verdict is MatchVerdict.BUSY


def test_slices_lie_below_one_vertex_each_and_may_share_it() -> None:
    made = engine(*racks(2, 1, 1, each=3))
    result = ask(made, jobspec(below("rack", slot(2, cpu=100), count=4)))
    assert by_rack(result) == {"r0": 6, "r1": 2}
    result = ask(made, jobspec(below("rack", slot(2, cpu=100), count=2)))
    assert (result.verdict, result.reason) == (
        MatchVerdict.BUSY,
        "wants 2 groups of 2 slots, each below one rack: free now: 1",
    ), "r1 has one slot left and r2 three"
    check_books(made)


def test_ranks_of_a_slice_are_neighbours() -> None:
    result = ask(engine(*racks(1, 1, 1, each=3)), jobspec(below("rack", slot(2, cpu=100), count=3)))
    ranks = [share.node for share in result.shares for _ in range(sum(share.slots.values()))]
    assert [len(set(ranks[first : first + 2])) for first in (0, 2, 4)] == [1, 1, 1]


def test_slices_below_a_required_level() -> None:
    made = engine(*racks(1, 1, 1, 1, zones=2))
    text = jobspec(below("zone", below("rack", slot(3, cpu=100), count=2)))
    assert set(by_rack(ask(made, text))) in ({"r0", "r2"}, {"r1", "r3"})
    assert set(by_rack(ask(made, text))) in ({"r0", "r2"}, {"r1", "r3"})
    assert ask(made, text).verdict is MatchVerdict.BUSY


def test_slices_are_reserved_for_when_enough_of_them_fit() -> None:
    made = engine(*racks(1, 1, 1))
    for host, duration in (("r0n0", 100), ("r1n0", 200), ("r2n0", 300)):
        ask(made, jobspec(nodes(1, slot(2, cpu=100)), duration=duration, constraints={"hostlist": [host]}))
    result = ask(made, jobspec(below("rack", slot(3, cpu=100), count=2)), reserve=True)
    assert (result.verdict, result.at, by_rack(result)) == (MatchVerdict.RESERVED, 1_200, {"r0": 3, "r1": 3})


def test_nodes_with_a_slot_each_lie_below_one_vertex() -> None:
    made = engine(*racks(2, 3))
    assert by_rack(ask(made, jobspec(below("rack", nodes(3, slot(1, cpu=100)))))) == {"r1": 3}
    assert placed(ask(made, jobspec(below("node", slot(4, cpu=100))))) == {"r0n0": 4}


def test_pods_of_several_sizes_lie_below_one_vertex() -> None:
    made = engine(*racks(1, 2))
    parts = (slot(2, "a", cpu=200), slot(1, "b", cpu=100))
    assert by_rack(ask(made, jobspec(below("rack", *parts)))) == {"r1": 3}
    result = ask(made, jobspec(below("rack", *parts)))
    assert (result.verdict, result.reason) == (
        MatchVerdict.BUSY,
        "its parts do not fit below one rack together",
    )
    later = ask(made, jobspec(below("rack", *parts), duration=10), reserve=True)
    assert (later.verdict, later.at) == (MatchVerdict.RESERVED, 1_060)


@pytest.mark.parametrize("policy", ["low", "high", "hinode", "first", "locality", "variation"])
def test_every_match_policy_keeps_the_levels(policy: str) -> None:
    made = engine(*racks(2, 3), policy=policy)
    assert by_rack(ask(made, in_rack(8))) == {"r0": 8}
    assert by_rack(ask(made, jobspec(below("rack", slot(3, cpu=100), count=3)))) == {"r1": 9}
    check_books(made)


def test_a_node_that_moves_to_another_rack_counts_there() -> None:
    made = engine(*racks(1, 1))
    assert ask(made, in_rack(8)).verdict is MatchVerdict.UNSATISFIABLE
    made.apply([AddNodes([node("r1n0", 4, ("zone", "z0"), ("rack", "r0"))])])
    assert placed(ask(made, in_rack(8))) == {"r0n0": 4, "r1n0": 4}
    check_books(made)


def test_a_reservation_is_dropped_when_its_node_leaves_the_rack() -> None:
    made = engine(*racks(2))
    ask(made, jobspec(nodes(1, slot(4, cpu=100)), duration=100))
    assert ask(made, in_rack(8), 9, reserve=True).at == 1_100
    answer = made.apply([AddNodes([node("r0n1", 4, ("zone", "z0"), ("rack", "other"))])])
    assert answer.displaced == (9,)


def shared(text: str, *rules: dict[str, Any]) -> str:
    spec = json.loads(text)
    spec["attributes"]["system"]["domains"] = list(rules)
    return json.dumps(spec)


def test_at_most_so_many_slots_go_to_a_node() -> None:
    made = engine(*racks(3))
    text = shared(jobspec(slot(5, cpu=100)), {"key": "", "most": 2})
    assert placed(ask(made, text)) == {"r0n0": 2, "r0n1": 2, "r0n2": 1}
    result = ask(made, shared(jobspec(slot(9, cpu=100)), {"key": "", "most": 2}))
    assert (result.verdict, result.reason) == (
        MatchVerdict.UNSATISFIABLE,
        "wants 9 slots, at most 2 of them on one node, the empty cluster holds 6",
    )
    assert ask(made, text).verdict is MatchVerdict.GRANTED
    later = ask(made, text, reserve=True)
    assert (later.verdict, later.at) == (MatchVerdict.RESERVED, 1_060)


def test_whole_nodes_are_given_only_where_no_other_job_is() -> None:
    made = engine(*racks(3))
    ask(made, jobspec(slot(1, cpu=100), duration=500), 1)
    text = shared(jobspec(slot(3, cpu=100)), {"whole": True}, {"key": "", "most": 2})
    result = ask(made, text, 2)
    assert placed(result) == {"r0n1": 2, "r0n2": 1}
    assert {(share.exclusive, share.amounts["cpu"]) for share in result.shares} == {(True, 400)}
    assert ask(made, jobspec(slot(4, cpu=100))).verdict is MatchVerdict.BUSY, (
        "three slots of the first node are left"
    )
    busy = ask(made, text)
    assert busy.reason == "wants 3 slots on whole nodes, at most 2 of them on one node, free now: 0"
    reserved = ask(made, text, 3, reserve=True)
    assert (reserved.verdict, reserved.at) == (MatchVerdict.RESERVED, 1_060)
    check_books(made)


def test_nobody_gets_anything_of_a_whole_node_while_one_slot_of_it_is_left() -> None:
    made = engine(*racks(1))
    text = shared(jobspec(slot(2, cpu=100)), {"whole": True})
    ask(made, text, 1)
    made.apply([CancelPart(1, [NodeShare("r0n0", {"w": 1})])], call=NOW)
    assert ask(made, jobspec(slot(1, cpu=100))).verdict is MatchVerdict.BUSY
    made.apply([CancelPart(1, [NodeShare("r0n0", {})])], call=NOW)
    assert ask(made, jobspec(slot(4, cpu=100))).verdict is MatchVerdict.GRANTED
    check_books(made)


@pytest.mark.parametrize("policy", ["lonode", "hinode", "first", "locality", "variation", "lonodex"])
def test_every_match_policy_keeps_how_slots_share_nodes(policy: str) -> None:
    made = engine(*racks(2, 2), policy=policy)
    text = shared(jobspec(below("rack", slot(4, cpu=100))), {"whole": True}, {"key": "", "most": 2})
    for _ in range(2):
        assert sorted(placed(ask(made, text)).values()) == [2, 2]
    assert ask(made, text).verdict is MatchVerdict.BUSY
    check_books(made)


def test_levels_of_one_name_are_different_vertices() -> None:
    made = engine(
        node("n1", 4, ("zone", "a"), ("rack", "x")),
        node("n2", 4, ("rack", "a")),
        node("n3", 4, ("zone", "a"), ("rack", "x")),
    )
    assert placed(ask(made, in_rack(8))) == {"n1": 4, "n3": 4}
    assert placed(ask(made, in_rack(4))) == {"n2": 4}
    check_books(made)


def _fits(
    free: dict[str, int], specs: tuple[GraphNodeSpec, ...], wanted: int, size: int, required: str, cells: str
) -> bool:
    """Try every domain: whether so many groups fit, each below one vertex of a level and all below one of
    another.
    """
    of = {
        spec.name: {
            level.type: "/".join(each.name for each in spec.levels[: at + 1])
            for at, level in enumerate(spec.levels)
        }
        | {"node": spec.name}
        for spec in specs
    }
    domains = {names.get(required, "") for names in of.values()} if required else {""}
    for domain in domains - ({""} if required else set()):
        inside = [name for name, levels in of.items() if not required or levels.get(required) == domain]
        groups: Counter[str] = Counter()
        for name in inside:
            if cells and not of[name].get(cells):
                continue
            groups[of[name][cells] if cells else ""] += free[name]
        if sum(count // size for count in groups.values()) >= wanted:
            return True
    return False


def _random_cluster(random_: random.Random) -> tuple[GraphNodeSpec, ...]:
    specs = []
    for number in range(random_.randint(2, 9)):
        levels = [
            (kind, f"{kind}{random_.randint(0, 1)}")
            for kind in ("zone", "block", "rack")
            if random_.random() < 0.85
        ]
        specs.append(node(f"n{number}", random_.randint(1, 4), *levels))
    return tuple(specs)


def _check_levels(
    result: MatchResult, specs: tuple[GraphNodeSpec, ...], size: int, required: str, cells: str
) -> None:
    paths: dict[str, dict[str, Any]] = {
        spec.name: {
            "node": spec.name,
            **{level.type: tuple(spec.levels[: at + 1]) for at, level in enumerate(spec.levels)},
        }
        for spec in specs
    }
    taken = placed(result)
    if required:
        assert len({paths[name][required] for name in taken}) == 1
    if cells:
        groups: Counter[Any] = Counter()
        for name, count in taken.items():
            groups[paths[name][cells]] += count
        assert all(count % size == 0 for count in groups.values())


@pytest.mark.parametrize("seed", range(150))
def test_an_answer_equals_that_of_trying_every_domain(seed: int) -> None:
    random_ = random.Random(seed)
    specs = _random_cluster(random_)
    made = engine(*specs, policy=random_.choice(["lonode", "hinode", "low"]))
    free = {spec.name: spec.pools[0].total // 100 for spec in specs}
    levels = ["zone", "block", "rack", "node"]
    for _ in range(6):
        required = random_.choice(["", *levels])
        cells = random_.choice(["", *levels[levels.index(required) if required else 0 :]])
        preferred = random_.choice(["", "rack"]) if required != "node" else ""
        size, wanted = random_.randint(1, 3), random_.randint(2, 4)
        inside = slot(size if cells else size * wanted, cpu=100)
        request = below(cells, inside, count=wanted) if cells else inside
        if preferred and cells in ("", "rack", "node"):
            request = below(preferred, request, label="preferred")
        request = below(required, request) if required else request
        fits = _fits(free, specs, wanted if cells else size * wanted, size if cells else 1, required, cells)
        result = ask(made, jobspec(request))
        assert (result.verdict is MatchVerdict.GRANTED) == fits, (required, cells, size, wanted, free)
        if fits:
            _check_levels(result, specs, size, required, cells)
            for name, count in placed(result).items():
                free[name] -= count
    check_books(made)


def _first_start(made: Engine, text: str, times: list[int]) -> int:
    """The first of these times at which the request fits, by asking for each on a graph of its own kind."""
    for at in times:
        result = made.reserve_at(99, text, at, call=NOW)
        if result.verdict in (MatchVerdict.RESERVED, MatchVerdict.GRANTED):
            made.apply([CancelJobs([99])], NOW)
            return at
    return 0


@pytest.mark.parametrize("seed", range(60))
def test_a_reservation_starts_at_the_first_end_at_which_it_fits(seed: int) -> None:
    random_ = random.Random(seed)
    specs = _random_cluster(random_)
    made = engine(*specs)
    ends = set()
    for jobid, spec in enumerate(itertools.chain(specs, specs), 1):
        duration = random_.randint(1, 6) * 100
        text = jobspec(
            nodes(1, slot(random_.randint(1, 2), cpu=100)),
            duration=duration,
            constraints={"hostlist": [spec.name]},
        )
        if ask(made, text, jobid, reserve=random_.random() < 0.5).verdict is MatchVerdict.GRANTED:
            ends.add(1_000 + duration)
    ends.update(job.end for job in made.list_jobs(NOW) if job.end)
    kind = random_.choice(["zone", "block", "rack", "node"])
    count = random_.randint(1, 3)
    inside = slot(random_.randint(2, 4), cpu=100)
    text = jobspec(below(kind, inside, count=count), duration=random_.choice([50, 150, 1_000]))
    result = ask(made, text, 50, reserve=True)
    if result.verdict is MatchVerdict.RESERVED:
        made.apply([CancelJobs([50])], NOW)
        assert result.at == _first_start(made, text, sorted(ends))
    elif result.verdict is MatchVerdict.BUSY:
        assert _first_start(made, text, sorted(ends)) == 0


# ---- advance reservations ----------------------------------------------------------------------------------


def test_a_level_counts_what_an_advance_reservation_leaves() -> None:
    made = engine(*racks(2, 2))
    course = AdvanceReservation("course", ("r0n0", "r1n0"), ((1_100, 1_200),))
    assert made.apply([SetAdvanceReservations([course])], NOW).done
    waits = ask(made, in_rack(8, duration=200), reserve=True)
    assert (waits.verdict, waits.at) == (MatchVerdict.RESERVED, 1_200)
    assert sorted(by_rack(waits).values()) == [8]
    before = ask(made, in_rack(8, duration=100))
    assert (before.verdict, sorted(by_rack(before).values())) == (MatchVerdict.GRANTED, [8])
    check_books(made)


def test_work_of_an_advance_reservation_lies_below_one_vertex_of_its_nodes() -> None:
    made = engine(*racks(2, 2))
    on = ("r0n0", "r1n0", "r1n1")
    assert made.apply(
        [SetAdvanceReservations([AdvanceReservation("course", on, ((1_000, 2_000),))])], NOW
    ).done
    own = in_rack(8, duration=300, reservation="course")
    assert by_rack(ask(made, own)) == {"r1": 8}
    second = ask(made, own, reserve=True)
    assert (second.verdict, second.at, by_rack(second)) == (MatchVerdict.RESERVED, 1_300, {"r1": 8})
    never = ask(made, in_rack(9, duration=300, reservation="course"))
    assert (never.verdict, never.reason) == (
        MatchVerdict.UNSATISFIABLE,
        "no rack holds 9 slots: the largest holds 8",
    )
    check_books(made)


def test_slices_and_whole_nodes_fit_into_an_advance_reservation() -> None:
    made = engine(*racks(2, 2))
    assert made.apply(
        [SetAdvanceReservations([AdvanceReservation("course", ("r0n0", "r1n1"), ((1_000, 2_000),))])], NOW
    ).done
    slices = shared(
        jobspec(below("rack", slot(2, cpu=100), count=2), duration=300, reservation="course"), {"whole": True}
    )
    assert placed(ask(made, slices)) in ({"r0n0": 4}, {"r1n1": 4})
    preferred = jobspec(
        below("rack", slot(6, cpu=100), label="preferred"), duration=300, reservation="course"
    )
    later = ask(made, preferred, reserve=True)
    assert (later.verdict, later.at, set(placed(later))) == (MatchVerdict.RESERVED, 1_300, {"r0n0", "r1n1"})
    check_books(made)
