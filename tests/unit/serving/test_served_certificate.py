"""Checks of the folder step by step: what is loaded, refused and reported."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import check_pair, write_pair
from fluxqueue.serving.readiness import Readiness
from fluxqueue.serving.served_certificate import ServedCertificate
from fluxqueue.webhook.metrics import WebhookMetrics

NOW = dt.datetime.now(dt.UTC)
AUTHORITY = make_authority("a", NOW)
ONE = issue_leaf(AUTHORITY, ServingNames(dns=("localhost",)), NOW)
TWO = issue_leaf(AUTHORITY, ServingNames(dns=("localhost",)), NOW)


class Served:
    """A served certificate, with its readiness and metrics."""

    def __init__(self, directory: Path) -> None:
        self.readiness = Readiness()
        self.metrics = WebhookMetrics()
        self.certificate = ServedCertificate(directory, self.readiness, self.metrics, lambda: NOW)

    def shown(self) -> x509.Certificate:
        """Return the certificate that a handshake in memory shows."""
        client_context = ssl.create_default_context()
        client_context.check_hostname = False
        client_context.verify_mode = ssl.CERT_NONE
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
        server = self.certificate.context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        shown = client.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"fluxqueue_webhook_certificate_{name}", labels)


def test_a_placeholder_is_served_until_there_is_a_certificate(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.certificate.check()
    assert "without a certificate" in served.shown().issuer.rfc4514_string()
    assert served.readiness.problem(NOW) == f"waiting for the certificate: {tmp_path}/tls.crt does not exist"
    write_pair(tmp_path, ONE, NOW)
    served.certificate.check()
    assert served.shown() == check_pair(ONE)
    assert served.readiness.problem(NOW) is None
    assert served.metric("expiry_timestamp_seconds") == check_pair(ONE).not_valid_after_utc.timestamp()


def test_a_pair_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    served = Served(tmp_path)
    write_pair(tmp_path, ONE, NOW)
    for _ in range(3):
        served.certificate.check()
    assert served.metric("reloads_total", result="loaded") == 1
    write_pair(tmp_path, TWO, NOW)
    served.certificate.check()
    assert served.shown() == check_pair(TWO)
    assert served.metric("reloads_total", result="loaded") == 2


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (Pair(TWO.certificate, ONE.key), "belongs to another certificate"),
        (Pair(b"", b""), "is not a PEM certificate"),
        (
            Pair(
                ONE.certificate + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ONE.key
            ),
            "cannot be used",
        ),
    ],
)
def test_a_bad_pair_is_reported_once_and_changes_nothing(tmp_path: Path, pair: Pair, why: str) -> None:
    served = Served(tmp_path)
    write_pair(tmp_path, ONE, NOW)
    served.certificate.check()
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(content)
    with capture_logs() as logs:
        for _ in range(3):
            served.certificate.check()
    assert len(logs) == 1
    assert (logs[0]["event"], why in logs[0]["problem"]) == ("certificate.refused", True)
    assert served.metric("reloads_total", result="refused") == 1
    assert served.shown() == check_pair(ONE)
    assert served.readiness.problem(NOW) is None
    write_pair(tmp_path, TWO, NOW)
    served.certificate.check()
    assert served.shown() == check_pair(TWO)


def test_readiness_reports_a_bad_first_pair(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(TWO.certificate)
    (tmp_path / "tls.key").write_bytes(ONE.key)
    served = Served(tmp_path)
    served.certificate.check()
    assert "tls.key belongs to another certificate than tls.crt" in str(served.readiness.problem(NOW))


def test_an_end_of_the_certificate_ends_readiness(tmp_path: Path) -> None:
    served = Served(tmp_path)
    write_pair(tmp_path, ONE, NOW)
    served.certificate.check()
    ends = check_pair(ONE).not_valid_after_utc
    assert served.readiness.problem(ends - dt.timedelta(seconds=1)) is None
    assert (
        served.readiness.problem(ends)
        == f"the certificate ended at {ends.isoformat()}: no API server accepts it"
    )


def test_a_server_that_ends_is_not_ready_whatever_its_certificate(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.readiness.draining = True
    assert served.readiness.problem(NOW) == "ending: another replica answers"
