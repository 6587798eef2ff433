import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fluxqueue.certs.authority import (
    Pair,
    ServingNames,
    issue_leaf,
    issued_at,
    make_authority,
    renewal_due,
    service_names,
)
from fluxqueue.certs.pairs import check_pair, covers, signed_by

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NAMES = ServingNames(dns=("fluxqueue-webhook.hpc.svc", "localhost"), addresses=("127.0.0.1", "::1"))


def test_a_leaf_is_accepted_for_each_name_by_clients_that_trust_the_authority() -> None:
    authority = make_authority("a", NOW)
    leaf = check_pair(issue_leaf(authority, NAMES, NOW))
    verifier = PolicyBuilder().store(Store([check_pair(authority)])).time(NOW.replace(tzinfo=None))
    for name in NAMES.dns:
        verifier.build_server_verifier(x509.DNSName(name)).verify(leaf, [])
    for address in NAMES.addresses:
        verifier.build_server_verifier(x509.IPAddress(ipaddress.ip_address(address))).verify(leaf, [])
    with pytest.raises(VerificationError):
        verifier.build_server_verifier(x509.DNSName("elsewhere.hpc.svc")).verify(leaf, [])


def test_a_leaf_is_refused_by_clients_that_trust_another_authority() -> None:
    leaf = check_pair(issue_leaf(make_authority("a", NOW), NAMES, NOW))
    other = check_pair(make_authority("a", NOW))
    assert not signed_by(leaf, other)
    verifier = (
        PolicyBuilder()
        .store(Store([other]))
        .time(NOW.replace(tzinfo=None))
        .build_server_verifier(x509.DNSName("localhost"))
    )
    with pytest.raises(VerificationError):
        verifier.verify(leaf, [])


def test_an_authority_may_sign_leaves_and_nothing_below() -> None:
    constraints = check_pair(make_authority("a", NOW)).extensions.get_extension_for_class(
        x509.BasicConstraints
    )
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)


def test_a_leaf_never_outlives_its_authority() -> None:
    authority = make_authority("a", NOW, lifetime=dt.timedelta(days=10))
    assert check_pair(issue_leaf(authority, NAMES, NOW)).not_valid_after_utc == NOW + dt.timedelta(days=10)


def test_a_certificate_is_good_for_clocks_that_are_behind() -> None:
    leaf = check_pair(issue_leaf(make_authority("a", NOW), NAMES, NOW))
    assert leaf.not_valid_before_utc <= NOW - dt.timedelta(minutes=30)
    assert issued_at(leaf) == NOW


def test_renewal_is_due_after_two_thirds_of_a_life() -> None:
    leaf = check_pair(issue_leaf(make_authority("a", NOW), NAMES, NOW))
    assert not renewal_due(leaf, NOW + dt.timedelta(days=59))
    assert renewal_due(leaf, NOW + dt.timedelta(days=61))


def test_a_service_is_known_by_its_four_names() -> None:
    assert service_names("hook", "hpc").dns == (
        "hook",
        "hook.hpc",
        "hook.hpc.svc",
        "hook.hpc.svc.cluster.local",
    )


def test_long_names_fit_where_a_common_name_is_limited() -> None:
    names = service_names("w" * 63, "n" * 63)
    leaf = check_pair(issue_leaf(make_authority("x" * 100, NOW), names, NOW))
    assert covers(leaf, names)


def test_a_leaf_without_names_or_with_a_bad_address_is_refused() -> None:
    authority = make_authority("a", NOW)
    with pytest.raises(ValueError, match="at least one DNS name or address"):
        issue_leaf(authority, ServingNames(), NOW)
    with pytest.raises(ValueError, match=r"999\.0\.0\.1"):
        issue_leaf(authority, ServingNames(addresses=("999.0.0.1",)), NOW)


def test_an_authority_with_another_kind_of_key_is_refused() -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    with pytest.raises(ValueError, match="an elliptic curve key was expected"):
        issue_leaf(Pair(make_authority("a", NOW).certificate, key), NAMES, NOW)


def test_a_key_does_not_show_when_a_pair_is_printed() -> None:
    assert "PRIVATE" not in repr(make_authority("a", NOW))
