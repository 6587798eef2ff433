"""Run times are read from Postgres in `tests/integration/queue/test_reservations.py`.
Here: the question, which is bounded.
"""

from __future__ import annotations

from fluxqueue.queue.store.queries import QUERIES


def test_both_tables_of_ended_work_are_read_with_a_limit() -> None:
    question = QUERIES["last_run_times"]
    assert question.count(b"LIMIT %(limit)s") == 2
    assert b"fluxqueue.workload" in question
    assert b"fluxqueue.ended_workload" in question
