"""The store's part about the use of accounts is tested on Postgres:
`tests/integration/queue/test_fair_share.py`. Here: its parameters.
"""

from __future__ import annotations

from fluxqueue.queue.store.queries import QUERIES


def test_the_charge_and_its_pruning_are_statements_of_their_own() -> None:
    assert b"ON CONFLICT (account)" in QUERIES["charge_accounts"]
    assert QUERIES["forget_use"].startswith(b"DELETE")
