"""Domain rules, compared with every possible placement."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest
from support.fluxion_builders import ask, check_books, engine, jobspec, nodes, slot

from fluxqueue.fluxion.messages import GraphNodeSpec, Level, MatchResult, MatchVerdict, Pool


def node(name: str, slots: int, **labels: str) -> GraphNodeSpec:
    zone = labels.get("zone")
    return GraphNodeSpec(
        name,
        (Pool("cpu", slots * 100, 100),),
        (Level("zone", zone),) if zone else (),
        labels | {"host": name},
    )


def by_domains(text: str, *rules: dict[str, Any]) -> str:
    spec = json.loads(text)
    spec["attributes"]["system"]["domains"] = list(rules)
    return json.dumps(spec)


def placed(result: MatchResult) -> dict[str, int]:
    return {share.node: sum(share.slots.values()) for share in result.shares}


TWO_ZONES = (
    node("a1", 4, zone="a"),
    node("a2", 4, zone="a"),
    node("b1", 4, zone="b"),
    node("b2", 1, zone="b"),
)


def test_slots_that_go_together_take_the_first_domain_that_holds_all() -> None:
    made = engine(*TWO_ZONES)
    assert placed(ask(made, by_domains(jobspec(slot(3, cpu=100)), {"together": ["zone"]}))) == {"a1": 3}
    assert placed(ask(made, by_domains(jobspec(slot(5, cpu=100)), {"together": ["zone"]}))) == {
        "a1": 1,
        "a2": 4,
    }
    assert placed(ask(made, by_domains(jobspec(slot(5, cpu=100)), {"together": ["zone"]}))) == {
        "b1": 4,
        "b2": 1,
    }
    check_books(made)


def test_slots_that_go_together_by_host_share_a_node() -> None:
    made = engine(*TWO_ZONES)
    ask(made, jobspec(slot(2, cpu=100)))
    assert placed(ask(made, by_domains(jobspec(slot(3, cpu=100)), {"together": ["host"]}))) == {"a2": 3}


def test_a_domain_gets_at_most_the_maximum_of_slots() -> None:
    made = engine(*TWO_ZONES, node("c1", 1))
    result = ask(made, by_domains(jobspec(slot(3, cpu=100)), {"key": "zone", "most": 1}))
    assert placed(result) == {"a1": 1, "b1": 1, "c1": 1}, "a node without the property is in no domain"
    assert (
        ask(made, by_domains(jobspec(slot(5, cpu=100)), {"key": "host", "most": 1})).verdict
        is not MatchVerdict.GRANTED
    )


def test_slots_are_spread_evenly_with_existing_pods() -> None:
    rule = {"key": "zone", "skew": 1, "counts": {"a": 2, "b": 0}}
    made = engine(*TWO_ZONES)
    assert placed(ask(made, by_domains(jobspec(slot(2, cpu=100)), rule))) == {"b1": 2}
    assert placed(ask(made, by_domains(jobspec(slot(5, cpu=100)), rule))) in (
        {"a1": 2, "b1": 2, "b2": 1},
        {"a1": 1, "b1": 2, "b2": 1},
    )


def test_nodes_of_one_slot_each_keep_the_rules_too() -> None:
    made = engine(*TWO_ZONES)
    result = ask(
        made,
        by_domains(
            jobspec(nodes(4, slot(1, cpu=100))), {"key": "zone", "skew": 1, "counts": {"a": 0, "b": 0}}
        ),
    )
    assert placed(result) == {"a1": 1, "a2": 1, "b1": 1, "b2": 1}


def test_what_does_not_fit_its_domains_now_is_reserved_for_when_it_does() -> None:
    made = engine(*TWO_ZONES)
    ask(made, jobspec(slot(10, cpu=100), duration=500))
    result = ask(
        made,
        by_domains(jobspec(slot(6, cpu=100)), {"key": "zone", "skew": 1, "counts": {"a": 0, "b": 0}}),
        reserve=True,
    )
    assert (result.verdict, result.at) == (MatchVerdict.RESERVED, 1_500)
    check_books(made)


def test_rules_that_no_placement_keeps_are_unsatisfiable() -> None:
    made = engine(*TWO_ZONES)
    result = ask(made, by_domains(jobspec(slot(9, cpu=100)), {"together": ["zone"]}))
    assert (result.verdict, result.reason) == (
        MatchVerdict.UNSATISFIABLE,
        "the parts fit, but not in the arrangement the request asks for",
    )


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"together": []},
        {"key": "zone"},
        {"key": "zone", "most": 0},
        {"key": "zone", "skew": 1, "counts": {"a": -1}},
        3,
    ],
)
def test_an_unreadable_rule_is_refused_with_its_path(rule: Any) -> None:
    result = ask(engine(*TWO_ZONES), by_domains(jobspec(slot(1, cpu=100)), rule))
    assert result.verdict is MatchVerdict.INVALID
    assert "attributes.system.domains[0]" in result.reason


def domain(node: GraphNodeSpec, key: str) -> str | None:
    return dict(node.properties).get(key)


def broken(rule: dict[str, Any], counts: dict[str, int], cluster: list[GraphNodeSpec]) -> bool:
    """A second reading of the rules, for the test alone."""
    keys = rule.get("together") or [rule["key"]]
    for key in keys:
        filled: Counter[str | None] = Counter()
        for each in cluster:
            filled[domain(each, key)] += counts[each.name]
        used = {value for value, count in filled.items() if count}
        if "together" in rule and (len(used) > 1 or None in used):
            return True
        if "most" in rule and any(filled[value] > rule["most"] for value in used if value is not None):
            return True
        if "skew" in rule:
            total = Counter(rule["counts"]) + Counter(
                {value: count for value, count in filled.items() if value is not None}
            )
            least = 0 if rule.get("zero") else min(total[value] for value in rule["counts"])
            if None in used or any(
                total[value] - least > rule["skew"] for value in used if value is not None
            ):
                return True
    return False


@pytest.mark.parametrize("seed", range(400))
def test_a_placement_is_found_exactly_if_there_is_one(seed: int) -> None:
    rng = random.Random(seed)
    cluster = [
        node(f"n{number}", rng.randint(0, 3), **({"zone": rng.choice("abc")} if rng.random() < 0.9 else {}))
        for number in range(rng.randint(1, 5))
    ]
    zones = sorted({value for each in cluster if (value := domain(each, "zone"))})
    hosts = [each.name for each in cluster]
    known: dict[str, dict[str, Any]] = {
        "together": {"together": [rng.choice(["zone", "host"])]},
        "most": {"key": rng.choice(["zone", "host"]), "most": rng.randint(1, 2)},
        "zones": {
            "key": "zone",
            "skew": rng.randint(1, 2),
            "counts": {zone: rng.randint(0, 2) for zone in zones},
        },
        "hosts": {
            "key": "host",
            "skew": rng.randint(1, 2),
            "counts": {host: rng.randint(0, 1) for host in hosts},
        },
    }
    if rng.random() < 0.3:
        known["zones"]["zero"] = True
    rules = [
        known[name] for name in rng.sample(sorted(known), rng.randint(1, 2)) if zones or name != "zones"
    ] or [known["hosts"]]
    wanted = rng.randint(1, 5)
    rooms = [each.pools[0].total // 100 for each in cluster]
    ways = [
        counts
        for split in itertools.product(*(range(min(room, wanted) + 1) for room in rooms))
        if sum(split) == wanted
        and not any(broken(rule, counts := dict(zip(hosts, split, strict=True)), cluster) for rule in rules)
    ]
    made = engine(*cluster, policy=rng.choice(["lonode", "hinode", "first"]))
    result = ask(made, by_domains(jobspec(slot(wanted, cpu=100)), *rules))
    if result.verdict is MatchVerdict.GRANTED:
        counts = dict.fromkeys(hosts, 0) | placed(result)
        assert sum(counts.values()) == wanted
        assert not any(broken(rule, counts, cluster) for rule in rules), (rules, counts)
    else:
        assert not ways, (rules, ways[0])
    check_books(made)


ONE_VOLUME = {"once": {"volumes": 1}}


def test_what_slots_share_on_a_node_is_taken_once_on_each() -> None:
    made = engine(
        GraphNodeSpec("n1", (Pool("cpu", 300, 100), Pool("volumes", 1, 1))),
        GraphNodeSpec("n2", (Pool("cpu", 300, 100), Pool("volumes", 2, 1))),
    )
    result = ask(made, by_domains(jobspec(slot(5, cpu=100)), ONE_VOLUME))
    assert placed(result) == {"n1": 3, "n2": 2}
    assert [share.amounts["volumes"] for share in result.shares] == [1, 1]
    assert placed(ask(made, by_domains(jobspec(slot(1, cpu=100)), ONE_VOLUME))) == {"n2": 1}
    check_books(made)


def test_a_node_that_cannot_give_what_its_slots_share_gets_none() -> None:
    made = engine(
        GraphNodeSpec("n1", (Pool("cpu", 300, 100), Pool("volumes", 1, 1))),
        GraphNodeSpec("n2", (Pool("cpu", 300, 100), Pool("volumes", 3, 1))),
    )
    text = jobspec(slot(2, cpu=100, volumes=1))
    assert placed(ask(made, by_domains(text, ONE_VOLUME))) == {"n2": 2}, (
        "n1 has no volume left for a slot of its own"
    )
    result = ask(made, by_domains(text, {"once": {"volumes": 4}}))
    assert (result.verdict, result.reason) == (
        MatchVerdict.UNSATISFIABLE,
        "no node has 4 volumes: the largest has 3 volumes in all",
    )
    check_books(made)


def test_nodes_of_one_slot_each_give_what_is_shared_too() -> None:
    made = engine(
        *(
            GraphNodeSpec(name, (Pool("cpu", 300, 100), Pool("volumes", count, 1)))
            for name, count in (("n1", 1), ("n2", 1))
        )
    )
    result = ask(made, by_domains(jobspec(nodes(2, slot(1, cpu=100))), ONE_VOLUME))
    assert [share.amounts["volumes"] for share in result.shares] == [1, 1]
    later = ask(made, by_domains(jobspec(slot(2, cpu=100)), ONE_VOLUME), reserve=True)
    assert (later.verdict, later.at) == (MatchVerdict.RESERVED, 1_060)
    check_books(made)
