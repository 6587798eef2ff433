"""The daemon behind ``fluxqueue local up``: it owns a local cluster while that runs.

``up`` starts it detached and reads its progress from a pipe, one JSON object per line, until the cluster is
ready. Afterwards the commands find it through two files in the data folder:

- ``lock``: the daemon holds a lock on it while it runs, so no pid has to be checked to know whether a cluster
  runs;
- ``state.json``: the daemon's pid and the cluster's processes, written when something changes. Without the
  lock, it is stale.

The daemon ends on SIGTERM, or when the pipe breaks before the cluster is ready (``up`` was interrupted or
killed). The kernel ends its processes when it dies (`processes`), so even killing it leaves nothing behind.
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
from fluxqueue.local.cluster_options import ClusterOptions, ProcessStatus
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.pki import write_private

__all__ = ["DaemonState", "RunningProcess", "holds_lock", "read_state", "serve"]

_REFRESH_S = 3.0


class RunningProcess(msgspec.Struct, frozen=True):
    """A process of the cluster; see `cluster_options.ProcessStatus`."""

    name: str
    pid: int | None
    state: str
    port: int | None
    restarts: int
    log: str
    metrics_port: int | None = None


class DaemonState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cluster, as its daemon writes it."""

    pid: int
    ready: bool
    kubeconfig: str = ""
    server: str = ""
    dsn: str = ""
    kubectl: str = ""
    processes: list[RunningProcess] = []


def lock_path(folder: Path) -> Path:
    """Return the file on which a daemon holds a lock."""
    return folder / "lock"


def holds_lock(folder: Path) -> bool:
    """True if a daemon runs for this folder."""
    try:
        with lock_path(folder).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def read_state(folder: Path) -> DaemonState | None:
    """Return the state that the daemon wrote last; None if there is none."""
    try:
        return msgspec.json.decode((folder / "state.json").read_bytes(), type=DaemonState)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class _Stopped(Exception):
    """The daemon received a signal to end."""


class _Daemon:
    def __init__(self, folder: Path, options: ClusterOptions, binaries: Binaries, progress: IO[str]) -> None:
        self._folder = folder
        self._progress: IO[str] | None = progress
        self._progress_lock = threading.Lock()
        self._cluster = InProcessCluster(folder, options, report=self._report, binaries=binaries)
        self._written: DaemonState | None = None
        self._ended = threading.Event()
        self._starting = True

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        write_private(
            self._folder / "state.json", msgspec.json.encode(DaemonState(pid=os.getpid(), ready=False))
        )
        try:
            self._cluster.start()
            self._starting = False
            self._write_state()
            self._send({"ready": True})
            self._close_progress()
            while not self._ended.wait(_REFRESH_S):
                self._write_state()
        except _Stopped:
            return 0
        except Exception as error:
            self._log(f"the cluster could not be started: {error}")
            self._send({"failed": str(error)})
            return 1
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._cluster.stop()
            (self._folder / "state.json").unlink(missing_ok=True)
        return 0

    def _stop(self, number: int, _: object) -> None:
        """End the main loop; while the cluster is being started, interrupt the main thread."""
        self._log(f"ending on {signal.Signals(number).name}")
        self._ended.set()
        if self._starting:
            raise _Stopped

    def _report(self, text: str) -> None:
        self._log(text)
        self._send({"step": text})

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._progress_lock:
            if self._progress is None:
                return
            try:
                print(json.dumps(message), file=self._progress, flush=True)
            except (BrokenPipeError, ValueError):
                # the process that started the daemon has ended: end as on SIGTERM
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
        cluster = self._cluster
        state = DaemonState(
            pid=os.getpid(),
            ready=True,
            kubeconfig=str(cluster.kubeconfig),
            server=cluster.control_plane.server,
            dsn=cluster.database_dsn,
            kubectl=str(cluster.control_plane.binaries[Tool.KUBECTL]),
            processes=[_described(running) for running in cluster.running()],
        )
        if state != self._written:
            write_private(self._folder / "state.json", msgspec.json.encode(state))
            self._written = state


def _described(running: ProcessStatus) -> RunningProcess:
    return RunningProcess(**{**asdict(running), "log": str(running.log)})


def serve(folder: Path, options: ClusterOptions, binaries: Binaries, progress: IO[str]) -> int:
    """Run a cluster until a signal ends it.

    Parameters
    ----------
    folder
        The data folder, which exists.
    options, binaries
        Options and programs of the cluster.
    progress
        Receives the steps, then ``ready`` or ``failed``, as JSON lines; closed when the cluster is ready.

    Returns
    -------
    int
        Exit code: 0 after a signal, 1 if the cluster could not be started or another daemon runs for the
        folder.
    """
    with lock_path(folder).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait for its end, or name another folder with --dir (make demo: XDG_STATE_HOME)"
            print(
                json.dumps({"failed": f"another cluster was started in {folder} just now; {remedy}"}),
                file=progress,
                flush=True,
            )
            return 1
        return _Daemon(folder, options, binaries, progress).run()
