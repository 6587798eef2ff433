"""The nodes: a map by topology, coloured by job, and the work on one of them."""

from __future__ import annotations

from typing import Final

from fluxqueue.dashboard.node_map import node_map
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["nodes_page"]

_MOST: Final = 1_500
_LONGEST: Final = 253


async def nodes_page(site: Site, asked: Asked) -> Content:
    """Return the map."""
    if not asked.visible.nodes:
        sentence = "You may not list nodes: an administrator binds you to a ClusterRole with the verb list on nodes."
        return Content("Nodes", render("message.html", sentence=sentence))
    wanted = asked.parameters.get("q", "").strip().lower()[:_LONGEST]
    chosen = asked.parameters.get("node", "")[:_LONGEST]
    key = ("nodes", asked.visible, wanted, chosen)
    return site.shared.get(key, site.state.version, lambda: _make(site, asked, wanted, chosen))


def _make(site: Site, asked: Asked, wanted: str, chosen: str) -> Content:
    named = [node for node in site.state.nodes.list() if wanted in node.metadata.name.lower()]
    named.sort(key=lambda node: node.metadata.name)
    shown = node_map(named[:_MOST], site.state.table.rows(), asked.visible, site.settings.levels)
    cells = [cell for group in shown.groups for cell in group.cells]
    one = next((cell for cell in cells if cell.name == chosen), None)
    html = render("nodes.html", map=shown, hidden=max(0, len(named) - _MOST), wanted=wanted, one=one, chosen=chosen)
    return Content("Nodes", html)
