from __future__ import annotations

import datetime as dt
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import NameOID

from fluxqueue.local.pki import Authority, KeyPair, make_signing_keys, write_private

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", NOW)


def handshake(
    authority: Authority, server: KeyPair, name: str, client: KeyPair | None = None
) -> x509.Certificate | None:
    """The client's certificate as a server that asks for one sees it."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.bundle))
    serving.load_cert_chain(server.certificate, server.key)
    serving.verify_mode = ssl.CERT_OPTIONAL
    calling = ssl.create_default_context(cafile=str(authority.bundle))
    if client is not None:
        calling.load_cert_chain(client.certificate, client.key)
    seen: list[bytes | None] = []
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs:
            try:
                with serving.wrap_socket(theirs, server_side=True) as connection:
                    seen.append(connection.getpeercert(binary_form=True))
            except (ssl.SSLError, OSError):
                return  # the client says why

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours, calling.wrap_socket(ours, server_hostname=name) as connection:
            connection.unwrap()
    except OSError:
        if not seen:
            raise
    finally:
        ours.close()
        thread.join(10)
    return x509.load_der_x509_certificate(seen[0]) if seen and seen[0] else None


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
def test_a_server_is_trusted_under_each_of_its_names(name: str, authority: Authority) -> None:
    pair = authority.issue_server("apiserver", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
    assert handshake(authority, pair, name) is None


def test_a_server_is_not_trusted_under_another_name(authority: Authority) -> None:
    pair = authority.issue_server("apiserver", ["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
        handshake(authority, pair, "elsewhere.example")


def test_a_client_is_who_its_certificate_says(authority: Authority) -> None:
    pair = authority.issue_client("admin", "kubernetes-admin", ["system:masters", "people"])
    seen = handshake(authority, authority.issue_server("apiserver", ["localhost"]), "localhost", pair)
    assert seen is not None
    assert [attribute.value for attribute in seen.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "kubernetes-admin"
    ]
    groups = [attribute.value for attribute in seen.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert groups == ["system:masters", "people"]


def test_a_certificate_of_another_authority_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", NOW).issue_server("apiserver", ["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, other, "localhost")


def test_a_clock_that_is_an_hour_behind_still_believes(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.bundle.read_bytes())
    assert certificate.not_valid_before_utc <= NOW - dt.timedelta(minutes=59)


def test_keys_are_readable_by_their_owner_only(authority: Authority) -> None:
    pair = authority.issue_client("admin", "kubernetes-admin")
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700
    assert not [path.name for path in authority.folder.iterdir() if path.name.startswith(".")]


def test_the_keys_of_tokens_belong_together(tmp_path: Path) -> None:
    pair = make_signing_keys(tmp_path)
    private = load_pem_private_key(pair.key.read_bytes(), None)
    assert private.public_key() == load_pem_public_key(pair.certificate.read_bytes())


def test_a_private_file_is_replaced_in_one_step_and_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old, and readable by all")
    path.chmod(0o644)
    with path.open("rb") as reader:
        write_private(path, b"new")
        assert reader.read() == b"old, and readable by all"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
