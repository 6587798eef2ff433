"""The CURVE certificate of a MiniCluster: one key pair that all of its brokers share.

A Flux broker uses the file as its own key pair and as its parent's public key, and the leader admits exactly
that public key. So every reader of the file can join as a broker, two brokers with different files never
connect (without a message), and replacing the file while a pod of the cluster lives splits the cluster. The
certificate is created once, kept in a Secret, and never printed.

The text is flux-core's dialect of ZPL, which has traps: values may contain no underscore and no comma, the
file must not be readable for group or others, and without ``metadata.name`` the leader of more than one
broker dies. `read` checks all of them, so that a wrong certificate is reported before any pod starts.
"""

from __future__ import annotations

import datetime as dt
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

import zmq

__all__ = ["Certificate", "InvalidCertificate", "make", "read", "read_file"]

_KEY = re.compile(r"[A-Za-z0-9.-]+")
_VALUE = re.compile(r"[A-Za-z0-9 \t.\-:+=^!/*?&<>()\[\]{}@%$#]*")
_ENTRY = re.compile(r"[ \t]+(?P<key>[^ \t=\"]+)[ \t]*=[ \t]*(?P<rest>.*)")
_Z85_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_SECTIONS = ("metadata", "curve")
_KEYS = ("public-key", "secret-key")
_MAX_LINE = 243
"""Maximum characters of a line that every flux-core reads.
Its buffer of 256 bytes holds a few more, depending on the key."""


class InvalidCertificate(ValueError):
    """The text or file is not a certificate for flux-core.
    The message names the line and the remedy, never a key.
    """


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key pair and its metadata; the representation shows neither key.

    Attributes
    ----------
    public_key, secret_key
        Z85, 40 characters each.
    metadata
        In the order of the file. `make` always adds ``name``.
    """

    public_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str | None:
        """The name in its metadata."""
        return dict(self.metadata).get("name")

    @property
    def text(self) -> str:
        """The text of the file, as flux-core reads it."""
        lines = [
            "# CURVE certificate of one Flux instance: whoever reads it can join. Do not distribute.",
            "",
        ]
        lines.append("metadata")
        lines += [f'    {key} = "{value}"' for key, value in self.metadata]
        lines.append("curve")
        lines += [f'    public-key = "{self.public_key}"', f'    secret-key = "{self.secret_key}"', ""]
        return "\n".join(lines)


def make(name: str, now: dt.datetime) -> Certificate:
    """Return a new certificate.

    Parameters
    ----------
    name
        Name of the MiniCluster; any text that flux-core accepts.
    now
        Written as ``keygen.time``, to the second.

    Returns
    -------
    Certificate
        With a new key pair from libzmq (about 50 us).

    Raises
    ------
    InvalidCertificate
        The name has a character that flux-core refuses, or is too long.
    """
    if not _VALUE.fullmatch(name) or len(name) > _MAX_LINE - len('    name = ""'):
        raise InvalidCertificate(
            f"{name!r} cannot be the name in a certificate: use letters, digits, '-' and '.', "
            "at most 230 of them"
        )
    public, secret = zmq.curve_keypair()
    return Certificate(
        public.decode(), secret.decode(), (("name", name), ("keygen.time", f"{now:%Y-%m-%dT%H:%M:%S}"))
    )


def read(text: str) -> Certificate:
    """Read a certificate by flux-core's rules and check that it can serve more than one broker.

    Returns
    -------
    Certificate
        A certificate whose keys match and whose metadata has a name.

    Raises
    ------
    InvalidCertificate
        flux-core would refuse it, or its brokers would die or not connect later.
    """
    sections = _parse(text)
    keys = sections.get("curve")
    if keys is None:
        raise InvalidCertificate(
            "the certificate has no section 'curve': make one with 'fluxqueue minicluster curve'"
        )
    for key in _KEYS:
        if key not in keys:
            raise InvalidCertificate(f"the certificate has no {key}: a broker needs both keys of the pair")
        if not _Z85_KEY.fullmatch(keys[key]):
            raise InvalidCertificate(f"the {key} of the certificate is not 40 characters of Z85")
    public, secret = (keys[key] for key in _KEYS)
    try:
        expected = zmq.curve_public(secret.encode()).decode()
    except (ValueError, zmq.ZMQError):
        raise InvalidCertificate("the secret-key of the certificate is not a Z85 key") from None
    if expected != public:
        raise InvalidCertificate(
            "the keys of the certificate do not belong together: take both from one 'flux keygen'"
        )
    metadata = sections.get("metadata", {})
    if "name" not in metadata:
        raise InvalidCertificate(
            "the certificate has no metadata.name: the leader of more than one broker would die; add it"
        )
    return Certificate(public, secret, tuple(metadata.items()))


def read_file(path: Path) -> Certificate:
    """Read a certificate file as a broker does, with a check of its permissions.

    Raises
    ------
    InvalidCertificate
        Group or others may read the file, it does not exist, or `read` refuses it.
    """
    try:
        status = path.stat()
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidCertificate(f"{path} cannot be read: {reason}") from None
    if status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise InvalidCertificate(
            f"{path} may be read by group or others (mode {stat.S_IMODE(status.st_mode):04o}): chmod 600 it"
        )
    try:
        return read(text)
    except InvalidCertificate as problem:
        raise InvalidCertificate(f"{path}: {problem}") from None


def _parse(text: str) -> dict[str, dict[str, str]]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        where = f"line {number} of the certificate"
        if len(line) > _MAX_LINE:
            raise InvalidCertificate(
                f"{where} is longer than {_MAX_LINE} characters, which flux-core does not read"
            )
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] not in " \t":
            current = _section(line.rstrip(), sections, where)
            continue
        if current is None:
            raise InvalidCertificate(f"{where} is before any section: 'metadata' or 'curve' comes first")
        key, value = _entry(line, where)
        if key in current:
            raise InvalidCertificate(f"{where} contains {key} a second time")
        current[key] = value
    return sections


def _section(name: str, sections: dict[str, dict[str, str]], where: str) -> dict[str, str]:
    if name not in _SECTIONS:
        raise InvalidCertificate(
            f"{where} opens a section that is not 'metadata' or 'curve' (entries are indented)"
        )
    return sections.setdefault(name, {})


def _entry(line: str, where: str) -> tuple[str, str]:
    match = _ENTRY.fullmatch(line.rstrip())
    if not match:
        raise InvalidCertificate(f'{where} is not of the form key = "value"')
    key, rest = match["key"], match["rest"]
    if not _KEY.fullmatch(key):
        raise InvalidCertificate(f"{where}: the key {key!r} may have letters, digits, '-' and '.' only")
    if len(rest) < 2 or rest[0] != '"' or rest[-1] != '"':
        raise InvalidCertificate(f"{where}: the value of {key} must be in double quotes")
    if not _VALUE.fullmatch(rest[1:-1]):
        raise InvalidCertificate(
            f"{where}: the value of {key} has a character that flux-core refuses (such as _ , ; ~)"
        )
    return key, rest[1:-1]
