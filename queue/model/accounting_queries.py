"""What people ask of the accounting: which work, over which time, and how much of it at once.

The parameters of a URL become a query here, or one sentence that names the parameter and the remedy.
Everything is bounded: the number of rows, the length of a value and the time. Times are those of sacct:
``since`` and ``until`` select work by its end, and work that has not ended counts as ending now. A page names
the last row that it has, so the next one is found without counting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from fluxqueue.api.durations import SINCE_IN_THE_FUTURE, InvalidDuration, parse_duration
from fluxqueue.api.fluxjobs import State

__all__ = [
    "MOST_JOBS",
    "MOST_ROWS",
    "Cursor",
    "Filters",
    "Group",
    "HistoryQuery",
    "InvalidQuery",
    "ReportQuery",
    "namespace_of",
    "read_history_query",
    "read_report_query",
]

MOST_JOBS: Final = 1_000
"""Workloads on one page."""
MOST_ROWS: Final = 10_000
"""Rows of a report."""
_JOBS: Final = 100
_LONGEST_VALUE: Final = 1_024
_LONGEST_SPAN: Final = timedelta(days=3_653)
_HISTORY_SPAN: Final = timedelta(days=1)
_NAMED_SPAN: Final = timedelta(days=3_650)
"""Of one work, as sacct has it, all of its runs: who names it does not know when it ended."""
_REPORT_SPAN: Final = timedelta(days=30)
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CURSOR: Final = re.compile(r"(-|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}Z)_([0-9]{1,18})")
_FILTERS: Final = ("namespace", "account", "queue", "user")
_WINDOW: Final = ("since", "until")
_INFINITY: Final = "infinity"
_TIMES: Final = "write 2026-11-23, 2026-11-23T08:00:00Z, or how long ago: 12h, 7d"


class InvalidQuery(ValueError):
    """A parameter is not what it has to be; the message names it and the remedy."""


class Group(StrEnum):
    """What a report can be divided by."""

    NAMESPACE = "namespace"
    ACCOUNT = "account"
    QUEUE = "queue"
    USER = "user"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which work; None: any. The empty text selects work without an account, or of an unknown user.

    Attributes
    ----------
    namespace, account, queue, user
        Exact names.
    since, until
        The time, with a zone; `until` is not part of it.
    """

    namespace: str | None = None
    account: str | None = None
    queue: str | None = None
    user: str | None = None
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last row of a page: its end, and the number of its workload.

    Attributes
    ----------
    at
        RFC 3339 with microseconds; ``infinity`` for work that has not ended.
    id
        Number of the workload.
    """

    at: str
    id: int

    def __str__(self) -> str:
        return f"{'-' if self.at == _INFINITY else self.at}_{self.id}"

    @classmethod
    def behind(cls, finished_at: datetime | None, number: int) -> Cursor:
        """Return the cursor behind a row."""
        return cls(
            _INFINITY
            if finished_at is None
            else finished_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            number,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """One page of workloads.

    Attributes
    ----------
    filters
        Which.
    name, kind
        Only work of this name, and of this kind in lower case; None: any.
    states
        Only these; empty: all.
    live
        Work that has not ended, too.
    limit
        At most so many.
    after
        The page begins behind this row.
    """

    filters: Filters
    name: str | None = None
    kind: str | None = None
    states: tuple[State, ...] = ()
    live: bool = True
    limit: int = _JOBS
    after: Cursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """Use of nodes, summed by groups."""

    filters: Filters
    by: tuple[Group, ...] = field(default=(Group.NAMESPACE,))


def namespace_of(parameters: Iterable[tuple[str, str]]) -> str:
    """Return the namespace that is asked for; empty: all. Who may ask depends on it.

    Raises
    ------
    InvalidQuery
        It is no name of a namespace, or is named twice.
    """
    named = [value for name, value in parameters if name == "namespace"]
    if not named:
        return ""
    if len(named) > 1:
        raise InvalidQuery("namespace is given twice: name one, or none for all")
    if not _NAMESPACE.fullmatch(named[0]):
        raise InvalidQuery(
            f"namespace={_short(named[0])} is no name of a namespace: name one, or leave it out for all"
        )
    return named[0]


def read_history_query(parameters: Iterable[tuple[str, str]], now: datetime) -> HistoryQuery:
    """Read the parameters of ``/history``.

    Raises
    ------
    InvalidQuery
        With one sentence.
    """
    given = _given(parameters, (*_FILTERS, "name", "kind", *_WINDOW, "state", "limit", "cursor"))
    filters = _filters(given, now, _NAMED_SPAN if "name" in given else _HISTORY_SPAN)
    return HistoryQuery(
        filters=filters,
        name=given.get("name"),
        kind=given["kind"].lower() if "kind" in given else None,
        states=_states(given.get("state", "")),
        live=filters.until >= now,
        limit=_limit(given.get("limit", str(_JOBS))),
        after=_cursor(given["cursor"]) if given.get("cursor") else None,
    )


def read_report_query(parameters: Iterable[tuple[str, str]], now: datetime) -> ReportQuery:
    """Read the parameters of ``/report``.

    Raises
    ------
    InvalidQuery
        With one sentence.
    """
    given = _given(parameters, (*_FILTERS, *_WINDOW, "by"))
    words = tuple(dict.fromkeys(word.strip() for word in given.get("by", Group.NAMESPACE).split(",")))
    if unknown := [word for word in words if word not in list(Group)]:
        raise InvalidQuery(f"by={_short(unknown[0])} is no group: name some of {', '.join(Group)}")
    return ReportQuery(filters=_filters(given, now, _REPORT_SPAN), by=tuple(map(Group, words)))


def _given(parameters: Iterable[tuple[str, str]], known: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in parameters:
        if name not in known:
            raise InvalidQuery(f"there is no parameter {_short(name)}: there are {', '.join(known)}")
        if name in given:
            raise InvalidQuery(f"{name} is given twice: give it once")
        if len(value) > _LONGEST_VALUE:
            raise InvalidQuery(f"{name} is longer than {_LONGEST_VALUE} characters: shorten it")
        if not value.isprintable():
            raise InvalidQuery(f"{name} contains a control character: remove it")
        given[name] = value
    return given


def _filters(given: Mapping[str, str], now: datetime, span: timedelta) -> Filters:
    until = _time("until", given["until"], now) if given.get("until") else now
    since = (
        _time("since", given["since"], now)
        if given.get("since")
        else _before("until", given.get("until", ""), until, span)
    )
    if since > now:
        raise InvalidQuery(SINCE_IN_THE_FUTURE)
    if since >= until:
        raise InvalidQuery("since is not before until: name a later until, or an earlier since")
    if until - since > _LONGEST_SPAN:
        raise InvalidQuery("since lies more than ten years before until: name a later one")
    names = {name: given[name] for name in _FILTERS if name in given}
    namespace = namespace_of(names.items()) or None
    return Filters(
        namespace=namespace,
        account=names.get("account"),
        queue=names.get("queue"),
        user=names.get("user"),
        since=since,
        until=until,
    )


def _time(name: str, text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=parse_duration(text))
    except InvalidDuration:
        pass
    try:
        read = datetime.fromisoformat(text)
        return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidQuery(f"{name}={_short(text)} is no time: {_TIMES}") from None


def _before(name: str, text: str, time: datetime, span: timedelta) -> datetime:
    """Return the time so long before another; in the first year of the calendar there may be none."""
    try:
        return time - span
    except OverflowError:
        raise InvalidQuery(f"{name}={_short(text)} is no time: {_TIMES}") from None


def _states(text: str) -> tuple[State, ...]:
    known = {str(state).lower(): state for state in State}
    words = list(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if unknown := [word for word in words if word not in known]:
        raise InvalidQuery(f"state={_short(unknown[0])} is no state: name some of {', '.join(known)}")
    return tuple(known[word] for word in words)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_JOBS):
        raise InvalidQuery(
            f"limit={_short(text)} is not a number from 1 to {MOST_JOBS}: name one, "
            "and ask for more with cursor"
        )
    return int(text)


def _cursor(text: str) -> Cursor:
    read = _CURSOR.fullmatch(text)
    try:
        if read is None:
            raise ValueError(text)
        if read[1] != "-":
            datetime.fromisoformat(read[1])
    except ValueError:
        raise InvalidQuery(
            f"cursor={_short(text)} is none: send the `next` of the page before, or no cursor"
        ) from None
    return Cursor(_INFINITY if read[1] == "-" else read[1], int(read[2]))


def _short(text: str) -> str:
    """Return what was sent, as much of it as a sentence bears."""
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
