"""The queue's memory: everything that is spoken to Postgres, and nothing else speaks SQL.

`Database` is the connection pool, `migrate` brings the tables to this version, `Store` is what the controllers use: each method is one
transaction, and each that changes something carries the leader's epoch and is refused (`StaleLeader`) once a newer leader exists.
"""

from __future__ import annotations

from fluxqueue.queue.store.database import Database, DatabaseUnavailable
from fluxqueue.queue.store.errors import IllegalTransition, PodAlreadyPlaced, StaleLeader, StoreError
from fluxqueue.queue.store.migrations import MigrationChanged, SchemaTooNew, migrate
from fluxqueue.queue.store.rows import Counts, QueueRow, StalledTask
from fluxqueue.queue.store.store import Store

__all__ = [
    "Counts",
    "Database",
    "DatabaseUnavailable",
    "IllegalTransition",
    "MigrationChanged",
    "PodAlreadyPlaced",
    "QueueRow",
    "SchemaTooNew",
    "StaleLeader",
    "StalledTask",
    "Store",
    "StoreError",
    "migrate",
]
