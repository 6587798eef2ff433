"""All FluxJobs as rows, and the page of them that somebody asked for.

Who looks at the same rows in the same order shares the work: the order is made once for each change, and a page once for each change,
question and set of visible namespaces.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import SORTS, JobRow
from fluxqueue.kube.object_cache import Change

__all__ = ["PAGE", "JobTable", "TablePage", "TableQuery", "read_query"]

PAGE: Final = 100
"""Rows of a page."""
_MOST_PAGES_KEPT: Final = 256
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What somebody asked for; an empty field takes all.

    ``state`` is a state, or ``active`` for what waits or has nodes. ``page`` counts from 1.
    """

    text: str = ""
    namespace: str = ""
    queue: str = ""
    state: str = ""
    reason: str = ""
    sort: str = "order"
    backwards: bool = False
    page: int = 1

    def link(self, **changes: object) -> str:
        """Return the query string of this question with some changes; it begins with ``?``."""
        wanted = replace(self, **changes)  # type: ignore[arg-type]
        fields = {
            "q": wanted.text,
            "namespace": wanted.namespace,
            "queue": wanted.queue,
            "state": wanted.state,
            "reason": wanted.reason,
            "sort": "" if wanted.sort == "order" else wanted.sort,
            "backwards": "1" if wanted.backwards else "",
            "page": "" if wanted.page == 1 else str(wanted.page),
        }
        return f"?{urlencode({name: text for name, text in fields.items() if text})}"

    def takes(self, row: JobRow) -> bool:
        """True if a row is asked for."""
        if self.namespace and row.namespace != self.namespace:
            return False
        if self.queue and row.queue != self.queue:
            return False
        if self.state and row.state != self.state and not (self.state == "active" and row.state in _ACTIVE):
            return False
        if self.reason and row.reason != self.reason:
            return False
        return not self.text or all(word in row.search for word in self.text.lower().split())


_ACTIVE: Final = frozenset({State.PENDING, State.ALLOCATED, State.RUNNING, State.DRAINING})


def read_query(parameters: Mapping[str, str]) -> TableQuery:
    """Read the parameters of a request; what nobody can mean is left out."""

    def text(name: str) -> str:
        return parameters.get(name, "").strip()[:_LONGEST]

    sort = text("sort")
    page = text("page")
    return TableQuery(
        text("q"),
        text("namespace"),
        text("queue"),
        text("state") if text("state") in (*State, "active") else "",
        text("reason") if text("reason") in list(Reason) else "",
        sort if sort in SORTS else "order",
        text("backwards") == "1",
        max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
    )


@dataclass(frozen=True, slots=True)
class TablePage:
    """The rows of a page, how many there are in all, how many pages, and how many of all have each state."""

    rows: tuple[JobRow, ...]
    total: int
    pages: int
    states: Mapping[str, int]


class JobTable:
    """The rows of all FluxJobs."""

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}
        self._orders: dict[str, list[JobRow]] = {}
        self._pages: OrderedDict[tuple[TableQuery, frozenset[str] | None], TablePage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, change: Change[FluxJob]) -> None:
        """Follow a change of the cache."""
        if change.new is None:
            self._rows.pop(change.obj.metadata.uid, None)
        else:
            self._rows[change.new.metadata.uid] = JobRow(change.new)
        self._orders.clear()
        self._pages.clear()

    def page(self, query: TableQuery, visible: Visible) -> TablePage:
        """Return what somebody sees of what he asked for; a page beyond the last one is the last one."""
        key = (query, visible.namespaces)
        if (kept := self._pages.get(key)) is not None:
            return kept
        found = [row for row in self._ordered(query.sort) if visible.shows(row.namespace) and query.takes(row)]
        if query.backwards:
            found.reverse()
        pages = max(1, -(-len(found) // PAGE))
        begin = (min(query.page, pages) - 1) * PAGE
        page = TablePage(tuple(found[begin : begin + PAGE]), len(found), pages, Counter(row.state for row in found))
        self._pages[key] = page
        while len(self._pages) > _MOST_PAGES_KEPT:
            self._pages.popitem(last=False)
        return page

    def _ordered(self, sort: str) -> list[JobRow]:
        if (order := self._orders.get(sort)) is None:
            order = self._orders[sort] = sorted(self._rows.values(), key=lambda row: row.key(sort))
        return order
