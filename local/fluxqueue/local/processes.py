"""Child programs: started with a log, awaited until ready, stopped with all of their children, never left behind.

Each program becomes the leader of its own session, so that a Ctrl-C at the terminal reaches only us and we end the programs in the
order we want, and so that one signal to the group also ends what they started. Besides, the kernel ends them when we die, however
that comes (`_launch`). The kernel ties that to the *thread* that forked, not to the process; so every program is started from one
thread of this module that lives as long as the interpreter, whoever asks for it.
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

__all__ = ["NotReady", "Process", "ProcessEnded", "ProcessError", "wait_until"]

_LAUNCHER = Path(__file__).with_name("_launch.py")


class ProcessError(RuntimeError):
    """A program could not be started, awaited or stopped."""


class ProcessEnded(ProcessError):
    """A program ended although it should run; the message ends with the last lines of its log."""


class NotReady(ProcessError):
    """A program did not become ready in time; the message ends with the last lines of its log."""


class _Forker:
    """The one thread that forks, see the module's docstring."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[dict[str, Any], queue.SimpleQueue[subprocess.Popen[bytes] | OSError]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def start(self, **arguments: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None or self._owner != os.getpid():  # a fork of this interpreter has no threads of its parent
                self._requests = queue.SimpleQueue()
                self._thread = threading.Thread(target=self._run, args=(self._requests,), name="fluxqueue-forker", daemon=True)
                self._thread.start()
                self._owner = os.getpid()
        answer: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        self._requests.put((arguments, answer))
        result = answer.get(timeout=60)
        if isinstance(result, OSError):
            raise result
        return result

    @staticmethod
    def _run(requests: queue.SimpleQueue[tuple[dict[str, Any], queue.SimpleQueue[subprocess.Popen[bytes] | OSError]]]) -> None:
        while True:
            arguments, answer = requests.get()
            try:
                answer.put(subprocess.Popen(**arguments))
            except OSError as error:
                answer.put(error)


_forker = _Forker()


@dataclass
class Process:
    """One program we run: its command, its log and, while it runs, its pid.

    Parameters
    ----------
    name
        What it is called in messages.
    command
        Program and arguments.
    log
        File its output is appended to.
    environment
        The whole environment; ``None`` inherits ours.
    folder
        Working directory.
    user
        Account to run as; only root may name one.
    stop_signal, death_signal
        What ends it politely, and what the kernel sends when we die.
    stop_timeout_s
        How long politeness lasts before the group is killed.
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
        """The pid of the latest start, also after its end."""
        return self._popen.pid if self._popen else None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the latest start; negative for a signal, ``None`` while it runs or never ran."""
        return self._popen.poll() if self._popen else None

    def start(self) -> None:
        """Start the program; returns before it is ready.

        Raises
        ------
        ProcessError
            When it runs already or cannot be forked.
        """
        if self.running:
            raise ProcessError(f"{self.name} runs already as pid {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        launcher = [sys.executable, "-I", "-S", _LAUNCHER, str(int(self.death_signal)), str(os.getpid()), self.user or "-"]
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

    def wait_ready(self, probe: Callable[[], bool], timeout_s: float, interval_s: float = 0.05) -> None:
        """Wait until ``probe`` says yes.

        Raises
        ------
        ProcessEnded
            The program ended first.
        NotReady
            ``timeout_s`` went by.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if not self.running:
                raise ProcessEnded(f"{self.name} {describe_exit(self.exit_code)} before it was ready{self.log_excerpt()}")
            if probe():
                return
            if time.monotonic() > deadline:
                raise NotReady(f"{self.name} is not ready after {timeout_s:g} s{self.log_excerpt()}")
            time.sleep(interval_s)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program alone (``SIGSTOP`` and ``SIGKILL`` are what fault tests want)."""
        if self._popen is not None:
            self._popen.send_signal(number)

    def stop(self, timeout_s: float | None = None) -> None:
        """End the program and everything it started; no error when it does not run."""
        if self._popen is None:
            return
        if self._popen.poll() is None:
            self._signal_group(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(self.stop_timeout_s if timeout_s is None else timeout_s)
        self._signal_group(signal.SIGKILL)
        self._popen.wait(10)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; ``None`` if it still runs after ``timeout_s``."""
        if self._popen is None:
            return None
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def log_text(self) -> str:
        """What it wrote since its latest start."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_excerpt(self, lines: int = 12) -> str:
        """The last lines of its log, made to end a sentence of ours."""
        text = self.log_text().strip().splitlines()[-lines:]
        if not text:
            return f"; it wrote nothing to {self.log}"
        return f"; the last lines of {self.log}:\n  " + "\n  ".join(line[:400] for line in text)

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._popen is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)


def describe_exit(code: int | None) -> str:
    """Say how a program ended: ``ended with exit code 3`` or ``was ended by SIGKILL``."""
    if code is None:
        return "was never started"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def wait_until(probe: Callable[[], bool], what: str, timeout_s: float, interval_s: float = 0.05) -> None:
    """Wait for something that is not one program's readiness.

    Raises
    ------
    NotReady
        Naming ``what`` when ``timeout_s`` went by.
    """
    deadline = time.monotonic() + timeout_s
    while not probe():
        if time.monotonic() > deadline:
            raise NotReady(f"{what}: not so after {timeout_s:g} s")
        time.sleep(interval_s)
