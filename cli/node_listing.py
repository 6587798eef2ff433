"""`kubectl fluxqueue nodes` and `graph`: nodes as sinfo shows them, in groups or one by one, and as a tree of
the topology.

All functions are pure functions of what was read (`fluxqueue.cli.node_use`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fluxqueue.api import hostlists
from fluxqueue.api.formatting import some_of
from fluxqueue.api.topology import NODE_LEVEL, TopologyLevel
from fluxqueue.cli.fitting import Narrowing, fitted, without_empty
from fluxqueue.cli.node_use import NODE_STATES, Amounts, NodeUse
from fluxqueue.cli.tables import columns

__all__ = ["STATE_STYLES", "TreeOptions", "each_cells", "each_table", "grouped_table", "tree"]

STATE_STYLES = {
    "idle": "good",
    "mixed": "busy",
    "allocated": "busy",
    "draining": "waits",
    "drained": "waits",
    "down": "bad",
}
_NARROWING = Narrowing((("WORK", 24), ("NODELIST", 24), ("REASON", 16), ("WORK", 12), ("NODELIST", 12)))
_SHOWN = 3
_BAR = 10


def grouped_table(
    uses: Sequence[NodeUse], *, titles: bool = True, width: int | None = None, colour: bool = False
) -> str:
    """Return a line for all nodes of one state, reason and size."""
    groups: dict[tuple[str, str, float, int], list[NodeUse]] = {}
    for use in uses:
        groups.setdefault((use.state, use.reason, use.total.cpu, use.total.gpus), []).append(use)
    rows = []
    for (state, reason, _, _), members in sorted(
        groups.items(), key=lambda group: (NODE_STATES.index(group[0][0]), group[0][1:])
    ):
        total, used = _sums(members)
        names = hostlists.encode(use.name for use in members)
        rows.append([state, str(len(members)), _of(used.cpu, total.cpu), _gpus(used, total), reason, names])
    headers = ["STATE", "NODES", "CPU", "GPU", "REASON", "NODELIST"]
    return _text(headers, rows, titles=titles, width=width, colour=colour)


def each_table(
    uses: Sequence[NodeUse],
    *,
    wide: bool = False,
    titles: bool = True,
    width: int | None = None,
    colour: bool = False,
) -> str:
    """Return a line for each node, with the workloads that use it; ``wide`` shows all of them, and memory."""
    return _text(*each_cells(uses, wide=wide), titles=titles, width=None if wide else width, colour=colour)


def each_cells(uses: Sequence[NodeUse], *, wide: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the cells of `each_table`."""
    rows = []
    for use in uses:
        memory = [_of(use.used.memory_gib, use.total.memory_gib)] if wide else []
        work = _work(use, len(use.work) if wide else _SHOWN)
        rows.append(
            [
                use.name,
                use.state,
                _of(use.used.cpu, use.total.cpu),
                _gpus(use.used, use.total),
                *memory,
                use.reason,
                work,
            ]
        )
    return ["NODE", "STATE", "CPU", "GPU", *(["MEMORY-GIB"] if wide else []), "REASON", "WORK"], rows


def _text(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, titles: bool, width: int | None, colour: bool
) -> str:
    shown_headers, shown = (
        without_empty(headers, rows) if titles else (list(headers), [list(row) for row in rows])
    )
    shown_headers, shown = fitted(shown_headers, shown, width, _NARROWING)
    return columns(shown_headers if titles else None, shown, STATE_STYLES if colour else None)


def _sums(uses: Iterable[NodeUse]) -> tuple[Amounts, Amounts]:
    total, used = Amounts(), Amounts()
    for use in uses:
        total.add(use.total)
        used.add(use.used)
    return total, used


def _of(used: float, total: float) -> str:
    return f"{used:.4g}/{total:.6g}" if total else ""


def _gpus(used: Amounts, total: Amounts) -> str:
    return f"{used.gpus}/{total.gpus}" if total.gpus else ""


def _work(use: NodeUse, most: int) -> str:
    return some_of(
        [title if slots == 1 else f"{title} ({slots})" for title, slots in sorted(use.work.items())], most
    )


@dataclass(frozen=True)
class TreeOptions:
    """How a tree is drawn.

    Attributes
    ----------
    levels
        Levels of the topology, from the top down, with their node labels.
    deepest
        The lowest level that is shown: one of the levels, or ``node``.
    ascii_only
        Draw without the characters of boxes.
    width
        Of a line; None: any.
    """

    levels: Sequence[TopologyLevel]
    deepest: str = NODE_LEVEL
    ascii_only: bool = False
    width: int | None = None


@dataclass
class _Vertex:
    title: str
    nodes: list[NodeUse] = field(default_factory=list)
    below: dict[str, _Vertex] = field(default_factory=dict)


def tree(uses: Sequence[NodeUse], options: TreeOptions) -> str:
    """Return the topology with the use of each vertex;
    a level that a node has no label of is left out above it.
    """
    root = _Vertex("cluster")
    for use in uses:
        vertex = root
        vertex.nodes.append(use)
        for level, label in options.levels:
            name = use.node.metadata.label(label)
            if name:
                vertex = vertex.below.setdefault(f"{level} {name}", _Vertex(f"{level} {name}"))
                vertex.nodes.append(use)
            if level == options.deepest:
                break
        if options.deepest == NODE_LEVEL:
            vertex.below.setdefault(use.name, _Vertex(use.name)).nodes.append(use)
    lines: list[tuple[str, list[str]]] = []
    _draw(root, "", "", options, lines)
    width = max(len(text) for text, _ in lines)
    cells = [[text.ljust(width), *rest] for text, rest in lines]
    headers, rows = without_empty(["PLACE", "USE", "CPU", "GPU", "NODES", "WORK"], cells)
    return columns(*fitted(headers, rows, options.width, _NARROWING))


def _draw(
    vertex: _Vertex, first: str, later: str, options: TreeOptions, lines: list[tuple[str, list[str]]]
) -> None:
    total, used = _sums(vertex.nodes)
    leaf = len(vertex.nodes) == 1 and vertex.title == vertex.nodes[0].name
    part = used.cpu / total.cpu if total.cpu else 0.0
    nodes = vertex.nodes[0].state if leaf else _counted(vertex.nodes)
    work = _work(vertex.nodes[0], _SHOWN) if leaf else ""
    lines.append(
        (
            f"{first}{vertex.title}",
            [_bar(part, options), _of(used.cpu, total.cpu), _gpus(used, total), nodes, work],
        )
    )
    branch, last, stem = ("|- ", "`- ", "|  ") if options.ascii_only else ("├─ ", "└─ ", "│  ")
    below = list(vertex.below.values())
    for number, child in enumerate(below, 1):
        ends = number == len(below)
        _draw(child, later + (last if ends else branch), later + ("   " if ends else stem), options, lines)


def _bar(part: float, options: TreeOptions) -> str:
    full = min(round(part * _BAR), _BAR)
    on, off = ("#", ".") if options.ascii_only else ("█", "░")
    return on * full + off * (_BAR - full)


def _counted(uses: Sequence[NodeUse]) -> str:
    """Return how many nodes there are, and how many of them take no work."""
    closed = {state: sum(use.state == state for use in uses) for state in ("down", "drained", "draining")}
    named = ", ".join(f"{count} {state}" for state, count in closed.items() if count)
    return f"{len(uses)}{f' ({named})' if named else ''}"
