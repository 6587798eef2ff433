"""Cores of their own for the queue and for Kubernetes, which share a machine in benchmarks."""

from __future__ import annotations

import contextlib
import os
from itertools import chain
from pathlib import Path

from fluxqueue.local.inprocess import InProcessCluster

__all__ = ["set_apart"]


def set_apart(cluster: InProcessCluster) -> None:
    """Give the queue's programs and Postgres one half of the cores, and those of Kubernetes the other."""
    cores = sorted(os.sched_getaffinity(0))
    theirs, ours = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    assert theirs, "one core cannot be divided"
    assert cluster.postgres.process is not None
    of_kubernetes = [process.pid for process in cluster.control_plane.processes.values()]
    of_queue = [program.process.pid for program in cluster.programs.values()]
    server = cluster.postgres.process.pid
    sessions = [int(each) for each in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    for pids, part in (([os.getpid(), *of_kubernetes], theirs), ([server, *sessions, *of_queue], ours)):
        for thread in chain.from_iterable(Path(f"/proc/{pid}/task").iterdir() for pid in pids):
            with contextlib.suppress(ProcessLookupError):  # a thread may end meanwhile
                os.sched_setaffinity(int(thread.name), part)
