"""What a run costs: CPU and memory of each program with its children, requests that the API server counted,
and what else ran.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.kube.transport import Api
from fluxqueue.local.processes import Process

__all__ = [
    "Cost",
    "MachineTime",
    "Writes",
    "idle_share",
    "measure",
    "own_cpu_s",
    "process_cpu_s",
    "pss_mib",
    "read_machine",
    "read_writes",
    "writes_in",
]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SERIES = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE", "APPLY"})
_NOT_OF_JOBS = frozenset({"leases", "nodes", "tokenreviews", "subjectaccessreviews", "serviceaccounts"})
"""What controllers write all the time, with Jobs or without."""


@dataclass(frozen=True)
class Writes:
    """Successful writes so far: of objects by ``VERB resource/subresource``, and of Events."""

    objects: Counter[str]
    events: int

    def since(self, before: Writes) -> Writes:
        """Return the writes after an earlier reading."""
        return Writes(self.objects - before.objects, self.events - before.events)


@dataclass(frozen=True)
class MachineTime:
    """CPU seconds of the whole machine since its start.

    Attributes
    ----------
    stolen_s
        Seconds in which programs could have run, but the host gave the processor to another machine.
    """

    idle_s: float
    total_s: float
    stolen_s: float = 0.0

    def busy_since(self, before: MachineTime) -> float:
        """Return the seconds that were not idle after an earlier reading; the stolen ones are among them."""
        return (self.total_s - before.total_s) - (self.idle_s - before.idle_s)


@dataclass(frozen=True)
class Cost:
    """A reading of all counters: CPU seconds by program, writes, and the time.

    Attributes
    ----------
    cpu_s
        Of each program with its children, also of those that have ended.
    writes
        See `Writes`.
    others_cpu_s
        Of everything on the machine that is neither a contender's program nor this process; only differences
        mean anything.
    stolen_s
        See `MachineTime`.
    at_s
        Monotonic time.
    """

    cpu_s: Mapping[str, float]
    writes: Writes
    others_cpu_s: float
    stolen_s: float
    at_s: float

    def since(self, before: Cost) -> Cost:
        """Return what was used after an earlier reading; ``at_s`` becomes the time between them."""
        cpu_s = {name: used - before.cpu_s.get(name, 0.0) for name, used in self.cpu_s.items()}
        others_s, stolen_s = self.others_cpu_s - before.others_cpu_s, self.stolen_s - before.stolen_s
        return Cost(cpu_s, self.writes.since(before.writes), others_s, stolen_s, self.at_s - before.at_s)


async def measure(api: Api, processes: Mapping[str, Process]) -> Cost:
    """Read all counters."""
    children = _children()
    cpu_s = {
        name: process_cpu_s(process.pid, children)
        for name, process in processes.items()
        if process.pid is not None
    }
    machine = read_machine()
    others_s = machine.total_s - machine.idle_s - machine.stolen_s - sum(cpu_s.values()) - own_cpu_s()
    return Cost(cpu_s, await read_writes(api), others_s, machine.stolen_s, time.monotonic())


async def read_writes(api: Api) -> Writes:
    """Return the writes that the API server counted so far."""
    return writes_in((await api.request("GET", "/metrics")).decode())


def writes_in(metrics: str) -> Writes:
    """Return the successful writes in the API server's metrics."""
    objects: Counter[str] = Counter()
    events = 0
    for found in _SERIES.finditer(metrics):
        labels = dict(_LABEL.findall(found["labels"]))
        verb, resource, count = labels.get("verb", ""), labels.get("resource", ""), int(float(found["value"]))
        if verb not in _WRITES or not labels.get("code", "").startswith("2") or resource in _NOT_OF_JOBS:
            continue
        if resource == "events":
            events += count
        else:
            objects[f"{verb} {'/'.join(filter(None, (resource, labels.get('subresource'))))}"] += count
    return Writes(objects, events)


def own_cpu_s() -> float:
    """Return the CPU seconds of this process, which is the client of all contenders."""
    return time.process_time()


def pss_mib(processes: Mapping[str, Process]) -> dict[str, float]:
    """Return the resident memory of each program with its children, in MiB;
    what processes share counts once (PSS).
    """
    children = _children()
    return {
        name: sum(map(_pss_kib, _family(process.pid, children))) / 1024
        for name, process in processes.items()
        if process.pid
    }


def read_machine() -> MachineTime:
    """Return the CPU time of the machine."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return MachineTime((ticks[3] + ticks[4]) * _TICK_S, sum(ticks) * _TICK_S, ticks[7] * _TICK_S)


def idle_share(before: MachineTime, after: MachineTime) -> float:
    """Return the share of the machine's CPU time that was idle between two readings."""
    total_s = after.total_s - before.total_s
    return 1 - after.busy_since(before) / total_s if total_s > 0 else 0.0


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            children[int(fields[1])].append(int(folder.name))
    return children


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name: the state is the first, the parent the second."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _family(pid: int | None, children: Mapping[int, Iterable[int]]) -> list[int]:
    family = [pid] if pid is not None else []
    for each in family:
        family += children.get(each, [])
    return family


def process_cpu_s(pid: int | None, children: Mapping[int, Iterable[int]]) -> float:
    """Return user and system time of a program, its children, and those that ended before.

    Parameters
    ----------
    pid
        Of the program; None, or one that has ended: 0.
    children
        The children of each process.
    """
    ticks = 0
    for each in _family(pid, children):
        if fields := _stat(each):
            ticks += sum(int(field) for field in fields[11:15])
    return ticks * _TICK_S


def _pss_kib(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
