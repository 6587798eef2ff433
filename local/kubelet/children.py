"""The processes of the agent: started, awaited and ended with all that they started.

The agent is the reaper of everything below it (``PR_SET_CHILD_SUBREAPER``): a process whose parent has ended
becomes its child, so nothing escapes by a double fork. One handler of SIGCHLD collects all ends; nothing else
waits for a process. Each container has a mark in its environment, which its descendants inherit, also in
sessions of their own: `kill_marked` finds them in /proc. If it has a root of its own, that tells them as
well, also those that have cleared their environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fluxqueue.local.processes import stat_fields

__all__ = ["MARK", "Child", "Children", "Entry", "StartFailed", "kill_descendants", "kill_marked"]

MARK = "FLUXQUEUE_LOCAL_CONTAINER"
"""The variable whose value begins with the folder of the agent: what `kill_marked` looks for."""

_PR_SET_CHILD_SUBREAPER = 36
_ENTER = Path(__file__).with_name("enter.py")
_START_TIMEOUT_S = 60.0
_MOST_ROUNDS = 50
_ROUND_S = 0.02


class StartFailed(Exception):
    """The program could not be executed; the message says why."""


@dataclass(frozen=True)
class Entry:
    """How a process is prepared (`enter`).

    Attributes
    ----------
    command, folder
        What is executed, and where.
    root
        An empty folder for its own root; empty to share that of this machine.
    mounts
        Source and target of each mount, if it has its own root.
    hostname
        Its host name, if it has its own root.
    join
        The process whose namespaces it enters, or 0.
    groups
        Control groups that it enters.
    terminal
        True if its standard input is a terminal, which it gets as its controlling one.
    """

    command: Sequence[str]
    folder: str
    root: str = ""
    mounts: Sequence[tuple[str, str]] = ()
    hostname: str = ""
    join: int = 0
    groups: Sequence[str] = ()
    terminal: bool = False


@dataclass
class Child:
    """A process.

    Attributes
    ----------
    ended
        Its exit code, as the kubelet counts: 128 and the signal for one that was killed.
    """

    pid: int
    ended: asyncio.Future[int]

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and its process group; none if it has ended."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


class Children:
    """All processes of the agent."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._kept: dict[int, subprocess.Popen[bytes]] = {}

    def watch(self) -> None:
        """Adopt what loses its parent, and collect ends from now on."""
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._collect)

    async def start(
        self, entry: Entry, environment: Mapping[str, str], stdin: int, stdout: int, stderr: int
    ) -> Child:
        """Start a process and wait until its program is executed.

        Raises
        ------
        StartFailed
            It is not.
        """
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        prepared = _in_memory({**asdict(entry), "parent": os.getpid()})
        words = [sys.executable, "-I", "-S", str(_ENTER), str(writable), str(prepared)]
        try:
            started = subprocess.Popen(  # noqa: ASYNC220  (a fork takes a few milliseconds, and `_collect` has to know its child at once)
                words,
                env=dict(environment),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                pass_fds=(writable, prepared),
            )
        except (OSError, ValueError) as error:  # such as a variable that is too long, or with a zero byte
            os.close(readable)
            raise StartFailed(str(error)) from None
        finally:
            os.close(writable)
            os.close(prepared)
        child = Child(started.pid, asyncio.get_running_loop().create_future())
        self._children[child.pid], self._kept[child.pid] = child, started
        try:
            problem = await asyncio.wait_for(_read_all(readable), _START_TIMEOUT_S)
        except TimeoutError:
            problem = b"it was not executed in time"
        except asyncio.CancelledError:  # such as a probe whose time is over
            child.signal_group(signal.SIGKILL)
            raise
        finally:
            os.close(readable)
        if problem:
            child.signal_group(signal.SIGKILL)
            await child.ended
            raise StartFailed(problem.decode(errors="replace"))
        return child

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if (started := self._kept.pop(pid, None)) is not None:
                started.returncode = code
            if (child := self._children.pop(pid, None)) is not None and not child.ended.done():
                child.ended.set_result(code if code >= 0 else 128 - code)


def _in_memory(value: Mapping[str, object]) -> int:
    """Return a descriptor of a file in memory that has a value as JSON:
    an argument could have 128 kB only.
    """
    descriptor = os.memfd_create("entry")
    with os.fdopen(descriptor, "w", closefd=False) as file:
        file.write(json.dumps(value))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _read_all(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while True:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _resolve, readable)
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)
        part = os.read(descriptor, 4096)
        if not part:
            return data
        data += part


def kill_marked(mark: str) -> int:
    """Kill every process of this user whose mark begins with ``mark``, or whose root is below that folder;
    return how many there were.

    It looks again until it finds nothing, because what it kills may have started another process meanwhile.
    """
    wanted, place = f"\0{MARK}={mark}".encode(), f"{os.path.realpath(mark.removesuffix(';'))}/"
    killed: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        found = [pid for pid in _processes() if _is_marked(Path(f"/proc/{pid}"), wanted, place)]
        _kill(found)
        if killed.issuperset(found):  # those of the round before may need a moment to be gone
            break
        killed.update(found)
    return len(killed)


def kill_descendants() -> None:
    """Kill everything that this process has started, also what it has adopted, because the agent ends."""
    for _ in range(_MOST_ROUNDS):
        parents = {pid: parent for pid in _processes() if (parent := _living_parent(pid))}
        found, level = set[int](), {os.getpid()}
        while level := {pid for pid, parent in parents.items() if parent in level} - found:
            found |= level
        if not found:
            return
        _kill(found)
        time.sleep(_ROUND_S)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]  # noqa: PTH208


def _is_marked(process: Path, wanted: bytes, place: str) -> bool:
    with contextlib.suppress(OSError):
        return wanted in b"\0" + (
            process / "environ"
        ).read_bytes() or f"{process.joinpath('root').readlink()}/".startswith(place)
    return False


def _living_parent(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    state, parent, *_ = stat_fields(pid) or ["Z", "0"]
    return 0 if state == "Z" else int(parent)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
