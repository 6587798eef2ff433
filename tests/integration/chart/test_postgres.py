"""The bundled Postgres: its first start, one over a database of an older chart, its certificate,
its backups and their restore.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from support.chart_postgres import HOST, ChartPostgres, free_values
from support.chart_rendering import Chart
from support.postgres_builds import need_encryption

from fluxqueue.local.binaries import Tool, find_tool
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.postgres_binaries import PostgresError, find_postgres
from fluxqueue.local.processes import wait_until
from fluxqueue.queue.store import Database, Store, migrate

Server = Callable[..., ChartPostgres]

ROLES = "SELECT rolname, rolsuper FROM pg_roles WHERE rolcanlogin ORDER BY rolname"
OWNERS = """
    SELECT DISTINCT pg_get_userbyid(owner) FROM (
        SELECT relowner, relnamespace FROM pg_class UNION ALL SELECT proowner, pronamespace FROM pg_proc
        UNION ALL SELECT typowner, typnamespace FROM pg_type UNION ALL SELECT nspowner, oid FROM pg_namespace
    ) AS own(owner, namespace) WHERE namespace IN ('fluxqueue'::regnamespace, 'procrastinate'::regnamespace)
"""


@pytest.fixture(scope="module")
def new_server(postgres: LocalPostgres, service_folder: Path) -> Iterator[Server]:
    """Make a server that was not started yet, of the programs in a folder or of those of the session's
    server.
    """
    helm = find_tool(Tool.HELM)
    if helm is None or postgres.process is None:
        pytest.skip("needs helm and the programs of a Postgres on this machine")
    own = Path(postgres.process.command[0]).parent
    need_encryption(own)
    made: list[ChartPostgres] = []

    def make(programs: Path = own) -> ChartPostgres:
        folder = service_folder / f"chart-{len(made)}"
        folder.mkdir(mode=0o711)
        made.append(ChartPostgres(folder, programs, Chart(helm).render(free_values())))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="module")
def running(new_server: Server) -> ChartPostgres:
    """A server that was started with an empty volume."""
    server = new_server()
    server.start()
    return server


@pytest.fixture
def server(running: ChartPostgres) -> ChartPostgres:
    """That server, without tables and backups."""
    with running.connect() as connection:
        connection.execute("DROP SCHEMA IF EXISTS fluxqueue, procrastinate CASCADE")
    for file in (running.folder / "backup").iterdir():
        file.unlink()
    return running


async def _leads(url: str, replica: str) -> int:
    await migrate(url)
    async with Database(url) as database:
        return await Store(database).acquire_leadership(replica)


def test_the_queue_works_as_a_role_that_is_no_superuser(server: ChartPostgres) -> None:
    assert server.administer(ROLES) == [("fluxqueue", False), ("postgres", True)]
    first = asyncio.run(_leads(server.url(), "replica-0"))
    assert asyncio.run(_leads(server.url(), "replica-1")) > first
    with server.connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")
    assert server.administer(OWNERS, "fluxqueue") == [("fluxqueue",)]


def test_only_the_queue_is_admitted_and_only_encrypted(server: ChartPostgres, new_server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match="no pg_hba.conf entry .* no encryption"):
        server.connect(sslmode="disable")
    with pytest.raises(psycopg.OperationalError, match='no pg_hba.conf entry for .* user "postgres"'):
        server.connect(user="postgres", dbname="postgres")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        server.connect(password="another")
    with pytest.raises(psycopg.OperationalError, match="does not match host name"):
        server.connect(host="postgres.somebody-else.svc")
    other = new_server().folder / "postgres-ca" / "ca.crt"
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        server.connect(sslrootcert=str(other))
    log = server.process.log_text()
    assert server.password not in log


def test_an_interrupted_first_start_begins_again(new_server: Server) -> None:
    server = new_server()
    unfinished = server.data.with_name("data.unfinished")
    server.launch()
    wait_until(
        lambda: (unfinished / "PG_VERSION").exists() or server.data.exists(),
        "the first start to be under way",
        60,
    )
    server.process.stop(0)
    server.start()
    assert server.administer(ROLES) == [("fluxqueue", False), ("postgres", True)]
    assert not unfinished.exists()


def test_files_that_are_no_database_are_left_alone_and_named(new_server: Server) -> None:
    server = new_server()
    server.mount("data/data", {"base": b"somebody's"})
    server.launch()
    assert server.process.wait(60) == 1
    assert "has files and is no database" in server.process.log_text()
    assert (server.data / "base").read_bytes() == b"somebody's"


def _as_an_older_chart(server: ChartPostgres) -> None:
    """Make the database as the stock image's entry point did for charts before:
    its superuser is the queue's role.
    """
    made = server.run(
        server.programs / "initdb",
        "-D",
        server.data,
        "--username=fluxqueue",
        "--auth=trust",
        "--locale=C.UTF-8",
        "--no-sync",
    )
    assert made.returncode == 0, made.stderr
    options = f"-c listen_addresses='' -c unix_socket_directories={server.folder / 'run'} -p {server.port}"
    control = (
        server.programs / "pg_ctl",
        "-D",
        server.data,
        "-l",
        server.folder / "data" / "older.log",
        "-w",
    )
    assert server.run(*control, "-o", options, "start").returncode == 0
    address = f"host={server.folder / 'run'} port={server.port} user=fluxqueue"
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
        connection.execute(f"ALTER ROLE fluxqueue PASSWORD '{server.password}'".encode())
        connection.execute("CREATE DATABASE fluxqueue")
    asyncio.run(_leads(f"{address} dbname=fluxqueue", "replica-0"))
    assert server.run(*control, "-m", "fast", "stop").returncode == 0


def test_a_database_of_an_older_chart_goes_on_with_a_role_that_is_no_superuser(new_server: Server) -> None:
    server = new_server()
    _as_an_older_chart(server)
    server.start()
    assert server.administer(ROLES) == [("fluxqueue", False), ("postgres", True)]
    assert server.administer(OWNERS, "fluxqueue") == [("fluxqueue",)]
    with server.connect() as connection:
        assert connection.execute("SELECT holder FROM fluxqueue.leader").fetchone() == ("replica-0",)
    asyncio.run(_leads(server.url(), "replica-1"))
    assert "an older chart made this database" in server.process.log_text()
    server.stop()
    server.start()
    assert "an older chart made this database" not in server.process.log_text(), "once is enough"


def test_an_image_of_another_major_version_does_not_start_and_says_so(new_server: Server) -> None:
    server = new_server()
    server.mount("data/data", {"PG_VERSION": b"9\n"})
    server.launch()
    assert server.process.wait(30) == 1
    assert "the volume holds a database of Postgres 9, and the image is Postgres" in server.process.log_text()
    assert "docs/postgres.md" in server.process.log_text()


def test_a_renewed_certificate_is_served_without_a_restart(server: ChartPostgres, new_server: Server) -> None:
    renewed = new_server()
    with server.connect() as kept:
        for volume in ("tls", "postgres-ca"):
            server.mount(
                volume, {file.name: file.read_bytes() for file in (renewed.folder / volume).glob("[!.]*")}
            )
        wait_until(server.answers, f"{HOST} to serve the renewed certificate", 30)
        assert kept.execute("SELECT 1").fetchone() == (1,), "sessions go on"


def test_a_backup_is_restored_as_a_whole_and_only_while_no_queue_runs(server: ChartPostgres) -> None:
    epoch = asyncio.run(_leads(server.url(), "replica-0"))
    backup = server.run_job("backup")
    assert backup.returncode == 0, backup.stderr
    assert asyncio.run(_leads(server.url(), "replica-1")) > epoch
    with server.connect() as connection:
        connection.execute("CREATE TABLE fluxqueue.newer (key bigint)")
        refused = server.run_job("restore")
    assert (refused.returncode, "scale the queue's Deployment to 0" in refused.stderr) == (1, True)
    missing = server.run_job("restore", DUMP="fluxqueue-none.dump")
    assert (missing.returncode, "there is no dump fluxqueue-none.dump" in missing.stderr) == (1, True)
    restored = server.run_job("restore")
    assert restored.returncode == 0, restored.stderr
    with server.connect() as connection:
        assert connection.execute("SELECT max(epoch) FROM fluxqueue.leader").fetchone() == (epoch,)
        assert connection.execute("SELECT to_regclass('fluxqueue.newer')").fetchone() == (None,)
    assert asyncio.run(_leads(server.url(), "replica-2")) > epoch, "the queue goes on"
    assert server.administer(OWNERS, "fluxqueue") == [("fluxqueue",)]


def test_a_dump_that_is_broken_changes_nothing(server: ChartPostgres) -> None:
    epoch = asyncio.run(_leads(server.url(), "replica-0"))
    assert server.run_job("backup").returncode == 0
    (dump,) = (server.folder / "backup").glob("*.dump")
    whole = dump.read_bytes()
    dump.write_bytes(whole[: len(whole) * 9 // 10])
    assert server.run_job("restore").returncode != 0
    with server.connect() as connection:
        assert connection.execute("SELECT max(epoch) FROM fluxqueue.leader").fetchone() == (epoch,)


def test_the_newest_backups_are_kept_and_unfinished_ones_are_not(server: ChartPostgres) -> None:
    asyncio.run(_leads(server.url(), "replica-0"))
    folder = server.folder / "backup"
    server.mount(
        "backup",
        {f"fluxqueue-2020010{day}T000000Z.dump": b"old" for day in (1, 2, 3)}
        | {"fluxqueue-x.dump.unfinished": b"half"},
    )
    done = server.run_job("backup")
    assert done.returncode == 0, done.stderr
    kept = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    assert len(kept) == 2
    assert kept[0] == "fluxqueue-20200103T000000Z.dump"
    assert "bytes; 2 kept" in done.stdout


def test_two_backups_at_once_are_written_one_after_the_other(server: ChartPostgres) -> None:
    asyncio.run(_leads(server.url(), "replica-0"))
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(server.run_job, ["backup"] * 2))
    assert [done.returncode for done in ended] == [0, 0], [done.stderr for done in ended]


def test_a_backup_of_an_empty_database_is_a_failure(server: ChartPostgres) -> None:
    done = server.run_job("backup")
    assert done.returncode == 1
    assert "no table of the queue" in done.stderr
    assert list((server.folder / "backup").glob("*.dump")) == []


@pytest.fixture(scope="module")
def newer_programs(postgres: LocalPostgres, service_folder: Path) -> Path:
    """The programs of a newer major version, where the server's account can read them."""
    assert postgres.process is not None
    for major in (18, 17):
        with contextlib.suppress(PostgresError):
            newer = find_postgres(major)
            if newer.major > find_postgres().major:
                with LocalPostgres(service_folder / "newer", durable=False, binaries=newer) as server:
                    assert server.process is not None
                    return Path(server.process.command[0]).parent
    pytest.skip("needs the programs of two major versions: make test-postgres fetches them")


def test_the_queue_goes_on_in_the_next_major_version(
    server: ChartPostgres, new_server: Server, newer_programs: Path
) -> None:
    """The steps are those of docs/postgres.md: a dump of the former server,
    restored into the empty database of the new one.
    """
    epoch = asyncio.run(_leads(server.url(), "replica-0"))
    assert server.run_job("backup").returncode == 0
    newer = new_server(newer_programs)
    newer.start()
    newer.mount("backup", {file.name: file.read_bytes() for file in (server.folder / "backup").iterdir()})
    restored = newer.run_job("restore")
    assert restored.returncode == 0, restored.stderr
    with newer.connect() as connection:
        with server.connect() as former:
            assert connection.info.server_version > former.info.server_version
        assert connection.execute("SELECT max(epoch) FROM fluxqueue.leader").fetchone() == (epoch,)
    assert asyncio.run(_leads(newer.url(), "replica-1")) > epoch
