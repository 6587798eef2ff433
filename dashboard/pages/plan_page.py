"""The plan: what runs until when, what is reserved and what is estimated, as one chart by node or by work.

The part of time that it shows is in its address, so it can be kept or sent, and is the same without scripts:
the links around the chart and what is dragged over it (`static/plan.js`) lead to such addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from fluxqueue.api.formatting import natural_order
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.pages.shared import visible_rows
from fluxqueue.dashboard.plan import Plan, plan_of
from fluxqueue.dashboard.rendering import colours, utc
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["plan_page"]

_HOURS: Final = ("1", "6", "24", "72", "168")
_LONGEST: Final = 253
_SHORTEST_WINDOW: Final = timedelta(minutes=1)
_LONGEST_WINDOW: Final = timedelta(days=31)
_FARTHEST: Final = timedelta(days=366)


async def plan_page(site: Site, asked: Asked) -> Content:
    """Return the chart."""
    chosen = asked.parameters.get("hours", "")
    hours = int(chosen) if chosen in _HOURS else 0
    by = asked.parameters.get("by", "")
    by = by if by in (*(["rack"] if site.settings.levels and asked.visible.nodes else []), "work") else ""
    wanted = asked.parameters.get("q", "").strip().lower()[:_LONGEST]
    window = _window(asked.parameters, site.clock()) if not hours else None
    key = ("plan", asked.visible, hours, by, wanted, window)
    return site.shared.get(key, site.state.version, lambda: _make(site, asked, hours, wanted, window, by))


def _window(parameters: Mapping[str, str], now: datetime) -> tuple[datetime, datetime] | None:
    """Return from when to when an address wants the chart to go;
    None if it does not say, or means too much.
    """
    begin, end = instant(parameters.get("from")), instant(parameters.get("to"))
    if begin is None or end is None or not _SHORTEST_WINDOW <= end - begin <= _LONGEST_WINDOW:
        return None
    if begin < now - _LONGEST_WINDOW or end > now + _FARTHEST:
        return None
    return begin.astimezone(UTC), end.astimezone(UTC)


def _make(
    site: Site,
    asked: Asked,
    hours: int,
    wanted: str,
    window: tuple[datetime, datetime] | None,
    by: str,
) -> Content:
    reservations = site.state.reservations.list() if asked.visible.reservations else []
    rows = list(visible_rows(site, asked.visible))
    nodes = racks = None
    if by != "work":
        names = {node.metadata.name for node in site.state.nodes.list()} if asked.visible.nodes else set()
        names.update(host for row in rows if row.began is not None for host in row.shares)
        nodes = sorted((name for name in names if wanted in name.lower()), key=natural_order)
    if by == "rack":
        labels = {node.metadata.name: node.metadata for node in site.state.nodes.list()}
        racks = {
            name: " / ".join(filter(None, map(meta.label, site.settings.levels))) or "no rack"
            for name, meta in labels.items()
        }
    plan = plan_of(rows, reservations, site.clock(), hours, nodes=nodes, racks=racks, window=window)
    drawn = (*plan.nodes, *plan.lanes, *plan.endless)
    kept = {name: value for name, value in (("by", by), ("q", wanted)) if value}
    html = render(
        "plan.html",
        plan=plan,
        hours=hours,
        choices=_HOURS,
        by=by,
        levels=site.settings.levels and asked.visible.nodes,
        wanted=wanted,
        window=window,
        hues=colours(bar.key for lane in drawn for bar in lane.bars if bar.row),
        zooms=_zooms(plan, kept, reset=window is not None or bool(hours)),
    )
    return Content("Plan", html)


def _zooms(plan: Plan, kept: Mapping[str, str], *, reset: bool) -> list[tuple[str, str, str, str]]:
    """Return the links to other parts of time: id, name, key and address."""
    width, middle = plan.end - plan.begin, plan.begin + (plan.end - plan.begin) / 2
    closer = max(width / 4, _SHORTEST_WINDOW / 2)
    wider = min(width, _LONGEST_WINDOW / 2)
    parts = (
        ("in", "Closer", "+", middle - closer, middle + closer),
        ("out", "Wider", "-", middle - wider, middle + wider),
        ("earlier", "Earlier", "left", plan.begin - width / 2, plan.end - width / 2),
        ("later", "Later", "right", plan.begin + width / 2, plan.end + width / 2),
    )
    links = [
        (name, title, key, f"?{urlencode({**kept, 'from': utc(begin), 'to': utc(end)})}#zoom-{name}")
        for name, title, key, begin, end in parts
    ]
    return [*links, ("reset", "Reset", "0", f"?{urlencode(kept)}#zoom-in")] if reset else links
