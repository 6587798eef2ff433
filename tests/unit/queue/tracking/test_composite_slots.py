"""A pod in a slot stays in the group of that slot, whatever its tree says."""

from __future__ import annotations

from typing import Any

import pytest
from support.composite_bench import CompositeBench, composite_bench
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS

KEY = GroupKey("default", "top", "CompositePodGroup", "kubernetes-composite")
ROW = a_workload(
    "top",
    kind="CompositePodGroup",
    api_version="scheduling.k8s.io/v1alpha3",
    release_mode=ReleaseMode.GROUP,
)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> CompositeBench:
    bench = await composite_bench(monkeypatch)
    slots = an_allocation(["n1", "n2"], jobid=7, pods=["a-0", "a-1"])
    monkeypatch.setattr(bench.ledger, "group", {KEY: ROW}.get)
    monkeypatch.setattr(bench.ledger, "by_jobid", {7: ROW}.get)
    monkeypatch.setattr(bench.ledger, "allocation", {ROW.id: slots}.get)
    bench.composite("top", gang=1)
    bench.composite("inner", gang=1, parentCompositePodGroupName="top")
    bench.group("a", gang=2, parentCompositePodGroupName="inner")
    return bench


def members(bench: CompositeBench) -> list[Any]:
    return sorted(pod.metadata.name for pod in bench.caches.pods_of_group(KEY))


async def test_pods_with_slots_stay_with_their_tree_when_it_is_deleted(bench: CompositeBench) -> None:
    bench.pods("a", 2, annotation={names.ALLOCATION_ANNOTATION: "7"})
    bench.remove(COMPOSITE_POD_GROUPS, "inner")
    bench.remove(NATIVE_POD_GROUPS, "a")
    assert members(bench) == ["a-0", "a-1"]
    assert {bench.caches.group_of(pod) for pod in bench.caches.pods.list()} == {KEY}


async def test_a_pod_that_names_an_allocation_without_a_slot_in_it_is_in_no_tree(
    bench: CompositeBench,
) -> None:
    bench.pods("other", 1, annotation={names.ALLOCATION_ANNOTATION: "7"})
    assert members(bench) == []
    (pod,) = bench.caches.pods.list()
    assert bench.caches.group_of(pod) == GroupKey("default", "other", "PodGroup", "kubernetes")
