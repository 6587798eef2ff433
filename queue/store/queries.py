"""The SQL of the store: read from the ``.sql`` files of the folder ``queries``, by name.

A line ``-- name --`` begins a query, and comment lines after it explain it. Parameters are psycopg's
``%(name)s``. Indentation is removed: psycopg remembers how a query is parsed only if that is not too long.

The parameter ``now`` is the time, by the clock of whoever sends the query: no row has a time of Postgres' own
clock.
"""

from __future__ import annotations

import re
from importlib import resources

__all__ = ["QUERIES", "parse"]

_HEADING = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def parse(text: str) -> dict[str, bytes]:
    """Split a file into its queries.

    Raises
    ------
    ValueError
        If a name occurs twice, a query is empty, or there is SQL before the first name.
    """
    before, *parts = _HEADING.split(text)
    if _without_comments(before):
        raise ValueError(f"SQL before the first name: {before.strip()[:60]!r}")
    queries: dict[str, bytes] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        sql = _without_comments(body)
        if not sql:
            raise ValueError(f"the query {name} is empty")
        if name in queries:
            raise ValueError(f"the query {name} occurs twice")
        queries[name] = sql.encode()
    return queries


def _without_comments(text: str) -> str:
    return "\n".join(
        line for each in text.splitlines() if (line := each.strip()) and not line.startswith("--")
    ).rstrip(";")


def _load() -> dict[str, bytes]:
    folder = resources.files(__package__) / "sql" / "queries"
    queries: dict[str, bytes] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            parsed = parse(entry.read_text("utf-8"))
            if twice := queries.keys() & parsed.keys():
                raise ValueError(f"queries in two files: {', '.join(sorted(twice))}")
            queries |= parsed
    return queries


QUERIES = _load()
"""Every query by name."""
