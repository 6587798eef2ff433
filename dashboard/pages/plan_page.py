"""The plan: what runs until when, what is reserved and what is estimated, as one chart by node or by work."""

from __future__ import annotations

from typing import Final

from fluxqueue.api.formatting import natural_order
from fluxqueue.dashboard.pages.shared import visible_rows
from fluxqueue.dashboard.plan import plan_of
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["plan_page"]

_HOURS: Final = ("1", "6", "24", "72", "168")
_LONGEST: Final = 253


async def plan_page(site: Site, asked: Asked) -> Content:
    """Return the chart."""
    chosen = asked.parameters.get("hours", "")
    hours = int(chosen) if chosen in _HOURS else 0
    by_work = asked.parameters.get("by", "") == "work"
    wanted = asked.parameters.get("q", "").strip().lower()[:_LONGEST]
    key = ("plan", asked.visible, hours, by_work, wanted)
    return site.shared.get(
        key, site.state.version, lambda: _make(site, asked, hours, wanted, by_work=by_work)
    )


def _make(site: Site, asked: Asked, hours: int, wanted: str, *, by_work: bool) -> Content:
    reservations = site.state.reservations.list() if asked.visible.reservations else []
    rows = list(visible_rows(site, asked.visible))
    nodes = None
    if not by_work:
        names = {node.metadata.name for node in site.state.nodes.list()} if asked.visible.nodes else set()
        names.update(host for row in rows if row.began is not None for host in row.shares)
        nodes = sorted((name for name in names if wanted in name.lower()), key=natural_order)
    plan = plan_of(rows, reservations, site.clock(), hours, nodes=nodes)
    return Content(
        "Plan", render("plan.html", plan=plan, hours=hours, choices=_HOURS, by_work=by_work, wanted=wanted)
    )
