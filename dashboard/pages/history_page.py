"""History: waits, use and how right the estimates were, of the work that a person may see.

Waits and use are asked of the queue in the name of the person (`questions`). How right estimates were is read
from the FluxJobs that are there: one goes with its Job or pod, at the latest a day after its end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.cli.costs import cost_text, currency_of
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.charts import Bars, Stack, histogram, histograms, stacked
from fluxqueue.dashboard.ended_jobs import ended_link
from fluxqueue.dashboard.pages.shared import visible_rows
from fluxqueue.dashboard.questions import NoAnswer, TooMuch
from fluxqueue.dashboard.site import Asked, Content, Site, render
from fluxqueue.dashboard.viewers import NoApi

__all__ = ["estimate_errors", "history_page"]

_DAYS: Final = ("1", "7", "30")
_JOBS: Final = "1000"
_SHOWN: Final = 50
_LONGEST: Final = 63
_LONGEST_USER: Final = 253
_CHOICES: Final = 1_000
_MOST_DAYS: Final = 31
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
    plots: list[Bars | Stack] = [] if user else [errors]  # FluxJobs do not name who submitted them
    problem = currency = ""
    jobs: Sequence[dict[str, Any]] = ()
    if not namespace and asked.visible.namespaces is not None:
        problem = "Choose a namespace: the history of all namespaces is for who may list FluxJobs in all."
    else:
        try:
            answer, (report, whose) = await _asked_for(site, asked, namespace, user, days)
            jobs, currency = _rows(answer, "jobs"), currency_of(answer)
            plots = [
                *_uses(site, asked, _rows(report, "rows"), currency, whose),
                histograms("waits", "Waits by queue", _waits(jobs), _WAITS_S),
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


@dataclass(frozen=True, slots=True)
class _Whose:
    """Whose use is told apart: the group of the report; ``told`` is False if it has too many."""

    group: str
    told: bool = True


async def _asked_for(
    site: Site, asked: Asked, namespace: str, user: str, days: str
) -> tuple[Mapping[str, Any], tuple[Mapping[str, Any], _Whose]]:
    viewer = asked.viewer
    where = {name: text for name, text in (("namespace", namespace), ("user", user)) if text}
    where["since"] = f"{days}d"
    ask = partial(site.questions.history, site.door.api(viewer), viewer.session.key)
    group = "account" if site.state.accounts.list() else "namespace"

    async def report() -> tuple[Mapping[str, Any], _Whose]:
        try:
            return await ask("/report", {**where, "by": f"day,{group}"}), _Whose(group)
        except TooMuch:
            return await ask("/report", {**where, "by": "day"}), _Whose(group, told=False)

    history, use = await asyncio.gather(ask("/history", {**where, "limit": _JOBS}), report())
    return history, use


def _rows(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _waits(jobs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return how long work waited, by queue."""
    waits: dict[str, list[float]] = {}
    for job in jobs:
        waits.setdefault(str(job.get("queue") or "no queue"), []).append(_number(job, "wait_s"))
    return waits


def _uses(
    site: Site, asked: Asked, report: Sequence[Mapping[str, Any]], currency: str, whose: _Whose
) -> list[Stack]:
    """Return the use of cores by day and whose it is, beside what the nodes have, of GPUs if any were used,
    and what it costs if there are prices.
    """
    days = _days([str(row.get("day", "")) for row in report])

    def by_day(amount: Callable[[Mapping[str, Any]], float]) -> dict[str, list[float]]:
        amounts: dict[str, list[float]] = {}
        for row in report:
            if (day := str(row.get("day", ""))) in days:
                name = str(row.get(whose.group) or f"no {whose.group}") if whose.told else "all"
                values = amounts.setdefault(name, [0.0] * len(days))
                values[days[day]] += amount(row)
        return {name: values for name, values in amounts.items() if any(values)}

    def plot(name: str, title: str, amounts: dict[str, list[float]], unit: str, note: str = "") -> Stack:
        labels = [day[5:] for day in days]
        note = f"{unit} by day (UTC){note}"
        if whose.told:
            title = f"{title} by {whose.group}"
        else:
            note = f"{note}; too many to tell by {whose.group}"
        return stacked(name, title, labels, amounts, unit, note, areas=True)

    note = ""
    if asked.visible.nodes:
        cores = sum(_cores(node.status.allocatable or {}) for node in site.state.nodes.list())
        note = f"; the nodes of today have {cores * 24:,.0f}"
    plots = [
        plot("cores", "Use of cores", by_day(lambda row: _number(row, "cpu_s") / 3_600), "core-hours", note)
    ]
    if gpus := by_day(lambda row: _number(row, "gpu_s") / 3_600):
        plots.append(plot("gpus", "Use of GPUs", gpus, "GPU-hours"))
    if currency:
        plots.append(plot("costs", "Cost", by_day(_cost), currency))
    return plots


def _days(written: Sequence[str]) -> dict[str, int]:
    """Return the place of each day from the first to the last, also of those on which nothing was used."""
    known = []
    for text in written:
        with suppress(ValueError):
            known.append(date.fromisoformat(text))
    if not known:
        return {}
    first, last = min(known), max(known)
    days = min((last - first).days, _MOST_DAYS) + 1
    return {(last - timedelta(days=days - 1 - at)).isoformat(): at for at in range(days)}


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


def _cost(row: Mapping[str, Any]) -> float:
    """Return the cost of a row as it is: rows of little are rounded when they are added up."""
    with suppress(ValueError):
        cost = float(str(row.get("cost")))
        return cost if math.isfinite(cost) else 0.0
    return 0.0
