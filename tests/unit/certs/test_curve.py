"""CURVE certificates: what flux-core's reader accepts and refuses, and which sockets connect with them."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.utils.z85

from fluxqueue.certs.curve import Certificate, InvalidCertificate, make, read, read_file

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
WAIT_MS = 3_000
REFUSED_MS = 700


@pytest.fixture
def certificate() -> Certificate:
    return make("lammps", NOW)


def changed(certificate: Certificate, old: str, new: str) -> str:
    text = certificate.text
    assert old in text
    return text.replace(old, new)


def test_reads_its_own_certificates_with_the_name_that_a_leader_needs(certificate: Certificate) -> None:
    assert read(certificate.text) == certificate
    assert certificate.name == "lammps"


def test_no_two_certificates_are_the_same() -> None:
    assert make("a", NOW).secret_key != make("a", NOW).secret_key


def test_neither_key_shows_when_a_certificate_is_printed(certificate: Certificate) -> None:
    assert certificate.secret_key not in repr(certificate)
    assert certificate.public_key not in repr(certificate)


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(lambda text: text.rstrip("\n"), id="no newline at the end"),
        pytest.param(lambda text: text.replace("    ", "\t"), id="one tab"),
        pytest.param(lambda text: text.replace("    ", " "), id="one space"),
        pytest.param(
            lambda text: "curve" + text.split("curve\n", 1)[1].join(["\n", ""]) + 'metadata\n  name = ""\n',
            id="other order",
        ),
        pytest.param(lambda text: "# a comment\n\n" + text + "\n\n# the end", id="comments and blank lines"),
        pytest.param(lambda text: text.replace('name = "lammps"', 'name=""'), id="empty value"),
    ],
)
def test_accepts_every_form_that_flux_accepts(
    certificate: Certificate, variant: Callable[[str], str]
) -> None:
    assert read(variant(certificate.text)).secret_key == certificate.secret_key


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"lammps"', "lammps", "double quotes"),
        ('"lammps"', '"lam_mps"', "refuses"),
        ('"lammps"', '"a,b"', "refuses"),
        ('"lammps"', '"a;b"', "refuses"),
        ('"lammps"', '"a~b"', "refuses"),
        ("keygen.time", "keygen_time", "letters, digits"),
        ("keygen.time", "app/name", "letters, digits"),
        ("keygen.time", "name", "a second time"),
        ("    name", "name", "section"),
        ("    name =", "    name", "key ="),
        ("    name =", "    title =", "metadata.name"),
        ("public-key", "public", "no public-key"),
        ("secret-key", "secret", "no secret-key"),
        ("curve\n", "", "no section 'curve'"),
        ('"lammps"', '"' + "x" * 240 + '"', "longer than"),
        ("metadata\n", "", "before any section"),
    ],
)
def test_refuses_what_flux_refuses_and_names_the_line(
    certificate: Certificate, old: str, new: str, problem: str
) -> None:
    with pytest.raises(InvalidCertificate, match=problem) as refusal:
        read(changed(certificate, old, new))
    assert certificate.secret_key not in str(refusal.value)


def test_refuses_keys_that_do_not_belong_together(certificate: Certificate) -> None:
    other = make("other", NOW)
    with pytest.raises(InvalidCertificate, match="do not belong together"):
        read(changed(certificate, certificate.public_key, other.public_key))
    with pytest.raises(InvalidCertificate, match="40 characters"):
        read(changed(certificate, certificate.public_key, "short"))


def test_refuses_a_name_that_flux_could_not_read() -> None:
    with pytest.raises(InvalidCertificate, match="cannot be the name"):
        make("a_b", NOW)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o620])
def test_a_file_only_its_owner_may_read_is_good(certificate: Certificate, tmp_path: Path, mode: int) -> None:
    path = tmp_path / "curve.cert"
    path.write_text(certificate.text)
    path.chmod(mode)
    assert read_file(path) == certificate


@pytest.mark.parametrize("mode", [0o640, 0o644, 0o604, 0o440])
def test_a_file_that_others_may_read_is_not(certificate: Certificate, tmp_path: Path, mode: int) -> None:
    path = tmp_path / "curve.cert"
    path.write_text(certificate.text)
    path.chmod(mode)
    with pytest.raises(InvalidCertificate, match="chmod 600"):
        read_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCertificate, match=r"nowhere.*No such file"):
        read_file(tmp_path / "nowhere")


class Leader:
    """The role of a leading broker: its own key pair, and a ZAP handler that admits exactly its own public
    key.
    """

    def __init__(self, certificate: Certificate) -> None:
        self.context = zmq.Context()
        self._zap = self.context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind("inproc://zeromq.zap.01")
        self._allowed = certificate.public_key
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._authorize, daemon=True)
        self._thread.start()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.curve_server = True
        self.socket.curve_secretkey = certificate.secret_key.encode()
        self.socket.curve_publickey = certificate.public_key.encode()
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")

    def _authorize(self) -> None:
        while not self._ending.is_set():
            if not self._zap.poll(50):
                continue
            version, request, _domain, _address, _identity, mechanism, key = self._zap.recv_multipart()
            known = mechanism == b"CURVE" and zmq.utils.z85.encode(key).decode() == self._allowed
            self._zap.send_multipart(
                [version, request, *((b"200", b"OK") if known else (b"400", b"no")), b"", b""]
            )

    def close(self) -> None:
        self.socket.close()
        self._ending.set()
        self._thread.join(5)
        self._zap.close()
        self.context.term()

    def hears(self, own: Certificate, parent: Certificate, patience_ms: int) -> bool:
        """Return True if a message from a follower with these keys arrives."""
        follower = self.context.socket(zmq.DEALER)
        follower.linger = 0
        follower.curve_secretkey = own.secret_key.encode()
        follower.curve_publickey = own.public_key.encode()
        follower.curve_serverkey = parent.public_key.encode()
        follower.connect(f"tcp://127.0.0.1:{self.port}")
        try:
            follower.send(b"hello")
            return bool(self.socket.poll(patience_ms)) and self.socket.recv_multipart()[-1] == b"hello"
        finally:
            follower.close()


@pytest.fixture
def leader(certificate: Certificate) -> Iterator[Leader]:
    leader = Leader(certificate)
    yield leader
    leader.close()


def test_brokers_with_one_certificate_hear_each_other(leader: Leader, certificate: Certificate) -> None:
    reread = read(certificate.text)
    assert leader.hears(reread, reread, WAIT_MS)


def test_a_broker_with_another_certificate_is_not_heard(leader: Leader) -> None:
    other = make("lammps", NOW)
    assert not leader.hears(other, other, REFUSED_MS)


def test_the_public_key_alone_is_not_enough_to_join(leader: Leader, certificate: Certificate) -> None:
    assert not leader.hears(make("thief", NOW), certificate, REFUSED_MS)
