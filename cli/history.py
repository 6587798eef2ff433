"""`kubectl fluxqueue history`: work that waits, runs and has ended, as sacct shows it.

Rows come from the queue in pages (`fluxqueue.cli.history_source`): what has not ended first, then the newest
end first. A table has the columns that fit a terminal; CSV, JSON and Parquet have all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final, TextIO

from fluxqueue.cli.costs import COST, cost_cells, cost_titles, currency_of
from fluxqueue.cli.exports import Column, Export, write_rows
from fluxqueue.cli.fitting import Narrowing, fitted, line_width, without_empty
from fluxqueue.cli.history_source import HistorySource
from fluxqueue.cli.jobs import CELL_STYLES
from fluxqueue.cli.tables import age, clock, columns, instant, printable, wants_colour

__all__ = ["COLUMNS", "HistoryRequest", "history", "history_row", "history_titles", "nothing_found"]

_PAGE: Final = 1_000
COLUMNS: Final = (
    Column("id", "whole"),
    Column("kind"),
    Column("namespace"),
    Column("name"),
    Column("queue"),
    Column("account"),
    Column("user"),
    Column("priority", "whole"),
    Column("pods", "whole"),
    Column("duration_s", "whole"),
    Column("duration_assumed", "flag"),
    Column("state"),
    Column("outcome"),
    Column("reason"),
    Column("message"),
    Column("submitted_at", "time"),
    Column("promised_at", "time"),
    Column("allocated_at", "time"),
    Column("started_at", "time"),
    Column("finished_at", "time"),
    Column("start_error_s", "number"),
    Column("wait_s", "number"),
    Column("run_s", "number"),
    Column("cores", "number"),
    Column("requeues", "whole"),
    Column("jobid", "whole"),
    Column("hosts"),
    Column("resumed", "flag"),
    Column("uid"),
    Column("api_version"),
)

_NARROWING: Final = Narrowing(
    (
        ("OFF-BY", 0),
        ("USER", 12),
        ("ACCOUNT", 12),
        ("OBJECT", 24),
        ("OUTCOME", 0),
        ("QUEUE", 0),
        ("ACCOUNT", 0),
        ("USER", 0),
    )
)
"""What a table for a terminal loses first."""


@dataclass(frozen=True)
class HistoryRequest:
    """What is asked for.

    Attributes
    ----------
    parameters
        Of ``/history``.
    limit
        At most so many workloads.
    namespaces
        Show the namespaces.
    titles
        Show the titles of the columns.
    export
        Form and file; None: a table.
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    limit: int = 1_000
    namespaces: bool = False
    titles: bool = True
    export: Export | None = None


def history(
    source: HistorySource,
    request: HistoryRequest,
    out: TextIO,
    now: Callable[[], datetime],
    hints: TextIO | None = None,
) -> int:
    """Print the history.

    Parameters
    ----------
    source
        The queue.
    request
        What is asked for.
    out
        Standard output.
    now
        Returns the present time, with a zone, in which times are shown.
    hints
        Standard error: says if there is more.
    """
    more: list[bool] = []
    answer: dict[str, Any] = {}

    def read() -> Iterator[list[dict[str, Any]]]:
        for page, behind in source.jobs(request.parameters, request.limit, _PAGE, answer):
            more[:] = [behind]
            yield page

    rest = read()
    pages = chain([next(rest, [])], rest)
    first = dict(answer)  # says whether there are prices: another replica, which answers later, may not know
    if request.export is not None:
        write_rows(pages, [*COLUMNS, *([COST] if currency_of(first) else [])], request.export, out)
    else:
        titles = [*history_titles(namespaces=request.namespaces), *cost_titles(first)]
        rows = [
            [*history_row(job, now(), namespaces=request.namespaces), *cost_cells(job, first)]
            for page in pages
            for job in page
        ]
        out.write(_table(request, titles, rows, out) if rows else "")
        if not rows:
            (hints or sys.stderr).write(f"N{nothing_found(request.parameters)[1:]}.\n")
    if more and more[0]:
        (hints or sys.stderr).write(
            f"There is more than {request.limit}: raise --limit, "
            "or name a shorter time with --since and --until.\n"
        )
    return 0


def nothing_found(parameters: Mapping[str, str]) -> str:
    """Return that there is no work, for what was asked."""
    named = "/".join(parameters[each] for each in ("kind", "name") if each in parameters)
    return f"no work {f'named {printable(named)}' if named else 'of this time'} was found"


def _table(request: HistoryRequest, titles: list[str], rows: list[list[str]], out: TextIO) -> str:
    width = line_width(out)
    if width is not None:
        titles, rows = fitted(*without_empty(titles, rows), width, _NARROWING)
    return columns(titles if request.titles else None, rows, CELL_STYLES if wants_colour(out) else None)


def history_titles(*, namespaces: bool) -> list[str]:
    """Return the titles of the columns of a table."""
    start = ["NAMESPACE"] if namespaces else []
    return [
        *start,
        "OBJECT",
        "QUEUE",
        "ACCOUNT",
        "USER",
        "STATE",
        "OUTCOME",
        "PODS",
        "WAIT",
        "RUN",
        "OFF-BY",
        "ENDED",
    ]


def history_row(job: Mapping[str, Any], now: datetime, *, namespaces: bool) -> list[str]:
    """Return the cells of one workload, as the queue answered it."""
    start = [str(job["namespace"])] if namespaces else []
    ended = instant(job.get("finished_at"))
    return [
        *start,
        f"{str(job['kind']).lower()}/{job['name']}",
        str(job["queue"]),
        str(job["account"]),
        str(job["user"]),
        str(job["state"]),
        str(job["outcome"] or job["reason"]),
        str(job["pods"]),
        _span(job.get("submitted_at"), job.get("started_at"), job.get("wait_s")),
        _span(job.get("started_at"), job.get("finished_at"), job.get("run_s")),
        _off_by(job.get("start_error_s")),
        clock(ended, now) if ended else "",
    ]


def _off_by(error_s: float | None) -> str:
    """Return how much later than first estimated work got its nodes, with a minus sign if earlier."""
    return (
        ""
        if error_s is None
        else f"{'-' if error_s <= -1 else '+' if error_s >= 1 else ''}{age(abs(error_s))}"
    )


def _span(first: str | None, last: str | None, seconds: float | None) -> str:
    """Return the time between two others, which are shown in whole seconds, as all that shows them counts it;
    else these seconds.
    """
    begin, end = instant(first), instant(last)
    if begin is not None and end is not None:
        seconds = (end.replace(microsecond=0) - begin.replace(microsecond=0)).total_seconds()
    return "" if seconds is None else age(seconds)
