"""Resident memory of the containers that run on the machines.

The proportional set size (PSS) is used: memory that processes share, such as the pages of a program that was
forked, is divided among them, so the sum over all processes is the memory that they use together (proc(5),
``smaps_rollup``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.local.nodes.layout import CONTROL_GROUP

__all__ = ["ContainerMemory", "container_memory"]

_GROUP = re.compile(rf"/{CONTROL_GROUP}/n\d+/kubepods/(?:\w+/)?pod[0-9a-f-]+/([0-9a-f]{{64}})")
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class ContainerMemory:
    """Memory of one container.

    Attributes
    ----------
    pss_mib
        Proportional set size of all its processes.
    processes
        How many there are.
    """

    pss_mib: float
    processes: int


def container_memory(proc: Path = Path("/proc")) -> Mapping[str, ContainerMemory]:
    """Return the memory of every container that a kubelet started, by the id of the container."""
    found: dict[str, ContainerMemory] = {}
    for folder in proc.glob("[0-9]*"):
        try:
            group = _GROUP.search((folder / "cgroup").read_text())
            pss = _PSS.search((folder / "smaps_rollup").read_text()) if group else None
        except OSError:  # it ended meanwhile
            continue
        if group and pss:
            known = found.get(group[1], ContainerMemory(0, 0))
            found[group[1]] = ContainerMemory(known.pss_mib + int(pss[1]) / 1024, known.processes + 1)
    return found
