"""How a tree of PodGroups of Kubernetes is read: as one gang, or what it waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_node
from support.composite_bench import CompositeBench, composite_bench
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.nodes import Node
from fluxqueue.queue.cluster.gang_objects import Readable
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.sources.composite_groups import COMPOSITE_POD_GROUPS
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS

IN_TOP: Any = {"parentCompositePodGroupName": "top"}
ZONE = "topology.kubernetes.io/zone"
TOP = "CompositePodGroup/top"


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> CompositeBench:
    return await composite_bench(monkeypatch)


async def test_a_tree_is_one_workload_once_all_its_pods_are_there(bench: CompositeBench) -> None:
    bench.composite("top", gang=2)
    bench.group("a", gang=2, **IN_TOP)
    bench.group("b", gang=1, **IN_TOP)
    bench.pods("a", 2)
    (row,) = (await bench.read()).values()
    assert (row.reason, row.message) == (
        Reason.WAITING_FOR_GROUP,
        "CompositePodGroup default/top has 2 of 3 pods: it can start when all are there",
    )
    bench.pods("b", 1)
    rows = await bench.read()
    assert [(name, each.pods, each.reason) for name, each in rows.items()] == [(TOP, 3, Reason.NONE)]
    assert rows[TOP].id == row.id


async def test_a_tree_waits_for_as_many_groups_as_its_minimum(bench: CompositeBench) -> None:
    bench.composite("top", gang=2)
    bench.group("a", gang=1, **IN_TOP)
    bench.pods("a", 1)
    row = (await bench.read())[TOP]
    assert (row.reason, row.message) == (
        Reason.WAITING_FOR_GROUP,
        (
            "CompositePodGroup default/top cannot start yet: CompositePodGroup top has 1 of 2 groups, "
            "so create the others"
        ),
    )


async def test_a_parent_that_comes_late_is_named_before(bench: CompositeBench) -> None:
    bench.group("a", gang=1, **IN_TOP)
    bench.pods("a", 1)
    row = (await bench.read())[TOP]
    assert "waits for CompositePodGroup default/top, which does not exist: create it" in row.message
    bench.composite("top", gang=1)
    assert (await bench.read())[TOP].reason is Reason.NONE


async def test_groups_that_get_a_common_root_become_one_workload(bench: CompositeBench) -> None:
    bench.pods("a", 1)
    assert list(await bench.read()) == ["PodGroup/a"]
    bench.group("a", gang=1, parentCompositePodGroupName="inner")
    bench.composite("inner", gang=1, **IN_TOP)
    bench.composite("top", gang=1)
    assert [(name, row.reason) for name, row in (await bench.read()).items()] == [(TOP, Reason.NONE)]


async def test_without_its_parent_a_group_waits_again(bench: CompositeBench) -> None:
    bench.composite("top", gang=1)
    bench.group("a", gang=1, **IN_TOP)
    bench.pods("a", 1)
    await bench.read()
    bench.remove(COMPOSITE_POD_GROUPS, "top")
    assert (await bench.read())[TOP].reason is Reason.WAITING_FOR_GROUP


@pytest.mark.parametrize(
    ("readable", "said"),
    [
        (Readable.FORBIDDEN, "may not read compositepodgroups.scheduling.k8s.io: add it to gangs.resources"),
        (Readable.NOT_YET, "waits until the queue has read all compositepodgroups.scheduling.k8s.io"),
    ],
)
async def test_a_tree_that_cannot_be_read_waits(bench: CompositeBench, readable: Readable, said: str) -> None:
    bench.readable[COMPOSITE_POD_GROUPS.name] = readable
    bench.group("a", gang=1, **IN_TOP)
    bench.pods("a", 1)
    assert said in (await bench.read())[TOP].message


async def test_a_tree_keeps_its_place_until_all_groups_are_read_again(bench: CompositeBench) -> None:
    bench.composite("top", gang=1)
    bench.group("a", gang=1, **IN_TOP)
    bench.pods("a", 1)
    before = (await bench.read())[TOP]
    bench.readable[NATIVE_POD_GROUPS.name] = Readable.NOT_YET
    bench.remove(NATIVE_POD_GROUPS, "a")
    assert (await bench.read())[TOP].id == before.id
    bench.readable.clear()
    bench.group("a", gang=1, **IN_TOP)
    assert (await bench.read())[TOP].id == before.id


async def test_a_group_beyond_the_minimum_waits_for_the_others(bench: CompositeBench) -> None:
    bench.composite("top", gang=1)
    bench.group("a", gang=1, **IN_TOP)
    bench.group("b", gang=1, **IN_TOP)
    bench.pods("a", 1)
    bench.pods("b", 1)
    rows = await bench.read()
    assert rows[TOP].reason is Reason.NONE
    assert (rows["PodGroup/b"].reason, rows["PodGroup/b"].message) == (
        Reason.WAITING_FOR_GROUP,
        (
            "PodGroup default/b starts after CompositePodGroup default/top, which has not started: "
            "the minimum of the groups above them is met without it"
        ),
    )


async def test_pods_of_another_priority_than_the_root_are_one_sentence(bench: CompositeBench) -> None:
    bench.composite("top", gang=1, priority=5)
    bench.group("a", gang=1, **IN_TOP)
    bench.pods("a", 1)
    row = (await bench.read())[TOP]
    assert row.reason is Reason.INVALID_REQUEST
    assert "pod a-0 has priority 0, and the root of its groups 5" in row.message


async def test_the_topology_of_the_root_is_that_of_all_pods(bench: CompositeBench) -> None:
    bench.composite("top", gang=2, schedulingConstraints={"topology": [{"key": ZONE}]})
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
        bench.pods(name, 1)
    row = (await bench.read())[TOP]
    assert row.reason is Reason.NONE
    assert '"zone"' in row.jobspec


async def test_a_later_group_starts_where_the_first_ones_are(bench: CompositeBench) -> None:
    bench.composite("top", gang=1, schedulingConstraints={"topology": [{"key": ZONE}]})
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
        bench.pods(name, 1)
    rows = await bench.read()
    assert (rows[TOP].reason, rows["PodGroup/b"].reason) == (Reason.NONE, Reason.WAITING_FOR_GROUP)


async def test_a_later_group_is_matched_beside_the_first_ones(
    bench: CompositeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.composite("top", gang=1, schedulingConstraints={"topology": [{"key": ZONE}]})
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
    bench.pods("b", 1)
    bench.caches.nodes.apply(msgspec.convert(make_node("n1").uid("n1").label(ZONE, "z1").build(), Node))
    first = a_workload("top", state=State.RUNNING)
    key = GroupKey("default", "top", "CompositePodGroup", "kubernetes-composite")
    of_others = bench.ledger.group
    monkeypatch.setattr(bench.ledger, "group", lambda each: first if each == key else of_others(each))
    monkeypatch.setattr(bench.ledger, "allocation", {first.id: an_allocation(["n1"])}.get)
    row = (await bench.read())["PodGroup/b"]
    assert row.reason is Reason.NONE
    assert "z1" in row.jobspec


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
async def test_a_later_group_starts_after_the_first_ones_also_if_they_have_ended(
    bench: CompositeBench, phase: str
) -> None:
    bench.composite("top", gang=1)
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
        bench.pods(name, 1)
    pod = bench.caches.pods.get("default", "a-0")
    assert pod is not None
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=None, node_name="n1")
    status = msgspec.structs.replace(pod.status, phase=phase)
    metadata = msgspec.structs.replace(pod.metadata, resource_version="2")
    bench.caches.pods.apply(msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status))
    assert (await bench.read())["PodGroup/b"].reason is Reason.NONE


async def test_later_groups_are_read_when_the_first_ones_are_released(bench: CompositeBench) -> None:
    told: list[tuple[str, str, str]] = []
    bench.composite("top", gang=1)
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
        bench.pods(name, 1)
    bench.caches.gang_objects.add_handler(lambda *change: told.append(change))
    pod = bench.caches.pods.get("default", "a-0")
    assert pod is not None
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=None)
    metadata = msgspec.structs.replace(pod.metadata, resource_version="2")
    bench.caches.pods.apply(msgspec.structs.replace(pod, metadata=metadata, spec=spec))
    assert told == [(COMPOSITE_POD_GROUPS.name, "default", "top")]


async def test_a_later_group_looks_ever_less_often(bench: CompositeBench) -> None:
    bench.composite("top", gang=1)
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
        bench.pods(name, 1)
    row, key = (await bench.read())["PodGroup/b"], GroupKey("default", "b", "PodGroup", "kubernetes")
    looks = []
    for waited_s in (0, 100, 10_000):
        since = bench.ledger.clock() - timedelta(seconds=waited_s)
        found = bench.intake._groups.gather(key, replace(row, submitted_at=since))
        assert found is not None
        looks.append(round(found.again_s))
    assert looks == [2, 10, 60]


async def test_a_tree_rests_by_the_number_of_its_pods(bench: CompositeBench) -> None:
    bench.composite("top", gang=2)
    for name in "ab":
        bench.group(name, gang=1, **IN_TOP)
        bench.pods(name, 3)
    reader = bench.intake._groups
    key = GroupKey("default", "top", "CompositePodGroup", "kubernetes-composite")
    assert reader.size(key) == 6
