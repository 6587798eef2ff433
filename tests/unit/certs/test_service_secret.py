"""The certificate of a Service beside the webhook, through the changes of its authority."""

from __future__ import annotations

import datetime as dt

import pytest

from fluxqueue.certs.authority import Pair, ServingNames, make_authority, service_names
from fluxqueue.certs.pairs import parse_certificate, signed_by
from fluxqueue.certs.service_secret import service_secret

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NAMES = service_names("fluxqueue-dashboard", "hpc")
AUTHORITY = make_authority("one", NOW)


def written(
    present: dict[str, bytes] | None = None,
    days: int = 0,
    names: ServingNames = NAMES,
    authority: Pair = AUTHORITY,
    bundle: bytes = AUTHORITY.certificate,
) -> dict[str, bytes] | None:
    return service_secret(present, authority, bundle, names, NOW + dt.timedelta(days=days))


def test_a_service_gets_a_key_of_its_own_and_keeps_it() -> None:
    first, other = written(), written(names=service_names("fluxqueue-queue", "hpc"))
    assert first is not None
    assert other is not None
    assert first["tls.key"] != other["tls.key"]
    assert set(first) == {"ca.crt", "tls.crt", "tls.key"}
    assert signed_by(parse_certificate(first["tls.crt"]), parse_certificate(AUTHORITY.certificate))
    assert written(first) is None
    assert written(first, days=59) is None


@pytest.mark.parametrize(
    "damage", [{"tls.key": b""}, {"tls.crt": b"nothing"}], ids=["no key", "no certificate"]
)
def test_a_damaged_secret_is_written_again(damage: dict[str, bytes]) -> None:
    first = written()
    assert first is not None
    again = written({**first, **damage})
    assert again is not None
    assert again["tls.key"] not in (first["tls.key"], b"")


def test_a_certificate_is_renewed_in_time_and_after_a_change_of_names_or_authority() -> None:
    first = written()
    assert first is not None
    assert written(first, days=61) is not None
    assert written(first, names=service_names("renamed", "hpc")) is not None
    renewed = written(first, authority=make_authority("two", NOW))
    assert renewed is not None
    assert renewed["tls.crt"] != first["tls.crt"]


def test_clients_learn_of_a_coming_authority_before_it_signs() -> None:
    first, bundle = written(), AUTHORITY.certificate + make_authority("two", NOW).certificate
    assert first is not None
    after = written(first, bundle=bundle)
    assert after == {**first, "ca.crt": bundle}


def test_what_else_somebody_put_into_the_secret_is_removed() -> None:
    first = written()
    assert first is not None
    assert written({**first, "ca.key": b"secret"}) == first
