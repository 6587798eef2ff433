"""Node shapes: which work fits a larger cluster."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fluxqueue.api.nodes import Taint
from fluxqueue.fluxion.graph.nodes import NodeRules
from fluxqueue.queue.config import InvalidConfig, read_config
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.scheduling.graph.node_shapes import NodeShape, NodeShapes, possible_nodes


def a_shape(**changes: Any) -> NodeShape:
    return NodeShape(
        **{"name": "large", "allocatable": {"cpu": "16", "memory": "64Gi"}, "max_nodes": 2, **changes}
    )


def test_a_shape_becomes_its_greatest_number_of_nodes_with_labels_and_taints() -> None:
    taint = Taint(key="dedicated", value="batch", effect="NoSchedule")
    made = possible_nodes([a_shape(labels={"pool": "large"}, taints=[taint])], NodeRules())
    assert len(made) == 2
    assert not any(spec.down for spec in made.values())
    for name, spec in made.items():
        assert "_" in name, "no node of a cluster is called so"
        assert spec.properties["pool"] == "large"
        assert "taint:dedicated=batch:NoSchedule" in spec.properties
        assert {pool.type: pool.total for pool in spec.pools}["pods"] == 110


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ("[{name: a, allocatable: {cpu: lots}, maxNodes: 1}]", "'a': its allocatable cpu cannot be used"),
        ("[{name: a, allocatable: {cpu: 1}, maxNodes: 0}]", "'a' allows 0 nodes"),
        (
            "[{name: a, allocatable: {cpu: 1}, maxNodes: 1}, {name: a, allocatable: {cpu: 2}, maxNodes: 1}]",
            "two shapes are called 'a'",
        ),
        ("[{name: a, allocatable: {cpu: 1}}]", "maxNodes"),
        ("[{name: a, allocatable: {cpu: 1}, maxNodes: 1, color: red}]", "color"),
    ],
)
def test_invalid_shapes_are_refused_at_start(tmp_path: Path, shapes: str, said: str) -> None:
    config = tmp_path / "queue.yaml"
    config.write_text(f"nodeShapes: {shapes}")
    with pytest.raises(InvalidConfig, match=said):
        read_config(config)


async def test_a_changed_node_changes_the_answer() -> None:
    small = possible_nodes([a_shape(name="small", max_nodes=1, allocatable={"cpu": "4"})], NodeRules())
    larger = possible_nodes([a_shape(name="small", max_nodes=1, allocatable={"cpu": "16"})], NodeRules())
    node_shapes = NodeShapes(possible_nodes([a_shape(max_nodes=1, allocatable={"cpu": "16"})], NodeRules()))
    pair = jobspec_of("two", [SizedPods({"cpu": Decimal(16)}, 2)], duration_s=60)
    assert await node_shapes.needed([pair], small) == [()]
    assert await node_shapes.needed([pair], larger) == [("large",)]
    assert await node_shapes.needed([pair], {}) == [()]
