"""Bringing a database to this version."""

from __future__ import annotations

__all__ = ["MigrationChanged", "SchemaTooNew", "migrate"]


class MigrationChanged(Exception):
    """A migration that was applied has another text now."""


class SchemaTooNew(Exception):
    """The database was migrated by a newer version."""


async def migrate(dsn: str, *, timeout_s: float = 60.0) -> list[str]:
    """Apply what is missing, ours and procrastinate's, under an advisory lock; returns the names of what was applied."""
    raise NotImplementedError
