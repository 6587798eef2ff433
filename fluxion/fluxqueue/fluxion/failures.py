"""How a call to the service can fail beyond what the engine raises, and how failures travel.

A failed gRPC call has a status code, a sentence and trailing metadata, no body. Several refusals share a status code, so the server
adds the name of the refusal as `ERROR_KEY`, and the client raises the class of that name again: callers write one
``except StaleEpoch`` whether the matcher is in their process or behind a socket. `REASON_KEY` carries why a compatible Match failed,
which the Go service keeps to itself.
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
    """A field of the request makes no sense; the message names it."""


class MatchFailed(FluxionError):
    """A compatible Match found nothing, or could not read the jobspec.

    Attributes
    ----------
    reason
        One sentence; empty from the Go service, which does not say.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(f"{message}: {reason}" if reason else message)
        self.reason = reason


class Unsupported(FluxionError):
    """The server lacks this call: the Go service knows Init, Match and Cancel only."""


class InternalError(FluxionError):
    """The service met a state it did not expect (its log says more), or answered something unknown here."""


class FluxionUnavailable(FluxionError):
    """Nobody answered. Whether the call was carried out is unknown; only idempotent calls may simply be sent again."""


class DeadlinePassed(FluxionUnavailable):
    """No answer within the call's deadline; the service may still carry it out."""


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
"""Value of `ERROR_KEY` -> what it means. All of these leave the graph as it was."""
