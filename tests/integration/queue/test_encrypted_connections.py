"""An external Postgres with TLS and a password:
``verify-full`` by a connection string or by libpq's variables, and what errors say.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.postgres_builds import need_encryption

from fluxqueue.local.pki import Authority
from fluxqueue.local.ports import free_port
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.postgres_binaries import find_postgres
from fluxqueue.queue.store import Database, DatabaseUnavailable, Store, migrate


@dataclass(frozen=True)
class _ExternalServer:
    """A server that accepts TLS with a password on a loopback port; its certificate is for ``localhost``."""

    port: int
    bundle: Path
    other_bundle: Path

    def dsn(self, host: str = "localhost", password: str = "sesame", **parameters: str) -> str:
        return make_conninfo(
            host=host, port=self.port, user="queue", password=password, dbname="queue", **parameters
        )


@pytest.fixture(scope="module")
def external(service_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_ExternalServer]:
    need_encryption(find_postgres().folder)
    authority, other = (Authority(tmp_path_factory.mktemp("authority"), datetime.now(UTC)) for _ in range(2))
    port, folder = free_port(), service_folder / "external"
    server = LocalPostgres(folder, durable=False)
    with server:  # makes the data folder
        psycopg.connect(server.dsn, autocommit=True).execute(
            "CREATE ROLE queue LOGIN PASSWORD 'sesame'"
        ).connection.close()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE queue OWNER queue")
    pair = authority.issue_server("postgres", ["localhost"])
    account = server.process.user if server.process else None
    for name, source in (("server.crt", pair.certificate), ("server.key", pair.key)):
        path = folder / "data" / name
        path.write_bytes(source.read_bytes())
        path.chmod(0o600)
        if account:
            os.chown(path, pwd.getpwnam(account).pw_uid, -1)
    (folder / "data" / "pg_hba.conf").write_text("local all all trust\nhostssl all all all scram-sha-256\n")
    settings = {"listen_addresses": "127.0.0.1", "port": str(port), "ssl": "on"}
    encrypted = LocalPostgres(folder, durable=False, settings=settings)
    with encrypted:
        yield _ExternalServer(port, authority.bundle, other.bundle)
    encrypted.destroy()


async def test_a_queue_of_a_role_without_superuser_works_with_verify_full(external: _ExternalServer) -> None:
    dsn = external.dsn(sslmode="verify-full", sslrootcert=str(external.bundle))
    await migrate(dsn)
    async with Database(dsn) as database:
        assert await Store(database).acquire_leadership("replica-0") > 0
        async with database.connection() as connection:
            rows = await (
                await connection.execute("SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            ).fetchall()
    assert rows == [(True, "TLSv1.3")]


async def test_the_variables_of_the_chart_do_the_same(
    external: _ExternalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(external.bundle))
    await migrate(external.dsn())
    monkeypatch.setenv("PGSSLROOTCERT", str(external.other_bundle))
    with pytest.raises(DatabaseUnavailable, match="certificate verify failed"):
        await migrate(external.dsn())


@pytest.mark.parametrize("open_pool", [False, True], ids=["migrating", "opening"])
@pytest.mark.parametrize(
    ("host", "bundle", "sentence"),
    [
        (
            "127.0.0.1",
            "bundle",
            r"server certificate for \"localhost\" .*does not match host name \"127\.0\.0\.1\"",
        ),
        ("localhost", "other_bundle", "certificate verify failed"),
        ("localhost", "missing", r"root certificate file \"/missing\" does not exist"),
    ],
)
async def test_a_server_that_cannot_be_verified_is_one_clear_sentence(
    external: _ExternalServer, host: str, bundle: str, sentence: str, open_pool: bool
) -> None:
    dsn = external.dsn(host, sslmode="verify-full", sslrootcert=str(getattr(external, bundle, "/missing")))
    attempt = Database(dsn, timeout_s=0.5).__aenter__() if open_pool else migrate(dsn, timeout_s=5)
    with pytest.raises(DatabaseUnavailable, match=sentence) as caught:
        await attempt
    message = str(caught.value)
    assert message.startswith(f"Postgres {host}:{external.port}/queue ")
    assert message.endswith(
        "the host in the connection string must be a name of the server's certificate, "
        "and sslrootcert its authority"
    )
    assert len(message.splitlines()) == 1
    assert "sesame" not in message


async def test_a_wrong_password_and_a_missing_encryption_are_named(external: _ExternalServer) -> None:
    with pytest.raises(
        DatabaseUnavailable, match='password authentication failed for user "queue"'
    ) as caught:
        await migrate(external.dsn(password="wrong", sslmode="require"), timeout_s=5)
    assert "wrong" not in str(caught.value)
    with pytest.raises(DatabaseUnavailable, match="no encryption"):
        await migrate(external.dsn(sslmode="disable"), timeout_s=5)
