"""The interface of the matcher for threads: the same methods as `fluxqueue.fluxion.rpc.interface.Fluxion`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from fluxqueue.fluxion.changes import CancelPart, Change
from fluxqueue.fluxion.messages import (
    AppliedChanges,
    CallContext,
    GraphNodeSpec,
    JobInfo,
    JobMatchRequest,
    MatchBatch,
    MatchedAllocation,
    MatchResult,
    Stat,
)
from fluxqueue.fluxion.rpc.apply import ApplyRpc
from fluxqueue.fluxion.rpc.compatible import CancelRpc, MatchRpc, init_rpc
from fluxqueue.fluxion.rpc.matching import MatchBatchRpc, ReserveAtRpc, SatisfyRpc
from fluxqueue.fluxion.rpc.reports import InfoRpc, ListRpc, StatRpc
from fluxqueue.fluxion.rpc.requests import Answer, Rpc

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

    def apply(self, changes: Sequence[Change], *, call: CallContext) -> AppliedChanges:
        """Make all changes or none, as `Fluxion.apply`."""
        return self._send(ApplyRpc(changes, call))
