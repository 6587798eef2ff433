"""A clock of Postgres that a test sets."""

from __future__ import annotations

import pytest

from fluxqueue.queue.store import queries

__all__ = ["read_the_clock_by_its_function"]


def read_the_clock_by_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all queries call ``fluxqueue.clock()``, which a test can replace; they are sent with its expression otherwise."""
    for name, query in queries.QUERIES.items():
        monkeypatch.setitem(queries.QUERIES, name, query.replace(queries.CLOCK, b"fluxqueue.clock()"))
