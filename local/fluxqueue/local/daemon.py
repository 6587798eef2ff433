"""The process behind ``fluxqueue local up``: it owns a plane for as long as that runs.

``up`` starts it detached and reads its progress from a pipe, one JSON object a line, until it says ready. From then on the two know each
other only through the data folder:

- ``lock``: held by the daemon for its life, so "is a plane running here" needs no guessing about pids;
- ``state.json``: who it is and, refreshed when something changes, its processes. Left over without the lock, it is stale.

The daemon ends on SIGTERM, or when the pipe breaks before the plane is ready (``up`` was interrupted or killed). Its processes are tied
to its life (`processes`), so killing it leaves nothing behind either.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import msgspec

from fluxqueue.local.binaries import Binaries, Tool
from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions, Running
from fluxqueue.local.pki import write_private

__all__ = ["RunningProcess", "State", "holds_lock", "read_state", "serve"]

_REFRESH_S = 3.0


class RunningProcess(msgspec.Struct, frozen=True):
    """A process of the plane; see `inprocess.Running`."""

    name: str
    pid: int | None
    state: str
    port: int | None
    restarts: int
    log: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon says about its plane."""

    pid: int
    ready: bool
    kubeconfig: str = ""
    server: str = ""
    dsn: str = ""
    kubectl: str = ""
    processes: list[RunningProcess] = []


def lock_path(folder: Path) -> Path:
    """The file a daemon holds a lock on."""
    return folder / "lock"


def holds_lock(folder: Path) -> bool:
    """Whether a daemon lives for this folder."""
    try:
        with lock_path(folder).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def read_state(folder: Path) -> State | None:
    """What the daemon wrote last; ``None`` if there is nothing readable."""
    try:
        return msgspec.json.decode((folder / "state.json").read_bytes(), type=State)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class _Told(Exception):
    """The daemon was told to end."""


class _Daemon:
    def __init__(self, folder: Path, options: PlaneOptions, binaries: Binaries, progress: IO[str]) -> None:
        self._folder = folder
        self._progress: IO[str] | None = progress
        self._progress_lock = threading.Lock()
        self._plane = InProcessPlane(folder, options, report=self._report, binaries=binaries)
        self._written: State | None = None
        self._ended = threading.Event()
        self._starting = True

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._told)
        signal.signal(signal.SIGINT, self._told)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        write_private(self._folder / "state.json", msgspec.json.encode(State(pid=os.getpid(), ready=False)))
        try:
            self._plane.start()
            self._starting = False
            self._write_state()
            self._say({"ready": True})
            self._close_progress()
            while not self._ended.wait(_REFRESH_S):
                self._write_state()
        except _Told:
            return 0
        except Exception as error:
            self._log(f"the plane could not be started: {error}")
            self._say({"failed": str(error)})
            return 1
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._plane.stop()
            (self._folder / "state.json").unlink(missing_ok=True)
        return 0

    def _told(self, number: int, _: object) -> None:
        """Before the plane is up, break off whatever the main thread waits for; afterwards let it go round once more."""
        self._log(f"told to end by {signal.Signals(number).name}")
        self._ended.set()
        if self._starting:
            raise _Told

    def _report(self, text: str) -> None:
        self._log(text)
        self._say({"step": text})

    def _say(self, message: Mapping[str, Any]) -> None:
        with self._progress_lock:
            if self._progress is None:
                return
            try:
                print(json.dumps(message), file=self._progress, flush=True)
            except (BrokenPipeError, ValueError):  # whoever started us has gone: end as if told to
                self._progress = None
                if "ready" not in message:
                    os.kill(os.getpid(), signal.SIGTERM)

    def _close_progress(self) -> None:
        with self._progress_lock:
            if self._progress is not None:
                self._progress.close()
                self._progress = None

    def _log(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _write_state(self) -> None:
        plane = self._plane
        state = State(
            pid=os.getpid(),
            ready=True,
            kubeconfig=str(plane.kubeconfig),
            server=plane.control_plane.server,
            dsn=plane.database_dsn,
            kubectl=str(plane.control_plane.binaries[Tool.KUBECTL]),
            processes=[_described(running) for running in plane.running()],
        )
        if state != self._written:
            write_private(self._folder / "state.json", msgspec.json.encode(state))
            self._written = state


def _described(running: Running) -> RunningProcess:
    return RunningProcess(**{**asdict(running), "log": str(running.log)})


def serve(folder: Path, options: PlaneOptions, binaries: Binaries, progress: IO[str]) -> int:
    """Own a plane until told to end.

    Parameters
    ----------
    folder
        The data folder; exists.
    options, binaries
        Of the plane.
    progress
        Told steps, then ``ready`` or ``failed``, as JSON lines; closed when ready.

    Returns
    -------
    int
        Exit code: 0 after being told to end, 1 if the plane could not be started or another daemon lives here.
    """
    with lock_path(folder).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(json.dumps({"failed": f"another plane was started in {folder} just now"}), file=progress, flush=True)
            return 1
        return _Daemon(folder, options, binaries, progress).run()
