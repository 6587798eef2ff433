"""A certificate authority of our own, for clusters without cert-manager.

The API server verifies a webhook against the ``caBundle`` in its configuration, so all that is needed is an authority nobody else
trusts: one key that signs one kind of leaf, for the names of one Service. Keys are P-256, which every TLS stack takes and which signs in
well under a millisecond. The authority lives ten years, because replacing it means touching the configuration, and a leaf ninety days,
because replacing it means touching a Secret. Both are replaced when two thirds of their life are over, so a cluster that stood still for
weeks comes back with certificates that are still good.

All functions are pure but for the randomness of keys and serial numbers; the clock is an argument.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
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
"""How far before its making a certificate is valid already: clocks of a cluster differ."""

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
    """What a server is called by its clients: DNS names and IP addresses, as text."""

    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def service_names(service: str, namespace: str, cluster_domain: str = "cluster.local") -> ServingNames:
    """The DNS names of a Service; the API server asks for ``<service>.<namespace>.svc``.

    Parameters
    ----------
    service, namespace
        Of the Service.
    cluster_domain
        The cluster's DNS domain.

    Returns
    -------
    ServingNames
        Short to fully qualified.
    """
    base = f"{service}.{namespace}"
    return ServingNames(dns=(service, base, f"{base}.svc", f"{base}.svc.{cluster_domain}"))


def make_authority(name: str, now: dt.datetime, lifetime: dt.timedelta = AUTHORITY_LIFETIME) -> Pair:
    """Make an authority: a self-signed certificate that may sign leaves and nothing below them.

    Parameters
    ----------
    name
        Common name, cut to 64 characters.
    now
        The time, with a zone.
    lifetime
        From ``now``.

    Returns
    -------
    Pair
        The authority's certificate and key.
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


def issue_leaf(authority: Pair, names: ServingNames, now: dt.datetime, lifetime: dt.timedelta = LEAF_LIFETIME) -> Pair:
    """Issue a server certificate.

    Parameters
    ----------
    authority
        Who signs.
    names
        Subject alternative names; at least one.
    now
        The time, with a zone.
    lifetime
        From ``now``; never beyond the authority's own.

    Returns
    -------
    Pair
        The leaf's certificate and key.

    Raises
    ------
    ValueError
        No names, an address that is none, or an authority that cannot be read.
    """
    if not (names.dns or names.addresses):
        raise ValueError("a server certificate without a name serves nobody: give at least one DNS name or address")
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(f"the authority's key is {type(signer).__name__}: an elliptic curve key was expected")
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
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def issued_at(certificate: x509.Certificate) -> dt.datetime:
    """When one of our certificates was made."""
    return certificate.not_valid_before_utc + BACKDATED


def renewal_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """Whether two thirds of a certificate's life are over."""
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
