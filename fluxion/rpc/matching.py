"""MatchBatch, ReserveAt and Satisfy: the RPCs that look for resources.

They are idempotent where the caller chose the job ids, because a granted id repeats its answer. A match under
an id of the engine's choosing is undone if its answer cannot be delivered: it would stay in the graph unknown
to everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from fluxqueue.fluxion.changes import CancelJobs, CancelPart
from fluxqueue.fluxion.messages import (
    CallContext,
    JobMatchRequest,
    MatchBatch,
    MatchResult,
    MatchVerdict,
    Shortage,
)
from fluxqueue.fluxion.rpc.apply import read_part, write_part
from fluxqueue.fluxion.rpc.failures import InternalError
from fluxqueue.fluxion.rpc.requests import Rpc
from fluxqueue.fluxion.rpc.values import read_call, read_shares, write_call, write_share
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["RPCS", "MatchBatchRpc", "ReserveAtRpc", "SatisfyRpc"]

_NUMBER_OF = {
    MatchVerdict.GRANTED: pb.GRANTED,
    MatchVerdict.RESERVED: pb.RESERVED,
    MatchVerdict.BUSY: pb.BUSY,
    MatchVerdict.UNSATISFIABLE: pb.UNSATISFIABLE,
    MatchVerdict.INVALID: pb.INVALID,
}
_VERDICT_OF = {number: verdict for verdict, number in _NUMBER_OF.items()}
_HOLDING = (MatchVerdict.GRANTED, MatchVerdict.RESERVED)


@dataclass(frozen=True, slots=True)
class MatchBatchRpc(Rpc[MatchBatch]):
    """Match jobs in order, or ask what matching them would answer.

    Attributes
    ----------
    trial
        Ask only; the graph stays as it is. The jobs ``without`` are ignored then, and so are ``parts`` of
        others.
    """

    method = "MatchBatch"
    request_type = pb.MatchBatchRequest
    response_type = pb.MatchBatchResponse
    can_undo = True

    jobs: Sequence[JobMatchRequest]
    call: CallContext
    with_allocation: bool = False
    stop_at_first_failure: bool = False
    yielding: Sequence[int] = ()
    trial: bool = False
    without: Sequence[int] = ()
    parts: Sequence[CancelPart] = ()

    @property
    def idempotent(self) -> bool:
        """True if it is a trial, or if every job has an id of the caller's."""
        return self.trial or all(job.jobid for job in self.jobs)

    def write_request(self) -> pb.MatchBatchRequest:
        """Write the request."""
        return pb.MatchBatchRequest(
            call=write_call(self.call),
            jobs=[_write_job(job) for job in self.jobs],
            with_allocation=self.with_allocation,
            stop_at_first_failure=self.stop_at_first_failure,
            yielding=self.yielding,
            trial=self.trial,
            without=self.without,
            without_parts=[write_part(each) for each in self.parts],
        )

    def read_response(self, message: pb.MatchBatchResponse) -> MatchBatch:
        """Read the answers."""
        results = tuple(_read_result(result) for result in message.results)
        return MatchBatch(
            results,
            message.instance,
            message.overhead,
            tuple(message.displaced),
            tuple(message.overhead_of_each),
        )

    @classmethod
    def read_request(cls, message: pb.MatchBatchRequest) -> Self:
        """Read the request."""
        return cls(
            [_read_job(job) for job in message.jobs],
            read_call(message.call),
            message.with_allocation,
            message.stop_at_first_failure,
            tuple(message.yielding),
            message.trial,
            tuple(message.without),
            tuple(read_part(each) for each in message.without_parts),
        )

    def run(self, engine: Engine) -> MatchBatch:
        """Match."""
        if self.trial:
            return engine.trial(self.jobs, self.without, self.call, self.parts)
        return engine.match_batch(
            self.jobs,
            self.call,
            with_allocation=self.with_allocation,
            stop_at_first_failure=self.stop_at_first_failure,
            yielding=self.yielding,
        )

    def write_response(self, answer: MatchBatch, instance: str) -> pb.MatchBatchResponse:
        """Write the answers; the overhead loses what a float of 4 bytes cannot hold."""
        return pb.MatchBatchResponse(
            results=[_write_result(result) for result in answer.results],
            instance=answer.instance,
            overhead=answer.overhead_s,
            displaced=answer.displaced,
            overhead_of_each=answer.overhead_of_each_s,
        )

    def undo(self, engine: Engine, answer: MatchBatch) -> None:
        """Cancel the jobs whose ids the engine chose."""
        answers = zip(self.jobs, answer.results, strict=False)
        unknown = [result.jobid for job, result in answers if not job.jobid and result.verdict in _HOLDING]
        if unknown and not self.trial:
            engine.apply([CancelJobs(unknown)])

    def verdicts(self, answer: MatchBatch) -> Iterable[str]:
        """Return the verdict of each job."""
        return [result.verdict.value for result in answer.results]


@dataclass(frozen=True, slots=True)
class ReserveAtRpc(Rpc[MatchResult]):
    """Reserve resources from a given time on."""

    method = "ReserveAt"
    request_type = pb.ReserveAtRequest
    response_type = pb.MatchResult
    can_undo = True

    jobid: int
    jobspec: str
    start: int
    nodes: Sequence[str]
    call: CallContext
    policy: str = ""

    @property
    def idempotent(self) -> bool:
        """True if the job has an id of the caller's."""
        return self.jobid != 0

    def write_request(self) -> pb.ReserveAtRequest:
        """Write the request."""
        return pb.ReserveAtRequest(
            call=write_call(self.call),
            jobid=self.jobid,
            jobspec=self.jobspec,
            start=self.start,
            nodes=tuple(self.nodes),
            policy=self.policy,
        )

    def read_response(self, message: pb.MatchResult) -> MatchResult:
        """Read the answer."""
        return _read_result(message)

    @classmethod
    def read_request(cls, message: pb.ReserveAtRequest) -> Self:
        """Read the request."""
        return cls(
            message.jobid,
            message.jobspec,
            message.start,
            tuple(message.nodes),
            read_call(message.call),
            message.policy,
        )

    def run(self, engine: Engine) -> MatchResult:
        """Reserve."""
        return engine.reserve_at(self.jobid, self.jobspec, self.start, self.nodes, self.call, self.policy)

    def write_response(self, answer: MatchResult, instance: str) -> pb.MatchResult:
        """Write the answer."""
        return _write_result(answer)

    def undo(self, engine: Engine, answer: MatchResult) -> None:
        """Cancel the reservation if the engine chose its id."""
        if not self.jobid and answer.verdict in _HOLDING:
            engine.apply([CancelJobs([answer.jobid])])

    def verdicts(self, answer: MatchResult) -> Iterable[str]:
        """Return the verdict."""
        return (answer.verdict.value,)


@dataclass(frozen=True, slots=True)
class SatisfyRpc(Rpc[MatchResult]):
    """Ask whether a request fits the empty graph with all nodes up;
    its verdict is not counted, since nothing is matched.
    """

    method = "Satisfy"
    request_type = pb.SatisfyRequest
    response_type = pb.MatchResult

    jobspec: str
    call: CallContext

    def write_request(self) -> pb.SatisfyRequest:
        """Write the request."""
        return pb.SatisfyRequest(call=write_call(self.call), jobspec=self.jobspec)

    def read_response(self, message: pb.MatchResult) -> MatchResult:
        """Read the answer."""
        return _read_result(message)

    @classmethod
    def read_request(cls, message: pb.SatisfyRequest) -> Self:
        """Read the request."""
        return cls(message.jobspec, read_call(message.call))

    def run(self, engine: Engine) -> MatchResult:
        """Ask the engine."""
        return engine.satisfy(self.jobspec, self.call)

    def write_response(self, answer: MatchResult, instance: str) -> pb.MatchResult:
        """Write the answer."""
        return _write_result(answer)


def _write_job(job: JobMatchRequest) -> pb.JobRequest:
    return pb.JobRequest(
        jobid=job.jobid,
        jobspec=job.jobspec,
        reserve=job.reserve,
        explain=job.explain,
        exclude=job.exclude,
        duration=job.duration_s,
        improve=job.improve,
        policy=job.policy,
        latest_nodes=job.latest_nodes,
        min_slots=job.min_slots,
        not_before=job.not_before,
        waits_since=job.waits_since,
    )


def _read_job(message: pb.JobRequest) -> JobMatchRequest:
    return JobMatchRequest(
        jobspec=message.jobspec,
        jobid=message.jobid,
        reserve=message.reserve,
        explain=message.explain,
        exclude=tuple(message.exclude),
        duration_s=message.duration if message.HasField("duration") else None,
        improve=message.improve,
        policy=message.policy,
        latest_nodes=message.latest_nodes,
        min_slots=message.min_slots,
        not_before=message.not_before,
        waits_since=message.waits_since,
    )


def _write_result(result: MatchResult) -> pb.MatchResult:
    message = pb.MatchResult(
        verdict=_NUMBER_OF[result.verdict],
        jobid=result.jobid,
        at=result.at,
        end=result.end,
        shares=[write_share(share) for share in result.shares],
    )
    if result.reason:
        message.reason = result.reason
    if result.allocation:
        message.allocation = result.allocation
    if result.blocked_by:
        message.blocked_by = result.blocked_by
    for s in result.shortages:
        message.shortages.add(
            type=s.type, wanted=s.wanted, available=s.available, level=s.level, constraint=s.constraint
        )
    return message


def _read_result(message: pb.MatchResult) -> MatchResult:
    """Read the answer to one job; `InternalError` if its verdict is one that this version does not know."""
    verdict = _VERDICT_OF.get(message.verdict)
    if verdict is None:
        raise InternalError(
            f"job {message.jobid}: the service answered verdict {message.verdict}, "
            "which this client does not know"
        )
    return MatchResult(
        verdict=verdict,
        jobid=message.jobid,
        at=message.at,
        end=message.end,
        shares=read_shares(message.shares),
        reason=message.reason,
        shortages=tuple(
            Shortage(s.type, s.wanted, s.available, s.level, s.constraint) for s in message.shortages
        ),
        allocation=message.allocation,
        blocked_by=message.blocked_by,
    )


RPCS: Final[tuple[type[Rpc[Any]], ...]] = (MatchBatchRpc, ReserveAtRpc, SatisfyRpc)
