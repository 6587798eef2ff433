"""What can be wrong with a call, as one narrow exception each.

Verdicts about a request that was understood (busy, unsatisfiable, an unreadable jobspec) are answers in the extended calls, not
exceptions. Raised is only what makes the call itself impossible. The compatible calls of the original know nothing but failure with a
class, so there every failed match is a `MatchError`.
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
    """Class of a failure, named as the original's C interface names it."""

    EBUSY = "EBUSY"
    ENODEV = "ENODEV"
    EINVAL = "EINVAL"
    ENOENT = "ENOENT"


class FluxionError(Exception):
    """A call that cannot be answered."""


class InitError(FluxionError):
    """The policy or the graph cannot be used; the message names the key or the vertex."""


class NotInitialised(FluxionError):
    """There is no graph yet: call Init first."""


class StaleEpoch(FluxionError):
    """The call comes from a leader that has been replaced."""


class WrongInstance(FluxionError):
    """The call is meant for another instance of the graph: its allocations are gone, Init and Restore them."""


class ClockMixed(FluxionError):
    """One graph lives either on the wall clock or at 0 for ever, and this call says otherwise."""


class UnknownJob(FluxionError):
    """No job of that id was ever in this graph."""


class UnknownPath(FluxionError):
    """No vertex has that containment path (or node name)."""


class MatchError(FluxionError):
    """A compatible match that failed.

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
