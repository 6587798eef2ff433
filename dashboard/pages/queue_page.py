"""The queue: a table of jobs, filtered and sorted, whose rows are sent again one by one when they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.dashboard.job_table import TablePage, TableQuery, read_query
from fluxqueue.dashboard.site import Asked, Content, Site, render

__all__ = ["RowUpdates", "queue_page", "read_query"]

_COLUMNS = (
    ("namespace", "Namespace"),
    ("job", "Job"),
    ("user", "User"),
    ("queue", "Queue"),
    ("state", "State"),
    ("pods", "Pods"),
    ("priority", "Priority"),
    ("", "Time"),
    ("", "Reason, nodes or outcome"),
    ("position", "Position"),
    ("eta", "Start or end"),
    ("submitted", "Submitted"),
)
_NUMBERS = ("pods", "priority", "position")


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    link: str
    sorted: str
    number: bool


async def queue_page(site: Site, asked: Asked) -> Content:
    """Return the table, with the form of its filters."""
    query = read_query(asked.parameters)
    page = site.state.table.page(query, asked.visible)
    queues = sorted(queue.metadata.name for queue in site.state.queues.list()) if asked.visible.queues else []
    accounts = (
        sorted(account.metadata.name for account in site.state.accounts.list())
        if asked.visible.accounts
        else []
    )
    namespaces = sorted(name for name in site.state.namespaces if asked.visible.shows(name))
    now = site.clock()
    html = render(
        "queue.html",
        query=query,
        mine=asked.viewer.person.username,
        page=page,
        summary=_summary(query, page),
        columns=_columns(query),
        queues=queues[:1_000],
        accounts=accounts[:1_000],
        namespaces=namespaces[:1_000],
        states=list(State),
        reasons=sorted(reason for reason in Reason if reason),
        incomplete=asked.visible.incomplete,
        rows=Markup("").join(Markup(row.shown(now)) for row in page.rows),  # noqa: S704  # made by a template
    )
    return Content("Queue", html)


def _summary(query: TableQuery, page: TablePage) -> Markup:
    return render("queue_summary.html", query=query, page=page, number=min(query.page, page.pages))


def _columns(query: TableQuery) -> list[_Column]:
    columns = []
    for sort, title in _COLUMNS:
        chosen = bool(sort) and query.sort == sort
        link = query.link(sort=sort, backwards=chosen and not query.backwards, page=1) if sort else ""
        direction = ("descending" if query.backwards else "ascending") if chosen else ""
        columns.append(_Column(title, link, direction, sort in _NUMBERS))
    return columns


class RowUpdates:
    """What of a table one browser has, and what it needs to have the present one.

    Parameters
    ----------
    query
        What it shows.
    fresh
        True if nothing has changed since the page was made, so it has all rows.
    """

    def __init__(self, query: TableQuery, *, fresh: bool) -> None:
        self._query = query
        self._fresh = fresh
        self._sent: dict[str, str] = {}
        self._shown: tuple[tuple[str, ...], str] | None = None

    def update(self, site: Site, asked: Asked) -> dict[str, Any] | None:
        """Return the rows that are new or changed, the order of all, and the summary;
        None if nothing changed.
        """
        page = site.state.table.page(self._query, asked.visible)
        shown = (tuple(row.uid for row in page.rows), str(_summary(self._query, page)))
        rows = (
            {}
            if self._fresh
            else {row.uid: row.html for row in page.rows if self._sent.get(row.uid) != row.version}
        )
        changed = bool(rows) or shown != self._shown
        self._sent = {row.uid: row.version for row in page.rows}
        self._shown, self._fresh = shown, False
        return {"rows": rows, "order": list(shown[0]), "summary": shown[1]} if changed else None
