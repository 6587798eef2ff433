"""The chart's Postgres without a kubelet: its container's command and scripts,
run on the server's programs of this machine.
"""

from __future__ import annotations

import base64
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo
from support.chart_rendering import NAMESPACE, Rendered

from fluxqueue.local.chart import relocate
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process

NAME = "fluxqueue-postgres"
HOST = f"{NAME}.{NAMESPACE}.svc"


@dataclass
class ChartPostgres:
    """One Postgres of the chart.

    Attributes
    ----------
    folder
        Folder of its volumes; the server's account must be able to enter it.
    programs
        Folder of the server's programs, which that account can read.
    rendered
        The chart.
    """

    folder: Path
    programs: Path
    rendered: Rendered
    password: str = "a-password"
    process: Process = field(init=False)

    def __post_init__(self) -> None:
        self._account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.port = int(
            next(word for word in self._container["args"] if word.startswith("port=")).removeprefix("port=")
        )
        for name, data in self._mounted().items():
            self.mount(name, data)
        for name in ("data", "run", "tmp", "backup"):
            self.mount(name, {})
        self.process = Process("start.sh", (), log=self.folder / "server.log", stop_timeout_s=60)

    @property
    def data(self) -> Path:
        """The folder of the database."""
        return self.folder / "data" / "data"

    def mount(self, volume: str, files: Mapping[str, bytes]) -> None:
        """Write the files of a volume, each at once, as the kubelet does."""
        folder = self.folder / volume
        folder.mkdir(exist_ok=True, mode=0o700)
        for name, content in files.items():
            unfinished = folder / f".{name}"
            unfinished.write_bytes(content)
            unfinished.chmod(0o600)
            self._give(unfinished)
            unfinished.rename(folder / name)
        self._give(folder)

    def start(self) -> None:
        """Start the container, and wait until its startup probe would pass and a query is answered."""
        self.launch()
        self.process.wait_ready(self.answers, 120)

    def launch(self) -> None:
        """Start the container."""
        container = self._container
        self.process.command = self._command(*container["command"], *container["args"])
        self.process.environment = self._environment(container, QUEUE_PASSWORD=self.password)
        self.process.user = self._account.pw_name if self._account else None
        self.process.start()

    def answers(self) -> bool:
        """True if the server answers by TCP."""
        try:
            with self.connect():
                return True
        except psycopg.OperationalError:
            return False

    def stop(self) -> None:
        """Stop the server."""
        self.process.stop()

    def url(self, **changes: Any) -> str:
        """Return the queue's connection string, with the variables of its container as parameters."""
        given = {
            "host": HOST,
            "hostaddr": "127.0.0.1",
            "port": self.port,
            "user": "fluxqueue",
            "dbname": "fluxqueue",
        }
        secure = {
            "password": self.password,
            "sslmode": "verify-full",
            "sslrootcert": str(self.folder / "postgres-ca" / "ca.crt"),
        }
        return conninfo.make_conninfo("", **{**given, **secure, **changes})

    def connect(self, **changes: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect as the queue does, with these parameters changed."""
        return psycopg.connect(self.url(**changes), autocommit=True, connect_timeout=5)

    def administer(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as who may exec into the pod."""
        address = conninfo.make_conninfo(
            host=str(self.folder / "run"), port=self.port, user="postgres", dbname=database
        )
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def run_job(self, cron_job: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run the container of a CronJob of the chart to its end."""
        spec = self.rendered.one("CronJob", f"{NAME}-{cron_job}")["spec"]["jobTemplate"]["spec"]["template"][
            "spec"
        ]
        (container,) = spec["containers"]
        environment = self._environment(
            container, PGPASSWORD=self.password, PGHOSTADDR="127.0.0.1", **changes
        )
        return self.run(*self._command(*container["command"]), **environment)

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program as the server's account."""
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
            env=environment or {"PATH": os.defpath},
            user=self._account.pw_uid if self._account else None,
            group=self._account.pw_gid if self._account else None,
        )

    @property
    def _container(self) -> dict[str, Any]:
        return dict(self.rendered.container(NAME, "postgres"))

    def _mounted(self) -> dict[str, dict[str, bytes]]:
        scripts = self.rendered.one("ConfigMap", NAME)["data"]
        secret = {
            key: base64.b64decode(value)
            for key, value in self.rendered.one("Secret", f"{NAME}-tls")["data"].items()
        }
        return {
            "scripts": {name: text.encode() for name, text in scripts.items()},
            "tls": {key: secret[key] for key in ("tls.crt", "tls.key")},
            "postgres-ca": {"ca.crt": secret["ca.crt"]},
        }

    def _command(self, program: str, *words: str) -> list[str]:
        """Return a command with the folders of this machine;
        the launcher of another account finds no program by itself.
        """
        return [shutil.which(program) or program, *map(self._word, words)]

    def _word(self, word: str) -> str:
        mounts = {
            "/etc/fluxqueue-postgres": "scripts",
            "/etc/fluxqueue-tls": "tls",
            "/etc/fluxqueue-postgres-ca": "postgres-ca",
            "/var/lib/fluxqueue": "data",
            "/backup": "backup",
        }
        return relocate(word, [(path, self.folder / name) for path, name in mounts.items()])

    def _environment(self, container: Mapping[str, Any], **given: str) -> dict[str, str]:
        rendered = {
            entry["name"]: self._word(entry["value"]) for entry in container["env"] if "value" in entry
        }
        path = os.pathsep.join((str(self.programs), os.defpath))
        own = {
            "PATH": path,
            "LC_ALL": "C.UTF-8",
            "SOCKETS": str(self.folder / "run"),
            "TLS_CHECK_SECONDS": "0.2",
        }
        return {**own, **rendered, **given}

    def _give(self, path: Path) -> None:
        if self._account is not None:
            shutil.chown(path, self._account.pw_uid, self._account.pw_gid)


def free_values() -> dict[str, Any]:
    """Return values of the chart with a port of this machine, and backups."""
    return {
        "postgres": {
            "port": free_port(),
            "settings": {"fsync": "off"},
            "backup": {"enabled": True, "keep": 2},
        }
    }
