"""Nodes that were changed between the match and the release."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.builders import NodeBuilder, make_node

from fluxqueue.api.nodes import Node
from fluxqueue.queue.noderules.node_fitness import NodeFitness

SSD = json.dumps(
    {
        "attributes": {
            "system": {
                "constraints": {"and": [{"properties": ["disk=ssd"]}, {"properties": ["^dirty=NoSchedule"]}]}
            }
        }
    }
)
ANY = json.dumps({"attributes": {"system": {}}})


def a_node(builder: NodeBuilder) -> Node:
    return msgspec.convert(builder.build(), Node)


def ssd(name: str = "n0") -> NodeBuilder:
    return make_node(name).allocatable(cpu="8", memory="32Gi", pods="110").label("disk", "ssd")


def objection(jobspec: str, *nodes: NodeBuilder, hosts: tuple[str, ...] = ("n0",)) -> str:
    there = {node.metadata.name: node for node in map(a_node, nodes)}
    return NodeFitness(there.get).problem(jobspec, hosts)


def test_a_node_that_is_what_was_asked_for_is_fit() -> None:
    assert objection(SSD, ssd()) == ""
    assert objection(ANY, make_node("n0").allocatable(cpu="8")) == ""


@pytest.mark.parametrize(
    ("jobspec", "nodes", "says"),
    [
        pytest.param(SSD, [make_node("n0")], "node n0 was changed: its labels or taints", id="label gone"),
        pytest.param(ANY, [ssd().cordoned()], "it is cordoned", id="cordoned"),
        pytest.param(ANY, [ssd().not_ready()], "it is not ready", id="not ready"),
        pytest.param(ANY, [], "node n0 is not there any more", id="deleted"),
    ],
)
def test_a_node_that_is_not_what_it_was_is_named_with_what_is_wrong(
    jobspec: str, nodes: list[Any], says: str
) -> None:
    assert says in objection(jobspec, *nodes)


def test_one_of_many_nodes_is_enough() -> None:
    assert "node n1" in objection(SSD, ssd("n0"), make_node("n1").allocatable(cpu="8"), hosts=("n0", "n1"))


def test_a_node_is_judged_as_it_is_now() -> None:
    there = {"n0": a_node(ssd())}
    fitness = NodeFitness(there.get)
    assert fitness.problem(SSD, ["n0"]) == ""
    there["n0"] = a_node(make_node("n0").allocatable(cpu="8"))
    assert "n0" in fitness.problem(SSD, ["n0"])
