from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.fluxion.graph.files import UnreadableGraph, check_jgf, read_tree, tree_lines, write_jgf
from fluxqueue.fluxion.graph.jgf import read_jgf
from fluxqueue.fluxion.messages import GraphNodeSpec, Level, Pool

RACKED = (
    GraphNodeSpec(
        "n1",
        (Pool("cpu", 2050, 1000), Pool("gpu", 2)),
        (Level("zone", "eu"), Level("rack", "r1")),
        {"disk": "ssd"},
    ),
    GraphNodeSpec("n2", (Pool("cpu", 1000, 1000),), (Level("zone", "eu"), Level("rack", "r2")), down=True),
    GraphNodeSpec("n3", (Pool("cpu", 1000, 1000),), (Level("zone", "us"),)),
)


def jgf(nodes: list[Any], edges: list[Any]) -> str:
    return json.dumps({"graph": {"nodes": nodes, "edges": edges}})


def vertex(identity: str, path: str, kind: str = "node", **more: Any) -> dict[str, Any]:
    return {"id": identity, "metadata": {"type": kind, "paths": {"containment": path}, **more}}


def edge(source: str, target: str) -> dict[str, str]:
    return {"source": source, "target": target}


CLUSTER = vertex("0", "/cluster0", "cluster")
NODE = vertex("1", "/cluster0/node0")
CORE = vertex("2", "/cluster0/node0/core0", "core")
TREE = [edge("0", "1"), edge("1", "2")]


def test_a_graph_made_of_nodes_loads_without_problems() -> None:
    text = write_jgf(RACKED)
    assert check_jgf(text) == []
    graph = read_jgf(text)
    assert [node.name for node in graph.nodes] == ["n1", "n2", "n3"]


def test_a_tree_counts_leaves_by_type_on_the_line_of_their_node() -> None:
    assert list(tree_lines(read_tree(write_jgf(RACKED)))) == [
        "cluster0",
        "├── zone eu",
        "│   ├── rack r1",
        "│   │   └── node n1  cpu 2050 in 3 vertices  gpu 2",
        "│   └── rack r2",
        "│       └── node n2  down  cpu 1000 in 1 vertex",
        "└── zone us",
        "    └── node n3  cpu 1000 in 1 vertex",
    ]


def test_a_whole_tree_has_a_line_for_every_vertex() -> None:
    text = write_jgf(RACKED)
    assert len(list(tree_lines(read_tree(text), everything=True))) == len(json.loads(text)["graph"]["nodes"])


def test_a_long_list_of_nodes_is_cut_with_a_note() -> None:
    lines = list(
        tree_lines(
            read_tree(write_jgf([GraphNodeSpec(f"n{i}", (Pool("cpu", 1),)) for i in range(60)])), most=50
        )
    )
    assert len(lines) == 52
    assert lines[-1] == "└── ... and 10 more"


def test_a_deep_graph_is_shown_without_recursion() -> None:
    depth = 3_000
    paths = ["/c" + "/x" * i for i in range(depth)]
    nodes = [vertex(str(i), path, "level") for i, path in enumerate(paths)]
    text = jgf(nodes, [edge(str(i), str(i + 1)) for i in range(depth - 1)])
    assert len(list(tree_lines(read_tree(text), everything=True))) == depth


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", 'the key "graph" is missing'),
        ('{"graph": {"nodes": {"0": {}}, "edges": []}}', "reads the array form only"),
        ('{"graph": {"nodes": []}}', "graph.edges is missing"),
        (jgf([], []), "here is none"),
        (jgf([CLUSTER, vertex("7", "/other0", "cluster")], []), "2 of them: /cluster0, /other0"),
        (jgf([CLUSTER, {"id": 4}], []), "node 1: id is missing or no string"),
        (jgf([CLUSTER, {"id": "4"}], []), "vertex '4': metadata is missing"),
        (
            jgf([CLUSTER, {"id": "4", "metadata": {"type": "node"}}], []),
            "vertex '4': metadata.paths.containment",
        ),
        (jgf([CLUSTER, vertex("4", "/cluster0/a", size=-1)], []), "vertex '4': metadata.size is -1"),
        (jgf([CLUSTER, vertex("4", "/cluster0/a", status=2)], []), "vertex '4': metadata.status is 2"),
        (jgf([CLUSTER, NODE, NODE], []), "vertex '1': occurs 2 times"),
        (jgf([CLUSTER, NODE], [edge("0", "9")]), "edge '0' -> '9': its target is no vertex"),
        (jgf([CLUSTER, NODE], [edge("0", "1"), edge("0", "1")]), "edge '0' -> '1': occurs twice"),
        (jgf([CLUSTER], [{"source": "0"}]), "edge 0: source or target is missing"),
        (jgf([CLUSTER, vertex("4", "/cluster0/a", properties=None)], []), "properties"),
    ],
)
def test_what_keeps_a_graph_from_loading_is_named(text: str, sentence: str) -> None:
    findings = check_jgf(text)
    assert any(finding.fatal and sentence in finding.sentence for finding in findings), findings


def test_all_problems_are_reported_at_once() -> None:
    broken = jgf(
        [CLUSTER, {"id": "4"}, vertex("5", "/cluster0/a", size="big")], [edge("0", "9"), edge("8", "0")]
    )
    assert len([finding for finding in check_jgf(broken) if finding.fatal]) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            jgf([CLUSTER, NODE, CORE], [*TREE, edge("1", "0"), edge("2", "1")]),
            "edges in both directions (2) load",
        ),
        (
            jgf([CLUSTER, NODE, CORE], TREE[:1]),
            "vertices that are not reached from the root (1) never match: 2",
        ),
        (jgf([CLUSTER, NODE], TREE[:1]), "nodes with nothing on them (1): /cluster0/node0"),
        (
            jgf([CLUSTER, NODE, CORE], TREE) + " " * 5 * 2**20,
            "5.0 MiB: a Go fluxion service takes 4 MiB at most",
        ),
        (
            jgf(
                [CLUSTER, vertex("1", "/cluster0/a", name="n"), vertex("2", "/cluster0/b", name="n")],
                [edge("0", "1"), edge("0", "2")],
            ),
            "node names that occur more than once (1) are",
        ),
    ],
)
def test_what_loads_but_is_probably_a_mistake_is_noted(text: str, sentence: str) -> None:
    findings = check_jgf(text)
    assert not any(finding.fatal for finding in findings)
    assert any(sentence in finding.sentence for finding in findings), findings


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "metadata", "type", "paths", "source"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(nodes=st.lists(JSON, max_size=3), edges=st.lists(JSON, max_size=3))
def test_any_file_raises_only_its_own_error(nodes: list[Any], edges: list[Any]) -> None:
    text = jgf([CLUSTER, *nodes], edges)
    check_jgf(text)
    try:
        list(tree_lines(read_tree(text)))
    except UnreadableGraph:
        pytest.fail("the root is there")
