"""The queue's tables in Postgres. No other package contains SQL.

`Database` is the connection pool, and `migrate` brings the tables to this version. `Store` has one method for
each transaction; one that changes something carries the leader's epoch, and is refused (`StaleLeader`) once
there is a newer leader. Controllers use the `Ledger` (`fluxqueue.queue.store.ledger`), which changes the
tables through the store and keeps the leader's copy of them equal.
"""

from __future__ import annotations

from fluxqueue.queue.store.database import Database, DatabaseUnavailable
from fluxqueue.queue.store.errors import (
    IllegalTransition,
    PodAlreadyPlaced,
    StaleLeader,
    StoreError,
    Unstorable,
)
from fluxqueue.queue.store.migrations import SchemaRefused, migrate
from fluxqueue.queue.store.retention import Forgotten
from fluxqueue.queue.store.rows import Counts, StalledTask
from fluxqueue.queue.store.store import Store

__all__ = [
    "Counts",
    "Database",
    "DatabaseUnavailable",
    "Forgotten",
    "IllegalTransition",
    "PodAlreadyPlaced",
    "SchemaRefused",
    "StaleLeader",
    "StalledTask",
    "Store",
    "StoreError",
    "Unstorable",
    "migrate",
]
