"""All FluxJobs as rows, and the page of them that somebody asked for.

Who asks the same, and sees the same namespaces, shares the work: a page is made once for each change. The
rows of a question are kept in their order, and a change exchanges one of them, so what a change costs hardly
depends on how many rows there are. After many changes at once they are looked through again.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

from fluxqueue.api.fluxjobs import LIVE, FluxJob, Reason, State
from fluxqueue.api.submitters import LONGEST_SUBMITTER
from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import SORTS, JobRow
from fluxqueue.kube.object_cache import Change

__all__ = ["PAGE", "JobTable", "TablePage", "TableQuery", "read_query"]

PAGE: Final = 100
"""Rows of a page."""
_MOST_PAGES_KEPT: Final = 256
_MOST_VIEWS_KEPT: Final = 64
_MOST_EXCHANGED: Final = 250
_LONGEST: Final = 200
_MOST_GONE: Final = 20_000
_GONE_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What somebody asked for; an empty field takes all.

    ``state`` is a state, ``live`` for what has nodes, or ``active`` for what waits or has nodes. ``page``
    counts from 1.
    """

    text: str = ""
    namespace: str = ""
    queue: str = ""
    state: str = ""
    reason: str = ""
    sort: str = "order"
    backwards: bool = False
    page: int = 1
    account: str = ""
    user: str = ""

    def link(self, **changes: object) -> str:
        """Return the query string of this question with some changes; it begins with ``?``."""
        wanted = replace(self, **changes)  # type: ignore[arg-type]
        fields = {
            "q": wanted.text,
            "namespace": wanted.namespace,
            "queue": wanted.queue,
            "state": wanted.state,
            "reason": wanted.reason,
            "account": wanted.account,
            "user": wanted.user,
            "sort": "" if wanted.sort == "order" else wanted.sort,
            "backwards": "1" if wanted.backwards else "",
            "page": "" if wanted.page == 1 else str(wanted.page),
        }
        return f"?{urlencode({name: text for name, text in fields.items() if text})}"

    @property
    def filters(self) -> bool:
        """True if it leaves anything out."""
        return any((self.text, self.namespace, self.queue, self.state, self.reason, self.account, self.user))

    def takes(self, row: JobRow) -> bool:
        """True if a row is asked for."""
        if self.namespace and row.namespace != self.namespace:
            return False
        if self.queue and row.queue != self.queue:
            return False
        if self.state and row.state != self.state and row.state not in _GROUPS.get(self.state, ()):
            return False
        if self.reason and row.reason != self.reason:
            return False
        if self.account and row.job.status.account != self.account:
            return False
        if self.user and row.job.status.submitted_by != self.user:
            return False
        return not self.text or all(word in row.search for word in self.text.lower().split())


_GROUPS: Final = {"active": LIVE | {State.PENDING}, "live": LIVE}


def read_query(parameters: Mapping[str, str]) -> TableQuery:
    """Read the parameters of a request; what nobody can mean is left out."""

    def text(name: str, longest: int = _LONGEST) -> str:
        return parameters.get(name, "").strip()[:longest]

    sort = text("sort")
    page = text("page")
    return TableQuery(
        text("q"),
        text("namespace"),
        text("queue"),
        text("state") if text("state") in (*State, *_GROUPS) else "",
        text("reason") if text("reason") in list(Reason) else "",
        sort if sort in SORTS else "order",
        text("backwards") == "1",
        max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        text("account"),
        text("user", LONGEST_SUBMITTER),
    )


@dataclass(frozen=True, slots=True)
class TablePage:
    """The rows of a page, how many there are in all, how many pages, and how many of all have each state."""

    rows: tuple[JobRow, ...]
    total: int
    pages: int
    states: Mapping[str, int]


class _View:
    """Some rows in an order: those of one question, or all.

    Parameters
    ----------
    sort
        What they are sorted by.
    takes
        Whether a row belongs here.
    """

    def __init__(self, sort: str, takes: Callable[[JobRow], bool]) -> None:
        self._sort = sort
        self._takes = takes
        self.rows: list[JobRow] = []
        self.states: Counter[str] = Counter()
        self.at = -1

    def _key(self, row: JobRow) -> tuple[Any, ...]:
        return row.key(self._sort)

    def fill(self, ordered: Iterable[JobRow], at: int) -> None:
        """Take what belongs here of rows that are in this order already."""
        self.rows = [row for row in ordered if self._takes(row)]
        self.states = Counter(row.state for row in self.rows)
        self.at = at

    def sort(self, rows: Iterable[JobRow], at: int) -> None:
        """Take what belongs here of rows that are in no order."""
        self.fill(sorted(rows, key=self._key), at)

    def exchange(self, old: JobRow | None, new: JobRow | None) -> None:
        """Take one row out and another one in."""
        if old is not None and self._takes(old):
            del self.rows[bisect.bisect_left(self.rows, self._key(old), key=self._key)]
            self.states[old.state] -= 1
        if new is not None and self._takes(new):
            bisect.insort_left(self.rows, new, key=self._key)
            self.states[new.state] += 1


class JobTable:
    """The rows of all FluxJobs.

    Parameters
    ----------
    clock
        Seconds of the epoch.

    Attributes
    ----------
    gone
        Work that had nodes or ended, and whose object was deleted within a day, the longest ago first. A
        FluxJob goes with its Job or pod.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.gone: deque[JobRow] = deque(maxlen=_MOST_GONE)
        self._rows: dict[str, JobRow] = {}
        self._changes: deque[tuple[JobRow | None, JobRow | None]] = deque(maxlen=_MOST_EXCHANGED)
        self._count = 0
        self._orders: dict[str, _View] = {}
        self._views: OrderedDict[tuple[TableQuery, frozenset[str] | None], _View] = OrderedDict()
        self._pages: OrderedDict[tuple[TableQuery, frozenset[str] | None], TablePage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Collection[JobRow]:
        """Return all rows, in no order."""
        return self._rows.values()

    def apply(self, change: Change[FluxJob]) -> None:
        """Follow a change of the cache."""
        old = self._rows.pop(change.obj.metadata.uid, None)
        new = JobRow(change.new) if change.new is not None else None
        if new is not None:
            self._rows[new.uid] = new
        else:
            self._remember(JobRow(change.obj))
        self._changes.append((old, new))
        self._count += 1
        self._pages.clear()

    def _remember(self, row: JobRow) -> None:
        """Keep for a day what work had whose object was deleted."""
        now = self._clock()
        if row.held[0] or row.job.status.finished_at:
            self.gone.append(row.without_object(now))
        while self.gone and (self.gone[0].gone or 0.0) <= now - _GONE_S:
            self.gone.popleft()

    def page(self, query: TableQuery, visible: Visible) -> TablePage:
        """Return what somebody sees of what he asked for; a page beyond the last one is the last one."""
        key = (query, visible.namespaces)
        if (kept := self._pages.get(key)) is not None:
            return kept
        view = self._view(query, visible)
        total = len(view.rows)
        pages = max(1, -(-total // PAGE))
        begin = (min(query.page, pages) - 1) * PAGE
        if query.backwards:
            rows = tuple(reversed(view.rows[max(0, total - begin - PAGE) : total - begin]))
        else:
            rows = tuple(view.rows[begin : begin + PAGE])
        page = TablePage(rows, total, pages, +view.states)
        self._pages[key] = page
        while len(self._pages) > _MOST_PAGES_KEPT:
            self._pages.popitem(last=False)
        return page

    def _view(self, query: TableQuery, visible: Visible) -> _View:
        """Return the present rows of a question, of all its pages."""
        question = replace(query, page=1, backwards=False)
        if visible.namespaces is None and question == TableQuery(sort=query.sort):
            return self._ordered(query.sort)
        key = (question, visible.namespaces)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _View(
                query.sort, lambda row: visible.shows(row.namespace) and question.takes(row)
            )
            while len(self._views) > _MOST_VIEWS_KEPT:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        if not self._catch_up(view):
            view.fill(self._ordered(query.sort).rows, self._count)
        return view

    def _ordered(self, sort: str) -> _View:
        """Return all rows in an order."""
        view = self._orders.setdefault(sort, _View(sort, lambda _: True))
        if not self._catch_up(view):
            view.sort(self._rows.values(), self._count)
        return view

    def _catch_up(self, view: _View) -> bool:
        """Apply what changed since a view was current, one by one;
        false if that is more than is remembered.
        """
        missed = self._count - view.at
        if view.at < 0 or missed > len(self._changes):
            return False
        for old, new in islice(self._changes, len(self._changes) - missed, None):
            view.exchange(old, new)
        view.at = self._count
        return True
