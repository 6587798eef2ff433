"""What a caller of the matcher sees, and the clients that reach it over gRPC.

`Fluxion` is the interface: everything the matcher can do, with plain values in and out. `AsyncFluxionClient` speaks it over gRPC,
`FluxionClient` is its twin without asyncio, and `fluxqueue.fluxion.inprocess.LocalFluxion` carries it out on an engine in the same
process. The clients also work against the Go service, whose three calls they share; the others end there in `Unsupported`.

Every call has a deadline, which all of its attempts share. Another attempt is made only where nobody answered (UNAVAILABLE) and the
call is idempotent, after a pause that doubles and is drawn at random below its bound, so that many callers do not come back at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import grpc
import grpc.aio

from fluxqueue.fluxion import calls
from fluxqueue.fluxion.calls import Prepared
from fluxqueue.fluxion.changes import Change
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.failures import DeadlinePassed, FluxionUnavailable
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

__all__ = ["MAX_MESSAGE_BYTES", "AsyncFluxionClient", "Deadlines", "Fluxion", "FluxionClient", "Tls"]

MAX_MESSAGE_BYTES = 256 * 2**20
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.05
# A Go server takes pings more often than every five minutes for an attack and hangs up.
_KEEPALIVE_MS = 310_000


_NO_CALL = Call()

Answer = TypeVar("Answer")


class Fluxion(Protocol):
    """The matcher, in process or behind gRPC; every method may raise `fluxqueue.fluxion.errors.FluxionError`.

    All but `init`, `match` and `cancel` are extensions: a Go service answers them with `Unsupported`. ``call`` carries the time, the
    leader's epoch and the instance the caller believes in; it may be refused with `StaleEpoch`, `WrongInstance`, `ClockMixed` or
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
        InitError
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

    async def reserve_at(
        self, jobid: int, jobspec: str, start: int, *, call: Call, nodes: Sequence[str] = (), policy: str = ""
    ) -> MatchResult:
        """Reserve from ``start`` (Unix seconds) on, on these nodes, or any if empty, by a match policy other than the graph's."""
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


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds after which a call without an answer fails; ``init_s`` for Init, which loads the graph, ``call_s`` for all others."""

    init_s: float = 300.0
    call_s: float = 30.0

    def of(self, method: str) -> float:
        """The deadline of this RPC."""
        return self.init_s if method == "Init" else self.call_s


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for an encrypted connection.

    Attributes
    ----------
    ca
        Certificates that may have signed the server's; the system's if None.
    cert, key
        Ours, where the server asks clients for one.
    server_name
        What the server's certificate is made out to, if that is not the host of the address.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def credentials(self) -> Any:
        """Read the files."""
        return grpc.ssl_channel_credentials(*(path.read_bytes() if path else None for path in (self.ca, self.key, self.cert)))


def _options(tls: Tls | None) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]
    if tls and tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options


def _pauses(prepared: Prepared[Any]) -> Iterator[float]:
    """How long to wait before each further attempt, in seconds; none for calls that are sent once."""
    if prepared.idempotent:
        for attempt in range(1, _ATTEMPTS):
            yield random.uniform(0.5, 1.0) * _FIRST_PAUSE_S * 2**attempt


def _failed(prepared: Prepared[Any], target: str, error: Any) -> FluxionError:
    metadata = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}
    return calls.failure(prepared, target, error.code(), error.details() or "", metadata)


class AsyncFluxionClient:
    """The matcher behind gRPC. To be made and used in one event loop; safe to use from several of its tasks.

    Parameters
    ----------
    target
        ``host:port``.
    tls
        Files for an encrypted connection; plain text if None.
    deadlines
        How long calls may take.
    """

    def __init__(self, target: str, *, tls: Tls | None = None, deadlines: Deadlines | None = None) -> None:
        self.target = target
        self._deadlines = deadlines or Deadlines()
        options = _options(tls)
        self._channel = grpc.aio.secure_channel(target, tls.credentials(), options) if tls else grpc.aio.insecure_channel(target, options)
        self._methods: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; calls under way fail."""
        await self._channel.close()

    async def wait_reachable(self, timeout_s: float) -> None:
        """Return once a connection stands; `DeadlinePassed` after ``timeout_s``."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_s)
        except TimeoutError:
            raise DeadlinePassed(f"no Fluxion service answered at {self.target} within {timeout_s:g} s") from None

    async def _send(self, prepared: Prepared[Answer]) -> Answer:
        call = self._methods.get(prepared.method)
        if call is None:
            call = self._methods[prepared.method] = self._channel.unary_unary(
                prepared.path,
                request_serializer=type(prepared.request).SerializeToString,
                response_deserializer=prepared.response.FromString,
            )
        deadline = time.monotonic() + self._deadlines.of(prepared.method)
        pauses = _pauses(prepared)
        while True:
            try:
                answer = await call(prepared.request, timeout=max(deadline - time.monotonic(), 0.0))
            except grpc.aio.AioRpcError as error:
                failed = _failed(prepared, self.target, error)
                pause = next(pauses, None) if type(failed) is FluxionUnavailable else None
                if pause is None or time.monotonic() + pause >= deadline:
                    raise failed from None
                await asyncio.sleep(pause)
            else:
                return prepared.read(answer)

    async def init(self, policy: str, *, jgf: str | None = None, nodes: Sequence[NodeSpec] | None = None, call: Call = _NO_CALL) -> str:
        """As `Fluxion.init`."""
        return await self._send(calls.init(policy, jgf, nodes, call))

    async def match(self, jobspec: str, reserve: bool = False) -> Allocation:
        """As `Fluxion.match`; never sent twice, so after `FluxionUnavailable` the server may hold an allocation nobody knows."""
        return await self._send(calls.match(jobspec, reserve))

    async def cancel(self, jobid: int) -> None:
        """As `Fluxion.cancel`."""
        await self._send(calls.cancel(jobid))

    async def match_batch(
        self, jobs: Sequence[JobRequest], *, call: Call, with_allocation: bool = False, stop_at_first_failure: bool = False
    ) -> MatchBatch:
        """As `Fluxion.match_batch`; sent again only where every job has an id of the caller's."""
        return await self._send(calls.match_batch(jobs, call, with_allocation, stop_at_first_failure))

    async def reserve_at(
        self, jobid: int, jobspec: str, start: int, *, call: Call, nodes: Sequence[str] = (), policy: str = ""
    ) -> MatchResult:
        """As `Fluxion.reserve_at`."""
        return await self._send(calls.reserve_at(jobid, jobspec, start, nodes, call, policy))

    async def satisfy(self, jobspec: str, *, call: Call) -> MatchResult:
        """As `Fluxion.satisfy`."""
        return await self._send(calls.satisfy(jobspec, call))

    async def info(self, jobid: int, *, call: Call) -> JobInfo:
        """As `Fluxion.info`."""
        return await self._send(calls.info(jobid, call))

    async def list_jobs(self, *, call: Call, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """As `Fluxion.list_jobs`."""
        return await self._send(calls.list_jobs(call, with_shares))

    async def cancel_many(self, jobids: Sequence[int], *, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """As `Fluxion.cancel_many`."""
        return await self._send(calls.cancel_many(jobids, call))

    async def partial_cancel(self, jobid: int, shares: Sequence[NodeShare] = (), *, call: Call, paths: Sequence[str] = ()) -> Applied:
        """As `Fluxion.partial_cancel`."""
        return await self._send(calls.partial_cancel(jobid, shares, paths, call))

    async def restore(self, jobs: Sequence[RestoredJob], *, call: Call) -> Applied:
        """As `Fluxion.restore`."""
        return await self._send(calls.restore(jobs, call))

    async def resize(self, shares: Sequence[NodeShare], *, call: Call) -> Applied:
        """As `Fluxion.resize`."""
        return await self._send(calls.resize(shares, call))

    async def extend(self, jobid: int, end: int, *, call: Call) -> Applied:
        """As `Fluxion.extend`."""
        return await self._send(calls.extend(jobid, end, call))

    async def apply(self, changes: Sequence[Change], *, call: Call) -> Applied:
        """As `Fluxion.apply`."""
        return await self._send(calls.apply(changes, call))

    async def add_nodes(self, nodes: Sequence[NodeSpec], *, call: Call) -> Applied:
        """As `Fluxion.add_nodes`."""
        return await self._send(calls.add_nodes(nodes, call))

    async def remove_nodes(self, nodes: Sequence[str], *, call: Call) -> Applied:
        """As `Fluxion.remove_nodes`."""
        return await self._send(calls.remove_nodes(nodes, call))

    async def set_status(self, up: Mapping[str, bool], *, call: Call) -> Applied:
        """As `Fluxion.set_status`."""
        return await self._send(calls.set_status(up, call))

    async def set_properties(self, nodes: Mapping[str, Mapping[str, str]], *, call: Call) -> Applied:
        """As `Fluxion.set_properties`."""
        return await self._send(calls.set_properties(nodes, call))

    async def stat(self, *, call: Call, per_node: bool = False) -> Stat:
        """As `Fluxion.stat`."""
        return await self._send(calls.stat(call, per_node))


class FluxionClient:
    """The matcher behind gRPC, without asyncio; safe to use from several threads. Parameters as for `AsyncFluxionClient`."""

    def __init__(self, target: str, *, tls: Tls | None = None, deadlines: Deadlines | None = None) -> None:
        self.target = target
        self._deadlines = deadlines or Deadlines()
        options = _options(tls)
        self._channel = grpc.secure_channel(target, tls.credentials(), options) if tls else grpc.insecure_channel(target, options)
        self._methods: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; calls under way fail."""
        self._channel.close()

    def wait_reachable(self, timeout_s: float) -> None:
        """Return once a connection stands; `DeadlinePassed` after ``timeout_s``."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise DeadlinePassed(f"no Fluxion service answered at {self.target} within {timeout_s:g} s") from None

    def _send(self, prepared: Prepared[Answer]) -> Answer:
        call = self._methods.get(prepared.method)
        if call is None:
            call = self._methods[prepared.method] = self._channel.unary_unary(
                prepared.path,
                request_serializer=type(prepared.request).SerializeToString,
                response_deserializer=prepared.response.FromString,
            )
        deadline = time.monotonic() + self._deadlines.of(prepared.method)
        pauses = _pauses(prepared)
        while True:
            try:
                answer = call(prepared.request, timeout=max(deadline - time.monotonic(), 0.0))
            except grpc.RpcError as error:
                failed = _failed(prepared, self.target, error)
                pause = next(pauses, None) if type(failed) is FluxionUnavailable else None
                if pause is None or time.monotonic() + pause >= deadline:
                    raise failed from None
                time.sleep(pause)
            else:
                return prepared.read(answer)

    def init(self, policy: str, *, jgf: str | None = None, nodes: Sequence[NodeSpec] | None = None, call: Call = _NO_CALL) -> str:
        """As `Fluxion.init`."""
        return self._send(calls.init(policy, jgf, nodes, call))

    def match(self, jobspec: str, reserve: bool = False) -> Allocation:
        """As `Fluxion.match`; never sent twice, so after `FluxionUnavailable` the server may hold an allocation nobody knows."""
        return self._send(calls.match(jobspec, reserve))

    def cancel(self, jobid: int) -> None:
        """As `Fluxion.cancel`."""
        self._send(calls.cancel(jobid))

    def match_batch(
        self, jobs: Sequence[JobRequest], *, call: Call, with_allocation: bool = False, stop_at_first_failure: bool = False
    ) -> MatchBatch:
        """As `Fluxion.match_batch`; sent again only where every job has an id of the caller's."""
        return self._send(calls.match_batch(jobs, call, with_allocation, stop_at_first_failure))

    def reserve_at(self, jobid: int, jobspec: str, start: int, *, call: Call, nodes: Sequence[str] = (), policy: str = "") -> MatchResult:
        """As `Fluxion.reserve_at`."""
        return self._send(calls.reserve_at(jobid, jobspec, start, nodes, call, policy))

    def satisfy(self, jobspec: str, *, call: Call) -> MatchResult:
        """As `Fluxion.satisfy`."""
        return self._send(calls.satisfy(jobspec, call))

    def info(self, jobid: int, *, call: Call) -> JobInfo:
        """As `Fluxion.info`."""
        return self._send(calls.info(jobid, call))

    def list_jobs(self, *, call: Call, with_shares: bool = False) -> tuple[JobInfo, ...]:
        """As `Fluxion.list_jobs`."""
        return self._send(calls.list_jobs(call, with_shares))

    def cancel_many(self, jobids: Sequence[int], *, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """As `Fluxion.cancel_many`."""
        return self._send(calls.cancel_many(jobids, call))

    def partial_cancel(self, jobid: int, shares: Sequence[NodeShare] = (), *, call: Call, paths: Sequence[str] = ()) -> Applied:
        """As `Fluxion.partial_cancel`."""
        return self._send(calls.partial_cancel(jobid, shares, paths, call))

    def restore(self, jobs: Sequence[RestoredJob], *, call: Call) -> Applied:
        """As `Fluxion.restore`."""
        return self._send(calls.restore(jobs, call))

    def resize(self, shares: Sequence[NodeShare], *, call: Call) -> Applied:
        """As `Fluxion.resize`."""
        return self._send(calls.resize(shares, call))

    def extend(self, jobid: int, end: int, *, call: Call) -> Applied:
        """As `Fluxion.extend`."""
        return self._send(calls.extend(jobid, end, call))

    def apply(self, changes: Sequence[Change], *, call: Call) -> Applied:
        """As `Fluxion.apply`."""
        return self._send(calls.apply(changes, call))

    def add_nodes(self, nodes: Sequence[NodeSpec], *, call: Call) -> Applied:
        """As `Fluxion.add_nodes`."""
        return self._send(calls.add_nodes(nodes, call))

    def remove_nodes(self, nodes: Sequence[str], *, call: Call) -> Applied:
        """As `Fluxion.remove_nodes`."""
        return self._send(calls.remove_nodes(nodes, call))

    def set_status(self, up: Mapping[str, bool], *, call: Call) -> Applied:
        """As `Fluxion.set_status`."""
        return self._send(calls.set_status(up, call))

    def set_properties(self, nodes: Mapping[str, Mapping[str, str]], *, call: Call) -> Applied:
        """As `Fluxion.set_properties`."""
        return self._send(calls.set_properties(nodes, call))

    def stat(self, *, call: Call, per_node: bool = False) -> Stat:
        """As `Fluxion.stat`."""
        return self._send(calls.stat(call, per_node))
