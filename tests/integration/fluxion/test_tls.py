"""Encrypted connections: certificates of both sides, and their rotation while serving."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from support.fluxionrequests import make_node

from fluxqueue.fluxion.messages import CallContext
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient, Deadlines, FluxionClient, Tls
from fluxqueue.fluxion.rpc.failures import FluxionUnavailable
from fluxqueue.fluxion.rpc.server import FluxionServerSettings, ServerTls, serve

SHORT = Deadlines(call_s=2, init_s=10)


class Authority:
    """Signs certificates for the loopback address into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._certificate(self.subject, self.key, authority=True)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool = False
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
        )
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
            now - dt.timedelta(hours=1)
        )
        builder = builder.not_valid_after(now + dt.timedelta(days=1)).add_extension(
            x509.BasicConstraints(authority, None), critical=True
        )
        if not authority:
            names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("fluxion.test")]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        cert_file, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return cert_file, key_file


async def ask(port: int, tls: Tls | None) -> int:
    async with AsyncFluxionClient(f"127.0.0.1:{port}", tls=tls, deadlines=SHORT) as fluxion:
        return (await fluxion.stat(call=CallContext())).nodes


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


async def load(port: int, tls: Tls) -> None:
    async with AsyncFluxionClient(f"127.0.0.1:{port}", tls=tls, deadlines=SHORT) as fluxion:
        await fluxion.init("lonode", nodes=[make_node("a")])


async def test_a_client_that_trusts_the_authority_is_served(authority: Authority) -> None:
    async with serve(FluxionServerSettings(port=0, tls=ServerTls(*authority.issue("server")))) as running:
        await load(running.port, Tls(authority.file))
        assert await ask(running.port, Tls(authority.file)) == 1
        assert await ask(running.port, Tls(authority.file, server_name="fluxion.test")) == 1


async def test_a_client_without_encryption_or_trust_is_not_served(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    async with serve(FluxionServerSettings(port=0, tls=ServerTls(*authority.issue("server")))) as running:
        for tls in (None, Tls(stranger.file)):
            with pytest.raises(FluxionUnavailable):
                await ask(running.port, tls)


async def test_with_a_client_authority_only_its_clients_are_served(
    authority: Authority, tmp_path: Path
) -> None:
    clients, strangers = Authority(tmp_path, "clients"), Authority(tmp_path, "strangers")
    cert, key = authority.issue("server")
    async with serve(FluxionServerSettings(port=0, tls=ServerTls(cert, key, clients.file))) as running:
        ours = Tls(authority.file, *clients.issue("queue"))
        await load(running.port, ours)
        assert await ask(running.port, ours) == 1
        for tls in (Tls(authority.file), Tls(authority.file, *strangers.issue("intruder"))):
            with pytest.raises(FluxionUnavailable):
                await ask(running.port, tls)


async def test_the_blocking_client_uses_tls_too(authority: Authority) -> None:
    def work(port: int) -> int:
        with FluxionClient(f"127.0.0.1:{port}", tls=Tls(authority.file), deadlines=SHORT) as fluxion:
            fluxion.init("lonode", nodes=[make_node("a")])
            return fluxion.stat(call=CallContext()).nodes

    async with serve(FluxionServerSettings(port=0, tls=ServerTls(*authority.issue("server")))) as running:
        assert await asyncio.to_thread(work, running.port) == 1


async def test_a_rotated_certificate_is_used_for_the_next_connection(
    authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("server")
    async with serve(FluxionServerSettings(port=0, tls=ServerTls(cert, key))) as running:
        await load(running.port, Tls(authority.file))
        successor = Authority(tmp_path, "successor")
        successor.issue("server")
        assert await ask(running.port, Tls(successor.file)) == 1
        with pytest.raises(FluxionUnavailable):
            await ask(running.port, Tls(authority.file))


async def test_a_certificate_that_vanishes_while_serving_stays_in_use(authority: Authority) -> None:
    cert, key = authority.issue("server")
    async with serve(FluxionServerSettings(port=0, tls=ServerTls(cert, key))) as running:
        await load(running.port, Tls(authority.file))
        cert.unlink()
        assert await ask(running.port, Tls(authority.file)) == 1


async def test_the_program_takes_the_files_from_its_command_line(
    authority: Authority, tmp_path: Path
) -> None:
    clients = Authority(tmp_path, "clients")
    cert, key = authority.issue("server")
    words = [
        "-m",
        "fluxqueue.fluxion.main",
        "--port",
        "0",
        "--metrics-port",
        "0",
        "--metrics-host",
        "127.0.0.2",
    ]
    files = ["--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(clients.file)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, *files, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr
        async with asyncio.timeout(60):
            started = json.loads(await process.stderr.readline())
        assert started["tls"] is True
        port = int(started["address"].rpartition(":")[2])
        ours = Tls(authority.file, *clients.issue("queue"))
        await load(port, ours)
        assert await ask(port, ours) == 1
        with pytest.raises(FluxionUnavailable):
            await ask(port, Tls(authority.file))
        reader, writer = await asyncio.open_connection("127.0.0.2", started["metrics_port"])
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"fluxion_nodes" in await reader.read()
        writer.close()
        await writer.wait_closed()
    finally:
        process.terminate()
        await process.communicate()
