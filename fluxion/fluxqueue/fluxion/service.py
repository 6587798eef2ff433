"""The service: requests in as bytes, answers out as bytes, failures as status codes.

The event loop only moves bytes. Reading a request, carrying it out and writing its answer happen together in the engine's thread
(`fluxqueue.fluxion.owner`), so a long match never holds up health checks or new connections.

A failure of a compatible Match or Init is status UNKNOWN with the words of the original, whose clients look for nothing else; the
reason is in the trailing metadata ``fluxion-reason``. Everything else has a code of its own: FAILED_PRECONDITION for a graph that is
missing, a leader that is replaced or clocks that are mixed, ABORTED for another instance, INVALID_ARGUMENT, NOT_FOUND. What nobody
expected is INTERNAL with one sentence, and its traceback is in our log only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from fluxqueue.fluxion.calls import SERVICE
from fluxqueue.fluxion.engine import Engine
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
from fluxqueue.fluxion.failures import ERROR_KEY, REASON_KEY, REFUSALS, InvalidCall, MatchFailed
from fluxqueue.fluxion.handlers import HANDLERS, Handler, is_compatible
from fluxqueue.fluxion.inprocess import MATCH_FAILED
from fluxqueue.fluxion.metrics import Metrics
from fluxqueue.fluxion.owner import EngineOwner

__all__ = ["INIT_FAILED", "FluxionService", "Status", "status_of"]

INIT_FAILED = "issue initializing resource api client -1"
"""All that the Go service says about a policy or graph that it cannot use."""

_LONGEST_SENTENCE = 2_000  # bytes; gRPC takes 8 KiB of metadata in all

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

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """How a call fails on the wire."""

    code: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Done:
    request: Message
    response: Message
    wire: bytes


class _Failed(Exception):
    """A refusal together with the request it answers."""

    def __init__(self, request: Message, error: FluxionError) -> None:
        super().__init__(str(error))
        self.request = request
        self.error = error


def status_of(method: str, request: Message, error: FluxionError) -> Status | None:
    """The status a refusal travels as.

    Parameters
    ----------
    method, request
        What was asked: the three calls of the Go service fail in its words.
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
        case InitError() if is_compatible(method, request):
            return Status(grpc.StatusCode.UNKNOWN, INIT_FAILED, ((REASON_KEY, _header(reason)),))
    code = _CODES.get(type(error))
    return code and Status(code, reason, ((ERROR_KEY, _NAME_OF[type(error)]),))


def _sentence(text: str) -> str:
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= _LONGEST_SENTENCE else encoded[:_LONGEST_SENTENCE].decode("utf-8", "ignore") + " ..."


def _header(text: str) -> str:
    """As a metadata value, which holds printable ASCII only."""
    plain = _sentence(text).encode("ascii", "backslashreplace").decode("ascii")
    return "".join(character if character.isprintable() else " " for character in plain)[:_LONGEST_SENTENCE]


class FluxionService:
    """The RPCs of ``fluxion.FluxionService`` on one engine.

    A deadline that passes while a match is under way does not lose track of it: under an id of the caller's a repeated call gets the
    same answer, and a match under an id that the service picked is undone, since nobody was told of it. What is left is an answer on its
    way at the very moment in which its caller gives up: only ids of the caller's are proof against that.

    Parameters
    ----------
    owner
        The engine's thread.
    metrics
        Where calls are counted.
    on_graph
        Called once in the event loop, when the first call has shown that there is a graph.
    """

    def __init__(self, owner: EngineOwner, metrics: Metrics, on_graph: Callable[[], Awaitable[None]]) -> None:
        self._owner = owner
        self._metrics = metrics
        self._on_graph: Callable[[], Awaitable[None]] | None = on_graph

    def generic_handler(self) -> Any:
        """What a gRPC server registers."""
        methods = {name: grpc.unary_unary_rpc_method_handler(self._behaviour(name, handler)) for name, handler in HANDLERS.items()}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _behaviour(self, method: str, handler: Handler) -> Callable[[bytes, Any], Awaitable[bytes]]:
        def work(engine: Engine, wire: bytes) -> _Done:
            try:
                request = handler.request.FromString(wire)
            except DecodeError:
                raise _Failed(handler.request(), InvalidCall(f"the request is no {handler.request.DESCRIPTOR.full_name} message")) from None
            try:
                response = handler.answer(engine, request)
            except FluxionError as error:
                raise _Failed(request, error) from error
            return _Done(request, response, response.SerializeToString())

        def undo(engine: Engine, done: _Done) -> None:
            if handler.undo is not None:
                handler.undo(engine, done.request, done.response)
                log.info("fluxion.undone", method=method, why="the caller was gone before its answer")

        async def behaviour(wire: bytes, context: Any) -> bytes:
            started = time.perf_counter()
            code = grpc.StatusCode.OK
            try:
                done = await self._owner.run(lambda engine: work(engine, wire), undo)
                remaining_s = context.time_remaining()
                if remaining_s is None or remaining_s > 0:
                    self._metrics.answered(method, done.response)
                    await self._graph_is_there()
                    return done.wire
                self._owner.submit(lambda engine: undo(engine, done))  # not awaited: we may be cancelled at any moment now
                status = Status(grpc.StatusCode.DEADLINE_EXCEEDED, f"{method} was answered after its deadline")
                code = status.code
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                log.info("fluxion.caller-gone", method=method, peer=context.peer())
                raise
            except _Failed as failed:
                status = status_of(method, failed.request, failed.error) or self._unexpected(method, failed.error)
                code = status.code
                self._refused(method, status, context)
            except Exception as error:
                status = self._unexpected(method, error)
                code = status.code
            finally:
                self._metrics.called(method, code.name, time.perf_counter() - started)
            await context.abort(status.code, status.details, status.metadata)
            raise AssertionError("abort does not return")

        return behaviour

    async def _graph_is_there(self) -> None:
        on_graph, self._on_graph = self._on_graph, None
        if on_graph is not None:
            await on_graph()

    def _refused(self, method: str, status: Status, context: Any) -> None:
        if status.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED):
            log.warning("fluxion.refused", method=method, code=status.code.name, reason=status.details, peer=context.peer())

    def _unexpected(self, method: str, error: BaseException) -> Status:
        log.error("fluxion.failed", method=method, exc_info=error)
        return Status(grpc.StatusCode.INTERNAL, f"{method} met a state of the graph it did not expect; the service's log has the details")
