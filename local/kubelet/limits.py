"""Limits of cpu and memory by control groups, where this user may make them; elsewhere containers run without
limits, which is logged once.

There is one group for the agent, and below it one for each container with a limit. With version 1 each
controller has a hierarchy of its own; with version 2 there is one. Usually only root can write there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.api.quantities import parse_quantity

__all__ = ["ContainerGroup", "ControlGroups", "remove_groups"]

_MOUNT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1_000
_CONTROLLERS = ("cpu", "memory")


@dataclass(frozen=True)
class ContainerGroup:
    """The group of a container: a folder in each hierarchy."""

    folders: tuple[Path, ...] = ()

    def out_of_memory(self) -> bool:
        """True if the kernel has killed a process of it because its memory was used up."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError):
                    lines = dict(line.split(" ", 1) for line in (folder / name).read_text().splitlines())
                    if int(lines.get("oom_kill", "0")) > 0:
                        return True
        return False

    def remove(self) -> None:
        """Remove it; nothing runs in it any more."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


class ControlGroups:
    """The control groups of an agent.

    Parameters
    ----------
    agent
        The folder of the agent, which gives its group a name.
    mount
        Where control groups are mounted.

    Attributes
    ----------
    missing
        Why there are no limits; empty if there are.
    """

    def __init__(self, agent: Path, mount: Path = _MOUNT) -> None:
        self._name = _name(agent)
        self._unified = (mount / "cgroup.controllers").exists()
        self._parents = [mount] if self._unified else [mount / name for name in _CONTROLLERS]
        self.missing = ""
        try:
            self.remove()
            for parent in self._parents:
                if not (parent / "cgroup.procs").exists():
                    raise FileNotFoundError(f"{parent} is no hierarchy of control groups")
                self._pass_on(parent)
                (parent / self._name).mkdir()
                self._pass_on(parent / self._name)
        except OSError as error:
            self.missing = str(error)

    def make(self, container: str, limits: Mapping[str, str | int | float] | None) -> ContainerGroup:
        """Make the group of a container; an empty one if it has no limits, or if there are no groups."""
        cpu, memory = (
            parse_quantity(limits[name]) if limits and name in limits else None for name in _CONTROLLERS
        )
        if self.missing or (cpu is None and memory is None):
            return ContainerGroup()
        folders = tuple(parent / self._name / container for parent in self._parents)
        for folder in folders:
            folder.mkdir(exist_ok=True)
        quota = None if cpu is None else max(_LEAST_QUOTA_US, int(cpu * _PERIOD_US))
        for folder in folders:
            if quota is not None:
                _set(folder / "cpu.max", f"{quota} {_PERIOD_US}")
                _set(folder / "cpu.cfs_period_us", str(_PERIOD_US))
                _set(folder / "cpu.cfs_quota_us", str(quota))
            if memory is not None:
                _set(folder / "memory.max", str(int(memory)))
                _set(folder / "memory.limit_in_bytes", str(int(memory)))
                # as by the kubelet: what is over the limit is no longer in memory otherwise
                _set(folder / "memory.swap.max", "0")
                _set(folder / "memory.memsw.limit_in_bytes", str(int(memory)))
                _set(folder / "memory.oom.group", "1")
        return ContainerGroup(folders)

    def remove(self) -> None:
        """Remove all groups of the agent, in which nothing runs any more."""
        for parent in self._parents:
            _remove(parent / self._name)

    def _pass_on(self, group: Path) -> None:
        if self._unified:
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))


def remove_groups(agent: Path, mount: Path = _MOUNT, timeout_s: float = 2.0) -> None:
    """Remove the groups of an agent that was killed; what was killed in them may need a moment to be gone."""
    deadline = time.monotonic() + timeout_s
    tops = [parent / _name(agent) for parent in (mount, *(mount / name for name in _CONTROLLERS))]
    while left := [top for top in tops if top.exists()]:
        for top in left:
            _remove(top)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _name(agent: Path) -> str:
    return f"fluxqueue-local-{hashlib.sha256(str(agent).encode()).hexdigest()[:12]}"


def _remove(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _set(file: Path, text: str) -> None:
    """Write a setting if this version of control groups has it."""
    if file.exists():
        file.write_text(text)
