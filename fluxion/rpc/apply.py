"""Apply: changes of jobs and nodes, all or none. It is the only RPC that changes a graph without matching.

Each kind of change is one message of the proto file and one value of `fluxqueue.fluxion.changes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetAdvanceReservations,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.messages import AdvanceReservation, AppliedChanges, CallContext, RestoredJob
from fluxqueue.fluxion.rpc.failures import InvalidCall
from fluxqueue.fluxion.rpc.requests import Rpc
from fluxqueue.fluxion.rpc.values import (
    read_call,
    read_node,
    read_shares,
    read_system_shares,
    write_call,
    write_node,
    write_share,
    write_system_share,
)
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["RPCS", "ApplyRpc", "read_change", "read_part", "write_change", "write_part"]

_REPEATABLE: Final = (CancelJobs, RestoreJobs, SetNodeStatus)
"""A second attempt of others gives back twice, or does not name what the first displaced."""


@dataclass(frozen=True, slots=True)
class ApplyRpc(Rpc[AppliedChanges]):
    """Make all changes or none."""

    method = "Apply"
    request_type = pb.ApplyRequest
    response_type = pb.ApplyResponse

    changes: Sequence[Change]
    call: CallContext

    @property
    def idempotent(self) -> bool:
        """True if the graph is the same, and the answer too, if every change is made twice."""
        return all(isinstance(change, _REPEATABLE) for change in self.changes)

    def write_request(self) -> pb.ApplyRequest:
        """Write the request."""
        return pb.ApplyRequest(
            call=write_call(self.call), changes=[write_change(change) for change in self.changes]
        )

    def read_response(self, message: pb.ApplyResponse) -> AppliedChanges:
        """Read what the changes did."""
        excess = read_system_shares(message.excess)
        return AppliedChanges(
            message.applied,
            message.instance,
            message.reason,
            tuple(message.displaced),
            excess,
            message.failed_index,
        )

    @classmethod
    def read_request(cls, message: pb.ApplyRequest) -> Self:
        """Read the request."""
        return cls([read_change(change) for change in message.changes], read_call(message.call))

    def run(self, engine: Engine) -> AppliedChanges:
        """Make the changes."""
        return engine.apply(self.changes, self.call)

    def write_response(self, answer: AppliedChanges, instance: str) -> pb.ApplyResponse:
        """Write what the changes did."""
        return pb.ApplyResponse(
            applied=answer.done,
            reason=answer.reason,
            failed_index=answer.failed_index,
            excess=[write_system_share(share) for share in answer.excess],
            displaced=answer.displaced,
            instance=answer.instance,
        )


def write_change(change: Change) -> pb.Change:
    """Write one change."""
    match change:
        case CancelJobs(jobids):
            return pb.Change(cancel_jobs=pb.CancelJobs(jobids=jobids))
        case CancelPart():
            return pb.Change(cancel_part=write_part(change))
        case RestoreJobs(jobs):
            return pb.Change(restore_jobs=pb.RestoreJobs(jobs=[_write_restored(job) for job in jobs]))
        case ResizeSystem(shares):
            system_shares = [write_system_share(share) for share in shares]
            return pb.Change(resize_system=pb.ResizeSystem(shares=system_shares))
        case ExtendJob(jobid, end):
            return pb.Change(extend_job=pb.ExtendJob(jobid=jobid, end=end))
        case SetNodeStatus(up):
            return pb.Change(set_node_status=pb.SetNodeStatus(up=up))
        case SetProperties(by_node):
            properties = {name: pb.Properties(properties=each) for name, each in by_node.items()}
            return pb.Change(set_properties=pb.SetProperties(nodes=properties))
        case AddNodes(nodes):
            return pb.Change(add_nodes=pb.AddNodes(nodes=[write_node(node) for node in nodes]))
        case RemoveNodes(names):
            return pb.Change(remove_nodes=pb.RemoveNodes(nodes=names))
        case SetAdvanceReservations(reservations):
            advance = [_write_advance(each) for each in reservations]
            return pb.Change(set_advance_reservations=pb.SetAdvanceReservations(reservations=advance))


def read_change(message: pb.Change) -> Change:
    """Read one change.

    Raises
    ------
    InvalidCall
        The change is empty, or of a kind newer than this program.
    """
    match message.WhichOneof("change"):
        case "cancel_jobs":
            return CancelJobs(tuple(message.cancel_jobs.jobids))
        case "cancel_part":
            return read_part(message.cancel_part)
        case "restore_jobs":
            return RestoreJobs(tuple(_read_restored(job) for job in message.restore_jobs.jobs))
        case "resize_system":
            return ResizeSystem(read_system_shares(message.resize_system.shares))
        case "extend_job":
            return ExtendJob(message.extend_job.jobid, message.extend_job.end)
        case "set_node_status":
            return SetNodeStatus(dict(message.set_node_status.up))
        case "set_properties":
            by_node = message.set_properties.nodes
            return SetProperties({name: dict(each.properties) for name, each in by_node.items()})
        case "add_nodes":
            return AddNodes(tuple(read_node(node) for node in message.add_nodes.nodes))
        case "remove_nodes":
            return RemoveNodes(tuple(message.remove_nodes.nodes))
        case "set_advance_reservations":
            advance = message.set_advance_reservations.reservations
            return SetAdvanceReservations(tuple(_read_advance(each) for each in advance))
    raise InvalidCall(
        "a change of Apply names nothing to do: set one of its fields, for example cancel_jobs, and let "
        "caller and service be of one version"
    )


def write_part(part: CancelPart) -> pb.CancelPart:
    """Write what a job gives back."""
    shares = [write_share(share) for share in part.shares]
    return pb.CancelPart(jobid=part.jobid, shares=shares, paths=part.paths)


def read_part(message: pb.CancelPart) -> CancelPart:
    """Read what a job gives back."""
    return CancelPart(message.jobid, read_shares(message.shares), tuple(message.paths))


def _write_advance(reservation: AdvanceReservation) -> pb.AdvanceReservation:
    times = [pb.Period(start=start, end=end) for start, end in reservation.times]
    return pb.AdvanceReservation(
        name=reservation.name, nodes=reservation.nodes, times=times, maintenance=reservation.maintenance
    )


def _read_advance(message: pb.AdvanceReservation) -> AdvanceReservation:
    times = tuple((period.start, period.end) for period in message.times)
    return AdvanceReservation(message.name, tuple(message.nodes), times, message.maintenance)


def _write_restored(job: RestoredJob) -> pb.RestoredJob:
    shares = [write_share(share) for share in job.shares]
    return pb.RestoredJob(jobid=job.jobid, at=job.at, end=job.end, shares=shares, reserved=job.reserved)


def _read_restored(message: pb.RestoredJob) -> RestoredJob:
    return RestoredJob(message.jobid, read_shares(message.shares), message.at, message.end, message.reserved)


RPCS: Final[tuple[type[Rpc[Any]], ...]] = (ApplyRpc,)
