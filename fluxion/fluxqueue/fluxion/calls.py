"""The service's calls as values: which message goes out, how its answer reads, and whether it may be sent twice.

Both clients, with and without asyncio, differ only in how they wait. What they send, what they make of an answer or of a failure, and
when a second attempt is harmless is decided here, without any I/O. A call is idempotent where carrying it out twice leaves the graph
and the answer as once: all that sets or restores, and matching if the caller picked the job ids (a granted id repeats its answer).
Giving back counts is not, and a match whose id the service picks would allocate twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from fluxqueue.fluxion import convert
from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.errors import FluxionError, InitError, UnknownJob
from fluxqueue.fluxion.failures import (
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
from fluxqueue.fluxion.messages import (
    Allocation,
    Applied,
    Call,
    JobInfo,
    JobRequest,
    MatchBatch,
    MatchResult,
    NodeShare,
    NodeSpec,
    RestoredJob,
    Stat,
)
from fluxqueue.proto.v1 import fluxion_pb2 as pb

__all__ = ["SERVICE", "Prepared", "failure"]

SERVICE = "fluxion.FluxionService"
_COMPATIBLE = ("Init", "Match", "Cancel")

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Prepared(Generic[Answer]):
    """One call, ready to be sent.

    Attributes
    ----------
    method
        Name of the RPC.
    request
        What goes out.
    response
        Class of the message that comes back.
    read
        Makes the answer of it.
    idempotent
        Whether it may be sent again when nobody answered.
    """

    method: str
    request: Message
    response: type[Message]
    read: Callable[[Any], Answer]
    idempotent: bool

    @property
    def path(self) -> str:
        """The RPC's path on the wire."""
        return f"/{SERVICE}/{self.method}"


# ---- the calls -------------------------------------------------------------------------------------------------------------------


def _checked(build: Callable[[], Message]) -> Message:
    """Build a message; what does not fit its fields is the caller's mistake."""
    try:
        return build()
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidCall(f"the request cannot be written as a message: {error}") from None


def init(policy: str, jgf: str | None, nodes: Sequence[NodeSpec] | None, call: Call) -> Prepared[str]:
    """Init; with neither nodes nor call it is byte for byte the Go client's. Sent once: a second would drop what came after the first."""
    if (jgf is None) == (nodes is None):
        raise InvalidCall("Init takes the graph either as jgf or as nodes: give exactly one")
    extended = nodes is not None or call != Call()

    def build() -> Message:
        request = pb.InitRequest(policy=policy, jgf=jgf or "")
        if extended:
            request.call.CopyFrom(convert.put_call(call))
        if nodes is not None:
            request.nodes_given = True
            request.nodes.extend(convert.put_node(node) for node in nodes)
        return request

    def read(message: pb.InitResponse) -> str:
        if extended and not message.instance:
            raise Unsupported(
                "this server's Init knows neither nodes nor epochs: it answers without an instance id, as the Go service does"
            )
        return message.instance

    return Prepared("Init", _checked(build), pb.InitResponse, read, idempotent=False)


def match(jobspec: str, reserve: bool) -> Prepared[Allocation]:
    """Match; never sent twice, since each attempt may leave an allocation under an id nobody knows."""
    request = _checked(lambda: pb.MatchRequest(jobspec=jobspec, reservation=reserve))
    return Prepared("Match", request, pb.MatchResponse, convert.get_allocation, idempotent=False)


def cancel(jobid: int) -> Prepared[None]:
    """Cancel."""
    return Prepared("Cancel", _checked(lambda: pb.CancelRequest(jobID=jobid)), pb.CancelResponse, lambda _: None, idempotent=True)


def match_batch(jobs: Sequence[JobRequest], call: Call, with_allocation: bool, stop_at_first_failure: bool) -> Prepared[MatchBatch]:
    """MatchBatch; idempotent where every job has an id of the caller's."""
    request = _checked(
        lambda: pb.MatchBatchRequest(
            call=convert.put_call(call),
            jobs=[convert.put_job_request(job) for job in jobs],
            with_allocation=with_allocation,
            stop_at_first_failure=stop_at_first_failure,
        )
    )
    return Prepared("MatchBatch", request, pb.MatchBatchResponse, convert.get_batch, idempotent=all(job.jobid for job in jobs))


def reserve_at(jobid: int, jobspec: str, start: int, nodes: Iterable[str], call: Call, policy: str = "") -> Prepared[MatchResult]:
    """ReserveAt."""
    request = _checked(
        lambda: pb.ReserveAtRequest(
            call=convert.put_call(call), jobid=jobid, jobspec=jobspec, start=start, nodes=tuple(nodes), policy=policy
        )
    )
    return Prepared("ReserveAt", request, pb.MatchResult, convert.get_result, idempotent=jobid != 0)


def satisfy(jobspec: str, call: Call) -> Prepared[MatchResult]:
    """Satisfy."""
    request = _checked(lambda: pb.SatisfyRequest(call=convert.put_call(call), jobspec=jobspec))
    return Prepared("Satisfy", request, pb.MatchResult, convert.get_result, idempotent=True)


def info(jobid: int, call: Call) -> Prepared[JobInfo]:
    """Info."""
    request = _checked(lambda: pb.InfoRequest(call=convert.put_call(call), jobid=jobid))
    return Prepared("Info", request, pb.JobInfo, convert.get_info, idempotent=True)


def list_jobs(call: Call, with_shares: bool) -> Prepared[tuple[JobInfo, ...]]:
    """List."""
    request = _checked(lambda: pb.ListRequest(call=convert.put_call(call), with_shares=with_shares))

    def read(message: pb.ListResponse) -> tuple[JobInfo, ...]:
        return tuple(convert.get_info(job) for job in message.jobs)

    return Prepared("List", request, pb.ListResponse, read, idempotent=True)


def cancel_many(jobids: Iterable[int], call: Call) -> Prepared[tuple[tuple[int, ...], tuple[int, ...]]]:
    """CancelMany; sent again it may call unknown what the first attempt ended."""
    request = _checked(lambda: convert.put_cancel_many(CancelJobs(tuple(jobids)), convert.put_call(call)))

    def read(message: pb.CancelManyResponse) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(message.cancelled), tuple(message.unknown)

    return Prepared("CancelMany", request, pb.CancelManyResponse, read, idempotent=True)


def partial_cancel(jobid: int, shares: Iterable[NodeShare], paths: Iterable[str], call: Call) -> Prepared[Applied]:
    """PartialCancel; twice would give back twice."""
    change = CancelPart(jobid, tuple(shares), tuple(paths))
    request = _checked(lambda: convert.put_partial_cancel(change, convert.put_call(call)))
    return Prepared("PartialCancel", request, pb.ChangeResponse, convert.get_applied, idempotent=False)


def restore(jobs: Iterable[RestoredJob], call: Call) -> Prepared[Applied]:
    """Restore."""
    request = _checked(lambda: convert.put_restore(RestoreJobs(tuple(jobs)), convert.put_call(call)))
    return Prepared("Restore", request, pb.ChangeResponse, convert.get_applied, idempotent=True)


def resize(shares: Iterable[NodeShare], call: Call) -> Prepared[Applied]:
    """Resize."""
    request = _checked(lambda: convert.put_resize(ResizeSystem(tuple(shares)), convert.put_call(call)))
    return Prepared("Resize", request, pb.ResizeResponse, convert.get_applied, idempotent=True)


def extend(jobid: int, end: int, call: Call) -> Prepared[Applied]:
    """Extend; sent again it may not name what the first attempt displaced, so it is not."""
    request = _checked(lambda: convert.put_extend(ExtendJob(jobid, end), convert.put_call(call)))
    return Prepared("Extend", request, pb.ExtendResponse, convert.get_applied, idempotent=False)


def apply(changes: Sequence[Change], call: Call) -> Prepared[Applied]:
    """Apply; idempotent where every change is."""
    request = _checked(lambda: convert.put_apply(changes, convert.put_call(call)))
    once_only = (CancelPart, ExtendJob, RemoveNodes)
    idempotent = not any(isinstance(change, once_only) for change in changes)
    return Prepared("Apply", request, pb.ApplyResponse, convert.get_apply_response, idempotent)


def add_nodes(nodes: Iterable[NodeSpec], call: Call) -> Prepared[Applied]:
    """AddNodes."""
    request = _checked(lambda: convert.put_add_nodes(AddNodes(tuple(nodes)), convert.put_call(call)))
    return Prepared("AddNodes", request, pb.ChangeResponse, convert.get_applied, idempotent=True)


def remove_nodes(nodes: Iterable[str], call: Call) -> Prepared[Applied]:
    """RemoveNodes; a second attempt could find the nodes gone and say so."""
    request = _checked(lambda: convert.put_remove_nodes(RemoveNodes(tuple(nodes)), convert.put_call(call)))
    return Prepared("RemoveNodes", request, pb.ChangeResponse, convert.get_applied, idempotent=False)


def set_status(up: Mapping[str, bool], call: Call) -> Prepared[Applied]:
    """SetStatus."""
    request = _checked(lambda: convert.put_set_status(SetNodeStatus(up), convert.put_call(call)))
    return Prepared("SetStatus", request, pb.ChangeResponse, convert.get_applied, idempotent=True)


def set_properties(nodes: Mapping[str, Mapping[str, str]], call: Call) -> Prepared[Applied]:
    """SetProperties."""
    request = _checked(lambda: convert.put_set_properties(SetProperties(nodes), convert.put_call(call)))
    return Prepared("SetProperties", request, pb.ChangeResponse, convert.get_applied, idempotent=True)


def stat(call: Call, per_node: bool) -> Prepared[Stat]:
    """Stat."""
    request = _checked(lambda: pb.StatRequest(call=convert.put_call(call), per_node=per_node))
    return Prepared("Stat", request, pb.StatResponse, convert.get_stat, idempotent=True)


# ---- failures --------------------------------------------------------------------------------------------------------------------


def failure(prepared: Prepared[Any], target: str, code: grpc.StatusCode, details: str, metadata: Mapping[str, str]) -> FluxionError:
    """What a failed call means.

    Parameters
    ----------
    prepared
        The call.
    target
        Address of the server, for the message.
    code, details, metadata
        Status code, sentence and trailing metadata of the failed call.

    Returns
    -------
    FluxionError
        To be raised: of the class that the server named, else by status code.
    """
    method = prepared.method
    if refusal := REFUSALS.get(metadata.get(ERROR_KEY, "")):
        return refusal(details)
    match code:
        case grpc.StatusCode.UNIMPLEMENTED:
            return Unsupported(f"the server at {target} lacks {method}: the Go service knows {', '.join(_COMPATIBLE)} only")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlinePassed(f"{method} got no answer from {target} in time; it may still be carried out")
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return FluxionUnavailable(f"{method} got no answer from {target}: {details}")
        case grpc.StatusCode.UNKNOWN if method == "Match":
            return MatchFailed(details, metadata.get(REASON_KEY, ""))
        case grpc.StatusCode.UNKNOWN if method == "Init":
            if isinstance(prepared.request, pb.InitRequest) and prepared.request.nodes_given:
                return Unsupported(f"the server at {target} cannot Init from nodes, the Go service takes a JGF only: {details}")
            return InitError(metadata.get(REASON_KEY) or details)
        case grpc.StatusCode.UNKNOWN if method == "Cancel":
            return UnknownJob(f"{target} does not know the job to cancel (an old Go service calls that an error): {details}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidCall(f"{method} is larger than {target} takes (the Go service: 4 MiB): {details}")
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidCall(details)
        case _:
            return InternalError(f"{method} failed at {target} with {code.name}: {details}")
