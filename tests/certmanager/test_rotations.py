"""cert-manager issues, renews and re-keys the webhook's certificate and its authority under fifty admissions
a second.
"""

from __future__ import annotations

from support.issued_webhook import AUTHORITY, LEAF, WAIT_S, IssuedWebhook

from fluxqueue.certs.pairs import parse_certificate
from fluxqueue.local.processes import wait_until

KUBELET_DELAY_S = 3.0


def public_key(pem: bytes) -> object:
    return parse_certificate(pem).public_key()


def test_a_renewed_certificate_has_a_new_key_and_no_admission_fails(issued: IssuedWebhook) -> None:
    issued.delay_s = KUBELET_DELAY_S
    former = issued.secret(LEAF)["tls.crt"]
    with issued.admissions() as counted:
        issued.renew(LEAF)
        renewed = issued.secret(LEAF)["tls.crt"]
        assert public_key(renewed) != public_key(former)
        wait_until(lambda: issued.serves(renewed), "the renewed certificate served", WAIT_S)
    assert counted.errors == []
    assert counted.handshakes > 10


def test_a_renewed_authority_keeps_its_key_and_no_admission_fails(issued: IssuedWebhook) -> None:
    issued.delay_s = KUBELET_DELAY_S
    former = issued.secret(AUTHORITY)["tls.crt"]
    with issued.admissions() as counted:
        issued.renew(AUTHORITY)
        assert public_key(issued.secret(AUTHORITY)["tls.crt"]) == public_key(former)
        issued.renew(LEAF)
        renewed = issued.secret(LEAF)["tls.crt"]
        wait_until(lambda: issued.serves(renewed), "the certificate of the renewed authority served", WAIT_S)
    assert counted.errors == []


def test_an_authority_gets_a_new_key_by_the_steps_of_the_page_and_no_admission_fails(
    issued: IssuedWebhook,
) -> None:
    issued.delay_s = KUBELET_DELAY_S
    former = issued.secret(LEAF)["ca.crt"]
    with issued.admissions() as counted:
        issued.change_key_of(AUTHORITY)
        issued.renew(AUTHORITY)
        latter = issued.secret(AUTHORITY)["tls.crt"]
        assert public_key(latter) != public_key(former)
        issued.trust(former + latter)
        wait_until(lambda: issued.bundle() == former + latter, "both authorities trusted", WAIT_S)
        issued.renew(LEAF)
        renewed = issued.secret(LEAF)["tls.crt"]
        wait_until(lambda: issued.serves(renewed), "the certificate of the new authority served", WAIT_S)
        issued.trust_issuer()
        wait_until(lambda: issued.bundle() == latter, "only the new authority trusted", WAIT_S)
    assert counted.errors == []


def test_without_these_steps_connections_fail_until_the_kubelet_has_brought_the_secret(
    issued: IssuedWebhook,
) -> None:
    issued.delay_s = KUBELET_DELAY_S
    with issued.admissions() as counted:
        issued.change_key_of(AUTHORITY)
        issued.renew(AUTHORITY)
        issued.renew(LEAF)
        renewed = issued.secret(LEAF)["tls.crt"]
        wait_until(lambda: issued.serves(renewed), "the certificate of the new authority served", WAIT_S)
    assert any("CERTIFICATE_VERIFY_FAILED" in error for error in counted.errors)
