"""A plane that outlives the command that started it: what ``fluxqueue local`` and the demo hold in their hands.

`LocalPlane` names a data folder. `up` finds the plane that runs there or starts one (`daemon`), `down` ends it, everything else
reads what the daemon wrote down.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.binaries import Binaries, Tool, find_binaries
from fluxqueue.local.controlplane import administrator_client
from fluxqueue.local.daemon import RunningProcess, State, holds_lock, read_state
from fluxqueue.local.inprocess import PlaneOptions

__all__ = ["LocalPlane", "NotRunning", "PlaneFailed", "state_folder"]

_STOP_TIMEOUT_S = 60.0


class PlaneFailed(RuntimeError):
    """The plane could not be started or stopped; says why."""


class NotRunning(RuntimeError):
    """No plane runs in the data folder."""


def state_folder() -> Path:
    """``$XDG_STATE_HOME/fluxqueue/local``, by default below ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state") / "fluxqueue" / "local"


class LocalPlane:
    """The plane of a data folder, whether it runs or not.

    Parameters
    ----------
    folder
        `state_folder` if not given.
    options
        For a plane that `up` starts; a running one keeps its own.
    """

    def __init__(self, folder: Path | None = None, options: PlaneOptions | None = None) -> None:
        self.folder = (folder or state_folder()).absolute()
        self.options = options or PlaneOptions()
        self._client: ApiServerClient | None = None

    @property
    def running(self) -> bool:
        """Whether a plane runs, or is being started, in the folder."""
        return holds_lock(self.folder)

    @property
    def state(self) -> State:
        """What the running plane says about itself.

        Raises
        ------
        NotRunning
            None does, or it is not ready yet.
        """
        state = read_state(self.folder) if self.running else None
        if state is None:
            raise NotRunning(f"no plane runs in {self.folder}: start one with `fluxqueue local up`")
        if not state.ready:
            raise NotRunning(f"the plane in {self.folder} is still starting: wait for `fluxqueue local up`")
        return state

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return Path(self.state.kubeconfig)

    @property
    def kubectl(self) -> Path:
        """A kubectl that fits the plane."""
        return Path(self.state.kubectl)

    @property
    def dsn(self) -> str:
        """Connection string of the queue's database."""
        return self.state.dsn

    @property
    def fluxion_target(self) -> str:
        """``host:port`` of the matcher of the first queue."""
        return f"127.0.0.1:{self._port('fluxion')}"

    @property
    def queue_url(self) -> str:
        """Where the first queue serves health and metrics."""
        return f"http://127.0.0.1:{self._port('queue')}"

    @property
    def client(self) -> ApiServerClient:
        """Requests to the API server as administrator."""
        if self._client is None:
            self._client = administrator_client(self.folder / "controlplane")
        return self._client

    def up(
        self,
        *,
        report: Callable[[str], None] | None = None,
        find: Callable[[], Binaries] = find_binaries,
        timeout_s: float = 300,
    ) -> bool:
        """Make the plane run.

        Parameters
        ----------
        report
            Told each step.
        find
            Finds, or builds, the Kubernetes programs.
        timeout_s
            For the start, the building of programs aside.

        Returns
        -------
        bool
            Whether it was started; ``False``: it ran already.

        Raises
        ------
        PlaneFailed
            With the reason. Nothing is left running then, nor after a KeyboardInterrupt.
        """
        if self.running:
            self._wait_for_the_other(timeout_s)
            return False
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / "state.json").unlink(missing_ok=True)  # of a plane that was killed
        binaries = find()
        daemon = self._spawn(binaries)
        assert daemon.stdout is not None
        try:
            self._follow(daemon.stdout, report or (lambda _: None), time.monotonic() + timeout_s)
        except BaseException:
            self._end(daemon.pid)
            daemon.wait()
            raise
        finally:
            daemon.stdout.close()
        daemon.returncode = 0  # it lives on without us; do not warn about it
        return True

    def down(self, *, delete: bool = False) -> bool:
        """End the plane.

        Parameters
        ----------
        delete
            Also remove its data.

        Returns
        -------
        bool
            Whether one ran.

        Raises
        ------
        PlaneFailed
            It does not end.
        """
        if self._client is not None:
            self._client.close()
            self._client = None
        ran = self.running
        if ran:
            state = read_state(self.folder)
            if state is None:
                raise PlaneFailed(
                    f"a plane holds {self.folder} but does not say which process it is: end the process that holds the lock file"
                )
            self._end(state.pid)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "state.json").unlink()
        if delete:
            from fluxqueue.local.inprocess import InProcessPlane

            InProcessPlane(self.folder).destroy()
        return ran

    def process(self, name: str) -> RunningProcess:
        """A process of the running plane by its name.

        Raises
        ------
        NotRunning
            There is none of this name; says which there are.
        """
        processes = {process.name: process for process in self.state.processes}
        if name not in processes:
            raise NotRunning(f"the plane has no {name!r}: there are {', '.join(processes)}")
        return processes[name]

    def _port(self, name: str) -> int:
        port = self.process(name).port
        if port is None:
            raise NotRunning(f"{name} of the plane in {self.folder} listens on no port")
        return port

    def _wait_for_the_other(self, timeout_s: float) -> None:
        """Another ``up`` may be in the middle of its work."""
        deadline = time.monotonic() + timeout_s
        while not ((state := read_state(self.folder)) and state.ready):
            if not self.running:
                raise PlaneFailed(f"the plane that was being started in {self.folder} ended: see {self.folder / 'daemon.log'}")
            if time.monotonic() > deadline:
                raise PlaneFailed(f"a plane is being started in {self.folder} since {timeout_s:g} s: see {self.folder / 'daemon.log'}")
            time.sleep(0.1)

    def _spawn(self, binaries: Binaries) -> subprocess.Popen[str]:
        request = {
            "folder": str(self.folder),
            "options": asdict(self.options),
            "binaries": {tool.name: str(binaries[tool]) for tool in Tool},
        }
        with (self.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", "from fluxqueue.local.main import serve; raise SystemExit(serve())", json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=self.folder,
            )

    def _follow(self, progress: IO[str], report: Callable[[str], None], deadline: float) -> None:
        for line in progress:
            message = json.loads(line)
            if "failed" in message:
                raise PlaneFailed(message["failed"])
            if "ready" in message:
                return
            report(message["step"])
            if time.monotonic() > deadline:
                raise PlaneFailed(f"the plane is not ready in time: see {self.folder / 'daemon.log'}")
        raise PlaneFailed(f"the plane's supervisor ended while starting: see {self.folder / 'daemon.log'}")

    def _end(self, pid: int) -> None:
        """End the daemon, and wait until it is gone: it lets go of its lock a moment before."""
        try:
            daemon = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            for number, patience_s in ((signal.SIGTERM, _STOP_TIMEOUT_S), (signal.SIGKILL, 10.0)):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(daemon, number)
                if select.select([daemon], [], [], patience_s)[0]:
                    return
        finally:
            os.close(daemon)
        raise PlaneFailed(f"process {pid} of the plane in {self.folder} does not end")
