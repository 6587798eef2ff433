from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import pytest

from fluxqueue.api.dependencies import DependencyKind, parse_dependencies
from fluxqueue.queue.intake import dependency_graph
from fluxqueue.queue.intake.dependency_graph import DependencyGraph, TargetName
from fluxqueue.queue.model.start_conditions import DependencyState, TrackedDependency, track


def on(*targets: str, resolved: bool = True) -> list[TrackedDependency]:
    """Dependencies on the success of Jobs, whose uids are their names."""
    asked = [track(parse_dependencies(f"ok:job/{target}")[0]) for target in targets]
    return [msgspec.structs.replace(each, target=each.name) for each in asked] if resolved else asked


def graph_of(**waits: str) -> DependencyGraph:
    """A graph in which each workload waits for those in the text."""
    graph = DependencyGraph()
    for waiter, targets in waits.items():
        graph.put(waiter, "default", on(*targets.split()))
    return graph


def cycles_of(graph: DependencyGraph, candidates: Iterable[str]) -> list[list[str]]:
    """All cycles that are found from some workloads."""
    return [cycle for found in graph.cycles(candidates) for cycle in found]


def test_waiters_are_found_by_name_until_the_target_is_known_and_then_by_it() -> None:
    graph, name = DependencyGraph(), TargetName("default", DependencyKind.JOB, "a")
    graph.put("w", "default", on("a", resolved=False))
    ((waiter, each),) = graph.waiting_for_name(name)
    assert (waiter, graph.is_awaited(name), graph.targets()) == ("w", True, [])
    graph.replace("w", msgspec.structs.replace(each, target="uid-a"))
    assert (graph.names(), graph.targets()) == ([], ["uid-a"])
    assert [waiter for waiter, _ in graph.waiting_for("uid-a")] == ["w"]


def test_a_workload_is_decided_when_none_of_its_dependencies_is_open() -> None:
    graph = graph_of(w="a b")
    for target, decided in (("a", False), ("b", True)):
        ((_, each),) = graph.waiting_for(target)
        graph.replace("w", msgspec.structs.replace(each, state=DependencyState.SATISFIED))
        assert graph.is_decided("w") is decided
    assert graph.targets() == []


def test_very_many_cycles_are_not_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain in which each also waits for the first, every part from there is a cycle:
    its square in all.
    """
    monkeypatch.setattr(dependency_graph, "_MOST_NAMED", 50)
    graph = graph_of(**{f"w{number}": f"w{number + 1} w0" for number in range(1_000)})
    found = cycles_of(graph, [f"w{number}" for number in range(1_000)])
    assert found[0] == ["w0"]
    assert 50 <= sum(map(len, found)) < 80


def test_the_dependencies_of_a_namespace_are_counted_as_they_come_and_go() -> None:
    graph = graph_of(v="a", w="a b")
    graph.put("elsewhere", "other", on("a"))
    counts = [(graph.in_namespace("default"), graph.in_namespace("default", but="w"))]
    graph.put("w", "default", on("b", "c", "d"))
    counts.append((graph.in_namespace("default"), graph.in_namespace("default", but="w")))
    for waiter in ("v", "w", "w"):
        graph.remove(waiter)
    assert [*counts, (graph.in_namespace("default"), graph.in_namespace("other"))] == [(3, 1), (4, 1), (0, 1)]


def test_an_edit_keeps_what_is_known_of_the_dependencies_that_stay() -> None:
    graph = graph_of(w="a b")
    ((_, each),) = graph.waiting_for("a")
    graph.replace("w", msgspec.structs.replace(each, state=DependencyState.SATISFIED))
    graph.put("w", "default", on("a", "c"))
    assert [(each.name, str(each.state)) for each in graph.dependencies("w")] == [
        ("a", "satisfied"),
        ("c", "open"),
    ]
    assert graph.targets() == ["c"]


def test_a_workload_that_is_removed_waits_for_nothing_and_is_no_obstacle() -> None:
    graph = graph_of(a="b", b="a")
    graph.remove("a")
    assert ("a" in graph, graph.targets(), cycles_of(graph, ["b"])) == (False, ["a"], [])


@pytest.mark.parametrize(
    ("waits", "cycles"),
    [
        ({"a": "a"}, [["a"]]),
        ({"a": "b", "b": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "c", "c": "d", "d": "b"}, [["b", "c", "d"]]),
        ({"a": "b c", "b": "d", "c": "d", "d": "e"}, []),
    ],
)
def test_cycles_are_found_and_diamonds_are_none(waits: dict[str, str], cycles: list[list[str]]) -> None:
    found = cycles_of(graph_of(**waits), waits)
    assert [sorted(each) for each in found] == cycles


def test_a_satisfied_dependency_closes_no_cycle() -> None:
    graph = graph_of(a="b", b="a")
    ((_, each),) = graph.waiting_for("b")
    graph.replace("a", msgspec.structs.replace(each, state=DependencyState.SATISFIED))
    assert cycles_of(graph, ["a", "b"]) == []


def test_cycles_among_random_dependencies_are_those_of_a_plain_search() -> None:
    drawing = random.Random(7)
    for _ in range(200):
        size = drawing.randrange(1, 9)
        waits = {
            str(each): [str(drawing.randrange(size)) for _ in range(drawing.randrange(3))]
            for each in range(size)
        }
        graph = graph_of(**{waiter: " ".join(dict.fromkeys(targets)) for waiter, targets in waits.items()})
        found = cycles_of(graph, waits)
        assert bool(found) == any(_reaches(waits, waiter, waiter) for waiter in waits)
        for cycle in found:
            assert all(
                after in waits[before] for before, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
            )


def _reaches(waits: dict[str, list[str]], start: str, end: str) -> bool:
    seen, todo = set[str](), [*waits[start]]
    while todo:
        if (each := todo.pop()) == end:
            return True
        if each not in seen:
            seen.add(each)
            todo += waits[each]
    return False
