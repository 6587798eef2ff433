"""The overview: one look says how full the cluster is, who waits for what, and until when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from markupsafe import Markup

from fluxqueue.api.graphnames import CPU, MEMORY
from fluxqueue.dashboard.charts import Chart, Series
from fluxqueue.dashboard.node_map import NodeMap, Use, node_map, resource_title
from fluxqueue.dashboard.overview import Curve, overview_of, use_curve
from fluxqueue.dashboard.pages.shared import visible_rows
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["overview_page"]

_MOST_KINDS: Final = 4
_COST: Final = Markup("<!-- cost -->")
"""Where the page has the cost of who looks."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """How much is used of a resource now."""

    name: str
    text: str
    percent: float
    others: float


async def overview_page(site: Site, asked: Asked) -> Content:
    """Return the page; it is made of all work, so it is kept for a while whatever changes. Only the cost is
    asked for in the name of the person.
    """
    content = site.shared.get(("overview", asked.visible), 0, lambda: _make(site, asked))
    if not (cost := await site.costs.today(site, asked)):
        return content
    amount, _, currency = cost.partition(" ")
    tile = render("cost_tile.html", amount=amount, currency=currency)
    return replace(content, html=Markup(content.html.replace(_COST, tile)))  # noqa: S704  # made by templates


def _make(site: Site, asked: Asked) -> Content:
    visible, now = asked.visible, site.clock()
    rows, gone = site.state.table.rows(), site.state.table.gone
    nodes = node_map(site.state.nodes.list(), rows, visible, ()) if visible.nodes else None
    shown = overview_of(
        visible_rows(site, visible), nodes, now, (row for row in gone if visible.shows(row.namespace))
    )
    totals = {use.name: use for use in nodes.totals[:_MOST_KINDS]} if nodes is not None else {}
    curve = use_curve(chain(rows, gone), visible, tuple(totals) or (CPU,), now)
    html = render(
        "overview.html",
        shown=shown,
        gauges=[_gauge(use) for use in totals.values()],
        more=len(nodes.totals) - len(totals) if nodes is not None else 0,
        nodes=nodes,
        down=_not_ready(nodes),
        chart=_chart(curve, totals),
        hours=_hours(curve),
        visible=visible,
        cost=_COST,
    )
    return Content("Overview", html, site.state.version)


def _gauge(use: Use) -> Gauge:
    def percent(amount: int) -> float:
        return min(100.0, round(100 * amount / use.total, 1)) if use.total else 0.0

    return Gauge(use.title, use.figures, percent(use.seen + use.others), percent(use.others))


def _not_ready(nodes: NodeMap | None) -> int:
    return sum(count for state, count in nodes.states.items() if state != "ready") if nodes is not None else 0


def _chart(curve: Curve, totals: dict[str, Use]) -> Chart:
    """Return the curves: in percent of the present nodes, or in cores for who may not list nodes."""
    if not totals:
        cores = [round(value / 1_000, 2) for value in curve.values[CPU]]
        return Chart(
            "use-of-day", "Cores that your work had", curve.times, (Series("Cores", cores, "cores"),)
        )
    lines = []
    for kind, use in totals.items():
        scale = 100 / use.total if use.total else 0.0
        lines.append(
            Series(
                resource_title(kind),
                [round(min(value * scale, 100.0), 1) for value in curve.values[kind]],
                "%",
            )
        )
    return Chart("use-of-day", "Use of the nodes", curve.times, tuple(lines), most=100.0)


def _hours(curve: Curve) -> str:
    """Return what the day used in all, in words."""
    words = [f"{curve.hours(CPU) / 1_000:,.0f} core-hours"]
    others = (kind for kind in curve.values if kind not in (CPU, MEMORY))
    words += [
        f"{hours:,.0f} hours of {resource_title(kind)}" for kind in others if (hours := curve.hours(kind))
    ]
    return ", ".join(words)
