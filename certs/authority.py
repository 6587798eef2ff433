"""A certificate authority of our own, for clusters without cert-manager.

The API server verifies a webhook against the ``caBundle`` in its configuration. So an authority that no other
client trusts is enough: one key that signs one kind of leaf, for the names of one Service. Keys are P-256,
which every TLS stack supports and which sign in well under a millisecond. The authority is valid for ten
years, because replacing it changes the configuration. A leaf is valid for ninety days, because replacing it
only changes a Secret. Both are replaced after two thirds of their lifetime, so a cluster that was stopped for
weeks still has valid certificates.

All functions are pure except for random keys and serial numbers; the clock is an argument.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "AUTHORITY_LIFETIME",
    "BACKDATED",
    "LEAF_LIFETIME",
    "Pair",
    "ServingNames",
    "issue_leaf",
    "issued_at",
    "make_authority",
    "renewal_due",
    "service_names",
]

AUTHORITY_LIFETIME = dt.timedelta(days=3_650)
LEAF_LIFETIME = dt.timedelta(days=90)
BACKDATED = dt.timedelta(hours=1)
"""How long before its creation a certificate is already valid, because the clocks of a cluster differ."""

_MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair(certificate={len(self.certificate)} bytes, key=hidden)"


@dataclass(frozen=True, slots=True)
class ServingNames:
    """The names by which clients call a server: DNS names and IP addresses, as text."""

    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def service_names(service: str, namespace: str) -> ServingNames:
    """Return the DNS names of a Service; the API server uses ``<service>.<namespace>.svc``.

    Returns
    -------
    ServingNames
        From the short to the fully qualified name, in the domain ``cluster.local``.
    """
    base = f"{service}.{namespace}"
    return ServingNames(dns=(service, base, f"{base}.svc", f"{base}.svc.cluster.local"))


def make_authority(name: str, now: dt.datetime, lifetime: dt.timedelta = AUTHORITY_LIFETIME) -> Pair:
    """Return a new authority: a self-signed certificate that may sign leaves but no authorities.

    Parameters
    ----------
    name
        Common name, truncated to 64 characters.
    now
        The time, with a zone.
    lifetime
        The lifetime from ``now``.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_leaf(
    authority: Pair, names: ServingNames, now: dt.datetime, lifetime: dt.timedelta = LEAF_LIFETIME
) -> Pair:
    """Return a new server certificate.

    Parameters
    ----------
    authority
        The signing authority.
    names
        Subject alternative names; at least one.
    now
        The time, with a zone.
    lifetime
        The lifetime from ``now``; it never exceeds the authority's own.

    Raises
    ------
    ValueError
        There are no names, an address is invalid, or the authority cannot be read.
    """
    if not (names.dns or names.addresses):
        raise ValueError(
            "a server certificate without a name serves nobody: give at least one DNS name or address"
        )
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"the authority's key is {type(signer).__name__}: an elliptic curve key was expected"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names.dns]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in names.addresses]
    certificate = (
        _builder(
            _subject((*names.dns, *names.addresses)[0]),
            issuer.subject,
            key.public_key(),
            now,
            min(now + lifetime, issuer.not_valid_after_utc),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def issued_at(certificate: x509.Certificate) -> dt.datetime:
    """Return when one of our certificates was created."""
    return certificate.not_valid_before_utc + BACKDATED


def renewal_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """Return True after two thirds of a certificate's lifetime."""
    begun, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begun + (ends - begun) * 2 / 3


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_COMMON_NAME])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, ends: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate=certificate.public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
