"""What a caller of the matcher sees.

`Fluxion` is the interface: everything the matcher can do, with plain values in and out. `AsyncFluxionClient` speaks it over gRPC,
`fluxqueue.fluxion.inprocess.LocalFluxion` carries it out on an engine in the same process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fluxqueue.fluxion.messages import (
    Allocation,
    Applied,
    Call,
    Change,
    JobInfo,
    JobRequest,
    MatchBatch,
    MatchResult,
    NodeShare,
    NodeSpec,
    RestoredJob,
    Stat,
)

__all__ = ["Fluxion"]

_NO_CALL = Call()


class Fluxion(Protocol):
    """The matcher, in process or behind gRPC; every method may raise `fluxqueue.fluxion.errors.FluxionError`.

    All but `init`, `match` and `cancel` are extensions: a Go service answers them with `Unsupported`. ``call`` carries the time, the
    leader's epoch and the instance the caller believes in; it may be refused with `StaleEpoch`, `WrongInstance`, `MixedClocks` or
    `NotInitialised`.
    """

    async def init(self, policy: str, *, jgf: str | None = None, nodes: Sequence[NodeSpec] | None = None, call: Call = _NO_CALL) -> str:
        """Start with a new graph and forget all jobs.

        Parameters
        ----------
        policy
            A match policy such as ``lonode``; empty means ``first``.
        jgf
            The graph as JGF text (array form), or
        nodes
            the graph as nodes; an empty sequence is a cluster without nodes.

        Returns
        -------
        str
            The new instance id.

        Raises
        ------
        InitFailed
            Policy or graph cannot be read.
        """
        ...

    async def match(self, jobspec: str, reserve: bool = False) -> Allocation:
        """Allocate, or with ``reserve`` else reserve, as the Go service does: without a clock, the service picks the jobid.

        Raises
        ------
        MatchFailed
            It does not fit now (or cannot be read); ``reason`` says why where the server tells.
        """
        ...

    async def cancel(self, jobid: int) -> None:
        """End a job; an unknown one is no error."""
        ...

    async def match_batch(
        self, jobs: Sequence[JobRequest], *, call: Call, with_allocation: bool = False, stop_at_first_failure: bool = False
    ) -> MatchBatch:
        """Match jobs in this order, each seeing what the ones before it took.

        Parameters
        ----------
        jobs
            With a ``jobid`` of the caller's a repeat gets the same answer, so the batch may be sent again.
        with_allocation
            Answer R as JGF text too.
        stop_at_first_failure
            Leave off after the first that is not granted.
        """
        ...

    async def reserve_at(self, jobid: int, jobspec: str, start: int, *, call: Call, nodes: Sequence[str] = ()) -> MatchResult:
        """Reserve from ``start`` (Unix seconds) on, on these nodes, or any if empty."""
        ...

    async def satisfy(self, jobspec: str, *, call: Call) -> MatchResult:
        """Whether it would match the same graph emptied, with all nodes up: GRANTED, or UNSATISFIABLE or INVALID with the reason."""
        ...

    async def info(self, jobid: int, *, call: Call) -> JobInfo:
        """One job.

        Raises
        ------
        UnknownJob
            The graph never had it.
        """
        ...

    async def list_jobs(self, *, call: Call, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """All live jobs by jobid, with what they have where if asked."""
        ...

    async def cancel_many(self, jobids: Sequence[int], *, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """End jobs: those that ended, and those that were unknown (no error)."""
        ...

    async def partial_cancel(self, jobid: int, shares: Sequence[NodeShare] = (), *, call: Call, paths: Sequence[str] = ()) -> Applied:
        """Give back slots or amounts on nodes, or vertices by path; when nothing is left the job ends. Not idempotent."""
        ...

    async def restore(self, jobs: Sequence[RestoredJob], *, call: Call) -> Applied:
        """Put back allocations known from elsewhere; idempotent."""
        ...

    async def resize(self, shares: Sequence[NodeShare], *, call: Call) -> Applied:
        """Set what runs on nodes without us (``amounts`` by node); ``excess`` is what was not free and closes its node."""
        ...

    async def extend(self, jobid: int, end: int, *, call: Call) -> Applied:
        """Move a job's end (Unix seconds); ``displaced`` reservations no longer fit and were dropped."""
        ...

    async def apply(self, changes: Sequence[Change], *, call: Call) -> Applied:
        """Make all changes or none; if none, ``failed_index`` and ``reason`` name the first that could not be made."""
        ...

    async def add_nodes(self, nodes: Sequence[NodeSpec], *, call: Call) -> Applied:
        """Put nodes in; a known name with another shape is resized."""
        ...

    async def remove_nodes(self, nodes: Sequence[str], *, call: Call) -> Applied:
        """Take nodes out; jobs on them keep their shares until cancelled."""
        ...

    async def set_status(self, up: Mapping[str, bool], *, call: Call) -> Applied:
        """Mark node names or containment paths up or down; running jobs stay."""
        ...

    async def set_properties(self, nodes: Mapping[str, Mapping[str, str]], *, call: Call) -> Applied:
        """Replace all properties of these nodes."""
        ...

    async def stat(self, *, call: Call, per_node: bool = False) -> Stat:
        """The graph in numbers."""
        ...

    async def close(self) -> None:
        """Let go of the connection (or the engine)."""
        ...
