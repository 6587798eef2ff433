"""Failures of a call to the service, in addition to what the engine raises, and their names on the wire.

Several refusals share a gRPC status code. So the server adds the name of the refusal to the trailing metadata
(`ERROR_KEY`), and the client raises the class of that name again. Callers write one ``except StaleEpoch``
whether the matcher is in their process or behind a socket. `REASON_KEY` has the reason of a failed compatible
Match, which the Go service does not give.
"""

from __future__ import annotations

from typing import Final

from fluxqueue.fluxion.errors import (
    ClockMixed,
    FluxionError,
    InitError,
    NotInitialised,
    StaleEpoch,
    UnknownJob,
    UnknownPath,
    WrongInstance,
)

__all__ = [
    "ERROR_KEY",
    "REASON_KEY",
    "REFUSALS",
    "DeadlinePassed",
    "FluxionUnavailable",
    "InternalError",
    "InvalidCall",
    "MatchFailed",
    "Unsupported",
]

ERROR_KEY: Final = "fluxion-error"
REASON_KEY: Final = "fluxion-reason"


class InvalidCall(FluxionError):
    """A field of the request is invalid; the message names it."""


class MatchFailed(FluxionError):
    """A compatible Match did not fit, or its jobspec could not be read.

    Attributes
    ----------
    reason
        One sentence; empty from the Go service, which gives none.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(f"{message}: {reason}" if reason else message)
        self.reason = reason


class Unsupported(FluxionError):
    """The server lacks this call: the Go service knows Init, Match and Cancel only."""


class InternalError(FluxionError):
    """The service met an unexpected state (its log has the details), or its answer has an unknown value."""


class FluxionUnavailable(FluxionError):
    """No answer arrived.
    Whether the call was carried out is unknown; only idempotent calls may be sent again.
    """


class DeadlinePassed(FluxionUnavailable):
    """No answer arrived within the call's deadline; the service may still carry the call out."""


REFUSALS: Final[dict[str, type[FluxionError]]] = {
    "clock-mixed": ClockMixed,
    "init": InitError,
    "invalid-call": InvalidCall,
    "not-initialised": NotInitialised,
    "stale-epoch": StaleEpoch,
    "unknown-job": UnknownJob,
    "unknown-path": UnknownPath,
    "wrong-instance": WrongInstance,
}
"""Value of `ERROR_KEY` -> class of the refusal. All of these leave the graph as it was."""
