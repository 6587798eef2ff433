"""The SQL of the store: read from the ``.sql`` files of the folder ``queries``, by name.

A line ``-- name --`` begins a query, and comment lines after it explain it. Parameters are psycopg's ``%(name)s``. Indentation is removed:
psycopg remembers how a query is parsed only if that is not too long.

The queries read the clock by its function, and are sent with the expression in it: Postgres before 18 plans an SQL function again in each
statement that calls it, which costs more than to insert a row. The queries about the leader, which set the clock, keep the function.
"""

from __future__ import annotations

import re
from importlib import resources

__all__ = ["CLOCK", "QUERIES", "parse"]

CLOCK = b"(clock_timestamp() + COALESCE((SELECT max(clock_ahead) FROM fluxqueue.leader), interval '0'))"
"""The expression of ``fluxqueue.clock()``."""
_SETS_THE_CLOCK = "leadership.sql"

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
    return "\n".join(line for each in text.splitlines() if (line := each.strip()) and not line.startswith("--")).rstrip(";")


def _load() -> dict[str, bytes]:
    folder = resources.files(__package__) / "sql" / "queries"
    queries: dict[str, bytes] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            parsed = parse(entry.read_text("utf-8"))
            if twice := queries.keys() & parsed.keys():
                raise ValueError(f"queries in two files: {', '.join(sorted(twice))}")
            clock = b"fluxqueue.clock()" if entry.name == _SETS_THE_CLOCK else CLOCK
            queries |= {name: query.replace(b"fluxqueue.clock()", clock) for name, query in parsed.items()}
    return queries


QUERIES = _load()
"""Every query by name."""
