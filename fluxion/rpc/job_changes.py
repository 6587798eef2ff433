"""CancelMany, PartialCancel, Restore, Resize, Extend, SetAdvanceReservations:
the RPCs that change what is held of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fluxqueue.fluxion.changes import (
    CancelJobs,
    CancelPart,
    ExtendJob,
    ResizeSystem,
    RestoreJobs,
    SetAdvanceReservations,
)
from fluxqueue.fluxion.messages import AdvanceReservation, AppliedChanges, RestoredJob
from fluxqueue.fluxion.rpc.change_requests import ChangeRpc, StepRpc
from fluxqueue.fluxion.rpc.values import read_shares, read_system_shares, write_share, write_system_share
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = [
    "RPCS",
    "CancelManyRpc",
    "ExtendRpc",
    "PartialCancelRpc",
    "ResizeRpc",
    "RestoreRpc",
    "SetAdvanceReservationsRpc",
]

CancelledJobs = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of the jobs that ended, and of those that were unknown."""


class CancelManyRpc(StepRpc[CancelledJobs]):
    """End jobs. A repeated call may report as unknown what the first attempt ended."""

    __slots__ = ()

    method = "CancelMany"
    request_type = pb.CancelManyRequest
    response_type = pb.CancelManyResponse
    change_type = CancelJobs
    step = "cancel"

    @staticmethod
    def write_change(change: CancelJobs, call: pb.Call | None = None) -> pb.CancelManyRequest:
        """Write the jobs to end."""
        return pb.CancelManyRequest(call=call, jobids=change.jobids)

    @staticmethod
    def read_change(message: pb.CancelManyRequest) -> CancelJobs:
        """Read the jobs to end."""
        return CancelJobs(tuple(message.jobids))

    def run(self, engine: Engine) -> CancelledJobs:
        """End the jobs."""
        cancelled, unknown = engine.cancel_many(self.change.jobids, self.call)
        return tuple(cancelled), tuple(unknown)

    def read_response(self, message: pb.CancelManyResponse) -> CancelledJobs:
        """Read which jobs ended and which were unknown."""
        return tuple(message.cancelled), tuple(message.unknown)

    def write_response(self, answer: CancelledJobs, instance: str) -> pb.CancelManyResponse:
        """Write which jobs ended and which were unknown."""
        cancelled, unknown = answer
        return pb.CancelManyResponse(cancelled=cancelled, unknown=unknown, instance=instance)


class PartialCancelRpc(ChangeRpc):
    """Give back part of a job. A second attempt would give back twice."""

    __slots__ = ()

    method = "PartialCancel"
    request_type = pb.PartialCancelRequest
    change_type = CancelPart
    step = "partial_cancel"
    repeatable = False

    @staticmethod
    def write_change(change: CancelPart, call: pb.Call | None = None) -> pb.PartialCancelRequest:
        """Write what the job gives back."""
        shares = [write_share(share) for share in change.shares]
        return pb.PartialCancelRequest(call=call, jobid=change.jobid, shares=shares, paths=change.paths)

    @staticmethod
    def read_change(message: pb.PartialCancelRequest) -> CancelPart:
        """Read what the job gives back."""
        return CancelPart(message.jobid, read_shares(message.shares), tuple(message.paths))

    def run(self, engine: Engine) -> AppliedChanges:
        """Give it back."""
        change: CancelPart = self.change
        return engine.partial_cancel(change.jobid, change.shares, change.paths, self.call)


class RestoreRpc(ChangeRpc):
    """Restore allocations that are known from elsewhere."""

    __slots__ = ()

    method = "Restore"
    request_type = pb.RestoreRequest
    change_type = RestoreJobs
    step = "restore"

    @staticmethod
    def write_change(change: RestoreJobs, call: pb.Call | None = None) -> pb.RestoreRequest:
        """Write the allocations."""
        return pb.RestoreRequest(call=call, jobs=[_write_restored(job) for job in change.jobs])

    @staticmethod
    def read_change(message: pb.RestoreRequest) -> RestoreJobs:
        """Read the allocations."""
        return RestoreJobs(tuple(_read_restored(job) for job in message.jobs))

    def run(self, engine: Engine) -> AppliedChanges:
        """Restore them."""
        return engine.restore(self.change.jobs, self.call)


class ResizeRpc(ChangeRpc):
    """Set the system allocations of nodes."""

    __slots__ = ()

    method = "Resize"
    request_type = pb.ResizeRequest
    response_type = pb.ResizeResponse
    change_type = ResizeSystem
    step = "resize"

    @staticmethod
    def write_change(change: ResizeSystem, call: pb.Call | None = None) -> pb.ResizeRequest:
        """Write the sizes."""
        return pb.ResizeRequest(call=call, shares=[write_system_share(share) for share in change.shares])

    @staticmethod
    def read_change(message: pb.ResizeRequest) -> ResizeSystem:
        """Read the sizes."""
        return ResizeSystem(read_system_shares(message.shares))

    def run(self, engine: Engine) -> AppliedChanges:
        """Set them."""
        return engine.resize(self.change.shares, self.call)

    def write_response(self, answer: AppliedChanges, instance: str) -> pb.ResizeResponse:
        """Write what the change did."""
        excess = [write_system_share(share) for share in answer.excess]
        return pb.ResizeResponse(
            done=answer.done,
            reason=answer.reason,
            displaced=answer.displaced,
            instance=answer.instance,
            excess=excess,
        )


class ExtendRpc(ChangeRpc):
    """Move the end of a job. Sent once: a second answer may not name what the first attempt displaced."""

    __slots__ = ()

    method = "Extend"
    request_type = pb.ExtendRequest
    response_type = pb.ExtendResponse
    change_type = ExtendJob
    step = "extend"
    repeatable = False

    @staticmethod
    def write_change(change: ExtendJob, call: pb.Call | None = None) -> pb.ExtendRequest:
        """Write the new end."""
        return pb.ExtendRequest(call=call, jobid=change.jobid, end=change.end)

    @staticmethod
    def read_change(message: pb.ExtendRequest) -> ExtendJob:
        """Read the new end."""
        return ExtendJob(message.jobid, message.end)

    def run(self, engine: Engine) -> AppliedChanges:
        """Move the end."""
        return engine.extend(self.change.jobid, self.change.end, self.call)

    def read_response(self, message: pb.ExtendResponse) -> AppliedChanges:
        """Read what the change did; it leaves no excess."""
        return AppliedChanges(message.done, message.instance, message.reason, tuple(message.displaced))

    def write_response(self, answer: AppliedChanges, instance: str) -> pb.ExtendResponse:
        """Write what the change did."""
        return pb.ExtendResponse(
            done=answer.done, reason=answer.reason, displaced=answer.displaced, instance=answer.instance
        )


class SetAdvanceReservationsRpc(ChangeRpc):
    """Set all advance reservations.
    Sent once: a second answer may not name what the first attempt displaced.
    """

    __slots__ = ()

    method = "SetAdvanceReservations"
    request_type = pb.SetAdvanceReservationsRequest
    change_type = SetAdvanceReservations
    step = "set_advance_reservations"
    repeatable = False

    @staticmethod
    def write_change(
        change: SetAdvanceReservations, call: pb.Call | None = None
    ) -> pb.SetAdvanceReservationsRequest:
        """Write the reservations."""
        return pb.SetAdvanceReservationsRequest(
            call=call, reservations=[_write_advance(each) for each in change.reservations]
        )

    @staticmethod
    def read_change(message: pb.SetAdvanceReservationsRequest) -> SetAdvanceReservations:
        """Read the reservations."""
        return SetAdvanceReservations(tuple(_read_advance(each) for each in message.reservations))

    def run(self, engine: Engine) -> AppliedChanges:
        """Set them."""
        return engine.set_advance_reservations(self.change.reservations, self.call)


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


RPCS: Final[tuple[type[StepRpc[Any]], ...]] = (
    CancelManyRpc,
    PartialCancelRpc,
    RestoreRpc,
    ResizeRpc,
    ExtendRpc,
    SetAdvanceReservationsRpc,
)
