"""What each error of Postgres means for who asked: to wait, to give up one object, or a mistake of ours."""

from __future__ import annotations

import psycopg
import pytest

from fluxqueue.queue.store.connections import cause_of
from fluxqueue.queue.store.errors import is_unavailable, is_unstorable

UNAVAILABLE = [
    *(
        "08006",
        "25001",
        "25006",
        "25P03",
        "25P04",
        "28P01",
        "42501",
        "53100",
        "53300",
        "55P03",
        "57014",
        "57P01",
        "57P03",
        "58030",
    ),
]


def error_of(sqlstate: str, message: str = "it failed") -> psycopg.Error:
    """Return an error as Postgres sends it."""
    error: psycopg.Error = type("Sent", (psycopg.errors.lookup(sqlstate),), {"sqlstate": sqlstate})(message)
    return error


@pytest.mark.parametrize("sqlstate", UNAVAILABLE)
def test_what_is_about_the_server_or_our_rights_is_waited_for(sqlstate: str) -> None:
    assert is_unavailable(error_of(sqlstate))
    assert not is_unstorable(error_of(sqlstate))


@pytest.mark.parametrize("sqlstate", ["22021", "22003", "23502", "23514", "54000"])
def test_a_value_that_does_not_fit_fails_for_its_object(sqlstate: str) -> None:
    assert is_unstorable(error_of(sqlstate))
    assert not is_unavailable(error_of(sqlstate))


@pytest.mark.parametrize(
    "error", [psycopg.DataError("a NUL"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "half a character")]
)
def test_what_cannot_be_sent_fails_for_its_object(error: Exception) -> None:
    assert is_unstorable(error)


@pytest.mark.parametrize("sqlstate", ["42P01", "23505", "40001", "P0001"])
def test_anything_else_is_neither(sqlstate: str) -> None:
    assert not is_unavailable(error_of(sqlstate))
    assert not is_unstorable(error_of(sqlstate))


def test_a_broken_connection_is_waited_for_although_it_has_no_code() -> None:
    assert is_unavailable(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert not is_unavailable(psycopg.ProgrammingError("a mistake of ours"))


@pytest.mark.parametrize(
    ("sqlstate", "remedy"),
    [
        ("25P04", "SET transaction_timeout = 0"),
        ("25006", "must lead to a server that writes"),
        ("42501", "must own the tables"),
        ("25001", "default_transaction_isolation"),
    ],
)
def test_what_does_not_end_by_itself_is_told_with_its_remedy(sqlstate: str, remedy: str) -> None:
    message = "terminating connection due to transaction timeout\nCONTEXT: a statement"
    assert cause_of(error_of(sqlstate, message)).startswith(
        "terminating connection due to transaction timeout; "
    )
    assert remedy in cause_of(error_of(sqlstate, message))
