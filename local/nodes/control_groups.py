"""Control groups of the machines: one group for all, one below it for each machine, in every hierarchy.

With version 1 each controller has a hierarchy of its own below ``/sys/fs/cgroup``; with version 2 there is
one, and a group must pass its controllers on to its children. The kubelet creates the groups of pods below
that of its machine.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fluxqueue.local.nodes.layout import CONTROL_GROUP

__all__ = ["find_hierarchies", "make_groups", "remove_groups"]

_MOUNT = Path("/sys/fs/cgroup")
_UNIFIED_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def find_hierarchies(mount: Path = _MOUNT) -> list[Path]:
    """Return the folders below which groups can be made:
    one with version 2, one per controller with version 1.
    """
    if (mount / "cgroup.controllers").exists():
        return [mount] if os.access(mount, os.W_OK) else []
    if not mount.is_dir():
        return []
    folders = {
        path.resolve()
        for path in mount.iterdir()
        if path.name != "unified" and (path / "cgroup.procs").exists()
    }
    return sorted(folder for folder in folders if os.access(folder, os.W_OK))


def make_groups(machine: str, mount: Path = _MOUNT) -> None:
    """Make the group of a machine in every hierarchy."""
    for hierarchy in find_hierarchies(mount):
        parent = hierarchy
        for name in (CONTROL_GROUP, machine):
            if (parent / "cgroup.controllers").exists():
                _pass_on_controllers(parent)
            group = parent / name
            group.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1: an empty set lets no process in
                if (group / setting).exists() and not (hierarchy / "cgroup.controllers").exists():
                    (group / setting).write_text((parent / setting).read_text())
            parent = group
        if (parent / "cgroup.controllers").exists():
            _pass_on_controllers(parent)


def remove_groups(mount: Path = _MOUNT) -> list[str]:
    """Remove the groups of all machines, which have no processes any more;
    return those that could not be removed.
    """
    left = []
    # with version 1, runc makes groups in both
    for hierarchy in (*find_hierarchies(mount), mount / "unified"):
        top = hierarchy / CONTROL_GROUP
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if top.exists():
            left.append(str(top))
    return left


def _pass_on_controllers(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in _UNIFIED_CONTROLLERS if name in available]
    (group / "cgroup.subtree_control").write_text(" ".join(wanted))
