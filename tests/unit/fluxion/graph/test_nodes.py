from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.graph.nodes import GraphNode, NodeRules, graph_node
from fluxqueue.fluxion.messages import Level, Pool

READY = {"type": "Ready", "status": "True"}


def make_node(name: str = "n1", **allocatable: str | int) -> NodeBuilder:
    return NodeBuilder(
        name, {key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()}
    )


class NodeBuilder:
    def __init__(self, name: str, allocatable: dict[str, Any]) -> None:
        self.metadata: dict[str, Any] = {"name": name}
        self.spec: dict[str, Any] = {}
        self.status: dict[str, Any] = {"allocatable": allocatable, "conditions": [READY]}

    def has(self, resource: str, amount: str | int) -> NodeBuilder:
        self.status["allocatable"][resource] = amount
        return self

    def labelled(self, **labels: str) -> NodeBuilder:
        self.metadata["labels"] = labels
        return self

    def in_zone(self, zone: str, rack: str = "") -> NodeBuilder:
        self.metadata["labels"] = {"topology.kubernetes.io/zone": zone} | (
            {"example.com/rack": rack} if rack else {}
        )
        return self

    def tainted(self, key: str, value: str = "", effect: str = "NoSchedule") -> NodeBuilder:
        self.spec.setdefault("taints", []).append({"key": key, "value": value, "effect": effect})
        return self

    def cordoned(self) -> NodeBuilder:
        self.spec["unschedulable"] = True
        return self.tainted("node.kubernetes.io/unschedulable")

    def not_ready(self, message: str) -> NodeBuilder:
        self.status["conditions"] = [
            {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message}
        ]
        return self

    def silent(self) -> NodeBuilder:
        self.status["conditions"] = None
        return self

    def build(self) -> Node:
        return msgspec.convert({"metadata": self.metadata, "spec": self.spec, "status": self.status}, Node)


def pools(made: GraphNode) -> dict[str, Pool]:
    return {pool.type: pool for pool in made.spec.pools}


def test_cpu_memory_pods_and_gpus_become_pools_in_their_units() -> None:
    made = graph_node(make_node(cpu="7910m", memory="31Gi", pods=110).has("nvidia.com/gpu", 8).build())
    assert pools(made) == {
        "cpu": Pool("cpu", 7910, 10),
        "memory": Pool("memory", 31 * 1024, 32),
        "pods": Pool("pods", 110, 1),
        "nvidia.com:gpu": Pool("nvidia.com:gpu", 8, 1),
    }
    assert not made.spec.down
    assert made.reason == ""


def test_amounts_are_rounded_down_to_whole_units() -> None:
    made = graph_node(make_node(cpu="1999.9m", memory=3 * 2**20 - 1, pods="2").build())
    assert [(pool.type, pool.total) for pool in made.spec.pools] == [
        ("cpu", 1999),
        ("memory", 2),
        ("pods", 2),
    ]


def test_what_daemonsets_take_is_subtracted() -> None:
    taken = {"cpu": Decimal("0.25"), "memory": Decimal(2**30), "pods": Decimal(3)}
    made = graph_node(make_node(cpu=4, memory="8Gi", pods=10).build(), taken=taken)
    assert {kind: pool.total for kind, pool in pools(made).items()} == {
        "cpu": 3750,
        "memory": 7 * 1024,
        "pods": 7,
    }


def test_daemonsets_that_take_more_than_there_is_leave_0() -> None:
    made = graph_node(make_node(cpu=1, pods=10).build(), taken={"cpu": Decimal(2)})
    assert set(pools(made)) == {"pods"}
    assert not made.spec.down


@pytest.mark.parametrize(
    ("memory", "vertex_mib"),
    [("256Gi", 32), ("257Gi", 64), ("1Ti", 128), ("6Ti", 1024), ("31Mi", 32)],
    ids=lambda value: str(value),
)
def test_memory_vertices_double_until_a_node_has_few_enough(memory: str, vertex_mib: int) -> None:
    pool = pools(graph_node(make_node(memory=memory).build()))["memory"]
    assert pool.vertex_size == vertex_mib
    assert -(-pool.total // pool.vertex_size) <= 8_192


@pytest.mark.parametrize(
    ("kind", "vertex_mib"), [("hugepages-1Gi", 1024), ("hugepages-64Ki", 32), ("hugepages-lots", 32)]
)
def test_huge_pages_are_counted_in_pages_where_a_page_is_as_large_as_a_unit(
    kind: str, vertex_mib: int
) -> None:
    assert pools(graph_node(make_node().has(kind, "8Gi").build()))[kind].vertex_size == vertex_mib


def test_cpu_vertices_have_the_size_of_the_rules() -> None:
    assert pools(graph_node(make_node(cpu=8).build(), NodeRules(cpu_vertex_m=1_000)))["cpu"] == Pool(
        "cpu", 8_000, 1_000
    )


@pytest.mark.parametrize("size", [0, -1, 1_001])
def test_a_cpu_vertex_is_never_larger_than_a_core(size: int) -> None:
    with pytest.raises(ValueError, match="choose 1 to 1000"):
        NodeRules(cpu_vertex_m=size)


def test_memory_vertices_have_a_size_and_a_number() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        NodeRules(memory_vertex_mib=0)


def test_a_node_that_is_being_deleted_is_down() -> None:
    node = make_node()
    node.metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert graph_node(node.build()).reason == "node n1 is down: it is being deleted"


def test_gpus_of_each_vendor_are_a_pool_of_their_own() -> None:
    made = graph_node(make_node().has("nvidia.com/gpu", 2).has("amd.com/gpu", 1).build())
    assert pools(made) == {
        "nvidia.com:gpu": Pool("nvidia.com:gpu", 2, 1),
        "amd.com:gpu": Pool("amd.com:gpu", 1, 1),
    }


def test_names_that_differ_in_one_character_are_pools_of_their_own() -> None:
    made = graph_node(make_node().has("example.com/a.b", 2).has("example.com/a_b", 1).build())
    assert {kind: pool.total for kind, pool in pools(made).items()} == {
        "example.com:a.b": 2,
        "example.com:a_b": 1,
    }


def test_other_resources_keep_their_name() -> None:
    made = graph_node(
        make_node()
        .has("example.com/fpga", 2)
        .has("hugepages-2Mi", "1Gi")
        .has("ephemeral-storage", "100Gi")
        .build()
    )
    assert pools(made) == {
        "example.com:fpga": Pool("example.com:fpga", 2, 1),
        "hugepages-2Mi": Pool("hugepages-2Mi", 1024, 2),
        "ephemeral-storage": Pool("ephemeral-storage", 102_400, 32),
    }


def test_volumes_and_amounts_of_0_are_left_out() -> None:
    made = graph_node(make_node().has("attachable-volumes-csi-x", 25).has("nvidia.com/gpu", 0).build())
    assert made.spec.pools == ()


def test_large_numbers_of_pieces_have_larger_vertices() -> None:
    pool = pools(graph_node(make_node().has("example.com/credits", 10**9).build()))["example.com:credits"]
    assert -(-pool.total // pool.vertex_size) <= 100_000


def test_levels_come_from_labels_and_a_missing_one_is_skipped() -> None:
    rules = NodeRules(levels=(("zone", "topology.kubernetes.io/zone"), ("rack", "example.com/rack")))
    assert graph_node(make_node().in_zone("eu-1", "r7").build(), rules).spec.levels == (
        Level("zone", "eu-1"),
        Level("rack", "r7"),
    )
    assert graph_node(make_node().in_zone("eu-1").build(), rules).spec.levels == (Level("zone", "eu-1"),)
    assert graph_node(make_node().build(), rules).spec.levels == ()


def test_labels_and_taints_become_properties() -> None:
    made = graph_node(
        make_node().labelled(disk="ssd", bare="").tainted("team", "bio").tainted("spot").build()
    )
    assert set(made.spec.properties) == {
        "disk",
        "disk=ssd",
        "bare",
        "bare=",
        "taint:team=bio:NoSchedule",
        "taint:spot=:NoSchedule",
    }


def test_a_cordoned_node_is_down_without_a_property_for_its_taint() -> None:
    made = graph_node(make_node(cpu=4).cordoned().build())
    assert made.spec.down
    assert made.reason == "node n1 is down: it is cordoned"
    assert made.spec.properties == {}
    assert pools(made)["cpu"].total == 4_000


def test_a_node_that_is_not_ready_is_down_with_the_kubelets_message() -> None:
    made = graph_node(make_node().not_ready("container runtime network not ready").build())
    assert made.reason == "node n1 is down: it is not ready (container runtime network not ready)"


def test_a_node_that_has_not_reported_is_down() -> None:
    assert graph_node(make_node().silent().build()).reason == "node n1 is down: it has not reported yet"


@pytest.mark.parametrize("nonsense", ["lots", "-4", "", "1e999", "9" * 40, "0x10", "NaN", "1e-999"])
def test_an_unreadable_quantity_marks_the_node_down(nonsense: str) -> None:
    made = graph_node(make_node(cpu=4).has("memory", nonsense).build())
    assert pools(made)["cpu"].total == 4_000
    if nonsense != "1e-999":
        assert made.spec.down
        assert "allocatable memory cannot be used" in made.reason
        assert "memory" not in pools(made)


@settings(max_examples=200, deadline=None)
@given(
    allocatable=st.dictionaries(
        st.text(max_size=20), st.text(max_size=12) | st.integers() | st.floats(), max_size=4
    ),
    labels=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
)
def test_no_content_of_a_node_raises(allocatable: dict[str, Any], labels: dict[str, str]) -> None:
    made = graph_node(NodeBuilder("n", allocatable).labelled(**labels).build())
    assert made.spec.down == bool(made.reason)
    assert all(pool.total > 0 for pool in made.spec.pools)
