"""A Lease in a thread of its own: a blocked main loop does not lose it,
and a loss ends the process whatever hangs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from support.memory_api import MemoryApi

from fluxqueue.kube.lease import LeaderLease, LeaseLost
from fluxqueue.kube.lease_thread import LeaseThread
from fluxqueue.kube.transport import Api
from fluxqueue.kube.wire import Request, Wire

DURATION_S = 1.5

PROCESS = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[1])
from unit.kube.test_lease_thread import WatchableServer, lease_thread, stolen

async def main(how):
    server = WatchableServer()
    lease = lease_thread(server)

    async def lead():
        if how.startswith("fails"):
            print("failed", flush=True)
            if how == "fails, and does not stop":
                lease.end_soon()
                await asyncio.Event().wait()
            raise RuntimeError("broken")
        stolen(server)
        print("lost", flush=True)
        if how == "blocks":
            time.sleep(3_600)
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                if how == "ends late":
                    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3_600)
                    raise

    try:
        await lease.run(lead)
    finally:
        if how == "fails, and hangs later":
            await asyncio.Event().wait()

asyncio.run(main(sys.argv[2]))
"""


class WatchableServer(MemoryApi):
    """The server in memory, with watches that stay open and deliver nothing."""

    async def stream(self, _request: Request, *, idle_s: float) -> AsyncGenerator[list[bytes], None]:
        del idle_s
        yield []
        await asyncio.Event().wait()


def lease_thread(server: MemoryApi, **bounds: Any) -> LeaseThread:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Api]:
        yield Api(cast("Wire", server))

    def candidate(api: Api, may_renew: Callable[[], bool]) -> LeaderLease:
        return LeaderLease(api, "ns", "leader", "a", DURATION_S, may_renew=may_renew)

    return LeaseThread(connect, candidate, **bounds)


def stolen(server: MemoryApi) -> None:
    body = {
        "metadata": {"name": "leader", "namespace": "ns"},
        "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60},
    }
    server.put("leases", body)


def holder(server: MemoryApi) -> str:
    return cast("str", server.get("leases", "leader", "ns")["spec"]["holderIdentity"])


async def test_a_blocked_main_loop_keeps_the_lease() -> None:
    lease = lease_thread(WatchableServer())
    held: list[bool] = []

    async def lead() -> None:
        blocked_until = time.monotonic() + 2 * DURATION_S
        while time.monotonic() < blocked_until:
            time.sleep(0.05)  # noqa: ASYNC251  # the block
            held.append(lease.held and lease.remaining_s > 0)

    await asyncio.wait_for(lease.run(lead), 60)
    assert all(held)
    assert not lease.held


async def test_a_main_loop_that_never_answers_loses_the_lease() -> None:
    lost, lease = (
        threading.Event(),
        lease_thread(WatchableServer(), stuck_s=0.5, lost_s=60, end_process=lambda: None),
    )

    async def lead() -> None:
        limit = time.monotonic() + 60
        while lease.held and time.monotonic() < limit:
            time.sleep(0.05)  # noqa: ASYNC251  # the block
        if not lease.held:
            lost.set()
        await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        await asyncio.wait_for(lease.run(lead), 90)
    assert lost.is_set()


async def test_a_cancelled_run_releases_the_lease_after_the_work_has_stopped() -> None:
    server, leading, holders = WatchableServer(), asyncio.Event(), []

    async def lead() -> None:
        leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            holders.append(holder(server))

    running = asyncio.create_task(lease_thread(server).run(lead))
    await asyncio.wait_for(leading.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    assert (holders, holder(server)) == (["a"], "")


async def test_what_the_work_raises_is_raised_in_the_main_loop() -> None:
    async def lead() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await asyncio.wait_for(lease_thread(WatchableServer(), end_process=lambda: None).run(lead), 60)


async def test_work_that_does_not_stop_ends_a_terminated_process() -> None:
    ended, leading = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def lead() -> None:
        leading.set()
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    lease = lease_thread(
        WatchableServer(), stop_s=0.1, end_process=lambda: loop.call_soon_threadsafe(ended.set)
    )
    running = asyncio.create_task(lease.run(lead))
    await asyncio.wait_for(leading.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    assert ended.is_set()


def in_a_process(how: str) -> subprocess.CompletedProcess[str]:
    """Return the end of a process that leads, and then hangs in this way."""
    tests = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(tests)}
    return subprocess.run(
        [sys.executable, "-c", PROCESS, str(tests), how],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )


@pytest.mark.parametrize("how", ["swallows", "blocks", "ends late"])
def test_a_loss_ends_the_process_whatever_hangs(how: str) -> None:
    ended = in_a_process(how)
    assert ended.returncode == 1, ended.stderr
    assert "lost" in ended.stdout
    assert "lease.stuck" in ended.stdout
    assert "Thread 0x" in ended.stderr


@pytest.mark.parametrize("how", ["fails, and does not stop", "fails, and hangs later"])
def test_work_that_fails_ends_the_process_whatever_hangs(how: str) -> None:
    ended = in_a_process(how)
    assert ended.returncode == 1, ended.stderr
    assert "failed" in ended.stdout
    assert "the work has failed" in ended.stdout
    assert "Thread 0x" in ended.stderr
