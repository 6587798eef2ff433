"""A private Postgres server, for tests, development and the demo.

It needs only the server's programs (`fluxqueue.local.postgres_binaries`).

The server listens on a Unix socket in a folder that only its owner can enter, and on no port. So it needs no
password, and several servers do not conflict. Postgres refuses to run as root: if root starts it, it runs as
``postgres`` or ``nobody``. Files that this account could not access (a data folder below /root, programs in
root's virtual environment) are then in /var/lib/fluxqueue instead.

The settings are in this module, not in a file in the data folder. ``durable=False`` gives up durability
against a crash of the machine, which tests do not need, and makes commits several times faster.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psycopg
from psycopg import conninfo, sql

from fluxqueue.local import substitute_folders
from fluxqueue.local.postgres_binaries import PostgresBinaries, PostgresError, find_postgres
from fluxqueue.local.processes import Process, ProcessError

__all__ = ["LocalPostgres", "postgres_from_environment"]

_ROOT_FOLDER = Path("/var/lib/fluxqueue")
_SOCKET_PATH_LIMIT = 90  # sockaddr_un holds 107 bytes; the server adds "/.s.PGSQL.5432.lock"

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "jit": "off",  # every query of ours is short
    "autovacuum_naptime": "15s",  # the queue's hot tables are small and change all the time
    "log_min_duration_statement": "1s",
    "timezone": "UTC",
}
# A killed server must still keep what it has committed: commits do not wait for the disk, but they are
# written to the kernel.
_NOT_DURABLE_SETTINGS = {"fsync": "off", "full_page_writes": "off"}


def _server_account() -> pwd.struct_passwd | None:
    """Return the account of the server if this process runs as root, else None."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError(
        "Postgres does not run as root, and this machine has neither an account `postgres` nor `nobody`"
    )


def _reachable(path: Path, account: pwd.struct_passwd) -> bool:
    """True if ``account`` may enter every folder above ``path``."""
    for folder in path.absolute().parents:
        try:
            state = folder.stat()
        except FileNotFoundError:
            continue
        allowed = state.st_mode & 0o001 or (state.st_uid == account.pw_uid and state.st_mode & 0o100)
        if not allowed:
            return False
    return True


def _substitute_for(path: Path) -> Path:
    """Return the folder that is used instead of ``path``, which the server's account cannot access."""
    digest = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]
    return _ROOT_FOLDER / f"{path.name}-{digest}"


class LocalPostgres:
    """A private Postgres server, or an external one with the same interface.

    Parameters
    ----------
    folder
        Folder of data and log; used again if it exists. The docstring of the module describes the case of
        root.
    durable
        True if committed data must survive a crash of the machine; false is for tests.
    settings
        Additional server settings, as for ``-c``.
    dsn
        An external server to use instead; its user must be able to create databases.
    binaries
        The server's programs; by default they are searched.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        dsn: str | None = None,
        binaries: PostgresBinaries | None = None,
    ) -> None:
        self._given_dsn = dsn
        self._durable = durable
        self._settings = {**_SETTINGS, **({} if durable else _NOT_DURABLE_SETTINGS), **(settings or {})}
        self._binaries = binaries
        self._account = None if dsn else _server_account()
        self._asked_folder = folder.absolute()
        self._sockets: Path | None = None
        self._process: Process | None = None
        self._wanted = False

    @property
    def folder(self) -> Path:
        """The folder of data and log: the given one, or its substitute if this process runs as root."""
        if self._account is None or _reachable(self._asked_folder / "data", self._account):
            return self._asked_folder
        return _substitute_for(self._asked_folder)

    @property
    def dsn(self) -> str:
        """Connection string of the maintenance database ``postgres``."""
        return self.database_dsn("postgres") if self._given_dsn is None else self._given_dsn

    @property
    def process(self) -> Process | None:
        """The server's process; None for an external server, or before the first start."""
        return self._process

    def database_dsn(self, name: str) -> str:
        """Return the connection string of a database."""
        if self._given_dsn is not None:
            return conninfo.make_conninfo(self._given_dsn, dbname=name)
        if self._sockets is None:
            raise PostgresError("this Postgres is not started: call start() first")
        return conninfo.make_conninfo(
            host=str(self._sockets), port=self._settings.get("port", "5432"), user="postgres", dbname=name
        )

    def start(self, timeout_s: float = 60) -> None:
        """Create the data folder if it does not exist, start the server, and wait until it accepts
        connections.

        Raises
        ------
        PostgresError
            The server's programs are missing, or the data folder belongs to another major version.
        ProcessError
            The server ended, or is not ready in time; with its last log lines.
        """
        if self._given_dsn is not None or (self._process and self._process.running):
            return
        self._asked_folder.parent.mkdir(parents=True, exist_ok=True)
        self._make_folder(self.folder)
        made_by = self._data_version()
        binaries = self._usable(self._binaries or find_postgres(made_by))
        if made_by is None:
            self._initialise(binaries)
        elif made_by != binaries.major:
            raise PostgresError(
                f"{self.folder / 'data'} was made by Postgres {made_by}, but the server at hand is "
                f"{binaries.major}: remove that folder"
            )
        self._sockets = self._make_sockets()
        options = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        self._process = Process(
            "postgres",
            [binaries.program("postgres"), "-D", self.folder / "data", "-k", self._sockets, *options],
            log=self.folder / "postgres.log",
            environment=self._environment(),
            folder=self.folder,
            user=self._account.pw_name if self._account else None,
            stop_signal=signal.SIGINT,  # fast shutdown: end the sessions, write a checkpoint
            death_signal=signal.SIGINT,
            stop_timeout_s=30,
        )
        self._process.start()
        self._wanted = True
        try:
            self._process.wait_ready(self._answers, timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server, which ends all sessions; an external server is not stopped."""
        self._wanted = False
        if self._process is not None:
            self._process.stop()
        if self._sockets is not None and self._sockets.parent != self.folder:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def died(self) -> bool:
        """True if the private server ended without being stopped."""
        return self._wanted and self._process is not None and not self._process.running

    def destroy(self) -> None:
        """Stop the server and remove its data; an external server is not touched."""
        self.stop()
        if self._given_dsn is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of ``template`` if given (which must have no sessions).

        Returns
        -------
        str
            Its connection string.
        """
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        return self.database_dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end its sessions; no error if it does not exist."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def has_database(self, name: str) -> bool:
        """True if a database of this name exists."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return (
                connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
                is not None
            )

    def __enter__(self) -> LocalPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def _data_version(self) -> int | None:
        """Return the major version of the data folder; a folder that ``initdb`` did not finish is removed and
        has none.
        """
        version = self.folder / "data" / "PG_VERSION"
        if version.exists() and (self.folder / "data" / "global" / "pg_control").exists():
            return int(version.read_text().strip())
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        return None

    def _make_folder(self, folder: Path) -> None:
        if self._account is None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        if folder.parent == _ROOT_FOLDER:
            substitute_folders.prune(_ROOT_FOLDER)
            substitute_folders.claim(folder, self._asked_folder, kept=self._durable)
        folder.mkdir(exist_ok=True, mode=0o700)
        os.chown(folder, self._account.pw_uid, self._account.pw_gid)

    def _make_sockets(self) -> Path:
        """Create the folder of the sockets: short enough for a socket address,
        and the same after a restart of the server.
        """
        folder = self.folder.absolute() / "run"
        if len(os.fsencode(folder)) > _SOCKET_PATH_LIMIT:
            folder = self._sockets or Path(tempfile.mkdtemp(prefix="fluxqueue-pg-"))
        self._make_folder(folder)
        return folder

    def _usable(self, binaries: PostgresBinaries) -> PostgresBinaries:
        """Return the programs, or a copy of them that the server's account can read."""
        if self._account is None or _reachable(binaries.folder / "postgres", self._account):
            return binaries
        source = binaries.folder.parent
        package = source.parent
        target = _substitute_for(source)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
            unfinished.chmod(0o755)
            shutil.copytree(source, unfinished / package.name / source.name, symlinks=True)
            # where a wheel keeps the libraries its programs are linked to
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, unfinished / libraries.name)
            with contextlib.suppress(OSError):  # another process was faster
                unfinished.rename(target)
            shutil.rmtree(unfinished, ignore_errors=True)
        return PostgresBinaries(target / package.name / source.name / binaries.folder.name, binaries.major)

    def _initialise(self, binaries: PostgresBinaries) -> None:
        command: list[str | Path] = [
            "-D",
            self.folder / "data",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--auth=trust",
            "--no-instructions",
        ]
        initdb = Process(
            "initdb",
            [binaries.program("initdb"), *command, *([] if self._durable else ["--no-sync"])],
            log=self.folder / "initdb.log",
            environment=self._environment(),
            folder=self.folder,
            user=self._account.pw_name if self._account else None,
        )
        initdb.start()
        code = initdb.wait(120)
        if code != 0:
            initdb.stop()
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            raise ProcessError(f"initdb could not make {self.folder / 'data'}{initdb.log_excerpt()}")


def postgres_from_environment(folder: Path, variable: str, *, durable: bool = True) -> LocalPostgres:
    """Return the server that an environment variable names, or else a private one in ``folder``.

    Parameters
    ----------
    folder
        Folder of a private server; see `LocalPostgres`.
    variable
        ``FLUXQUEUE_TEST_DSN`` or ``DATABASE_URL``; an empty value counts as not set.
    durable
        See `LocalPostgres`.
    """
    return LocalPostgres(folder, durable=durable, dsn=os.environ.get(variable) or None)
