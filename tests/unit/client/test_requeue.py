from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.watched_api import WatchedApi

from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.client import AsyncWorkload, Handle, NotPermitted, NotPossible, WaitTimeout
from fluxqueue.client.connections import Connection


@pytest.fixture
async def server() -> WatchedApi:
    server = WatchedApi()
    server.put(
        "jobs", {"metadata": {"name": "solver", "namespace": "team", "uid": "u"}, "spec": {"suspend": False}}
    )
    server.show("Job", "solver", "u", state="Running")
    return server


@pytest.fixture
async def work(server: WatchedApi) -> AsyncIterator[AsyncWorkload]:
    connection = Connection(server.api)
    yield AsyncWorkload(connection, Handle("Job", "team", "solver", ("u",)))
    await connection.close()


def suspended(server: WatchedApi) -> bool:
    return bool(server.get("jobs", "solver", "team")["spec"]["suspend"])


async def stopping(server: WatchedApi, work: AsyncWorkload, **options: object) -> asyncio.Task[None]:
    """Requeue, and return when the Job is suspended."""
    task = asyncio.create_task(work.requeue(**options))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while not suspended(server):
            await asyncio.sleep(0.01)
    return task


async def test_a_job_is_resumed_when_it_has_stopped(server: WatchedApi, work: AsyncWorkload) -> None:
    task = await stopping(server, work)
    server.show("Job", "solver", "u", state="Draining")
    await asyncio.sleep(0.05)
    assert suspended(server)
    server.show("Job", "solver", "u", state="Pending", reason="UserSuspended")
    async with asyncio.timeout(60):
        await task
    assert not suspended(server)


async def test_it_can_be_held_before_it_is_resumed(server: WatchedApi, work: AsyncWorkload) -> None:
    task = await stopping(server, work, hold=True)
    server.show("Job", "solver", "u", state="Pending", reason="UserSuspended")
    async with asyncio.timeout(60):
        await task
    fluxjob = server.get("fluxjobs", fluxjob_name("Job", "solver", "u"), "team")
    assert fluxjob["spec"]["hold"] is True


async def test_what_has_not_stopped_in_time_stays_suspended_and_the_message_says_so(
    server: WatchedApi, work: AsyncWorkload
) -> None:
    with pytest.raises(WaitTimeout, match="it is suspended: requeue it once more"):
        await work.requeue(timeout=0.05)
    assert suspended(server)


async def test_what_ends_meanwhile_is_not_resumed(server: WatchedApi, work: AsyncWorkload) -> None:
    task = await stopping(server, work)
    server.show("Job", "solver", "u", state="Completed")
    with pytest.raises(NotPossible, match="ended meanwhile"):
        async with asyncio.timeout(60):
            await task


async def test_what_waits_cannot_be_requeued(server: WatchedApi, work: AsyncWorkload) -> None:
    server.show("Job", "solver", "u", state="Pending")
    with pytest.raises(NotPossible, match="waits already"):
        await work.requeue()
    assert not suspended(server)


async def test_a_missing_right_is_an_error_and_nothing_is_suspended(
    server: WatchedApi, work: AsyncWorkload
) -> None:
    server.fail_next("patch", "jobs", 403, "Forbidden", "jobs is forbidden")
    with pytest.raises(NotPermitted, match="jobs is forbidden"):
        await work.requeue()
    assert not suspended(server)
