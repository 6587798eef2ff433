from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from fluxqueue.queue.store.connections import cause_of, place_of, pooled_dsn, session_dsn


def test_a_session_has_our_settings_and_keeps_those_of_the_site() -> None:
    parts = conninfo_to_dict(
        session_dsn(
            "postgresql://queue@db/flux?options=-c%20jit%3Doff&connect_timeout=3&application_name=site",
            "ours",
        )
    )
    assert str(parts["options"]).startswith("-c search_path=fluxqueue,procrastinate ")
    assert str(parts["options"]).endswith(" -c jit=off -c default_transaction_isolation=read\\ committed")
    assert (parts["application_name"], parts["connect_timeout"]) == ("site", "3")


def test_a_pooler_is_sent_no_settings_of_the_server() -> None:
    parts = conninfo_to_dict(pooled_dsn("postgresql://queue@db/flux", "ours"))
    assert "options" not in parts
    assert parts["application_name"] == "ours"
    assert parts["keepalives_idle"] == "10"


def test_a_server_is_named_without_user_and_password() -> None:
    assert place_of("host=db port=5433 dbname=flux user=queue password=sesame") == "Postgres db:5433/flux"
    assert "sesame" not in place_of("postgresql:/queue:sesame@broken")


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("", "OperationalError"),
        ("\nconnection refused\nIs the server running?", "connection refused"),
        ("no more connections allowed (max_client_conn)", "no more connections allowed (max_client_conn)"),
    ],
)
def test_a_cause_is_one_line(message: str, cause: str) -> None:
    assert cause_of(psycopg.OperationalError(message)) == cause


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("unsupported startup parameter in options: search_path", "set DATABASE_DIRECT_URL"),
        ("SSL error: certificate verify failed", "a name of the server's certificate"),
    ],
)
def test_a_cause_that_suggests_no_remedy_is_given_one(message: str, remedy: str) -> None:
    assert remedy in cause_of(psycopg.OperationalError(message))
