"""History: waits, use and how right the estimates were, of the work that a person may see.

Waits and use are asked of the queue in the name of the person (`questions`). How right estimates were is read
from the FluxJobs that are there: one goes with its Job or pod, at the latest a day after its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.cli.costs import cost_text, currency_of
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.charts import Bars, histogram, series
from fluxqueue.dashboard.ended_jobs import ended_link
from fluxqueue.dashboard.pages.shared import visible_rows
from fluxqueue.dashboard.questions import NoAnswer
from fluxqueue.dashboard.site import Asked, Content, Site, render
from fluxqueue.dashboard.viewers import NoApi

__all__ = ["estimate_errors", "history_page"]

_DAYS: Final = ("1", "7", "30")
_JOBS: Final = "1000"
_SHOWN: Final = 50
_LONGEST: Final = 63
_LONGEST_USER: Final = 253
_CHOICES: Final = 1_000
_WAITS_S: Final = (10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0)
_ERRORS_S: Final = (-3_600.0, -600.0, -60.0, 0.0, 60.0, 600.0, 3_600.0)


async def history_page(site: Site, asked: Asked) -> Content:
    """Return the plots, and the last jobs that ended."""
    days = asked.parameters.get("days", "")
    days = days if days in _DAYS else "7"
    namespaces = sorted(name for name in site.state.namespaces if asked.visible.shows(name))[:_CHOICES]
    only = namespaces[0] if asked.visible.namespaces is not None and len(namespaces) == 1 else ""
    namespace = asked.parameters.get("namespace", "").strip()[:_LONGEST] or only
    user = asked.parameters.get("user", "").strip()[:_LONGEST_USER]
    errors = histogram(
        "errors",
        "Start against the first estimate",
        estimate_errors(site, asked, namespace),
        _ERRORS_S,
        signed=True,
    )
    plots = [] if user else [errors]  # FluxJobs do not name who submitted them
    problem = currency = ""
    jobs: Sequence[dict[str, Any]] = ()
    if not namespace and asked.visible.namespaces is not None:
        problem = "Choose a namespace: the history of all namespaces is for who may list FluxJobs in all."
    else:
        try:
            answer, report = await _asked_for(site, asked, namespace, user, days)
            jobs, currency = _rows(answer, "jobs"), currency_of(answer)
            plots = [
                histogram("waits", "Waits", [_number(job, "wait_s") for job in jobs], _WAITS_S),
                *_uses(site, asked, _rows(report, "rows"), currency),
                *plots,
            ]
        except (NoAnswer, NoApi) as error:
            problem = f"{str(error)[0].upper()}{str(error)[1:]}."
    times = ("wait_s", "run_s")
    shown = [job for job in jobs if isinstance(job.get("finished_at"), str)][:_SHOWN]
    ended = [
        {
            **job,
            **{name: _number(job, name) for name in times},
            "link": ended_link(job),
            "cost": cost_text(job),
        }
        for job in shown
    ]
    html = render(
        "history.html",
        plots=plots,
        jobs=ended,
        currency=currency,
        problem=problem,
        days=days,
        choices=_DAYS,
        namespace=namespace,
        namespaces=namespaces,
        user=user,
        mine=asked.viewer.person.username,
        most=len(jobs) >= int(_JOBS),
    )
    return Content("History", html)


async def _asked_for(
    site: Site, asked: Asked, namespace: str, user: str, days: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    viewer = asked.viewer
    where = {name: text for name, text in (("namespace", namespace), ("user", user)) if text}
    api, key = site.door.api(viewer), viewer.session.key
    history, report = await asyncio.gather(
        site.questions.history(api, key, "/history", {**where, "since": f"{days}d", "limit": _JOBS}),
        site.questions.history(api, key, "/report", {**where, "since": f"{days}d", "by": "day"}),
    )
    return history, report


def _rows(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _uses(site: Site, asked: Asked, report: Sequence[dict[str, Any]], currency: str) -> list[Bars]:
    """Return the use of cores by day, beside what the nodes have, of GPUs if any were used, and what it costs
    if there are prices.
    """
    report = sorted(report, key=lambda row: str(row.get("day", "")))
    days = [str(row.get("day", ""))[5:] for row in report]
    cpus, gpus = ([_number(row, name) / 3_600 for row in report] for name in ("cpu_s", "gpu_s"))
    note = ""
    if asked.visible.nodes:
        cores = sum(_cores(node.status.allocatable or {}) for node in site.state.nodes.list())
        note = f"the nodes of today have {cores * 24:,.0f} core-hours a day"
    plots = [
        series("cores", "Use of cores by day (UTC)", list(zip(days, cpus, strict=True)), "core-hours", note)
    ]
    if any(gpus):
        plots.append(
            series("gpus", "Use of GPUs by day (UTC)", list(zip(days, gpus, strict=True)), "GPU-hours")
        )
    if currency:
        costs = [float(cost_text(row) or 0) for row in report]
        plots.append(series("costs", "Cost by day (UTC)", list(zip(days, costs, strict=True)), currency))
    return plots


def estimate_errors(site: Site, asked: Asked, namespace: str) -> list[float]:
    """Return by how many seconds jobs got their nodes later than first estimated; negative: earlier."""
    errors = []
    for row in visible_rows(site, asked.visible):
        status = row.job.status
        first, real = instant(status.eta_first), instant(status.allocated_at)
        if first is not None and real is not None and namespace in ("", row.namespace):
            errors.append((real - first).total_seconds())
    return errors


def _cores(allocatable: Mapping[str, str | int | float]) -> float:
    try:
        return float(parse_quantity(allocatable.get("cpu", 0)))
    except InvalidQuantity:
        return 0.0


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
