"""Named places between two effects, where a fault test ends the process as ``kill -9`` would.

Each effect of the queue (a commit, a call of Fluxion, a write to the API server) is followed by another one, and the process may die
between any two of them. Those places have names here, so that a test can die at exactly one of them, under load, and see that nothing is
lost. What is not armed costs a function call that returns.

Armed through the environment variable ``FLUXQUEUE_CRASH_POINTS``: it names a file, and while that file says ``POINT N``, the N-th time
the point is reached from then on the process removes the file, so that its next life lives, and kills itself. The file may come and go
while the process runs. Without the variable, which nobody sets but tests, no file is ever looked at.
"""

from __future__ import annotations

import enum
import os
import signal
from pathlib import Path

__all__ = ["VARIABLE", "Point", "reach"]

VARIABLE = "FLUXQUEUE_CRASH_POINTS"


class Point(enum.StrEnum):
    """What has just been done, and what not yet."""

    LED = "epoch-raised-before-load"
    LOADED = "loaded-before-anything-is-looked-at"
    TAKEN_IN = "workloads-stored-before-cycle-asked"
    ENDED_WAITING = "waiting-ended-before-cycle-asked"
    MATCHED = "matched-before-grant-stored"
    GRANTED = "grant-stored-before-release-asked"
    RESERVED = "reserved-before-plan-stored"
    EXTENDED = "extended-before-end-stored"
    CLAIMED = "release-claimed-before-patch"
    RELEASED = "release-patched-before-noted"
    EDITED = "edited-put-back-before-reread"
    PLACED = "slots-taken-before-pods-let-go"
    UNGATED = "one-pod-let-go-before-the-next"
    SLOTS_ENDED = "slots-ended-before-workload"
    FINISHED = "workload-ended-before-cycle-asked"
    FREED = "freed-before-fluxion-cancel"
    GIVEN_BACK = "fluxion-cancelled-before-next-match"
    GRAPH_EMPTY = "graph-begun-before-restore"
    GRAPH_FILLED = "graph-restored-before-cycle"
    FLUXJOB_DUE = "workload-known-before-fluxjob-created"
    FLUXJOB_MADE = "fluxjob-created-before-status"
    TAKEN_BACK = "take-back-stored-before-suspend"
    CLEARED = "job-cleared-before-put-back"
    PUT_BACK = "put-back-before-reread"
    CANCELLED = "cancelled-in-cluster-before-end-stored"
    MINICLUSTER_MADE = "minicluster-objects-made-before-job"
    PREPARED = "broker-configuration-written-before-release"
    SWEPT = "graph-compared-before-counts"


class _Armed:
    """What the file says, and how often its point was reached since it said so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said = ""
        self._reached = 0

    def reach(self, point: Point) -> None:
        try:
            said = self._path.read_text()
        except FileNotFoundError:
            return
        if said != self._said:
            self._said, self._reached = said, 0
        name, _, number = said.strip().partition(" ")
        if name != point:
            return
        self._reached += 1
        if self._reached >= int(number or 1):
            self._path.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)


_armed = _Armed(Path(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else None


def reach(point: Point) -> None:
    """Say that a point is reached; returns, unless a test wants the process to end here."""
    if _armed is not None:
        _armed.reach(point)
