"""Machines: processes in namespaces of their own, started, found again and ended.

A machine is known by the pid and the start time of two processes: ``unshare``, which made the namespaces, and
process 1 inside. Both are written to a file, so that a later command finds them, and a process is ended only
if its start time is the written one. When process 1 ends, the kernel ends everything else in the machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fluxqueue.local.nodes.layout import Machine, NodeLayout
from fluxqueue.local.pki import write_private
from fluxqueue.local.processes import stat_fields, wait_until

__all__ = [
    "MachineError",
    "RunningMachine",
    "continue_program",
    "end_machine",
    "read_running",
    "run_inside",
    "start_machine",
    "stop_program",
    "write_running",
]

_NAMESPACES = (
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--net",
    "--uts",
    "--ipc",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
)
_INSIDE = ("-m", "-p", "-n", "-u", "-i")
_END_TIMEOUT_S = 30.0


class MachineError(RuntimeError):
    """A machine could not be started or ended, or a command inside it failed; the message says why."""


class RunningMachine(msgspec.Struct, frozen=True):
    """A machine that was started.

    Attributes
    ----------
    number
        Its number.
    pid, started
        Process 1, as seen from outside, and its start time in clock ticks after boot.
    parent, parent_started
        The same of ``unshare``.
    """

    number: int
    pid: int
    started: int
    parent: int
    parent_started: int

    @property
    def alive(self) -> bool:
        """True if it runs."""
        return _start_time(self.pid) == self.started


def read_running(layout: NodeLayout) -> list[RunningMachine]:
    """Return the machines of a cluster that run."""
    try:
        written = msgspec.json.decode(layout.state.read_bytes(), type=list[RunningMachine])
    except (FileNotFoundError, msgspec.DecodeError):
        return []
    return [machine for machine in written if machine.alive]


def write_running(layout: NodeLayout, machines: Sequence[RunningMachine]) -> None:
    """Write which machines run."""
    write_private(layout.state, msgspec.json.encode(list(machines)))


def start_machine(
    machine: Machine, programs: Path, plane: Path, first: Sequence[str | Path] = ()
) -> RunningMachine:
    """Start a machine; its configuration is written, and its network link is still missing.

    Parameters
    ----------
    machine
        The machine.
    programs
        Folder of the node's programs.
    plane
        Data folder of the control plane.
    first
        A command that runs beside the programs of the node.

    Raises
    ------
    MachineError
        Its namespaces cannot be made.
    """
    script = Path(__file__).with_name("machine.sh")
    log = machine.folder / "log" / "machine.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(machine.folder / "held", ignore_errors=True)
    command = [
        "unshare",
        *_NAMESPACES,
        "bash",
        script,
        machine.name,
        machine.address,
        machine.folder,
        programs,
        plane,
        *first,
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 10
    while not (found := _read(children).split()):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise MachineError(
                f"machine {machine.name} did not start: {_read(log).strip()[-400:] or f'see {log}'}"
            )
        time.sleep(0.02)
    pid = int(found[0])
    started, parent_started = _start_time(pid), _start_time(process.pid)
    process.returncode = 0  # it continues to run detached; this suppresses Popen's warning
    if started is None or parent_started is None:
        raise MachineError(
            f"machine {machine.name} ended at once: {_read(log).strip()[-400:] or f'see {log}'}"
        )
    return RunningMachine(machine.number, pid, started, process.pid, parent_started)


def end_machine(machine: RunningMachine) -> None:
    """End a machine and everything in it; no error if it does not run.

    Raises
    ------
    MachineError
        It does not end.
    """
    if machine.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(machine.pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_TIMEOUT_S
    while machine.alive or _start_time(machine.parent) == machine.parent_started:
        with contextlib.suppress(ChildProcessError):  # if this process started it, its end must be noticed
            os.waitpid(machine.parent, os.WNOHANG)
        if time.monotonic() > deadline:
            raise MachineError(f"machine n{machine.number} (process {machine.pid}) does not end")
        time.sleep(0.05)


def run_inside(
    machine: RunningMachine,
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a command inside a machine.

    Raises
    ------
    MachineError
        ``check`` is set and the command failed; with its error output.
    """
    done = subprocess.run(
        ["nsenter", "-t", str(machine.pid), *_INSIDE, "--", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=None if environment is None else {**os.environ, **environment},
    )
    if check and done.returncode != 0:
        raise MachineError(
            f"{' '.join(map(str, command))} on n{machine.number} ended with {done.returncode}: "
            f"{done.stderr.strip()[-600:]}"
        )
    return done


def stop_program(machine: RunningMachine, folder: Path, program: str) -> None:
    """Kill a program of a machine, and do not let it start again before `continue_program`."""
    held = folder / "held" / program
    held.parent.mkdir(exist_ok=True)
    held.touch()
    pid = _read(folder / "pids" / program).strip()
    run_inside(machine, "kill", "-KILL", pid)
    gone = ["kill", "-0", pid]
    wait_until(
        lambda: run_inside(machine, *gone, check=False).returncode != 0,
        f"the end of {program} on n{machine.number}",
        20,
    )


def continue_program(folder: Path, program: str) -> None:
    """Let a program of a machine start again."""
    (folder / "held" / program).unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks after boot;
    None if it ended (field 22 of proc(5), after the name).
    """
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] != "Z" else None
