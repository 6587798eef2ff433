"""What each RPC does: read its message, ask the engine, write the answer.

One function per RPC, run in the engine's thread, and one table that names them all. Init, Match and Cancel answer as the Go service
does; an Init that uses any of our extensions counts as a new call. A `Handler` may know how to undo an answer that never reached
its caller: a match under an id of the service's own choosing would otherwise stay in the graph unknown to anybody. Where the caller
chose the id nothing is undone, for the repeated call gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from fluxqueue.fluxion import convert
from fluxqueue.fluxion.engine import Engine
from fluxqueue.fluxion.failures import InvalidCall
from fluxqueue.fluxion.inprocess import compatible_match
from fluxqueue.fluxion.messages import Call
from fluxqueue.proto.v1 import fluxion_pb2 as pb

__all__ = ["HANDLERS", "Handler", "is_compatible"]


@dataclass(frozen=True, slots=True)
class Handler:
    """How one RPC is carried out.

    Attributes
    ----------
    request
        Class of the message that comes in.
    answer
        Carries it out on the engine.
    undo
        Takes an answer back that could not be delivered; None where repeating or ignoring it is harmless.
    """

    request: type[Message]
    answer: Callable[[Engine, Any], Message]
    undo: Callable[[Engine, Any, Any], None] | None = None


def is_compatible(method: str, request: Message | None) -> bool:
    """Whether a request is one that the Go service knows, and so must fail in its words."""
    if method == "Init":
        return not (isinstance(request, pb.InitRequest) and (request.nodes_given or request.nodes or request.HasField("call")))
    return method in ("Match", "Cancel")


# ---- as in the Go service ------------------------------------------------------------------------------------------------------


def _init(engine: Engine, request: pb.InitRequest) -> Message:
    by_nodes = request.nodes_given or len(request.nodes) > 0
    if by_nodes and request.jgf:
        raise InvalidCall("Init has both jgf and nodes: describe the graph in one way")
    nodes = [convert.get_node(node) for node in request.nodes] if by_nodes else None
    instance = engine.init(request.policy, jgf=None if by_nodes else request.jgf, nodes=nodes, call=_call(request))
    return pb.InitResponse(instance=instance)


def _match(engine: Engine, request: pb.MatchRequest) -> Message:
    return convert.put_allocation(compatible_match(engine, request.jobspec, request.reservation))


def _undo_match(engine: Engine, _: pb.MatchRequest, response: pb.MatchResponse) -> None:
    engine.cancel(response.jobid)


def _cancel(engine: Engine, request: pb.CancelRequest) -> Message:
    engine.cancel(request.jobID, noent_ok=True)
    return pb.CancelResponse()


# ---- matching ------------------------------------------------------------------------------------------------------------------


def _match_batch(engine: Engine, request: pb.MatchBatchRequest) -> Message:
    batch = engine.match_batch(
        [convert.get_job_request(job) for job in request.jobs],
        _call(request),
        with_allocation=request.with_allocation,
        stop_at_first_failure=request.stop_at_first_failure,
    )
    return convert.put_batch(batch)


def _undo_match_batch(engine: Engine, request: pb.MatchBatchRequest, response: pb.MatchBatchResponse) -> None:
    answers = zip(request.jobs, response.results, strict=False)
    unknown = [result.jobid for job, result in answers if not job.jobid and result.verdict in (pb.GRANTED, pb.RESERVED)]
    if unknown:
        engine.cancel_many(unknown)


def _reserve_at(engine: Engine, request: pb.ReserveAtRequest) -> Message:
    return convert.put_result(
        engine.reserve_at(request.jobid, request.jobspec, request.start, tuple(request.nodes), _call(request), request.policy)
    )


def _undo_reserve_at(engine: Engine, request: pb.ReserveAtRequest, response: pb.MatchResult) -> None:
    if not request.jobid and response.verdict in (pb.GRANTED, pb.RESERVED):
        engine.cancel_many([response.jobid])


def _satisfy(engine: Engine, request: pb.SatisfyRequest) -> Message:
    return convert.put_result(engine.satisfy(request.jobspec, _call(request)))


# ---- jobs ----------------------------------------------------------------------------------------------------------------------


def _info(engine: Engine, request: pb.InfoRequest) -> Message:
    return convert.put_info(engine.job_info(request.jobid, _call(request)))


def _list(engine: Engine, request: pb.ListRequest) -> Message:
    jobs = engine.list_jobs(_call(request), request.with_shares)
    return pb.ListResponse(jobs=[convert.put_info(job) for job in jobs], instance=engine.instance)


def _cancel_many(engine: Engine, request: pb.CancelManyRequest) -> Message:
    cancelled, unknown = engine.cancel_many(tuple(request.jobids), _call(request))
    return pb.CancelManyResponse(cancelled=cancelled, unknown=unknown, instance=engine.instance)


def _partial_cancel(engine: Engine, request: pb.PartialCancelRequest) -> Message:
    change = convert.get_partial_cancel(request)
    return convert.put_change_response(engine.partial_cancel(change.jobid, change.shares, change.paths, _call(request)))


def _restore(engine: Engine, request: pb.RestoreRequest) -> Message:
    return convert.put_change_response(engine.restore(convert.get_restore(request).jobs, _call(request)))


def _resize(engine: Engine, request: pb.ResizeRequest) -> Message:
    return convert.put_resize_response(engine.resize(convert.get_resize(request).shares, _call(request)))


def _extend(engine: Engine, request: pb.ExtendRequest) -> Message:
    return convert.put_extend_response(engine.extend(request.jobid, request.end, _call(request)))


def _apply(engine: Engine, request: pb.ApplyRequest) -> Message:
    return convert.put_apply_response(engine.apply([convert.get_change(change) for change in request.changes], _call(request)))


# ---- the graph -----------------------------------------------------------------------------------------------------------------


def _add_nodes(engine: Engine, request: pb.AddNodesRequest) -> Message:
    return convert.put_change_response(engine.add_nodes(convert.get_add_nodes(request).nodes, _call(request)))


def _remove_nodes(engine: Engine, request: pb.RemoveNodesRequest) -> Message:
    return convert.put_change_response(engine.remove_nodes(tuple(request.nodes), _call(request)))


def _set_status(engine: Engine, request: pb.SetStatusRequest) -> Message:
    return convert.put_change_response(engine.set_node_status(dict(request.up), _call(request)))


def _set_properties(engine: Engine, request: pb.SetPropertiesRequest) -> Message:
    return convert.put_change_response(engine.set_properties(convert.get_set_properties(request).nodes, _call(request)))


def _stat(engine: Engine, request: pb.StatRequest) -> Message:
    return convert.put_stat(engine.stat(_call(request), request.per_node))


def _call(request: Any) -> Call:
    """What the request says of time, epoch and instance; a request without a Call claims nothing."""
    call = convert.get_call(request.call)
    if call.now is not None and call.now < 0:
        raise InvalidCall(f"call.now is {call.now}: Unix seconds are 0 or more; leave it out for the frozen clock")
    if call.epoch < 0:
        raise InvalidCall(f"call.epoch is {call.epoch}: epochs are counted from 1, and 0 claims none")
    return call


HANDLERS: dict[str, Handler] = {
    "Init": Handler(pb.InitRequest, _init),
    "Match": Handler(pb.MatchRequest, _match, _undo_match),
    "Cancel": Handler(pb.CancelRequest, _cancel),
    "MatchBatch": Handler(pb.MatchBatchRequest, _match_batch, _undo_match_batch),
    "ReserveAt": Handler(pb.ReserveAtRequest, _reserve_at, _undo_reserve_at),
    "Satisfy": Handler(pb.SatisfyRequest, _satisfy),
    "Info": Handler(pb.InfoRequest, _info),
    "List": Handler(pb.ListRequest, _list),
    "CancelMany": Handler(pb.CancelManyRequest, _cancel_many),
    "PartialCancel": Handler(pb.PartialCancelRequest, _partial_cancel),
    "Restore": Handler(pb.RestoreRequest, _restore),
    "Resize": Handler(pb.ResizeRequest, _resize),
    "Extend": Handler(pb.ExtendRequest, _extend),
    "Apply": Handler(pb.ApplyRequest, _apply),
    "AddNodes": Handler(pb.AddNodesRequest, _add_nodes),
    "RemoveNodes": Handler(pb.RemoveNodesRequest, _remove_nodes),
    "SetStatus": Handler(pb.SetStatusRequest, _set_status),
    "SetProperties": Handler(pb.SetPropertiesRequest, _set_properties),
    "Stat": Handler(pb.StatRequest, _stat),
}
"""Every RPC of the service by name."""
