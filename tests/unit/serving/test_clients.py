"""Client certificates: which clients complete a handshake, in memory."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest

from fluxqueue.local.pki import Authority
from fluxqueue.serving.clients import ClientAuthorities

NOW = dt.datetime.now(dt.UTC)


class Handshake:
    """A server that requires client certificates, and clients that connect."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ca.crt"
        self.clients, self.others = Authority(folder / "clients", NOW), Authority(folder / "others", NOW)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = Authority(folder / "server", NOW).issue_server("server", ["localhost"])
        self.context.load_cert_chain(pair.certificate, pair.key)
        self.authorities = ClientAuthorities(self.context, self.file)

    def trust(self, authority: Authority) -> None:
        self.file.write_bytes((authority.folder / "ca.crt").read_bytes())
        self.authorities.check()

    def accepts(self, authority: Authority | None) -> bool:
        """True if a client with a certificate of this authority, or with none, completes a handshake."""
        client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
        if authority is not None:
            pair = authority.issue_client("client", "system:kube-scheduler")
            client_context.load_cert_chain(pair.certificate, pair.key)
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(to_client, to_server)
        server = self.context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError:
                    return False
        return server.getpeercert(binary_form=True) is not None


@pytest.fixture
def handshake(tmp_path: Path) -> Handshake:
    return Handshake(tmp_path)


def test_no_client_is_served_before_the_authorities_exist(handshake: Handshake) -> None:
    handshake.authorities.check()
    assert (
        handshake.authorities.waiting_for
        == f"waiting for the authorities of clients: {handshake.file} is not there"
    )
    assert not handshake.accepts(handshake.clients)
    handshake.trust(handshake.clients)
    assert handshake.authorities.waiting_for is None
    assert handshake.accepts(handshake.clients)


def test_only_certificates_of_the_authorities_get_through(handshake: Handshake) -> None:
    handshake.trust(handshake.clients)
    assert handshake.accepts(handshake.clients)
    assert not handshake.accepts(handshake.others)
    assert not handshake.accepts(None)


def test_an_authority_that_is_added_counts_at_once(handshake: Handshake) -> None:
    handshake.trust(handshake.clients)
    handshake.trust(handshake.others)
    assert handshake.accepts(handshake.others)


@pytest.mark.parametrize(
    "content",
    [b"", b"not PEM", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_a_bad_file_is_named_and_harms_nothing_that_is_trusted(handshake: Handshake, content: bytes) -> None:
    handshake.file.write_bytes(content)
    handshake.authorities.check()
    assert str(handshake.file) in (handshake.authorities.waiting_for or "")
    handshake.trust(handshake.clients)
    handshake.file.write_bytes(content)
    handshake.authorities.check()
    assert handshake.authorities.waiting_for is None
    assert handshake.accepts(handshake.clients)
