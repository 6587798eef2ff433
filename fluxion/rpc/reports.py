"""Info, List and Stat: the RPCs that report what the graph holds and change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from fluxqueue.fluxion.messages import CallContext, JobInfo, JobMode, NodeUse, Stat
from fluxqueue.fluxion.rpc.failures import InternalError
from fluxqueue.fluxion.rpc.requests import Rpc
from fluxqueue.fluxion.rpc.values import read_call, read_counts, read_shares, write_call, write_share
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["RPCS", "InfoRpc", "ListRpc", "StatRpc"]

_NUMBER_OF = {
    JobMode.ALLOCATED: pb.JobInfo.ALLOCATED,
    JobMode.RESERVED: pb.JobInfo.RESERVED,
    JobMode.CANCELED: pb.JobInfo.CANCELED,
    JobMode.SYSTEM: pb.JobInfo.SYSTEM,
    JobMode.ADVANCE: pb.JobInfo.ADVANCE,
}
_MODE_OF = {number: mode for mode, number in _NUMBER_OF.items()}


@dataclass(frozen=True, slots=True)
class InfoRpc(Rpc[JobInfo]):
    """Describe one job."""

    method = "Info"
    request_type = pb.InfoRequest
    response_type = pb.JobInfo

    jobid: int
    call: CallContext

    def write_request(self) -> pb.InfoRequest:
        """Write the request."""
        return pb.InfoRequest(call=write_call(self.call), jobid=self.jobid)

    def read_response(self, message: pb.JobInfo) -> JobInfo:
        """Read the job."""
        return _read_job(message)

    @classmethod
    def read_request(cls, message: pb.InfoRequest) -> Self:
        """Read the request."""
        return cls(message.jobid, read_call(message.call))

    def run(self, engine: Engine) -> JobInfo:
        """Look the job up."""
        return engine.job_info(self.jobid, self.call)

    def write_response(self, answer: JobInfo, instance: str) -> pb.JobInfo:
        """Write the job."""
        return _write_job(answer)


@dataclass(frozen=True, slots=True)
class ListRpc(Rpc[tuple[JobInfo, ...]]):
    """Describe all live jobs."""

    method = "List"
    request_type = pb.ListRequest
    response_type = pb.ListResponse

    call: CallContext
    with_shares: bool = False

    def write_request(self) -> pb.ListRequest:
        """Write the request."""
        return pb.ListRequest(call=write_call(self.call), with_shares=self.with_shares)

    def read_response(self, message: pb.ListResponse) -> tuple[JobInfo, ...]:
        """Read the jobs."""
        return tuple(_read_job(job) for job in message.jobs)

    @classmethod
    def read_request(cls, message: pb.ListRequest) -> Self:
        """Read the request."""
        return cls(read_call(message.call), message.with_shares)

    def run(self, engine: Engine) -> tuple[JobInfo, ...]:
        """List the jobs."""
        return engine.list_jobs(self.call, self.with_shares)

    def write_response(self, answer: tuple[JobInfo, ...], instance: str) -> pb.ListResponse:
        """Write the jobs."""
        return pb.ListResponse(jobs=[_write_job(job) for job in answer], instance=instance)


@dataclass(frozen=True, slots=True)
class StatRpc(Rpc[Stat]):
    """Sum the graph up."""

    method = "Stat"
    request_type = pb.StatRequest
    response_type = pb.StatResponse

    call: CallContext
    per_node: bool = False

    def write_request(self) -> pb.StatRequest:
        """Write the request."""
        return pb.StatRequest(call=write_call(self.call), per_node=self.per_node)

    def read_response(self, message: pb.StatResponse) -> Stat:
        """Read the sums."""
        return Stat(
            instance=message.instance,
            policy=message.policy,
            nodes=message.nodes,
            nodes_up=message.nodes_up,
            vertices=message.vertices,
            total=read_counts(message.total),
            free=read_counts(message.free),
            allocated_jobs=message.allocated_jobs,
            reserved_jobs=message.reserved_jobs,
            now=message.now,
            epoch=message.epoch,
            node_use=tuple(
                NodeUse(
                    use.node,
                    use.up,
                    use.closed,
                    read_counts(use.total),
                    read_counts(use.used),
                    tuple(use.jobids),
                )
                for use in message.node_use
            ),
        )

    @classmethod
    def read_request(cls, message: pb.StatRequest) -> Self:
        """Read the request."""
        return cls(read_call(message.call), message.per_node)

    def run(self, engine: Engine) -> Stat:
        """Sum the graph up."""
        return engine.stat(self.call, self.per_node)

    def write_response(self, answer: Stat, instance: str) -> pb.StatResponse:
        """Write the sums."""
        return pb.StatResponse(
            instance=answer.instance,
            policy=answer.policy,
            nodes=answer.nodes,
            nodes_up=answer.nodes_up,
            vertices=answer.vertices,
            total=answer.total,
            free=answer.free,
            node_use=[
                pb.NodeUse(
                    node=use.node,
                    up=use.up,
                    closed=use.closed,
                    total=use.total,
                    used=use.used,
                    jobids=use.jobids,
                )
                for use in answer.node_use
            ],
            allocated_jobs=answer.allocated_jobs,
            reserved_jobs=answer.reserved_jobs,
            now=answer.now,
            epoch=answer.epoch,
        )


def _write_job(job: JobInfo) -> pb.JobInfo:
    shares = [write_share(share) for share in job.shares]
    return pb.JobInfo(jobid=job.jobid, mode=_NUMBER_OF[job.mode], at=job.at, end=job.end, shares=shares)


def _read_job(message: pb.JobInfo) -> JobInfo:
    """Read a job; `InternalError` if its mode is one that this version does not know."""
    mode = _MODE_OF.get(message.mode)
    if mode is None:
        raise InternalError(
            f"job {message.jobid}: the service answered mode {message.mode}, which this client does not know"
        )
    return JobInfo(message.jobid, mode, message.at, message.end, read_shares(message.shares))


RPCS: Final[tuple[type[Rpc[Any]], ...]] = (InfoRpc, ListRpc, StatRpc)
