"""The plan: what runs until when, what is reserved and what is estimated, as one chart."""

from __future__ import annotations

from typing import Final

from fluxqueue.dashboard.pages.shared import visible_rows
from fluxqueue.dashboard.plan import plan_of
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["plan_page"]

_HOURS: Final = ("6", "24", "72", "168")


async def plan_page(site: Site, asked: Asked) -> Content:
    """Return the chart."""
    chosen = asked.parameters.get("hours", "")
    hours = int(chosen) if chosen in _HOURS else 0
    key = ("plan", asked.visible, hours)
    return site.shared.get(key, site.state.version, lambda: _make(site, asked, hours))


def _make(site: Site, asked: Asked, hours: int) -> Content:
    reservations = site.state.reservations.list() if asked.visible.reservations else []
    plan = plan_of(visible_rows(site, asked.visible), reservations, site.clock(), hours)
    return Content("Plan", render("plan.html", plan=plan, hours=hours, choices=_HOURS))
