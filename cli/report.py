"""`kubectl fluxqueue report`: what was used, by namespace, account, queue, person or day, as sreport sums it.

The queue sums in Postgres (`fluxqueue.queue.store.accounting`); this module prints hours of cores, memory and
GPUs. The other forms have nodes too, but a node that several share counts for each of them, so people would
read more use than there are nodes. CSV, JSON and Parquet have seconds, so that nothing is rounded before
others compute with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TextIO

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.costs import COST, cost_cells, cost_titles, currency_of
from fluxqueue.cli.exports import Column, Export, write_rows
from fluxqueue.cli.history_source import HistorySource
from fluxqueue.cli.listing import list_accounts
from fluxqueue.cli.shares import budgets
from fluxqueue.cli.tables import age, columns, instant

__all__ = ["ReportRequest", "report", "visible_accounts"]

_HOUR: Final = 3_600
_SUMS: Final = (
    Column("jobs", "whole"),
    Column("node_s", "number"),
    Column("cpu_s", "number"),
    Column("memory_gib_s", "number"),
    Column("gpu_s", "number"),
)
_STARTS: Final = (Column("estimated", "whole"), Column("start_error_s", "number"))
_TITLES: Final = ("JOBS", "CPU-H", "GIB-H", "GPU-H", "ESTIMATED", "OFF-BY")


@dataclass(frozen=True)
class ReportRequest:
    """What is asked for.

    Attributes
    ----------
    parameters
        Of ``/report``.
    titles
        Show the titles of the columns, and the times.
    export
        Form and file; None: a table.
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    titles: bool = True
    export: Export | None = None


def report(
    source: HistorySource,
    request: ReportRequest,
    out: TextIO,
    accounts: Callable[[], Sequence[FluxAccount]] = tuple,
) -> int:
    """Print what was used, and what is left of the budgets of accounts where it is summed by account."""
    answer = source.report(request.parameters)
    groups: list[str] = answer["by"]
    rows: list[dict[str, Any]] = answer["rows"]
    if request.export is not None:
        costs = [COST] if currency_of(answer) else []
        write_rows([rows], [*map(Column, groups), *_SUMS, *_STARTS, *costs], request.export, out)
        return 0
    if request.titles:
        out.write(f"Use from {_time(answer['since'])} to {_time(answer['until'])}\n")
    cells = [
        [
            *(str(row[group]) for group in groups),
            str(row["jobs"]),
            *(_hours(row[sum_.name]) for sum_ in _SUMS[2:]),
            *_estimates(row),
            *cost_cells(row, answer),
        ]
        for row in rows
    ]
    titles = [*(group.upper() for group in groups), *_TITLES, *cost_titles(answer)]
    out.write(columns(titles if request.titles else None, cells))
    if "account" in groups and request.titles:
        named = {str(row["account"]) for row in rows}
        if left := budgets([each for each in accounts() if each.metadata.name in named]):
            out.write(f"\nBudgets of the present period, in hours\n{left}")
    return 0


def visible_accounts(client: ApiClient, hints: TextIO) -> list[FluxAccount]:
    """Return the FluxAccounts; none for who may not list them, whose report is complete without.
    Other failures are said.
    """
    try:
        return list_accounts(client)
    except ClusterError as error:
        if not (isinstance(error, ApiRefused) and error.status == HTTPStatus.FORBIDDEN):
            hints.write(
                f"What is left of budgets is not shown, since the accounts could not be read: {error}\n"
            )
        return []


def _estimates(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return how many starts had been estimated, and by how much they were off on average."""
    error_s = row.get("start_error_s")
    return str(row.get("estimated") or 0), "" if error_s is None else age(error_s)


def _time(text: str) -> str:
    """Return a time in the zone of this machine, as `jobs` and `history` show theirs."""
    time = instant(text)
    return f"{time.astimezone():%Y-%m-%d %H:%M %Z}" if time is not None else text


def _hours(seconds: float | None) -> str:
    return f"{(seconds or 0) / _HOUR:.1f}"
