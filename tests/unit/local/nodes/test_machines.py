"""Which machines are known to run; a process of the test stands for one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fluxqueue.local.nodes.layout import NodeLayout
from fluxqueue.local.nodes.machines import (
    MachineError,
    RunningMachine,
    end_machine,
    read_running,
    start_machine,
    write_running,
)


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_only_machines_whose_process_is_the_written_one_run(tmp_path: Path) -> None:
    layout, pid = NodeLayout(tmp_path), os.getpid()
    ours = RunningMachine(1, pid, started(pid), pid, started(pid))
    reused = RunningMachine(2, pid, started(pid) - 1, pid, started(pid) - 1)
    write_running(layout, [ours, reused])
    assert read_running(layout) == [ours]


@pytest.mark.parametrize("content", [None, b"", b"{", b'[{"number": 1}]'])
def test_without_a_readable_file_none_runs(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        NodeLayout(tmp_path).state.write_bytes(content)
    assert read_running(NodeLayout(tmp_path)) == []


def test_a_process_with_the_pid_of_an_ended_machine_is_not_ended() -> None:
    pid = os.getpid()
    end_machine(RunningMachine(1, pid, started(pid) - 1, pid, started(pid) - 1))


def test_a_machine_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "unshare"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with pytest.raises(
        MachineError, match="machine n1 did not start: unshare failed: Operation not permitted"
    ):
        start_machine(NodeLayout(tmp_path).machine(1), tmp_path, tmp_path)
