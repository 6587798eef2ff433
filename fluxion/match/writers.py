"""Writers of a placement: as rows, as R and as shares. Fluxion calls them match writers.

Vertices are emitted in post-order: children in the order of their edges, then their parent, the root last.
All three forms have that order, so the first node of the shares is the first node of R.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.messages import NodeShare

__all__ = ["VertexRow", "node_shares", "vertex_rows", "write_r"]

VertexRow = tuple[str, int, bool]
"""Containment path, size, exclusive."""

Emitted = Vertex | tuple[LeafRun, int]


def _emit(placement: GraphPlacement) -> Iterator[tuple[Emitted, bool]]:
    """Yield everything that is marked; true means exclusive."""
    below: dict[Vertex, list[tuple[int, Vertex | LeafRun]]] = {}
    root: Vertex | None = None
    for vertex in placement.vertices:
        if vertex.parent is None:
            root = vertex
        else:
            below.setdefault(vertex.parent, []).append((vertex.position, vertex))
    for runs in (placement.leaves, placement.shared_leaves):
        for run in runs:
            below.setdefault(run.parent, []).append((run.position, run))
    if root is not None:
        yield from _emit_below(root, placement, below)


def _emit_below(
    vertex: Vertex, placement: GraphPlacement, below: dict[Vertex, list[tuple[int, Vertex | LeafRun]]]
) -> Iterator[tuple[Emitted, bool]]:
    marked = below.get(vertex, [])
    if any(position < 0 for position, _ in marked):
        yield from _emit_scattered(vertex, placement, below)
    else:
        seen: set[int] = set()
        for position, entry in sorted(marked, key=lambda item: item[0]):
            if isinstance(entry, Vertex):
                yield from _emit_below(entry, placement, below)
            elif position not in seen:
                seen.add(position)
                held = placement.leaves.get(entry, 0)
                for index in entry.in_order(held | placement.shared_leaves.get(entry, 0)):
                    yield (entry, index), bool(held >> index & 1)
    yield vertex, placement.vertices[vertex]


def _emit_scattered(
    vertex: Vertex, placement: GraphPlacement, below: dict[Vertex, list[tuple[int, Vertex | LeafRun]]]
) -> Iterator[tuple[Emitted, bool]]:
    for entry in vertex.entries:
        if isinstance(entry, Vertex):
            if entry in placement.vertices:
                yield from _emit_below(entry, placement, below)
            continue
        run, positions = (
            (entry, entry.in_order(entry.full))
            if isinstance(entry, LeafRun)
            else (entry[0], iter((entry[1],)))
        )
        held, shared = placement.leaves.get(run, 0), placement.shared_leaves.get(run, 0)
        for index in positions:
            if (held | shared) >> index & 1:
                yield (run, index), bool(held >> index & 1)


def vertex_rows(placement: GraphPlacement) -> tuple[VertexRow, ...]:
    """Return containment path, size and exclusiveness of everything in a placement."""
    out: list[VertexRow] = []
    for item, exclusive in _emit(placement):
        if isinstance(item, Vertex):
            out.append((item.path, item.size, exclusive))
        else:
            run, index = item
            out.append((run.path_of(index), run.size_of(index), exclusive))
    return tuple(out)


def write_r(placement: GraphPlacement) -> str:
    """Return R as flux-sched writes it: JGF in one line and a newline,
    without keys that have their default.
    """
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []
    for item, exclusive in _emit(placement):
        vertex = _describe(item)
        if exclusive:
            vertex["exclusive"] = True
        metadata = {key: vertex[key] for key in _KEYS if key in vertex}
        metadata["paths"] = {"containment": vertex["path"]}
        if label := placement.labels.get(item):
            metadata["ephemeral"] = {"label": label}
        uniq_id = str(vertex["uniq_id"])
        nodes.append({"id": uniq_id, "metadata": metadata})
        if (parent := item.parent if isinstance(item, Vertex) else item[0].parent) is not None:
            edges.append({"source": str(parent.uniq_id), "target": uniq_id})
    return orjson.dumps({"graph": {"nodes": nodes, "edges": edges}}).decode() + "\n"


_KEYS = ("type", "basename", "name", "id", "rank", "properties", "exclusive", "size")


def _describe(item: Emitted) -> dict[str, Any]:
    if isinstance(item, Vertex):
        out: dict[str, Any] = {
            "type": item.type,
            "id": item.id,
            "rank": item.rank,
            "path": item.path,
            "uniq_id": item.uniq_id,
        }
        basename, name, size, properties = item.basename, item.name, item.size, item.properties
    else:
        run, index = item
        out = {
            "type": run.type,
            "id": run.ids[index],
            "rank": run.rank_of(index),
            "path": run.path_of(index),
            "uniq_id": run.uniq_ids[index],
        }
        basename, name, size = run.basenames.get(index, run.basename), run.name_of(index), run.size_of(index)
        properties = run.properties.get(index, {})
    if basename != out["type"]:
        out["basename"] = basename
    if name != f"{basename}{out['id']}":
        out["name"] = name
    if properties:
        out["properties"] = dict(properties)
    if size != 1:
        out["size"] = size
    return out


def node_shares(placement: GraphPlacement) -> tuple[NodeShare, ...]:
    """Return what is taken on each node, in the order of emission; each node occurs once."""
    amounts: dict[Vertex, dict[str, int]] = {}
    slots: dict[Vertex, dict[str, int]] = {}
    for vertex in placement.vertices:
        if vertex.type == NODE:
            amounts[vertex] = {}
    for run, mask in placement.leaves.items():
        node = run.parent if run.parent.type == NODE else run.parent.node
        if node is not None:
            per_type = amounts.setdefault(node, {})
            per_type[run.type] = per_type.get(run.type, 0) + run.amount(mask)
    for slot in placement.slots:
        if slot.node is not None:
            per_label = slots.setdefault(slot.node, {})
            per_label[slot.label] = per_label.get(slot.label, 0) + slot.count
    nodes = list(amounts)
    if len(nodes) > 1:
        nodes.sort(key=_position)
    return tuple(
        NodeShare(node.name, slots.get(node, {}), amounts[node], placement.vertices.get(node, False))
        for node in nodes
    )


def _position(vertex: Vertex) -> tuple[int, ...]:
    positions: list[int] = []
    at: Vertex | None = vertex
    while at is not None:
        positions.append(at.position)
        at = at.parent
    return tuple(reversed(positions))
