"""A certificate pair on disk: ``tls.crt`` and ``tls.key`` of one folder, as in a mounted Secret.

Two files cannot be replaced in one step, and a reader in between sees a certificate and a key that do not
match. The kubelet therefore replaces one symbolic link, and so does `write_pair`. A reader cannot rely on it,
because people copy files. So a pair is always checked before it is used, from the same bytes that are then
used.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from fluxqueue.certs.authority import Pair, ServingNames

__all__ = [
    "CERTIFICATE_FILE",
    "KEY_FILE",
    "Fingerprint",
    "InvalidPair",
    "MissingPair",
    "check_pair",
    "covers",
    "fingerprint",
    "parse_certificate",
    "read_pair",
    "signed_by",
    "write_pair",
]

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
_CURRENT = "..data"


class MissingPair(FileNotFoundError):
    """A file of the pair does not exist (yet); the message names it."""


class InvalidPair(ValueError):
    """The files are not a valid pair; the message says what is wrong with which file."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of the files of a pair: path, inode, size and time of each."""

    files: tuple[tuple[str, int, int, int], ...]


def fingerprint(directory: Path) -> Fingerprint | None:
    """Return the identity of the files, cheap enough to be read every second.

    Returns
    -------
    Fingerprint or None
        None while a file is missing or unreadable.
    """
    files = []
    for name in (CERTIFICATE_FILE, KEY_FILE):
        path = directory / name
        try:
            status = path.stat()
        except OSError:
            return None
        files.append((os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return Fingerprint(tuple(files))


def read_pair(directory: Path) -> Pair:
    """Read and check a pair.

    Parameters
    ----------
    directory
        The folder of ``tls.crt`` and ``tls.key``.

    Returns
    -------
    Pair
        A pair whose key belongs to its certificate.

    Raises
    ------
    MissingPair
        A file does not exist.
    InvalidPair
        A file cannot be read or parsed, or the key belongs to another certificate.
    """
    contents = []
    for name in (CERTIFICATE_FILE, KEY_FILE):
        path = directory / name
        try:
            contents.append(path.read_bytes())
        except FileNotFoundError:
            raise MissingPair(f"{path} does not exist") from None
        except OSError as error:
            raise InvalidPair(f"{path} cannot be read: {error.strerror}") from None
    pair = Pair(*contents)
    check_pair(pair, str(directory))
    return pair


def check_pair(pair: Pair, where: str = "the pair") -> x509.Certificate:
    """Check that a key belongs to its certificate.

    Returns
    -------
    x509.Certificate
        The certificate; the first one of a chain.

    Raises
    ------
    InvalidPair
        A part cannot be parsed, or they do not belong together.
    """
    certificate = parse_certificate(pair.certificate, where)
    try:
        key = load_pem_private_key(pair.key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidPair(f"{where}: {KEY_FILE} is not an unencrypted PEM private key") from None
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public != certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        raise InvalidPair(f"{where}: {KEY_FILE} belongs to another certificate than {CERTIFICATE_FILE}")
    return certificate


def parse_certificate(pem: bytes, where: str = "the pair") -> x509.Certificate:
    """Return the first certificate of a PEM text.

    Raises
    ------
    InvalidPair
        The text contains none.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise InvalidPair(f"{where}: {CERTIFICATE_FILE} is not a PEM certificate") from None


def covers(certificate: x509.Certificate, names: ServingNames) -> bool:
    """Return True if a certificate is valid for all of these names."""
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    dns = set(alternatives.get_values_for_type(x509.DNSName))
    addresses = {str(address) for address in alternatives.get_values_for_type(x509.IPAddress)}
    return dns.issuperset(names.dns) and addresses.issuperset(names.addresses)


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return True if this authority issued this certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def write_pair(directory: Path, pair: Pair, now: dt.datetime) -> None:
    """Replace the pair of a folder in one step, as the kubelet replaces a mounted Secret.

    The files of each version are in their own folder, ``..data`` links to the current one, and ``tls.crt``
    and ``tls.key`` link through it. That link is changed last, so also the two files of a new folder appear
    in one step. Only the owner may read them (0600).

    Parameters
    ----------
    directory
        Created if it does not exist.
    pair
        The pair. It is checked first: an invalid pair never reaches the disk.
    now
        The time, which names the version.

    Raises
    ------
    InvalidPair
        Key and certificate do not belong together.
    """
    check_pair(pair)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    current = directory / _CURRENT
    previous = current.readlink() if current.is_symlink() else None
    version = directory / f"..{now:%Y_%m_%d_%H_%M_%S}.{secrets.token_hex(4)}"
    version.mkdir(mode=0o700)
    for name, content in ((CERTIFICATE_FILE, pair.certificate), (KEY_FILE, pair.key)):
        _write_private(version / name, content)
    for name in (CERTIFICATE_FILE, KEY_FILE):
        _link(directory / name, Path(_CURRENT) / name)
    _link(current, Path(version.name))
    if previous is not None:
        shutil.rmtree(directory / previous, ignore_errors=True)


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    waiting = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    waiting.symlink_to(target)
    waiting.replace(path)
