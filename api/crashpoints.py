"""Crash points: named positions between two effects at which a fault test kills the process, as ``kill -9``
would.

A program has effects in sequence (a commit, a call of Fluxion, a write to the API server), and it may die
between any two of them. Each program names these positions in its own module ``crashpoints``. A test can kill
the program at exactly one of them, under load, and check that nothing is lost. A point that is not armed
costs one function call.

The environment variable ``FLUXQUEUE_CRASH_POINTS`` names a file. While the file contains ``POINT N``, the
process counts how often it reaches that point. At the N-th time it deletes the file, so that the restarted
process survives, and kills itself. The file may appear and disappear while the process runs. Only tests set
the variable; without it, no file is read.
"""

from __future__ import annotations

import enum
import os
import signal
from pathlib import Path

__all__ = ["VARIABLE", "reach"]

VARIABLE = "FLUXQUEUE_CRASH_POINTS"


class _ArmedPoint:
    """The point that the file names, and how often it was reached since the file was written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._reached = 0

    def reach(self, point: enum.StrEnum) -> None:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return
        if text != self._text:
            self._text, self._reached = text, 0
        name, _, number = text.strip().partition(" ")
        if name != point:
            return
        self._reached += 1
        if self._reached >= int(number or 1):
            self._path.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)


_armed = _ArmedPoint(Path(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else None


def reach(point: enum.StrEnum) -> None:
    """Mark that the program reaches a point; kill the process if a test has armed it."""
    if _armed is not None:
        _armed.reach(point)
