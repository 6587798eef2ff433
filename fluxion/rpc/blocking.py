"""The interface of the matcher for threads: the same methods as `fluxqueue.fluxion.rpc.interface.Fluxion`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

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
from fluxqueue.fluxion.messages import (
    AdvanceReservation,
    AppliedChanges,
    CallContext,
    GraphNodeSpec,
    JobInfo,
    JobMatchRequest,
    MatchBatch,
    MatchedAllocation,
    MatchResult,
    NodeShare,
    RestoredJob,
    Stat,
)
from fluxqueue.fluxion.rpc.apply import ApplyRpc
from fluxqueue.fluxion.rpc.compatible import CancelRpc, MatchRpc, init_rpc
from fluxqueue.fluxion.rpc.job_changes import (
    CancelManyRpc,
    ExtendRpc,
    PartialCancelRpc,
    ResizeRpc,
    RestoreRpc,
    SetAdvanceReservationsRpc,
)
from fluxqueue.fluxion.rpc.matching import MatchBatchRpc, ReserveAtRpc, SatisfyRpc
from fluxqueue.fluxion.rpc.reports import InfoRpc, ListRpc, StatRpc
from fluxqueue.fluxion.rpc.requests import Answer, Rpc
from fluxqueue.fluxion.rpc.topology import AddNodesRpc, RemoveNodesRpc, SetPropertiesRpc, SetStatusRpc

__all__ = ["BlockingFluxion"]

_NO_CALL = CallContext()


class BlockingFluxion(ABC):
    """`Fluxion` without asyncio: the same methods with the same arguments, answers and errors,
    except `Fluxion.wait_for_loss`.
    """

    @abstractmethod
    def _send(self, rpc: Rpc[Answer]) -> Answer:
        """Carry a call out."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def init(
        self,
        policy: str,
        *,
        jgf: str | None = None,
        nodes: Sequence[GraphNodeSpec] | None = None,
        call: CallContext = _NO_CALL,
    ) -> str:
        """Start with a new graph, as `Fluxion.init`."""
        return self._send(init_rpc(policy, jgf, nodes, call))

    def match(self, jobspec: str, reserve: bool = False) -> MatchedAllocation:
        """Allocate or reserve, as `Fluxion.match`."""
        return self._send(MatchRpc(jobspec, reserve))

    def cancel(self, jobid: int) -> None:
        """End a job, as `Fluxion.cancel`."""
        self._send(CancelRpc(jobid))

    def match_batch(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        with_allocation: bool = False,
        stop_at_first_failure: bool = False,
        yielding: Sequence[int] = (),
    ) -> MatchBatch:
        """Match jobs in order, as `Fluxion.match_batch`."""
        return self._send(MatchBatchRpc(jobs, call, with_allocation, stop_at_first_failure, yielding))

    def trial(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        without: Sequence[int] = (),
        parts: Sequence[CancelPart] = (),
    ) -> MatchBatch:
        """Ask what a batch would answer, as `Fluxion.trial`."""
        return self._send(MatchBatchRpc(jobs, call, trial=True, without=without, parts=parts))

    def reserve_at(
        self,
        jobid: int,
        jobspec: str,
        start: int,
        *,
        call: CallContext,
        nodes: Sequence[str] = (),
        policy: str = "",
    ) -> MatchResult:
        """Reserve from a time on, as `Fluxion.reserve_at`."""
        return self._send(ReserveAtRpc(jobid, jobspec, start, nodes, call, policy))

    def satisfy(self, jobspec: str, *, call: CallContext) -> MatchResult:
        """Ask whether it fits the empty graph, as `Fluxion.satisfy`."""
        return self._send(SatisfyRpc(jobspec, call))

    def info(self, jobid: int, *, call: CallContext) -> JobInfo:
        """Describe one job, as `Fluxion.info`."""
        return self._send(InfoRpc(jobid, call))

    def list_jobs(self, *, call: CallContext, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """Describe all live jobs, as `Fluxion.list_jobs`."""
        return self._send(ListRpc(call, with_shares))

    def stat(self, *, call: CallContext, per_node: bool = False) -> Stat:
        """Sum the graph up, as `Fluxion.stat`."""
        return self._send(StatRpc(call, per_node))

    def cancel_many(
        self, jobids: Sequence[int], *, call: CallContext
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """End jobs, as `Fluxion.cancel_many`."""
        return self._send(CancelManyRpc(CancelJobs(tuple(jobids)), call))

    def partial_cancel(
        self, jobid: int, shares: Sequence[NodeShare] = (), *, call: CallContext, paths: Sequence[str] = ()
    ) -> AppliedChanges:
        """Give back part of a job, as `Fluxion.partial_cancel`."""
        return self._send(PartialCancelRpc(CancelPart(jobid, tuple(shares), tuple(paths)), call))

    def restore(self, jobs: Sequence[RestoredJob], *, call: CallContext) -> AppliedChanges:
        """Restore allocations, as `Fluxion.restore`."""
        return self._send(RestoreRpc(RestoreJobs(tuple(jobs)), call))

    def resize(self, shares: Sequence[NodeShare], *, call: CallContext) -> AppliedChanges:
        """Set system allocations, as `Fluxion.resize`."""
        return self._send(ResizeRpc(ResizeSystem(tuple(shares)), call))

    def extend(self, jobid: int, end: int, *, call: CallContext) -> AppliedChanges:
        """Move a job's end, as `Fluxion.extend`."""
        return self._send(ExtendRpc(ExtendJob(jobid, end), call))

    def set_advance_reservations(
        self, reservations: Sequence[AdvanceReservation], *, call: CallContext
    ) -> AppliedChanges:
        """Set all advance reservations, as `Fluxion.set_advance_reservations`."""
        return self._send(SetAdvanceReservationsRpc(SetAdvanceReservations(tuple(reservations)), call))

    def apply(self, changes: Sequence[Change], *, call: CallContext) -> AppliedChanges:
        """Make all changes or none, as `Fluxion.apply`."""
        return self._send(ApplyRpc(changes, call))

    def add_nodes(self, nodes: Sequence[GraphNodeSpec], *, call: CallContext) -> AppliedChanges:
        """Add nodes, as `Fluxion.add_nodes`."""
        return self._send(AddNodesRpc(AddNodes(tuple(nodes)), call))

    def remove_nodes(self, nodes: Sequence[str], *, call: CallContext) -> AppliedChanges:
        """Remove nodes, as `Fluxion.remove_nodes`."""
        return self._send(RemoveNodesRpc(RemoveNodes(tuple(nodes)), call))

    def set_status(self, up: Mapping[str, bool], *, call: CallContext) -> AppliedChanges:
        """Mark nodes up or down, as `Fluxion.set_status`."""
        return self._send(SetStatusRpc(SetNodeStatus(up), call))

    def set_properties(self, nodes: Mapping[str, Mapping[str, str]], *, call: CallContext) -> AppliedChanges:
        """Replace properties of nodes, as `Fluxion.set_properties`."""
        return self._send(SetPropertiesRpc(SetProperties(nodes), call))
