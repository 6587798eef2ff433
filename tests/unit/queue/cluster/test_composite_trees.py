"""Which PodGroups start together, as objects come, change and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.composite_bench import CompositeBench, composite_bench

from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> CompositeBench:
    return await composite_bench(monkeypatch)


def tree(name: str) -> GroupKey:
    return GroupKey("default", name, "CompositePodGroup", "kubernetes-composite")


def plain(name: str) -> GroupKey:
    return GroupKey("default", name, "PodGroup", "kubernetes")


def below(parent: str) -> Any:
    return {"parentCompositePodGroupName": parent}


def group_of_first_pod(bench: CompositeBench, group: str) -> GroupKey | None:
    pod = bench.caches.pods.get("default", f"{group}-0")
    assert pod is not None
    return bench.caches.group_of(pod)


async def test_the_group_of_a_pod_follows_its_tree(bench: CompositeBench) -> None:
    bench.pods("a", 2)
    assert group_of_first_pod(bench, "a") == plain("a")
    bench.group("a", gang=2, **below("inner"))
    assert group_of_first_pod(bench, "a") == tree("inner")
    bench.composite("inner", gang=1, **below("top"))
    assert group_of_first_pod(bench, "a") == tree("top")
    bench.composite("top", gang=1)
    pods = bench.caches.pods_of_group(tree("top"))
    assert [pod.metadata.name for pod in pods] == ["a-0", "a-1"]
    assert bench.caches.pods_of_group(tree("inner")) == bench.caches.pods_of_group(plain("a")) == []
    bench.remove(COMPOSITE_POD_GROUPS, "inner")
    assert group_of_first_pod(bench, "a") == tree("inner")


async def test_the_next_group_takes_the_place_of_one_that_is_deleted(bench: CompositeBench) -> None:
    bench.composite("top", gang=1)
    for name in "ab":
        bench.group(name, gang=1, **below("top"))
        bench.pods(name, 1)
    assert group_of_first_pod(bench, "b") == plain("b")
    bench.remove(NATIVE_POD_GROUPS, "a")
    assert group_of_first_pod(bench, "b") == tree("top")


async def test_pods_below_a_circle_are_one_group(bench: CompositeBench) -> None:
    bench.composite("one", gang=1, **below("two"))
    bench.composite("two", gang=1, **below("one"))
    for name, parent in (("a", "one"), ("b", "two")):
        bench.group(name, gang=1, **below(parent))
        bench.pods(name, 1)
    assert group_of_first_pod(bench, "a") == group_of_first_pod(bench, "b") == tree("one")
    unit = bench.caches.composite_trees.unit(tree("one"))
    assert unit is not None
    assert "back to it" in unit.problem


async def test_a_chain_of_very_many_parents_is_one_group(bench: CompositeBench) -> None:
    for number in range(50):
        bench.composite(f"c{number}", gang=1, **below(f"c{number + 1}"))
    bench.group("a", gang=1, **below("c0"))
    bench.pods("a", 1)
    assert group_of_first_pod(bench, "a") == tree("c50")
    unit = bench.caches.composite_trees.unit(tree("c50"))
    assert unit is not None
    assert "is below 3 others" in unit.problem


async def test_a_change_concerns_the_whole_tree(bench: CompositeBench) -> None:
    bench.composite("inner", gang=1, **below("top"))
    bench.group("a", gang=1, **below("inner"))
    bench.composite("top", gang=1)
    related = bench.caches.composite_trees.related(COMPOSITE_POD_GROUPS.name, "default", "top")
    assert set(related) == {tree("top"), tree("inner"), plain("a")}
    for source in (NATIVE_POD_GROUPS.name, "mpijob"):
        assert bench.caches.composite_trees.related(source, "default", "other") == []


async def test_a_tree_is_told_of_groups_that_come_and_go_by_its_root(bench: CompositeBench) -> None:
    told: list[tuple[str, str, str]] = []
    bench.caches.gang_objects.add_handler(lambda *change: told.append(change))
    bench.composite("top", gang=1)
    bench.composite("inner", gang=1, **below("top"))
    changes: list[Callable[[], None]] = [
        lambda: bench.group("a", gang=1, **below("inner")),
        lambda: bench.remove(NATIVE_POD_GROUPS, "a"),
        lambda: bench.remove(COMPOSITE_POD_GROUPS, "inner"),
    ]
    for change in changes:
        told.clear()
        change()
        assert (COMPOSITE_POD_GROUPS.name, "default", "top") in told
    told.clear()
    bench.group("alone", gang=1)
    assert told == [(NATIVE_POD_GROUPS.name, "default", "alone")]


@pytest.mark.parametrize("kind", ["group", "composite"])
async def test_groups_that_are_added_to_a_wide_tree_have_it_read_together(
    bench: CompositeBench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    read: list[list[GroupKey]] = []
    trees = bench.caches.composite_trees
    related = trees.related

    def counted(*change: str) -> list[GroupKey]:
        read.append(related(*change))
        return read[-1]

    monkeypatch.setattr(trees, "related", counted)
    bench.composite("top", gang=1)
    for number in range(400):
        getattr(bench, kind)(f"g{number}", gang=1, **below("top"))
    assert sum(map(len, read)) < 20_000, "not the square of their number"
