"""Deletes rows of work that ended before the retention, some in every sweep.

The tables keep what is in the queue, what ended lately, and what must be known so that no object is queued
twice. The rest is deleted in four steps: slots and allocations that were freed, workloads that ended (they
move to ``history``), transitions, and the rows of ``history``. Work that is requeued very often also loses
its transitions from before the retention. Each step is a loop of short transactions with a limit, so a
backlog (in the first sweeps after an upgrade, or after a million Jobs in a day) takes several sweeps and
never delays one for long.

A row of ``history`` whose object still exists is kept: without it, a finished or cancelled Job that nobody
deletes would be queued as a new one. Such rows are skipped. The next sweep continues after them, and starts
from the beginning when it has reached the end. So they do not stop the deletion, and no sweep reads all of
them.

Workloads and allocations leave records for the accounting, of which whole months expire.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from fluxqueue.queue.config import AccountingConfig
from fluxqueue.queue.metrics import PRUNED
from fluxqueue.queue.store import Forgotten
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Pruner"]

log = structlog.get_logger()

_BATCH = 500
_SLOTS = _TRANSITIONS = 5_000
_BATCHES = 40
"""Of each step in one sweep: at most 20,000 workloads a minute, or 200,000 slots."""

_ACCOUNTING = AccountingConfig()

_OFTEN = 10
"""From this number of requeues on, the transitions of a workload are pruned while it waits or runs."""


class Pruner:
    """Keeps the tables bounded.

    Parameters
    ----------
    ledger
        The queue.
    exists
        True if the object of a uid is in the cluster.
    retention_s
        How long ended work is kept.
    accounting
        How long its records are kept.
    """

    def __init__(
        self,
        ledger: Ledger,
        exists: Callable[[str], bool],
        *,
        retention_s: float,
        accounting: AccountingConfig = _ACCOUNTING,
    ) -> None:
        self._ledger = ledger
        self._tables = ledger.retention
        self._exists = exists
        self._retention = timedelta(seconds=retention_s)
        self._accounting = accounting
        self._continue_after: Forgotten | None = None

    async def prune(self) -> None:
        """Delete what is due, up to the limit of one sweep."""
        before = self._ledger.clock() - self._retention
        pruned = {
            **await self._prune_allocations(before),
            "workload": await self._forget(before),
            **await self._prune_history(before),
        }
        for table, rows in pruned.items():
            PRUNED.labels(table).inc(rows)
        if any(pruned.values()):
            log.info("retention.pruned", before=before.isoformat(), **pruned)
        if months := await self._tables.expire_months(
            self._ledger.epoch, self._accounting.months, drop=self._accounting.expired == "drop"
        ):
            log.info("accounting.expired", tables=months, how=self._accounting.expired)

    async def _prune_allocations(self, before: datetime) -> dict[str, int]:
        pruned = {"slot": 0, "allocation": 0}
        for _ in range(_BATCHES):
            allocations, slots = await self._tables.prune_allocations(
                self._ledger.epoch, before, allocations=_BATCH, slots=_SLOTS
            )
            pruned["allocation"] += allocations
            pruned["slot"] += slots
            if allocations < _BATCH and slots < _SLOTS:
                break
        return pruned

    async def _forget(self, before: datetime) -> int:
        forgotten = 0
        for _ in range(_BATCHES):
            forgotten += (moved := await self._tables.forget(self._ledger.epoch, before, _BATCH))
            if moved < _BATCH:
                break
        return forgotten

    async def _prune_transitions(self, before: datetime) -> int:
        often = [workload.id for workload in self._ledger.all() if workload.requeues >= _OFTEN]
        pruned = 0
        for _ in range(_BATCHES if often else 0):
            pruned += (
                gone := await self._tables.prune_transitions(self._ledger.epoch, often, before, _TRANSITIONS)
            )
            if gone < _TRANSITIONS:
                break
        return pruned

    async def _prune_history(self, before: datetime) -> dict[str, int]:
        pruned = {"transition": await self._prune_transitions(before), "history": 0}
        for _ in range(_BATCHES):
            rows = await self._tables.forgotten(before, self._continue_after, _BATCH)
            ids = [row.id for row in rows if not self._exists(row.uid)]
            if ids:
                gone, transitions = await self._tables.prune_history(
                    self._ledger.epoch, ids, transitions=_TRANSITIONS
                )
                pruned["transition"] += transitions
                pruned["history"] += len(gone)
                if len(gone) < len(ids):
                    continue  # these have more transitions than one transaction deletes
            self._continue_after = rows[-1] if len(rows) == _BATCH else None
            if self._continue_after is None:
                break
        return pruned
