"""The nodes: a map by topology, coloured by use or by whose work it is, what is not usable and why, and the
work on one of them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from fluxqueue.api import hostlists
from fluxqueue.api.fluxreservations import ReservationState
from fluxqueue.api.formatting import format_nodes
from fluxqueue.api.graphnames import CPU
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.node_map import Cell, Group, node_map
from fluxqueue.dashboard.rendering import colours, job_link
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["nodes_page"]

_MOST: Final = 5_000
_LONGEST: Final = 253
_DENSE: Final = 200
"""More nodes than these are small tiles."""
_MOST_JOBS: Final = 24
_STATES: Final = ("free", "ready", "cordoned", "down")
_OWNERS: Final = ("job", "account", "user", "queue")
"""What can colour the map, beside the use of the cores."""
_MOST_REASONS: Final = 12


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose work has a colour: what it is called, a link to it, its nodes and cores."""

    key: str
    name: str
    link: str
    nodes: int
    cores: int


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
    by = asked.parameters.get("by", "")
    by = by if by in _OWNERS else ""
    key = ("nodes", asked.visible, wanted, chosen, state, by)
    return site.shared.get(key, site.state.version, lambda: _make(site, asked, wanted, chosen, state, by))


def _make(site: Site, asked: Asked, wanted: str, chosen: str, state: str, by: str) -> Content:
    nodes = site.state.nodes.list()
    named = [node for node in nodes if wanted in node.metadata.name.lower()]
    usable = (node for node in nodes if node.status.ready and not node.spec.unschedulable)
    usual = {taint.key for node in usable for taint in node.spec.taints or ()}
    rows, levels = site.state.table.rows(), site.settings.levels
    maintained = _maintained(site) if asked.visible.reservations else {}
    shown = node_map(named, rows, asked.visible, levels, maintained, usual)
    cells = [cell for group in shown.groups for cell in group.cells]
    matching = [part for group in shown.groups if (part := _of_state(group, state)).cells]
    groups = _first(matching, _MOST)
    drawn = [cell for group in groups for cell in group.cells]
    keys, owners = _owners(drawn, by or "job")
    html = render(
        "nodes.html",
        map=shown,
        groups=groups,
        dense=len(drawn) > _DENSE,
        owners=owners[:_MOST_JOBS],
        keys=keys,
        hues=colours(owner.key for owner in owners),
        by=by,
        kinds=_OWNERS,
        reasons=_reasons(drawn),
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


def _owners(cells: list[Cell], by: str) -> tuple[dict[str, str], list[_Owner]]:
    """Return whose the work on some nodes is: a key for each uid, and those with most cores there first."""
    keys: dict[str, str] = {}
    known: dict[str, tuple[str, str]] = {}
    nodes: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for cell in cells:
        for row in cell.rows:
            if row.uid not in keys:
                keys[row.uid], name, link = _owner(row, by)
                known[keys[row.uid]] = name, link
            cores[keys[row.uid]] += row.shares[cell.name].amounts.get(CPU, 0)
        nodes.update({keys[row.uid] for row in cell.rows})
    owners = [_Owner(key, *known[key], nodes[key], cores[key]) for key in known]
    return keys, sorted(owners, key=lambda owner: (-owner.cores, owner.name))


def _owner(row: JobRow, by: str) -> tuple[str, str, str]:
    """Return key, name and link of whose a job is."""
    if by == "job":
        return row.uid, row.title, job_link(row.namespace, row.job.metadata.name)
    status = row.job.status
    value = {"account": status.account, "user": status.submitted_by, "queue": row.queue}[by]
    name = row.user if by == "user" else value
    link = f"/queue?{urlencode({'state': 'live', by: value})}" if value else "/queue?state=live"
    return f"{by}-{quote(value, safe='')}", name or f"no {by}", link


def _maintained(site: Site) -> dict[str, str]:
    """Return the nodes of which a maintenance has begun, with its name."""
    found: dict[str, str] = {}
    for each in site.state.reservations.list():
        if each.spec.maintenance and each.status.state == ReservationState.ACTIVE:
            with suppress(hostlists.InvalidHostlist):
                found.update(dict.fromkeys(hostlists.decode(each.status.nodes), each.metadata.name))
    return found


def _reasons(cells: list[Cell]) -> list[tuple[str, str, str]]:
    """Return which nodes take no work: their names, state, and why, those of most nodes first."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.state != "ready":
            found.setdefault((cell.state, cell.why), []).append(cell.name)
    ordered = sorted(found.items(), key=lambda each: -len(each[1]))[:_MOST_REASONS]
    return [(format_nodes(",".join(names)), state, why) for (state, why), names in ordered]
