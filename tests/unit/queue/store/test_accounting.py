"""The accounting is tested on Postgres: `tests/integration/queue/test_accounting_queries.py`.
Here: its statements.
"""

from __future__ import annotations

from fluxqueue.queue.store.queries import QUERIES


def test_a_question_begins_with_what_keeps_it_from_writing_and_from_taking_long() -> None:
    assert b"read_only" in QUERIES["read_only"]
    assert b"statement_timeout" in QUERIES["read_only"]
    for question in ("accounting_jobs", "accounting_report"):
        assert b"LIMIT" in QUERIES[question]
