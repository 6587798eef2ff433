"""Exceptions of the engine, one narrow class for each way in which a call can be refused.

The extended calls answer with a verdict where the request itself was understood (busy, unsatisfiable, an
unreadable jobspec). They raise only what makes the call impossible. The compatible calls have no verdicts, so
there every failed match is a `MatchError`.
"""

from __future__ import annotations

import enum

__all__ = [
    "ClockMixed",
    "Errno",
    "FluxionError",
    "InitError",
    "MatchError",
    "NotInitialised",
    "StaleEpoch",
    "UnknownJob",
    "UnknownPath",
    "WrongInstance",
]


class Errno(enum.StrEnum):
    """Class of a failure, with the names of flux-sched's C interface."""

    EBUSY = "EBUSY"
    ENODEV = "ENODEV"
    EINVAL = "EINVAL"
    ENOENT = "ENOENT"


class FluxionError(Exception):
    """A call cannot be answered."""


class InitError(FluxionError):
    """The match policy or the graph cannot be used; the message names the key or the vertex."""


class NotInitialised(FluxionError):
    """There is no graph yet: call Init first."""


class StaleEpoch(FluxionError):
    """The call comes from a leader that has been replaced."""


class WrongInstance(FluxionError):
    """The call is for another instance of the graph, whose allocations are lost:
    Init again and Restore them.
    """


class ClockMixed(FluxionError):
    """A graph uses either the wall clock or a clock frozen at 0, and the call is for the other one."""


class UnknownJob(FluxionError):
    """The graph never had a job of that id."""


class UnknownPath(FluxionError):
    """No vertex has that containment path (or node name)."""


class MatchError(FluxionError):
    """A compatible match failed.

    Parameters
    ----------
    errno
        Class of the failure.
    reason
        One sentence.
    """

    def __init__(self, errno: Errno, reason: str) -> None:
        super().__init__(reason)
        self.errno = errno
        self.reason = reason
