"""A stand-in for the Go container's Fluxion service: three calls, and the accidents of the original.

Its matcher is the compatible part of our engine, which replays the recorded cases of flux-sched. Around it is
what the Go code does: errors without a cause, one text for busy and impossible, an end of the process at a
Match before the first Init, messages of at most 4 MiB, job ids that begin again with each Init, and cancelled
jobs that are unknown to old versions. `Fault` adds what must never lead to a double booking.

    python -m tests.support.foreign_standin PORT [--version 0.41|0.46|0.54]
"""

from __future__ import annotations

import argparse
import asyncio
import enum
import json
from typing import Any

import grpc
import grpc.aio

from fluxqueue.fluxion.compat.requests import MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import Errno, InitError, MatchError, UnknownJob
from fluxqueue.proto.v1 import fluxion_pb2 as pb

__all__ = ["Fault", "ForeignStandin"]

_LIMIT = 4 * 2**20
_NAMED = '", "load_format": "jgf'


class Fault(enum.Enum):
    """What goes wrong with the next Match, beyond what the original does at any time."""

    NONE = "none"
    SAME_AGAIN = "same again"  # the allocation of the match before, under a new id
    OLD_ID = "old id"
    LATER = "later"
    RUBBISH = "rubbish"
    ELSEWHERE = "elsewhere"  # a node that the graph has not
    SILENCE = "silence"  # it is carried out, and no answer comes
    END = "end"  # the process ends
    NOTHING = "nothing"
    STATUS = "status"  # a failure by status alone, without a gRPC error


class ForeignStandin:
    """A server on a port of the loopback interface.

    Parameters
    ----------
    version
        Of the flux-sched that it behaves as.

    Attributes
    ----------
    calls
        Names of the calls that were carried out, in order.
    graphs
        The JGF of each Init.
    jobspecs
        The jobspec of each Match.
    fault
        Of the next matches; ``faults`` limits to how many.
    most_at_once
        Most calls that were under way at the same time; the original guards its matcher by no lock.
    """

    def __init__(self, version: str = "0.54") -> None:
        self.version = version
        self.calls: list[str] = []
        self.graphs: list[dict[str, Any]] = []
        self.jobspecs: list[dict[str, Any]] = []
        self.fault = Fault.NONE
        self.faults = 1_000_000
        self.most_at_once = 0
        self.ends = 0
        self.port = 0
        self._at_once = 0
        self._engine: Engine | None = None
        self._last = pb.MatchResponse()
        self._server: grpc.aio.Server | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def held(self) -> int:
        """Number of the jobs that its graph has."""
        return len(self._engine.state.jobs) if self._engine is not None else 0

    async def start(self, port: int = 0) -> None:
        """Serve, with the port of before if it served already; its graph is empty."""
        self._engine = None
        server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", _LIMIT), ("grpc.so_reuseport", 0)]
        )
        handlers = {
            "Init": grpc.unary_unary_rpc_method_handler(
                self._init, pb.InitRequest.FromString, pb.InitResponse.SerializeToString
            ),
            "Match": grpc.unary_unary_rpc_method_handler(
                self._match, pb.MatchRequest.FromString, pb.MatchResponse.SerializeToString
            ),
            "Cancel": grpc.unary_unary_rpc_method_handler(
                self._cancel, pb.CancelRequest.FromString, pb.CancelResponse.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("fluxion.FluxionService", handlers),)
        )
        self.port = server.add_insecure_port(f"127.0.0.1:{port or self.port}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End as a process does: connections are lost, and everything is forgotten."""
        server, self._server, self._engine = self._server, None, None
        if server is not None:
            await server.stop(None)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _init(self, request: pb.InitRequest, context: Any) -> pb.InitResponse:
        self.calls.append("Init")
        named = _NAMED in request.policy
        policy = request.policy.replace(_NAMED, "")
        engine = Engine()
        try:
            if not request.jgf or (self.version > "0.46" and not named):
                raise InitError("no JGF")  # flux-sched 0.47 reads another format unless it is named
            engine.init(policy, jgf=request.jgf)
        except InitError:
            await context.abort(grpc.StatusCode.UNKNOWN, "issue initializing resource api client -1")
        self._engine = engine
        self.graphs.append(json.loads(request.jgf))
        return pb.InitResponse()

    async def _match(self, request: pb.MatchRequest, context: Any) -> pb.MatchResponse:
        self.calls.append("Match")
        fault = self._next_fault()
        if self._engine is None or fault is Fault.END:  # a nil pointer in Go
            ended: pb.MatchResponse = await self._end(context)
            return ended
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0)
            return await self._carry_out(request, context, fault)
        finally:
            self._at_once -= 1

    def _next_fault(self) -> Fault:
        if self.faults <= 0:
            return Fault.NONE
        self.faults -= 1
        return self.fault

    async def _carry_out(self, request: pb.MatchRequest, context: Any, fault: Fault) -> pb.MatchResponse:
        assert self._engine is not None
        self.jobspecs.append(json.loads(request.jobspec))
        kind = MatchRequestKind.ALLOCATE_ORELSE_RESERVE if request.reservation else MatchRequestKind.ALLOCATE
        try:
            if fault is Fault.NOTHING:
                raise MatchError(Errno.EBUSY, "")
            match = self._engine.match(request.jobspec, kind)
        except MatchError:
            text = (
                "Allocation was not possible"
                if self.version < "0.42"
                else "[Fluxion] Error in ReapiCliMatchAllocate"
            )
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        answer = pb.MatchResponse(
            allocation=match.allocation(),
            jobid=match.jobid,
            reserved=match.reserved,
            at=match.at,
            overhead=0.001,
        )
        before, self._last = self._last, answer
        match fault:
            case Fault.SAME_AGAIN if before.allocation:
                return pb.MatchResponse(allocation=before.allocation, jobid=answer.jobid)
            case Fault.OLD_ID:
                return pb.MatchResponse(allocation=answer.allocation, jobid=1)
            case Fault.LATER:
                return pb.MatchResponse(
                    allocation=answer.allocation, jobid=answer.jobid, reserved=True, at=3_600
                )
            case Fault.RUBBISH:
                return pb.MatchResponse(allocation='{"graph": {}}', jobid=answer.jobid)
            case Fault.ELSEWHERE:
                return pb.MatchResponse(
                    allocation=answer.allocation.replace("/cluster0/", "/cluster0/not-"), jobid=answer.jobid
                )
            case Fault.SILENCE:
                await asyncio.sleep(120)
            case Fault.STATUS:
                return pb.MatchResponse(status=pb.MatchResponse.MATCH_ERROR)
        return answer

    async def _cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        self.calls.append("Cancel")
        if self._engine is None:
            await self._end(context)
        assert self._engine is not None
        try:
            self._engine.cancel(request.jobID, noent_ok=self.version >= "0.46")
        except UnknownJob:
            await context.abort(grpc.StatusCode.UNKNOWN, "issue resource api client cancel -1")
        return pb.CancelResponse()

    async def _end(self, context: Any) -> Any:
        """A panic: the process ends, and the kubelet starts it again."""
        self.ends += 1
        self._engine = None
        await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset by peer")


async def _serve(port: int, version: str) -> None:
    standin = ForeignStandin(version)
    await standin.start(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A Fluxion service with the three calls of the original.")
    parser.add_argument("port", type=int)
    parser.add_argument("--version", default="0.54")
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.port, arguments.version))
