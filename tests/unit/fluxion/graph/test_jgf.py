"""Graphs are loaded, and texts that are no graph are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fluxion_builders import flat_jgf

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.graph.jgf import InvalidGraph, read_jgf


def document(count: int = 2, **layout: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(flat_jgf(count, **layout))
    return loaded


def test_leaves_become_pools_and_follow_from_their_position() -> None:
    graph = read_jgf(flat_jgf(3, cores=4, memory=2))
    assert [node.name for node in graph.nodes] == ["node0", "node1", "node2"]
    run = graph.by_path["/cluster0/node1"].runs["core"]
    assert (len(run), run.ids, run.path_of(3)) == (4, range(4), "/cluster0/node1/core3")
    assert graph.vertices == 1 + 3 * 7


def test_edges_in_both_directions_load_as_a_tree() -> None:
    both = document(2, cores=1, memory=0)
    both["graph"]["edges"] += [
        {"source": edge["target"], "target": edge["source"]} for edge in both["graph"]["edges"]
    ]
    graph = read_jgf(json.dumps(both))
    assert [node.path for node in graph.nodes] == ["/cluster0/node0", "/cluster0/node1"]
    assert not graph.leaf_types, "no vertex is without an edge"
    made = Engine()
    made.init("lonode", jgf=json.dumps(both))
    made.set_status("/cluster0/node0", False)


def test_leaves_out_of_order_or_of_other_sizes_keep_their_attributes() -> None:
    odd = document(1, cores=3, memory=0)
    vertices = odd["graph"]["nodes"]
    vertices[2]["metadata"].update(id=7, name="big", size=4, status=1, properties={"a": ""})
    run = next(iter(read_jgf(json.dumps(odd)).nodes)).runs["core"]
    assert list(run.ids) == [1, 2, 7]
    assert (run.name_of(2), run.path_of(2), run.size_of(2), run.down) == (
        "big",
        "/cluster0/node0/core0",
        4,
        0b100,
    )
    assert list(run.in_order(run.full)) == [2, 0, 1]
    assert run.total == 6


def test_a_graph_may_consist_of_a_root() -> None:
    graph = read_jgf(
        '{"graph": {"nodes": [{"id": "0", "metadata": {"type": "cluster", "paths": '
        '{"containment": "/c0"}}}], "edges": []}}'
    )
    assert graph.vertices == 1


def break_(change: str) -> str:
    broken = document()
    vertices, edges = broken["graph"]["nodes"], broken["graph"]["edges"]
    match change:
        case "two roots":
            vertices[1]["metadata"]["paths"]["containment"] = "/other0"
        case "no root":
            vertices[0]["metadata"]["paths"]["containment"] = "/a/b"
        case "same id":
            vertices[1]["id"] = "0"
        case "no path":
            del vertices[1]["metadata"]["paths"]["containment"]
        case "id not whole":
            vertices[1]["id"] = "x"
        case "dangling edge":
            edges[0]["target"] = "99"
        case "edge twice":
            edges.append(dict(edges[0]))
        case "type not text":
            vertices[1]["metadata"]["type"] = 1
        case "properties null":
            vertices[1]["metadata"]["properties"] = None
        case "size huge":
            vertices[1]["metadata"]["size"] = 1 << 50
        case "nodes as a map":
            broken["graph"]["nodes"] = {vertex["id"]: vertex for vertex in vertices}
    return json.dumps(broken)


@pytest.mark.parametrize(
    "change",
    [
        "two roots",
        "no root",
        "same id",
        "no path",
        "id not whole",
        "dangling edge",
        "edge twice",
        "type not text",
        "properties null",
        "size huge",
        "nodes as a map",
    ],
)
def test_a_text_that_is_no_graph_is_refused(change: str) -> None:
    with pytest.raises(InvalidGraph, match="JGF"):
        read_jgf(break_(change))


def test_a_chain_of_ten_thousand_vertices_is_refused_without_recursion() -> None:
    paths = ["/c0" + "/a" * depth for depth in range(10_000)]
    vertices = [
        {"id": str(i), "metadata": {"type": "a", "paths": {"containment": path}}}
        for i, path in enumerate(paths)
    ]
    edges = [{"source": str(i), "target": str(i + 1)} for i in range(9_999)]
    with pytest.raises(InvalidGraph, match="deeper than"):
        read_jgf(json.dumps({"graph": {"nodes": vertices, "edges": edges}}))
