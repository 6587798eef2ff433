"""What a caller of the matcher sees: every RPC as a method, with plain values in and out.

`Fluxion` is the interface for asyncio, `fluxqueue.fluxion.rpc.blocking` is the same for threads. Both are
complete except for how a call is carried out: `fluxqueue.fluxion.rpc.client` sends it over gRPC,
`fluxqueue.fluxion.rpc.inprocess` runs it on an engine in the same process.
"""

from __future__ import annotations

import asyncio
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

__all__ = ["Fluxion"]

_NO_CALL = CallContext()


class Fluxion(ABC):
    """The matcher; every method may raise `fluxqueue.fluxion.errors.FluxionError`.

    All methods but `init`, `match` and `cancel` are extensions: a Go service answers them with `Unsupported`.
    ``call`` carries the time, the leader's epoch and the instance that the caller expects. It may be refused
    with `StaleEpoch`, `WrongInstance`, `ClockMixed` or `NotInitialised`.
    """

    @abstractmethod
    async def _send(self, rpc: Rpc[Answer]) -> Answer:
        """Carry a call out."""

    @abstractmethod
    async def close(self) -> None:
        """Release the connection or the engine."""

    async def wait_for_loss(self, within_s: float) -> None:
        """Return when the matcher may have lost its graph, because a connection to it ended;
        at the latest after so many seconds.
        """
        await asyncio.sleep(within_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- as in the Go service ------------------------------------------------------------------------------

    async def init(
        self,
        policy: str,
        *,
        jgf: str | None = None,
        nodes: Sequence[GraphNodeSpec] | None = None,
        call: CallContext = _NO_CALL,
    ) -> str:
        """Start with a new graph and forget all jobs.

        Parameters
        ----------
        policy
            A match policy such as ``lonode``; empty means ``first``.
        jgf
            The graph as JGF text (array form), or
        nodes
            the graph as nodes; an empty sequence is a cluster without nodes.

        Raises
        ------
        InitError
            Policy or graph cannot be read.
        """
        return await self._send(init_rpc(policy, jgf, nodes, call))

    async def match(self, jobspec: str, reserve: bool = False) -> MatchedAllocation:
        """Allocate, or with ``reserve`` else reserve, as the Go service does: without a clock, and the
        service picks the jobid.

        It is sent once. After `FluxionUnavailable` the server may hold an allocation that nobody knows.

        Raises
        ------
        MatchFailed
            It does not fit now, or cannot be read; ``reason`` tells which if the server gives it.
        """
        return await self._send(MatchRpc(jobspec, reserve))

    async def cancel(self, jobid: int) -> None:
        """End a job; an unknown one is no error."""
        await self._send(CancelRpc(jobid))

    # ---- matching ------------------------------------------------------------------------------------------

    async def match_batch(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        with_allocation: bool = False,
        stop_at_first_failure: bool = False,
        yielding: Sequence[int] = (),
    ) -> MatchBatch:
        """Match jobs in this order; each sees what the ones before it took.
        There are fewer answers than jobs, but one at least, if they take long.

        Parameters
        ----------
        jobs
            If every job has a ``jobid`` of the caller's, the batch may be sent again, because a repeated id
            gets the same answer.
        with_allocation
            Answer R as JGF text too.
        stop_at_first_failure
            Stop after the first job that is not granted.
        yielding
            Reservations that do not block these jobs. They stay unless one of these jobs takes what they
            hold, which the answer reports as ``displaced``.
        """
        return await self._send(MatchBatchRpc(jobs, call, with_allocation, stop_at_first_failure, yielding))

    async def trial(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        without: Sequence[int] = (),
        parts: Sequence[CancelPart] = (),
    ) -> MatchBatch:
        """Return what `match_batch` would answer if the jobs ``without`` did not exist and others had given
        ``parts`` back.

        The graph stays as it is.
        """
        return await self._send(MatchBatchRpc(jobs, call, trial=True, without=without, parts=parts))

    async def reserve_at(
        self,
        jobid: int,
        jobspec: str,
        start: int,
        *,
        call: CallContext,
        nodes: Sequence[str] = (),
        policy: str = "",
    ) -> MatchResult:
        """Reserve from ``start`` (Unix seconds) on, on these nodes, or any if empty,
        by a match policy or the graph's if empty.
        """
        return await self._send(ReserveAtRpc(jobid, jobspec, start, nodes, call, policy))

    async def satisfy(self, jobspec: str, *, call: CallContext) -> MatchResult:
        """Return whether it matches the same graph emptied, with all nodes up:
        GRANTED, or UNSATISFIABLE or INVALID with the reason.
        """
        return await self._send(SatisfyRpc(jobspec, call))

    # ---- reports -------------------------------------------------------------------------------------------

    async def info(self, jobid: int, *, call: CallContext) -> JobInfo:
        """Describe one job.

        Raises
        ------
        UnknownJob
            The graph never had it.
        """
        return await self._send(InfoRpc(jobid, call))

    async def list_jobs(self, *, call: CallContext, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """Describe all live jobs by jobid, with what they hold on each node if asked."""
        return await self._send(ListRpc(call, with_shares))

    async def stat(self, *, call: CallContext, per_node: bool = False) -> Stat:
        """Return the sizes and the use of the graph."""
        return await self._send(StatRpc(call, per_node))

    # ---- changes ----------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change], *, call: CallContext) -> AppliedChanges:
        """Make all changes or none; if none, ``failed_index`` and ``reason`` name the first that could not be
        made.
        """
        return await self._send(ApplyRpc(changes, call))
