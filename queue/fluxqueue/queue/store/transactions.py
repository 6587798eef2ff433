"""What the parts of the store share: a way to run one transaction."""

from __future__ import annotations

from fluxqueue.queue.store.database import Database

__all__ = ["Transactions"]


class Transactions:
    """Transactions on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
