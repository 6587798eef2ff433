"""Leader election against an API server in memory: who acquires a Lease, and when a holder stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from support.memory_api import MemoryApi

from fluxqueue.kube.lease import LeaderLease, LeaseLost
from fluxqueue.kube.transport import Api
from fluxqueue.kube.wire import Request, Wire

DURATION_S = 0.3


class WatchableServer(MemoryApi):
    """The server in memory, with watches that stay open and deliver nothing:
    a candidate then relies on its own reads.
    """

    async def stream(self, _request: Request, *, idle_s: float) -> AsyncGenerator[list[bytes], None]:
        del idle_s
        yield []
        await asyncio.Event().wait()


@pytest.fixture
def server() -> WatchableServer:
    return WatchableServer()


def candidate(server: MemoryApi, identity: str, *, former: str = "") -> LeaderLease:
    return LeaderLease(Api(cast("Wire", server)), "ns", "leader", identity, DURATION_S, former=former)


def spec(server: MemoryApi) -> dict[str, Any]:
    return cast("dict[str, Any]", server.get("leases", "leader", "ns")["spec"])


def held_by(server: MemoryApi, holder: str, duration_s: int = 1) -> None:
    body = {
        "metadata": {"name": "leader", "namespace": "ns"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration_s},
    }
    server.put("leases", body)


async def test_a_missing_lease_is_created_and_released_at_the_end(server: WatchableServer) -> None:
    lease = candidate(server, "a")
    seen: list[str] = []

    async def lead() -> None:
        assert lease.held
        seen.append(spec(server)["holderIdentity"])

    await asyncio.wait_for(lease.run(lead), 60)
    assert seen == ["a"]
    assert spec(server)["holderIdentity"] == ""
    assert not lease.held


async def test_the_lease_of_a_predecessor_in_the_same_pod_is_acquired_at_once(
    server: WatchableServer,
) -> None:
    held_by(server, "pod-0_1", duration_s=3_600)
    lease = candidate(server, "pod-0_2", former="pod-0_")

    async def lead() -> None:
        assert spec(server)["leaseTransitions"] == 1

    await asyncio.wait_for(lease.run(lead), 60)


async def test_the_lease_of_another_holder_is_acquired_only_when_it_has_expired(
    server: WatchableServer,
) -> None:
    held_by(server, "b")
    lease = candidate(server, "a")
    clock = asyncio.get_running_loop().time
    started = clock()

    async def lead() -> None:
        assert clock() - started >= 1.0, "the holder's own duration counts"

    await asyncio.wait_for(lease.run(lead), 60)


async def test_a_holder_stops_when_another_process_has_written_the_lease(server: WatchableServer) -> None:
    lease = candidate(server, "a")
    cancelled = asyncio.Event()

    async def lead() -> None:
        held_by(server, "thief")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(LeaseLost, match="the lease ns/leader is lost: thief holds it"):
        await asyncio.wait_for(lease.run(lead), 60)
    assert cancelled.is_set()
    assert spec(server)["holderIdentity"] == "thief"


async def test_what_the_work_raises_is_raised_after_the_release(server: WatchableServer) -> None:
    async def lead() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await asyncio.wait_for(candidate(server, "a").run(lead), 60)
    assert spec(server)["holderIdentity"] == ""


class SlowServer(WatchableServer):
    """Answers each renewal after 30 % of the Lease's duration,
    by a clock that only this and the pauses between renewals move.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.lease: LeaderLease | None = None
        self.held: list[bool] = []
        """Whether the Lease was still held at the end of each renewal, before it counts."""

    def monotonic(self) -> float:
        return self.now

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        if request.verb == "patch" and self.lease is not None:
            self.now += 0.3 * DURATION_S
            self.held.append(self.lease.held)
        return await super().call(request, timeout_s, tries=tries)


async def test_an_api_server_that_answers_late_does_not_cost_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, sleep = SlowServer(), asyncio.sleep

    async def pause(seconds: float) -> None:
        task = asyncio.current_task()
        if task is not None and task.get_name() == "lease-leader":
            server.now, seconds = server.now + max(seconds, 0), 0
        await sleep(seconds)

    monkeypatch.setattr("fluxqueue.kube.lease.time", server)
    monkeypatch.setattr(asyncio, "sleep", pause)
    server.lease = candidate(server, "a")

    async def lead() -> None:
        while len(server.held) < 5:
            await sleep(0)

    await asyncio.wait_for(server.lease.run(lead), 60)
    assert server.held[:5] == [True] * 5


class SilentServer(WatchableServer):
    """Answers no renewal."""

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        if request.verb == "patch":
            await asyncio.Event().wait()
        return await super().call(request, timeout_s, tries=tries)


async def test_a_lost_lease_says_whether_the_api_server_or_this_process_did_not_answer() -> None:
    lease = candidate(SilentServer(), "a")
    with capture_logs() as logs, pytest.raises(LeaseLost, match="it could not be renewed in time"):
        await asyncio.wait_for(lease.run(asyncio.Event().wait), 60)  # type: ignore[arg-type]
    (lost,) = [each for each in logs if each["event"] == "lease.lost"]
    assert lost["main_loop_answers"]
    assert 0 < lost["asked_s_ago"] < 60
