"""The service: requests in as bytes, answers out as bytes, failures as status codes.

The event loop only moves bytes. Reading a request, carrying it out and writing its answer happen together in
the engine's thread (`fluxqueue.fluxion.rpc.owner`), so a long match never delays health checks or new
connections. Refusals become statuses in `fluxqueue.fluxion.rpc.statuses`. An unexpected error is status
INTERNAL with one sentence; its traceback is in the service's log only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.rpc.failures import InvalidCall
from fluxqueue.fluxion.rpc.methods import METHODS
from fluxqueue.fluxion.rpc.metrics import FluxionMetrics
from fluxqueue.fluxion.rpc.owner import EngineOwner
from fluxqueue.fluxion.rpc.requests import SERVICE, Rpc
from fluxqueue.fluxion.rpc.statuses import Status, status_of

__all__ = ["FluxionService"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Done:
    rpc: Rpc[Any]
    answer: Any
    wire: bytes


class _Refused(Exception):
    """A refusal together with the call that it answers; None if the request could not be read."""

    def __init__(self, rpc: Rpc[Any] | None, error: FluxionError) -> None:
        super().__init__(str(error))
        self.rpc = rpc
        self.error = error


class FluxionService:
    """The RPCs of ``fluxion.FluxionService`` on one engine.

    A deadline may pass while a match is under way. Under an id of the caller's choosing a repeated call gets
    the same answer. A match under an id that the engine chose is undone, because nobody knows that id. One
    case is left: an answer may be on its way while its caller gives up. Only ids of the caller's choosing are
    safe then.

    Parameters
    ----------
    owner
        The engine's thread.
    metrics
        Where calls are counted.
    on_graph
        Called once in the event loop, after the first call that proves that a graph is loaded.
    """

    def __init__(
        self, owner: EngineOwner, metrics: FluxionMetrics, on_graph: Callable[[], Awaitable[None]]
    ) -> None:
        self._owner = owner
        self._metrics = metrics
        self._on_graph: Callable[[], Awaitable[None]] | None = on_graph

    def generic_handler(self) -> Any:
        """Return what a gRPC server registers."""
        methods = {
            name: grpc.unary_unary_rpc_method_handler(self._behaviour(rpc_type))
            for name, rpc_type in METHODS.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _behaviour(self, rpc_type: type[Rpc[Any]]) -> Callable[[bytes, Any], Awaitable[bytes]]:
        method = rpc_type.method

        def undo(engine: Engine, done: _Done) -> None:
            if done.rpc.can_undo:
                done.rpc.undo(engine, done.answer)
                log.info("fluxion.undone", method=method, reason="the caller left before its answer")

        async def behaviour(wire: bytes, context: Any) -> bytes:
            started = time.perf_counter()
            code = grpc.StatusCode.OK
            try:
                done = await self._owner.run(lambda engine: _carry_out(rpc_type, engine, wire), undo)
                remaining_s = context.time_remaining()
                if remaining_s is None or remaining_s > 0:
                    self._metrics.answered(done.rpc.verdicts(done.answer))
                    await self._graph_loaded()
                    return done.wire
                # not awaited: this call may be cancelled at any time now
                self._owner.submit(lambda engine: undo(engine, done))
                status = Status(
                    grpc.StatusCode.DEADLINE_EXCEEDED, f"{method} was answered after its deadline"
                )
                code = status.code
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                log.info("fluxion.caller_left", method=method, peer=context.peer())
                raise
            except _Refused as refused:
                status = status_of(refused.rpc, refused.error) or self._unexpected(method, refused.error)
                code = status.code
                self._log_refusal(method, status, context)
            except Exception as error:
                status = self._unexpected(method, error)
                code = status.code
            finally:
                self._metrics.called(method, code.name, time.perf_counter() - started)
            await context.abort(status.code, status.details, status.metadata)
            raise AssertionError("abort does not return")

        return behaviour

    async def _graph_loaded(self) -> None:
        on_graph, self._on_graph = self._on_graph, None
        if on_graph is not None:
            await on_graph()

    def _log_refusal(self, method: str, status: Status, context: Any) -> None:
        if status.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED):
            log.warning(
                "fluxion.refused",
                method=method,
                code=status.code.name,
                reason=status.details,
                peer=context.peer(),
            )

    def _unexpected(self, method: str, error: BaseException) -> Status:
        log.error("fluxion.failed", method=method, exc_info=error)
        return Status(
            grpc.StatusCode.INTERNAL,
            f"{method} met a state of the graph it did not expect; the service's log has the details",
        )


def _carry_out(rpc_type: type[Rpc[Any]], engine: Engine, wire: bytes) -> _Done:
    """Read a request, run it and write its answer, in the engine's thread."""
    rpc: Rpc[Any] | None = None
    try:
        rpc = rpc_type.read_request(rpc_type.request_type.FromString(wire))
        answer = rpc.run(engine)
        return _Done(rpc, answer, rpc.write_response(answer, engine.instance).SerializeToString())
    except DecodeError:
        name = rpc_type.request_type.DESCRIPTOR.full_name
        raise _Refused(None, InvalidCall(f"the request is no {name} message")) from None
    except FluxionError as error:
        raise _Refused(rpc, error) from error
