"""The matcher in the caller's own process, behind the interface that the gRPC client has.

For the simulator and for benchmarks, where thousands of matches a second must not pay for a socket, and for tests of callers. Calls
are carried out at once, in the caller's event loop, one after the other because none of them waits for anything. So one event loop
owns the engine, and failures are of the same classes as over gRPC.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from fluxqueue.fluxion.changes import Change
from fluxqueue.fluxion.compat import MatchRequestKind
from fluxqueue.fluxion.engine import Engine
from fluxqueue.fluxion.errors import MatchError
from fluxqueue.fluxion.failures import InvalidCall, MatchFailed
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

__all__ = ["MATCH_FAILED", "LocalFluxion", "compatible_match"]

MATCH_FAILED = "[Fluxion] Error in ReapiCliMatchAllocate"
"""All that the Go service (flux-sched 0.54) says about a match that failed."""

_NO_CALL = Call()


def compatible_match(engine: Engine, jobspec: str, reserve: bool) -> Allocation:
    """The Go service's Match on an engine.

    Raises
    ------
    MatchFailed
        With the words of the original, and the reason it never told.
    """
    kind = MatchRequestKind.ALLOCATE_ORELSE_RESERVE if reserve else MatchRequestKind.ALLOCATE
    started = time.perf_counter()
    try:
        found = engine.match(jobspec, kind)
    except MatchError as error:
        raise MatchFailed(MATCH_FAILED, error.reason) from None
    overhead_s = time.perf_counter() - started
    return Allocation(found.jobid, found.allocation(), found.reserved, found.at, overhead_s)


class LocalFluxion:
    """A `fluxqueue.fluxion.client.Fluxion` over an engine of this process; without one given it makes its own."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = Engine() if engine is None else engine

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Nothing to let go of; the engine stays usable."""

    async def init(self, policy: str, *, jgf: str | None = None, nodes: Sequence[NodeSpec] | None = None, call: Call = _NO_CALL) -> str:
        """As `Fluxion.init`."""
        if (jgf is None) == (nodes is None):
            raise InvalidCall("Init takes the graph either as jgf or as nodes: give exactly one")
        return self.engine.init(policy, jgf=jgf, nodes=nodes, call=call)

    async def match(self, jobspec: str, reserve: bool = False) -> Allocation:
        """As `Fluxion.match`."""
        return compatible_match(self.engine, jobspec, reserve)

    async def cancel(self, jobid: int) -> None:
        """As `Fluxion.cancel`."""
        self.engine.cancel(jobid)

    async def match_batch(
        self, jobs: Sequence[JobRequest], *, call: Call, with_allocation: bool = False, stop_at_first_failure: bool = False
    ) -> MatchBatch:
        """As `Fluxion.match_batch`."""
        return self.engine.match_batch(jobs, call, with_allocation=with_allocation, stop_at_first_failure=stop_at_first_failure)

    async def reserve_at(
        self, jobid: int, jobspec: str, start: int, *, call: Call, nodes: Sequence[str] = (), policy: str = ""
    ) -> MatchResult:
        """As `Fluxion.reserve_at`."""
        return self.engine.reserve_at(jobid, jobspec, start, nodes, call, policy)

    async def satisfy(self, jobspec: str, *, call: Call) -> MatchResult:
        """As `Fluxion.satisfy`."""
        return self.engine.satisfy(jobspec, call)

    async def info(self, jobid: int, *, call: Call) -> JobInfo:
        """As `Fluxion.info`."""
        return self.engine.job_info(jobid, call)

    async def list_jobs(self, *, call: Call, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """As `Fluxion.list_jobs`."""
        return self.engine.list_jobs(call, with_shares)

    async def cancel_many(self, jobids: Sequence[int], *, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """As `Fluxion.cancel_many`."""
        cancelled, unknown = self.engine.cancel_many(jobids, call)
        return tuple(cancelled), tuple(unknown)

    async def partial_cancel(self, jobid: int, shares: Sequence[NodeShare] = (), *, call: Call, paths: Sequence[str] = ()) -> Applied:
        """As `Fluxion.partial_cancel`."""
        return self.engine.partial_cancel(jobid, shares, paths, call)

    async def restore(self, jobs: Sequence[RestoredJob], *, call: Call) -> Applied:
        """As `Fluxion.restore`."""
        return self.engine.restore(jobs, call)

    async def resize(self, shares: Sequence[NodeShare], *, call: Call) -> Applied:
        """As `Fluxion.resize`."""
        return self.engine.resize(shares, call)

    async def extend(self, jobid: int, end: int, *, call: Call) -> Applied:
        """As `Fluxion.extend`."""
        return self.engine.extend(jobid, end, call)

    async def apply(self, changes: Sequence[Change], *, call: Call) -> Applied:
        """As `Fluxion.apply`."""
        return self.engine.apply(changes, call)

    async def add_nodes(self, nodes: Sequence[NodeSpec], *, call: Call) -> Applied:
        """As `Fluxion.add_nodes`."""
        return self.engine.add_nodes(nodes, call)

    async def remove_nodes(self, nodes: Sequence[str], *, call: Call) -> Applied:
        """As `Fluxion.remove_nodes`."""
        return self.engine.remove_nodes(nodes, call)

    async def set_status(self, up: Mapping[str, bool], *, call: Call) -> Applied:
        """As `Fluxion.set_status`."""
        return self.engine.set_node_status(up, call)

    async def set_properties(self, nodes: Mapping[str, Mapping[str, str]], *, call: Call) -> Applied:
        """As `Fluxion.set_properties`."""
        return self.engine.set_properties(nodes, call)

    async def stat(self, *, call: Call, per_node: bool = False) -> Stat:
        """As `Fluxion.stat`."""
        return self.engine.stat(call, per_node)
