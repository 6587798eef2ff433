"""The certificates of a local control plane: a CA, a server certificate, and a client certificate per
identity.

Kubernetes takes a client's user name from the certificate's common name and its groups from the organisations
(docs: "X.509 client certificates"). All keys are P-256, because it takes longer to generate an RSA key than
to start etcd. A separate key pair signs the tokens of ServiceAccounts. The certificates are used only with
their data folder, so there is no rotation.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "KeyPair", "issue_component_certificates", "make_signing_keys", "write_private"]

_LIFETIME = datetime.timedelta(days=3_650)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read, atomically."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.rename(path)
    return path


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_signing_keys(folder: Path) -> KeyPair:
    """Create the key pair for tokens of ServiceAccounts; ``KeyPair.certificate`` is the bare public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(
        certificate=write_private(folder / "service-accounts.pub", public),
        key=write_private(folder / "service-accounts.key", _pem(key)),
    )


class Authority:
    """A certificate authority that writes its certificates to one folder.

    Parameters
    ----------
    folder
        Created if it does not exist, with mode 0700.
    now
        Certificates are valid from an hour before this time.
    """

    def __init__(self, folder: Path, now: datetime.datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fluxqueue local")])
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = write_private(
            folder / "ca.crt", self._certificate.public_bytes(serialization.Encoding.PEM)
        )

    def issue_client(self, name: str, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Issue a client certificate for ``user`` in ``groups``; ``name`` is the stem of the files."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def issue_server(self, name: str, addresses: Sequence[str]) -> KeyPair:
        """Issue a certificate for a server with these names and IP addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(
            name, subject, ExtendedKeyUsageOID.SERVER_AUTH, [_general_name(address) for address in addresses]
        )

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        addresses: Sequence[x509.GeneralName],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if addresses:
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(authority_key, critical=False).sign(self._key, hashes.SHA256())
        return KeyPair(
            certificate=write_private(
                self.folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)
            ),
            key=write_private(self.folder / f"{name}.key", _pem(key)),
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(hours=1))
            .not_valid_after(self._now + _LIFETIME)
        )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def issue_component_certificates(authority: Authority, host: str) -> None:
    """Issue the certificates of a control plane whose API server has a host as address for its clients."""
    service = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "10.96.0.1",
    ]
    authority.issue_server("apiserver", [*dict.fromkeys(["127.0.0.1", "localhost", host]), *service])
    authority.issue_client("admin", "kubernetes-admin", ["system:masters"])
    authority.issue_client("controller-manager", "system:kube-controller-manager")
    authority.issue_client("scheduler", "system:kube-scheduler")
    authority.issue_client("kwok", "fluxqueue-local:kwok", ["system:masters"])
