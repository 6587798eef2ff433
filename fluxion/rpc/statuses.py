"""How a refused call becomes a gRPC status, and how the client makes an exception of it again.

A failed gRPC call has a status code, a sentence and trailing metadata, but no body. A failure of a compatible
Match or Init is status UNKNOWN with the text of the Go service, whose clients check nothing else. Every other
refusal has a code: FAILED_PRECONDITION for a graph that is missing, a leader that was replaced or clocks that
are mixed, ABORTED for another instance, INVALID_ARGUMENT, NOT_FOUND. Several refusals share a code, so the
metadata name the refusal too (`ERROR_KEY`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

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
from fluxqueue.fluxion.rpc.compatible import INIT_FAILED, MATCH_FAILED, RPCS
from fluxqueue.fluxion.rpc.failures import (
    ERROR_KEY,
    REASON_KEY,
    REFUSALS,
    DeadlinePassed,
    FluxionUnavailable,
    InternalError,
    InvalidCall,
    MatchFailed,
    Unsupported,
)
from fluxqueue.fluxion.rpc.requests import Rpc

__all__ = ["Status", "failure_of", "status_of"]

_MAX_SENTENCE_BYTES = 2_000  # gRPC takes 8 KiB of metadata in all

_CODES: dict[type[FluxionError], grpc.StatusCode] = {
    ClockMixed: grpc.StatusCode.FAILED_PRECONDITION,
    InitError: grpc.StatusCode.INVALID_ARGUMENT,
    InvalidCall: grpc.StatusCode.INVALID_ARGUMENT,
    NotInitialised: grpc.StatusCode.FAILED_PRECONDITION,
    StaleEpoch: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownJob: grpc.StatusCode.NOT_FOUND,
    UnknownPath: grpc.StatusCode.NOT_FOUND,
    WrongInstance: grpc.StatusCode.ABORTED,
}
_NAME_OF = {refusal: name for name, refusal in REFUSALS.items()}


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a failed call on the wire."""

    code: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str], ...] = ()


def status_of(rpc: Rpc[Any] | None, error: FluxionError) -> Status | None:
    """Return the status that a refusal travels as.

    Parameters
    ----------
    rpc
        The refused call: those that the Go service knows fail with its words. None if the request could not
        be read.
    error
        Why it is refused.

    Returns
    -------
    Status or None
        None for an error that no call should end in.
    """
    reason = _sentence(str(error))
    match error:
        case MatchFailed():
            return Status(grpc.StatusCode.UNKNOWN, MATCH_FAILED, ((REASON_KEY, _header(error.reason)),))
        case InitError() if rpc is not None and rpc.compatible:
            return Status(grpc.StatusCode.UNKNOWN, INIT_FAILED, ((REASON_KEY, _header(reason)),))
    code = _CODES.get(type(error))
    return code and Status(code, reason, ((ERROR_KEY, _NAME_OF[type(error)]),))


def failure_of(
    rpc: Rpc[Any], target: str, code: grpc.StatusCode, details: str, metadata: Mapping[str, str]
) -> FluxionError:
    """Return the exception that a failed call means.

    Parameters
    ----------
    rpc
        The call.
    target
        Address of the server, for the message.
    code, details, metadata
        Status code, sentence and trailing metadata of the failed call.

    Returns
    -------
    FluxionError
        Of the class that the server named, else by status code.
    """
    method = rpc.method
    if refusal := REFUSALS.get(metadata.get(ERROR_KEY, "")):
        return refusal(details)
    match code:
        case grpc.StatusCode.UNIMPLEMENTED:
            known = ", ".join(compatible.method for compatible in RPCS)
            return Unsupported(f"the server at {target} lacks {method}: the Go service knows {known} only")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlinePassed(
                f"{method} got no answer from {target} in time; it may still be carried out"
            )
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return FluxionUnavailable(f"{method} got no answer from {target}: {details}")
        case grpc.StatusCode.UNKNOWN if failure := rpc.failure_of_unknown(
            target, details, metadata.get(REASON_KEY, "")
        ):
            return failure
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidCall(f"{method} is larger than {target} takes (the Go service: 4 MiB): {details}")
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidCall(details)
        case _:
            return InternalError(f"{method} failed at {target} with {code.name}: {details}")


def _sentence(text: str) -> str:
    encoded = text.encode("utf-8", "replace")
    return (
        text
        if len(encoded) <= _MAX_SENTENCE_BYTES
        else encoded[:_MAX_SENTENCE_BYTES].decode("utf-8", "ignore") + " ..."
    )


def _header(text: str) -> str:
    """Return a text as a metadata value, which holds printable ASCII only."""
    plain = _sentence(text).encode("ascii", "backslashreplace").decode("ascii")
    return "".join(character if character.isprintable() else " " for character in plain)[:_MAX_SENTENCE_BYTES]
