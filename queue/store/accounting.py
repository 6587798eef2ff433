"""The accounting as people read it: pages of workloads, and sums of what they used.

Each read is a transaction that cannot write and that Postgres ends after some seconds, so a question about
years delays nobody. It has its own small pool (`fluxqueue.queue.service`): people who read never take a
connection from the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from fluxqueue.queue.model.accounting_queries import (
    MOST_ROWS,
    Cursor,
    Filters,
    HistoryQuery,
    InvalidQuery,
    ReportQuery,
)
from fluxqueue.queue.store.database import Database, DatabaseUnavailable
from fluxqueue.queue.store.errors import StoreError
from fluxqueue.queue.store.rows import Row
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Accounting", "Page", "TakesTooLong"]

_HISTORY_S: Final = 10
_REPORT_S: Final = 30
_BEFORE_ALL: Final = Cursor("infinity", (1 << 63) - 1)
_SUMS: Final = ("jobs", "node_s", "cpu_s", "memory_gib_s", "gpu_s", "estimated", "start_error_s", "cost")


class TakesTooLong(StoreError):
    """Postgres ended a question that took too long; the message says what helps."""


@dataclass(frozen=True, slots=True)
class Page:
    """Workloads, and where the next page begins; None after the last one."""

    jobs: list[Row]
    after: Cursor | None


class Accounting(Transactions):
    """Reads the views of the accounting.

    Parameters
    ----------
    database
        The tables.
    currency
        Of the prices; empty: there are none, and no cost is computed.
    """

    def __init__(self, database: Database, currency: str = "") -> None:
        super().__init__(database)
        self.currency = currency

    async def jobs(self, query: HistoryQuery, now: datetime) -> Page:
        """Return one page of workloads: those that have not ended, then the others by their end, the newest
        first.

        Raises
        ------
        TakesTooLong
            The question has to be narrower.
        """
        after = query.after or _BEFORE_ALL
        parameters = {
            "now": now,
            "live": query.live,
            "name": query.name,
            "kind": query.kind,
            "states": [str(state) for state in query.states],
            "after_at": after.at,
            "after_id": after.id,
            "limit": query.limit + 1,
        }
        rows = await self._ask(
            Statement("accounting_jobs", self._parameters(query.filters) | parameters), _HISTORY_S
        )
        page = [self._shown(row) for row in rows[: query.limit]]
        return Page(
            page, Cursor.behind(page[-1]["finished_at"], page[-1]["id"]) if len(rows) > query.limit else None
        )

    async def report(self, query: ReportQuery, now: datetime) -> list[Row]:
        """Return the use of each group, by day and then the largest first.

        Raises
        ------
        TakesTooLong
            The question has to be narrower.
        InvalidQuery
            There are too many rows.
        """
        parameters = {"now": now, "by": [str(group) for group in query.by], "limit": MOST_ROWS + 1}
        rows = await self._ask(
            Statement("accounting_report", self._parameters(query.filters) | parameters), _REPORT_S
        )
        if len(rows) > MOST_ROWS:
            raise InvalidQuery(
                f"the report has more than {MOST_ROWS} rows: name a shorter time, or fewer groups"
            )
        return [
            self._shown({str(group): row[group] for group in query.by} | {name: row[name] for name in _SUMS})
            for row in rows
        ]

    def _shown(self, row: Row) -> Row:
        """Return a row with its cost as a decimal number in text, and without one if there are no prices."""
        cost = row.pop("cost")
        if not self.currency:
            return row
        return row | {"cost": None if cost is None else f"{cost.normalize():f}"}

    async def _ask(self, question: Statement, timeout_s: int) -> list[Row]:
        try:
            _set, rows = await self._transaction(
                Statement("read_only", {"timeout": f"{timeout_s}s"}), question
            )
        except DatabaseUnavailable as error:
            if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise TakesTooLong(
                    f"this took longer than {timeout_s} s: name a namespace, or a shorter time"
                ) from None
            raise
        return rows

    def _parameters(self, filters: Filters) -> dict[str, Any]:
        return {
            "namespace": filters.namespace,
            "account": filters.account,
            "queue": filters.queue,
            "user": filters.user,
            "since": filters.since,
            "until": filters.until,
            "priced": bool(self.currency),
        }
