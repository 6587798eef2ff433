"""A real PgBouncer in front of a test's Postgres.

The program is the one on PATH or in /usr/sbin. Without one the tests are skipped, or with
``FLUXQUEUE_PGBOUNCER=fetch`` Debian's packages are unpacked into the cache, for which apt needs no rights.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fluxqueue.local.binaries import locked
from fluxqueue.local.ports import free_port
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.processes import Process
from fluxqueue.local.user_folders import cache_folder

_PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7", "libevent-2.1-7t64")
_SETTINGS = """\
[databases]
* = host={host} port={port} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_login_retry = 1
ignore_startup_parameters = {ignored}
"""


class Pooler:
    """A running PgBouncer with ``pool_mode = transaction`` and four server sessions for each database."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self._port = port

    def dsn(self, direct: str) -> str:
        """Return the connection string of the same database through the pooler."""
        name = conninfo_to_dict(direct)["dbname"]
        return make_conninfo(host="127.0.0.1", port=self._port, user="postgres", dbname=name)

    def answers(self) -> bool:
        """True if it accepts connections."""
        try:
            with psycopg.connect(
                host="127.0.0.1", port=self._port, user="postgres", dbname="postgres", connect_timeout=5
            ):
                return True
        except psycopg.OperationalError:
            return False


@contextmanager
def pooler_of(postgres: LocalPostgres, folder: Path, ignored: Sequence[str] = ()) -> Iterator[Pooler]:
    """Run a PgBouncer in front of a private Postgres, under the account of the server.

    Parameters
    ----------
    postgres
        A started server.
    folder
        An existing folder that the server's account may enter.
    ignored
        Parameters of a connection's start that it drops without a word.
    """
    program, libraries = _program()
    parts, port = conninfo_to_dict(postgres.dsn), free_port()
    settings = folder / f"pgbouncer-{port}.ini"
    settings.write_text(
        _SETTINGS.format(
            host=parts["host"],
            port=parts.get("port") or 5432,
            listen=port,
            ignored=",".join(ignored or ["extra_float_digits"]),
        )
    )
    settings.chmod(0o644)
    environment = {"PATH": os.defpath, **({"LD_LIBRARY_PATH": str(libraries)} if libraries else {})}
    process = Process(
        "pgbouncer",
        [program, "-q", settings],
        log=folder / f"pgbouncer-{port}.log",
        environment=environment,
        folder=folder,
        user=postgres.process.user if postgres.process else None,
    )
    pooler = Pooler(process, port)
    process.start()
    try:
        process.wait_ready(pooler.answers, 30)
        yield pooler
    finally:
        process.stop()


@cache
def _program() -> tuple[Path, Path | None]:
    """Return the program and the folder of its libraries if that is not a folder of the system;
    skip the test if there is none.
    """
    if found := shutil.which(
        "pgbouncer", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    ):
        return Path(found), None
    if os.environ.get("FLUXQUEUE_PGBOUNCER") != "fetch" or shutil.which("apt-get") is None:
        pytest.skip(
            "there is no pgbouncer: install the package of that name, "
            "or set FLUXQUEUE_PGBOUNCER=fetch where apt-get has it"
        )
    folder = Path("/var/lib/fluxqueue/pgbouncer") if os.geteuid() == 0 else cache_folder() / "pgbouncer"
    program = folder / "usr" / "sbin" / "pgbouncer"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / "pgbouncer.lock"):
        if not program.exists():
            _unpack_packages(folder)
    return program, next((folder / "usr" / "lib").glob("*-linux-gnu"))


def _unpack_packages(folder: Path) -> None:
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    state = unfinished / "apt"
    (state / "lists" / "partial").mkdir(parents=True)
    apt = [
        "apt-get",
        "-qq",
        "-o",
        f"Dir::State::Lists={state}/lists",
        "-o",
        f"Dir::Cache={state}",
        "-o",
        "APT::Sandbox::User=root",
    ]
    try:
        subprocess.run([*apt, "update"], check=True, capture_output=True, timeout=300)
        for package in _PACKAGES:  # libevent's name differs between Debian's releases
            subprocess.run(
                [*apt, "download", package], check=False, capture_output=True, timeout=300, cwd=state
            )
        for file in state.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", file, unfinished], check=True, capture_output=True, timeout=60)
        shutil.rmtree(state)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
