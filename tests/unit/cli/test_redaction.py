"""Nothing that is or looks like a secret stays in a text, wherever it stands, and what is none stays."""

from __future__ import annotations

import json

import pytest

from fluxqueue.cli.redaction import REMOVED, redacted, redacted_object

SECRET = "hunter2-Zk9"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl-_x"
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://fluxqueue:{SECRET}@db.example.com:5432/fluxqueue",
        f"connection failed: host=db password={SECRET} user=fluxqueue",
        f"PGPASSWORD={SECRET} pg_dump",
        f"password: {SECRET}",
        f"password: '{SECRET} with blanks'",
        json.dumps({"password": f"{SECRET} with blanks"}),
        json.dumps({"event": json.dumps({"token": f"{SECRET} with blanks"})}),
        f'{{"DATABASE_PASSWORD":"{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"authorization=Basic {SECRET}",
        f"Fluxqueue-Token: {SECRET}",
        f"https://example.com/?access_token={SECRET}&page=2",
        f"Set-Cookie: {SECRET}; Path=/",
        f"apiKey={SECRET}",
        f"before {PEM} after",
        json.dumps({"tls.key": PEM}),
        f"-----BEGIN PRIVATE KEY-----\n{SECRET} and the log ends here",
    ],
)
def test_a_secret_is_removed(text: str) -> None:
    assert SECRET not in redacted(text)
    assert REMOVED in redacted(text)


@pytest.mark.parametrize(
    "token", [JWT, "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "glpat-abcdefghij0123456789"]
)
def test_a_token_is_known_by_its_form(token: str) -> None:
    assert redacted(f"the server said: {token}, at last") == f"the server said: {REMOVED}, at last"


def test_what_follows_a_secret_stays() -> None:
    assert redacted(f"password={SECRET} host=db") == f"password={REMOVED} host=db"
    assert redacted(f"postgresql://fluxqueue:{SECRET}@db/x").endswith("@db/x")


@pytest.mark.parametrize(
    "text",
    [
        'fluxqueue_api_calls_total{code="200",kind="secrets",verb="get"} 7.0',
        "2026-01-01T00:00:00Z leader.acquired holder=fluxqueue-queue-0 epoch=7",
        "image@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b",
        "https://fluxqueue-queue.fluxqueue-system.svc:8443/metrics",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_everything_below_a_key_that_names_a_secret_is_removed() -> None:
    told = {
        "token": {"value": SECRET},
        "secrets": [SECRET],
        "name": "a",
        "number": 7,
        "note": f"password={SECRET}",
    }
    assert redacted_object(told) == {
        "token": {"value": REMOVED},
        "secrets": [REMOVED],
        "name": "a",
        "number": 7,
        "note": f"password={REMOVED}",
    }
