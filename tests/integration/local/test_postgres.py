"""A server of our own, from its first start to whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from fluxqueue.local.postgres import LocalPostgres, postgres_from_environment
from fluxqueue.local.postgres_binaries import PostgresError
from fluxqueue.local.processes import wait_until


@pytest.fixture
def made(service_folder: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., LocalPostgres]]:
    """Make servers on folders of this test; all are destroyed at its end."""
    servers: list[LocalPostgres] = []

    def make(name: str = "own", **options: object) -> LocalPostgres:
        folder = service_folder / f"pg{abs(hash(request.node.name)) % 10**8}" / name
        servers.append(LocalPostgres(folder, **{"durable": False, **options}))  # type: ignore[arg-type]  # checked by LocalPostgres
        return servers[-1]

    yield make
    for server in servers:
        server.destroy()


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def put(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def alive(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_server_has_no_port_and_keeps_what_it_was_told_over_a_restart(
    made: Callable[..., LocalPostgres],
) -> None:
    server = made()
    server.start()
    assert ask(server.dsn, "SHOW listen_addresses") == ""
    dsn = server.create_database("kept")
    put(dsn, "CREATE TABLE t AS SELECT 42 AS answer")
    first = server.process.pid if server.process else None
    server.start()
    assert server.process is not None
    assert server.process.pid == first, "a second start finds the first"
    server.stop()
    assert not alive(first)
    assert not server.died()
    server.start()
    assert ask(dsn, "SELECT answer FROM t") == 42, "clients may keep their connection string"


def test_another_session_takes_up_the_folder_of_an_earlier_one(made: Callable[..., LocalPostgres]) -> None:
    earlier = made()
    earlier.start()
    earlier.create_database("kept")
    earlier.stop()
    later = made()
    later.start()
    assert later.has_database("kept")


def test_a_server_that_was_killed_is_noticed_and_started_again(made: Callable[..., LocalPostgres]) -> None:
    server = made(durable=True)
    server.start()
    put(server.create_database("kept"), "CREATE TABLE t ()")
    assert server.process is not None
    server.process.send(signal.SIGKILL)
    wait_until(server.died, "the server's end", 20)
    server.start()
    assert ask(server.database_dsn("kept"), "SELECT count(*) FROM t") == 0


def test_databases_are_copied_from_a_template_and_dropped_under_their_sessions(
    made: Callable[..., LocalPostgres],
) -> None:
    server = made()
    server.start()
    put(server.create_database("pattern"), "CREATE TABLE t AS SELECT 7 AS answer")
    dsn = server.create_database("copy", template="pattern")
    with psycopg.connect(dsn, autocommit=True) as session:
        assert session.execute("SELECT answer FROM t").fetchone() == (7,)
        server.drop_database("copy")
        with pytest.raises(psycopg.errors.AdminShutdown):
            session.execute("SELECT 1")
    assert not server.has_database("copy")
    server.drop_database("copy")


def test_the_data_of_another_version_is_refused_and_left_alone(made: Callable[..., LocalPostgres]) -> None:
    server = made()
    server.start()
    server.stop()
    version = server.folder / "data" / "PG_VERSION"
    version.write_text("9\n")
    with pytest.raises(PostgresError, match="no Postgres 9 server programs on PATH"):
        made().start()
    assert version.exists()


def test_a_data_folder_that_was_not_finished_is_made_anew(made: Callable[..., LocalPostgres]) -> None:
    server = made()
    server.start()
    server.stop()
    (server.folder / "data" / "global" / "pg_control").unlink()
    server.start()
    assert ask(server.dsn, "SELECT 1") == 1


def test_a_folder_too_deep_for_a_socket_gets_one_elsewhere_that_stays_the_same(
    made: Callable[..., LocalPostgres],
) -> None:
    server = made("/".join(["a-folder-with-quite-a-long-name"] * 4), binaries=None)
    server.start()
    dsn = server.dsn
    server.stop()
    server.start()
    assert server.dsn == dsn
    assert ask(dsn, "SELECT 1") == 1
    sockets = Path(str(psycopg.conninfo.conninfo_to_dict(dsn)["host"]))
    if sockets.parent != server.folder:
        server.stop()
        assert not sockets.exists()


def test_somebody_elses_server_is_used_and_never_ended(
    made: Callable[..., LocalPostgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = made("theirs")
    theirs.start()
    monkeypatch.setenv("SOME_DSN", theirs.dsn)
    ours = postgres_from_environment(theirs.folder.parent / "ours", "SOME_DSN")
    ours.start()
    dsn = ours.create_database("borrowed")
    ours.destroy()
    assert ask(dsn, "SELECT 1") == 1
    assert not ours.folder.exists()


def test_a_server_ends_with_the_process_that_started_it(service_folder: Path) -> None:
    folder = service_folder / "killed-owner"
    program = (
        "import sys, time; from pathlib import Path; from fluxqueue.local.postgres import LocalPostgres;"
        "server = LocalPostgres(Path(sys.argv[1]), durable=False); server.start(); "
        "print(server.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)
        owner.kill()
    wait_until(lambda: not alive(pid), "the server's end", 30)
    again = LocalPostgres(folder, durable=False)
    again.start()
    again.destroy()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's data lies elsewhere")
def test_what_a_killed_session_of_root_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """The folder asked for is closed to the server's account, so the data is below /var/lib/fluxqueue."""
    tmp_path.chmod(0o700)
    program = (
        "import sys, time; from pathlib import Path; from fluxqueue.local.postgres import LocalPostgres;"
        "server = LocalPostgres(Path(sys.argv[1]), durable=False); server.start(); "
        "print(server.folder, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "left")], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        assert left.is_relative_to("/var/lib/fluxqueue")
        owner.kill()
    wait_until(lambda: not (left / "data" / "postmaster.pid").exists(), "the server's end", 30)
    assert left.exists()
    with LocalPostgres(tmp_path / "next", durable=False) as server:
        assert not left.exists()
        assert ask(server.dsn, "SELECT 1") == 1
    server.destroy()
    assert not server.folder.exists()
