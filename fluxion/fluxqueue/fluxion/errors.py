"""How a call can fail, the same in process and over gRPC.

The engine raises those under `Refused`; the server turns each into its gRPC status code plus its ``code`` in the trailing metadata
``fluxion-error``, and the client turns that back into the same class. So a caller writes one ``except StaleEpoch`` whether the
matcher is in its process or behind a socket. What only a network can do is under `FluxionUnavailable`.

That a job does not fit is no error: new calls answer it with a verdict. Only the Go service's `Match` had no other way to say it.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "DeadlinePassed",
    "FluxionError",
    "FluxionUnavailable",
    "InitFailed",
    "InternalError",
    "InvalidCall",
    "MatchFailed",
    "MixedClocks",
    "NotInitialised",
    "Refused",
    "StaleEpoch",
    "UnknownJob",
    "Unsupported",
    "WrongInstance",
]


class FluxionError(Exception):
    """A call that brought no answer."""

    code: ClassVar[str] = ""


class Refused(FluxionError):
    """The service understood who calls and what for, and will not do it; the graph is as it was."""


class NotInitialised(Refused):
    """There is no graph yet: call Init first."""

    code = "not-initialised"


class StaleEpoch(Refused):
    """A leader with a later epoch has called: this caller leads no more."""

    code = "stale-epoch"


class WrongInstance(Refused):
    """The graph the caller knew is gone: Init and Restore, or read the new instance id."""

    code = "wrong-instance"


class MixedClocks(Refused):
    """One graph cannot have calls with ``now`` and calls without: either all of its times are Unix seconds or none."""

    code = "mixed-clocks"


class InvalidCall(Refused):
    """A field of the request makes no sense; the message names it."""

    code = "invalid-call"


class UnknownJob(Refused):
    """No such job in this graph."""

    code = "unknown-job"


class InitFailed(Refused):
    """Policy or graph cannot be read; the graph of before, if there was one, stays."""

    code = "init-failed"


class MatchFailed(Refused):
    """The compatible Match found nothing; ``reason`` says why, where the server tells (the Go service does not).

    Attributes
    ----------
    reason
        One sentence, empty from the Go service.
    """

    code = "match-failed"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Unsupported(FluxionError):
    """The server is one that lacks this call: the Go service knows Init, Match and Cancel only."""

    code = "unsupported"


class InternalError(FluxionError):
    """The service met a state it did not expect; its log says more."""

    code = "internal"


class FluxionUnavailable(FluxionError):
    """Nobody answered; whether the call was carried out is unknown unless it is idempotent."""

    code = "unavailable"


class DeadlinePassed(FluxionUnavailable):
    """No answer within the call's deadline; the service may still carry it out."""

    code = "deadline-passed"
