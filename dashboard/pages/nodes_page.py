"""The nodes: a map by topology, coloured by use and by job, and the work on one of them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fluxqueue.api.graphnames import CPU
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.node_map import Cell, Group, node_map
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["nodes_page"]

_MOST: Final = 5_000
_LONGEST: Final = 253
_DENSE: Final = 200
"""More nodes than these are small tiles."""
_MOST_JOBS: Final = 24
_STATES: Final = ("free", "ready", "cordoned", "down")


async def nodes_page(site: Site, asked: Asked) -> Content:
    """Return the map."""
    if not asked.visible.nodes:
        sentence = (
            "You may not list nodes: an administrator binds you to a ClusterRole with the verb list on nodes."
        )
        return Content("Nodes", render("message.html", sentence=sentence))
    wanted = asked.parameters.get("q", "").strip().lower()[:_LONGEST]
    chosen = asked.parameters.get("node", "")[:_LONGEST]
    state = asked.parameters.get("state", "")
    state = state if state in _STATES else ""
    key = ("nodes", asked.visible, wanted, chosen, state)
    return site.shared.get(key, site.state.version, lambda: _make(site, asked, wanted, chosen, state))


def _make(site: Site, asked: Asked, wanted: str, chosen: str, state: str) -> Content:
    named = [node for node in site.state.nodes.list() if wanted in node.metadata.name.lower()]
    shown = node_map(named, site.state.table.rows(), asked.visible, site.settings.levels)
    cells = [cell for group in shown.groups for cell in group.cells]
    matching = [part for group in shown.groups if (part := _of_state(group, state)).cells]
    groups = _first(matching, _MOST)
    drawn = [cell for group in groups for cell in group.cells]
    html = render(
        "nodes.html",
        map=shown,
        groups=groups,
        dense=len(drawn) > _DENSE,
        jobs=_jobs(drawn),
        hidden=sum(len(group.cells) for group in matching) - len(drawn),
        wanted=wanted,
        one=next((cell for cell in cells if cell.name == chosen), None),
        chosen=chosen,
        state=state,
        states=_STATES,
    )
    return Content("Nodes", html)


def _of_state(group: Group, state: str) -> Group:
    cells = (
        cell for cell in group.cells if not state or cell.state == state or (state == "free" and cell.free)
    )
    return Group(group.path, tuple(cells))


def _first(groups: list[Group], most: int) -> list[Group]:
    """Return the groups with no more nodes than these in all."""
    first = []
    for group in groups:
        if most <= 0:
            break
        first.append(Group(group.path, group.cells[:most]))
        most -= len(group.cells)
    return first


def _jobs(cells: list[Cell]) -> list[tuple[JobRow, int]]:
    """Return the jobs on some nodes with how many of these nodes they have, those with most cores first."""
    nodes = Counter(row.uid for cell in cells for row in cell.rows)
    rows = {row.uid: row for cell in cells for row in cell.rows}
    ordered = sorted(rows.values(), key=lambda row: (-row.requested.get(CPU, 0), row.namespace, row.title))
    return [(row, nodes[row.uid]) for row in ordered[:_MOST_JOBS]]
