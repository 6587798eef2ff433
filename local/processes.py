"""Child processes: started with a log file, awaited until they are ready, stopped with all their children.

Each program is the leader of its own session. So Ctrl-C on the terminal reaches only the parent, which stops
the programs in its own order, and one signal to the process group also ends the children of a program. The
kernel ends the programs when the parent dies for any reason (`_launch`). It observes the *thread* that
forked, not the process, so one thread of this module, which lives as long as the interpreter, starts all
programs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["NotReady", "Process", "ProcessEnded", "ProcessError", "stat_fields", "wait_until"]

_LAUNCHER = Path(__file__).with_name("_launch.py")


class ProcessError(RuntimeError):
    """A program could not be started or stopped, or did not become ready."""


class ProcessEnded(ProcessError):
    """A program ended although it should run; the message contains the last lines of its log."""


class NotReady(ProcessError):
    """A program did not become ready in time; the message contains the last lines of its log."""


class _Forker:
    """The thread that forks all programs (see the docstring of the module)."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[
            tuple[dict[str, Any], queue.SimpleQueue[subprocess.Popen[bytes] | OSError]]
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def start(self, **arguments: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            # a fork of this interpreter has no threads of its parent
            if self._thread is None or self._owner != os.getpid():
                self._requests = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=self._run, args=(self._requests,), name="fluxqueue-forker", daemon=True
                )
                self._thread.start()
                self._owner = os.getpid()
        answer: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        self._requests.put((arguments, answer))
        result = answer.get(timeout=60)
        if isinstance(result, OSError):
            raise result
        return result

    @staticmethod
    def _run(
        requests: queue.SimpleQueue[
            tuple[dict[str, Any], queue.SimpleQueue[subprocess.Popen[bytes] | OSError]]
        ],
    ) -> None:
        while True:
            arguments, answer = requests.get()
            try:
                answer.put(subprocess.Popen(**arguments))
            except OSError as error:
                answer.put(error)


_forker = _Forker()


@dataclass
class Process:
    """A program: its command, its log and, while it runs, its pid.

    Parameters
    ----------
    name
        Name in messages.
    command
        Program and arguments.
    log
        File to which its output is appended.
    environment
        The whole environment; None inherits that of the parent.
    folder
        Working directory.
    user
        Account to run as; only root may set one.
    stop_signal, death_signal
        The signal for a graceful stop, and the signal that the kernel sends when the parent dies.
    stop_timeout_s
        Time after which the process group is killed if it has not stopped.
    """

    name: str
    command: Sequence[str | os.PathLike[str]]
    log: Path
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    stop_timeout_s: float = 10.0
    _popen: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _log_start: int = field(default=0, init=False, repr=False)

    @property
    def pid(self) -> int | None:
        """The pid of the last start, also after its end."""
        return self._popen.pid if self._popen else None

    @property
    def running(self) -> bool:
        """True if it was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last start; negative for a signal,
        None while it runs or before the first start.
        """
        return self._popen.poll() if self._popen else None

    def start(self) -> None:
        """Start the program; return before it is ready.

        Raises
        ------
        ProcessError
            It runs already, or cannot be started.
        """
        if self.running:
            raise ProcessError(f"{self.name} runs already as pid {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        launcher = [
            sys.executable,
            "-I",
            "-S",
            _LAUNCHER,
            str(int(self.death_signal)),
            str(os.getpid()),
            self.user or "-",
        ]
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            try:
                self._popen = _forker.start(
                    args=[*launcher, *self.command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=None if self.environment is None else dict(self.environment),
                    cwd=self.folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessError(f"{self.name} cannot be started: {error}") from error

    def wait_ready(self, probe: Callable[[], bool], timeout_s: float) -> None:
        """Wait until ``probe`` returns true.

        Raises
        ------
        ProcessEnded
            The program ended first.
        NotReady
            ``timeout_s`` has passed.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if not self.running:
                raise ProcessEnded(
                    f"{self.name} {describe_exit(self.exit_code)} before it was ready{self.log_excerpt()}"
                )
            if probe():
                return
            if time.monotonic() > deadline:
                raise NotReady(f"{self.name} is not ready after {timeout_s:g} s{self.log_excerpt()}")
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program, but not to its children;
        fault tests send ``SIGSTOP`` and ``SIGKILL``.
        """
        if self._popen is not None:
            self._popen.send_signal(number)

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the program and its children; no error if it does not run."""
        if self._popen is None:
            return
        if self._popen.poll() is None:
            self._signal_group(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(self.stop_timeout_s if timeout_s is None else timeout_s)
        self._signal_group(signal.SIGKILL)
        self._popen.wait(10)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end and return the exit code; None if it still runs after ``timeout_s``."""
        if self._popen is None:
            return None
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def log_text(self) -> str:
        """Return its output since the last start."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_excerpt(self) -> str:
        """Return the last lines of its log, in a form that continues a sentence."""
        text = self.log_text().strip().splitlines()[-12:]
        if not text:
            return f"; it wrote nothing to {self.log}"
        return f"; the last lines of {self.log}:\n  " + "\n  ".join(line[:400] for line in text)

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._popen is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)


def describe_exit(code: int | None) -> str:
    """Describe how a program ended: ``ended with exit code 3`` or ``was ended by SIGKILL``."""
    if code is None:
        return "was never started"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def stat_fields(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on (``/proc/PID/stat``, proc(5), after the
    name); nothing if it is gone.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def wait_until(probe: Callable[[], bool], what: str, timeout_s: float, interval_s: float = 0.05) -> None:
    """Wait until ``probe`` returns true.

    Raises
    ------
    NotReady
        ``timeout_s`` has passed; the message names ``what``.
    """
    deadline = time.monotonic() + timeout_s
    while not probe():
        if time.monotonic() > deadline:
            raise NotReady(f"{what}: not within {timeout_s:g} s")
        time.sleep(interval_s)
