"""Init, Match and Cancel: the three RPCs of the Go service, which has no others.

They answer and fail as the Go service does, so that its clients work unchanged. An Init with any of our
extensions (nodes, a call context) counts as a new call. The Go service gives no reason for a failed match.
Ours sends its reason in the trailing metadata.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from fluxqueue.fluxion.compat.requests import MatchRequestKind
from fluxqueue.fluxion.errors import FluxionError, InitError, MatchError, UnknownJob
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, MatchedAllocation, MatchVerdict
from fluxqueue.fluxion.rpc.failures import InvalidCall, MatchFailed, Unsupported
from fluxqueue.fluxion.rpc.requests import Rpc
from fluxqueue.fluxion.rpc.values import read_call, read_node, write_call, write_node
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["INIT_FAILED", "MATCH_FAILED", "RPCS", "CancelRpc", "InitRpc", "MatchRpc"]

MATCH_FAILED: Final = "[Fluxion] Error in ReapiCliMatchAllocate"
"""The only text with which the Go service (flux-sched 0.54) reports a failed match."""

INIT_FAILED: Final = "issue initializing resource api client -1"
"""The only text with which the Go service reports a policy or graph that it cannot use."""

_NO_CALL = CallContext()


@dataclass(frozen=True, slots=True)
class InitRpc(Rpc[str]):
    """Load a graph, from either JGF or nodes. Sent once: a second Init would drop what came after the first.

    Attributes
    ----------
    call
        None where the request carries no call context at all, as from a Go client.
    """

    method = "Init"
    request_type = pb.InitRequest
    response_type = pb.InitResponse

    policy: str
    jgf: str | None
    nodes: Sequence[GraphNodeSpec] | None
    call: CallContext | None = None

    def __post_init__(self) -> None:
        if (self.jgf is None) == (self.nodes is None):
            raise InvalidCall("Init takes the graph either as jgf or as nodes: give exactly one")

    @property
    def idempotent(self) -> bool:
        """False: see the class."""
        return False

    @property
    def compatible(self) -> bool:
        """True if the request uses no extension."""
        return self.nodes is None and self.call is None

    def write_request(self) -> pb.InitRequest:
        """Write the request; a compatible one is byte for byte that of the Go client."""
        request = pb.InitRequest(policy=self.policy, jgf=self.jgf or "")
        if self.call is not None:
            request.call.CopyFrom(write_call(self.call))
        if self.nodes is not None:
            request.nodes_given = True
            request.nodes.extend(write_node(node) for node in self.nodes)
        return request

    def read_response(self, message: pb.InitResponse) -> str:
        """Read the instance id; `Unsupported` if the server ignored the extensions,
        `InitError` if it failed without saying so by gRPC.
        """
        if message.status != pb.InitResponse.INIT_SUCCESS:
            raise InitError(f"{INIT_FAILED} (status {message.status})")
        if not self.compatible and not message.instance:
            raise Unsupported(
                "this server's Init knows neither nodes nor epochs: it answers without an instance id, "
                "as the Go service does"
            )
        return message.instance

    def failure_of_unknown(self, target: str, details: str, reason: str) -> FluxionError:
        """Return `InitError`, or `Unsupported` where a Go service was given nodes."""
        if self.nodes is not None:
            return Unsupported(
                f"the server at {target} cannot Init from nodes, the Go service takes a JGF only: {details}"
            )
        return InitError(reason or details)

    @classmethod
    def read_request(cls, message: pb.InitRequest) -> Self:
        """Read the request."""
        by_nodes = message.nodes_given or len(message.nodes) > 0
        if by_nodes and message.jgf:
            raise InvalidCall("Init has both jgf and nodes: describe the graph in one way")
        nodes = [read_node(node) for node in message.nodes] if by_nodes else None
        call = read_call(message.call) if message.HasField("call") else None
        return cls(message.policy, None if by_nodes else message.jgf, nodes, call)

    def run(self, engine: Engine) -> str:
        """Load the graph; return the instance id."""
        return engine.init(self.policy, jgf=self.jgf, nodes=self.nodes, call=self.call or _NO_CALL)

    def write_response(self, answer: str, instance: str) -> pb.InitResponse:
        """Write the instance id."""
        return pb.InitResponse(instance=answer)


@dataclass(frozen=True, slots=True)
class MatchRpc(Rpc[MatchedAllocation]):
    """Match as the Go service does.
    Never sent twice: each attempt may leave an allocation under an id that nobody knows.
    """

    method = "Match"
    request_type = pb.MatchRequest
    response_type = pb.MatchResponse
    can_undo = True

    jobspec: str
    reserve: bool = False

    @property
    def idempotent(self) -> bool:
        """False: see the class."""
        return False

    @property
    def compatible(self) -> bool:
        """True."""
        return True

    def write_request(self) -> pb.MatchRequest:
        """Write the request."""
        return pb.MatchRequest(jobspec=self.jobspec, reservation=self.reserve)

    def read_response(self, message: pb.MatchResponse) -> MatchedAllocation:
        """Read the allocation; `MatchFailed` if its status is a failure,
        which no Go service says in this way.
        """
        if message.status != pb.MatchResponse.MATCH_SUCCESS:
            raise MatchFailed(MATCH_FAILED)
        return MatchedAllocation(
            message.jobid, message.allocation, message.reserved, message.at, message.overhead
        )

    def failure_of_unknown(self, target: str, details: str, reason: str) -> FluxionError:
        """Return `MatchFailed`."""
        return MatchFailed(details, reason)

    @classmethod
    def read_request(cls, message: pb.MatchRequest) -> Self:
        """Read the request."""
        return cls(message.jobspec, message.reservation)

    def run(self, engine: Engine) -> MatchedAllocation:
        """Match, and write R.

        Raises
        ------
        MatchFailed
            With the text of the Go service, and the reason that it does not give.
        """
        kind = MatchRequestKind.ALLOCATE_ORELSE_RESERVE if self.reserve else MatchRequestKind.ALLOCATE
        started = time.perf_counter()
        try:
            match = engine.match(self.jobspec, kind)
        except MatchError as error:
            raise MatchFailed(MATCH_FAILED, error.reason) from None
        overhead_s = time.perf_counter() - started
        return MatchedAllocation(match.jobid, match.allocation(), match.reserved, match.at, overhead_s)

    def write_response(self, answer: MatchedAllocation, instance: str) -> pb.MatchResponse:
        """Write the allocation; its status reports success by being 0."""
        return pb.MatchResponse(
            allocation=answer.allocation,
            jobid=answer.jobid,
            reserved=answer.reserved,
            at=answer.at,
            overhead=answer.overhead_s,
        )

    def undo(self, engine: Engine, answer: MatchedAllocation) -> None:
        """Cancel the job, whose id the engine chose."""
        engine.cancel(answer.jobid)

    def verdicts(self, answer: MatchedAllocation) -> Iterable[str]:
        """Return RESERVED or GRANTED."""
        return (MatchVerdict.RESERVED.value if answer.reserved else MatchVerdict.GRANTED.value,)


@dataclass(frozen=True, slots=True)
class CancelRpc(Rpc[None]):
    """End a job; an unknown one is no error."""

    method = "Cancel"
    request_type = pb.CancelRequest
    response_type = pb.CancelResponse

    jobid: int

    @property
    def compatible(self) -> bool:
        """True."""
        return True

    def write_request(self) -> pb.CancelRequest:
        """Write the request."""
        return pb.CancelRequest(jobID=self.jobid)

    def read_response(self, message: pb.CancelResponse) -> None:
        """Read nothing."""

    def failure_of_unknown(self, target: str, details: str, reason: str) -> FluxionError:
        """Return `UnknownJob`."""
        return UnknownJob(
            f"{target} does not know the job to cancel (an old Go service calls that an error): {details}"
        )

    @classmethod
    def read_request(cls, message: pb.CancelRequest) -> Self:
        """Read the request."""
        return cls(message.jobID)

    def run(self, engine: Engine) -> None:
        """End the job."""
        engine.cancel(self.jobid, noent_ok=True)

    def write_response(self, answer: None, instance: str) -> pb.CancelResponse:
        """Write success."""
        return pb.CancelResponse()


RPCS: Final[tuple[type[Rpc[Any]], ...]] = (InitRpc, MatchRpc, CancelRpc)


def init_rpc(
    policy: str, jgf: str | None, nodes: Sequence[GraphNodeSpec] | None, call: CallContext
) -> InitRpc:
    """Return an Init that leaves the call context out where a Go client would."""
    return InitRpc(policy, jgf, nodes, None if nodes is None and call == CallContext() else call)
