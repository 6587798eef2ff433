"""The JGF of what is free."""

from __future__ import annotations

import json
from typing import Any

from support.fluxion_builders import NOW, ask, engine, jobspec, node, slot

from fluxqueue.fluxion.changes import ResizeSystem, SetAdvanceReservations
from fluxqueue.fluxion.foreign.free_graphs import free_graph
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.graph.jgf import read_jgf
from fluxqueue.fluxion.messages import AdvanceReservation, NodeShare

UNITS = ForeignUnits(memory_mib=256)


def counts(text: str) -> dict[str, dict[str, int]]:
    """Node -> type -> number of leaves."""
    found: dict[str, dict[str, int]] = {}
    for vertex in json.loads(text)["graph"]["nodes"]:
        parts = vertex["metadata"]["paths"]["containment"].split("/")
        if len(parts) == 4:
            of_node = found.setdefault(parts[2], {})
            of_node[vertex["metadata"]["type"]] = of_node.get(vertex["metadata"]["type"], 0) + 1
    return found


def test_it_has_whole_vertices_of_what_is_free() -> None:
    made = engine(node("a-1", cpu=2_500, memory=1_024), node("b-2", cpu=1_000))
    graph = free_graph(made.state, UNITS)
    assert counts(graph.text) == {"a-1": {"core": 2, "memory": 4}, "b-2": {"core": 1}}
    assert graph.nodes == {"a-1", "b-2"}


def test_the_readers_of_flux_sched_read_it() -> None:
    graph = read_jgf(free_graph(engine(node("node-7", cpu=2_000), node("n", cpu=1_000)).state, UNITS).text)
    assert sorted(graph.by_name) == ["n", "node-7"]
    assert graph.by_name["node-7"].path == "/cluster0/node-7"
    assert graph.by_name["node-7"].runs["core"].path_of(1) == "/cluster0/node-7/core1"


def test_what_running_work_and_foreign_pods_hold_is_left_out() -> None:
    made = engine(node("a", cpu=4_000), node("b", cpu=4_000))
    assert ask(made, jobspec(slot(1, cpu=3_000)), 1).verdict == "granted"
    made.apply([ResizeSystem([NodeShare("b", amounts={"cpu": 1_100})])], NOW)
    taken_from = made.list_jobs(NOW, with_shares=True)[-1].shares[0].node
    assert counts(free_graph(made.state, UNITS).text) == (
        {"a": {"core": 1}, "b": {"core": 2}} if taken_from == "a" else {"a": {"core": 4}}
    )


def test_nodes_that_take_nothing_are_left_out() -> None:
    made = engine(
        node("up", cpu=1_000),
        node("down", cpu=1_000, down=True),
        node("small", cpu=900),
        node("set-aside", cpu=1_000),
    )
    made.apply([SetAdvanceReservations([AdvanceReservation("r", ("set-aside",), ((900, 0),))])], NOW)
    assert free_graph(made.state, UNITS).nodes == {"up"}


def test_a_node_that_is_set_aside_later_is_offered() -> None:
    made = engine(node("a", cpu=1_000))
    made.apply([SetAdvanceReservations([AdvanceReservation("r", ("a",), ((50_000, 60_000),))])], NOW)
    assert free_graph(made.state, UNITS).nodes == {"a"}


def test_a_text_that_would_be_too_large_leaves_nodes_out_but_those_asked_for() -> None:
    made = engine(*(node(f"n{number}", cpu=8_000) for number in range(20)))
    whole = free_graph(made.state, UNITS)
    part = free_graph(made.state, UNITS, frozenset(("n19",)), most_bytes=len(whole.text) // 3)
    assert "n19" in part.nodes
    assert len(part.text) <= len(whole.text) // 3
    assert len(part.nodes) + part.left_out == 20
    assert read_jgf(part.text).by_name.keys() == part.nodes


def test_an_empty_cluster_is_a_root_alone() -> None:
    graph: dict[str, Any] = json.loads(free_graph(engine().state, UNITS).text)["graph"]
    assert [vertex["metadata"]["type"] for vertex in graph["nodes"]] == ["cluster"]
