from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import AsyncClient, AsyncWorkload, Job, Progress, WaitTimeout, WorkGone


@pytest.fixture
def server() -> WatchedApi:
    return WatchedApi()


@pytest.fixture
async def client(server: WatchedApi) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(server.api, "team")
    yield client
    await client.connection.close()


async def submitted(client: AsyncClient, *names: str) -> list[AsyncWorkload]:
    return await client.submit_all([Job(name=name, image="i") for name in names])


def show(server: WatchedApi, name: str, state: str) -> None:
    server.show("Job", name, server.uid_of("jobs", name), state=state)


async def test_progress_is_told_whenever_it_changes_until_all_have_ended(
    server: WatchedApi, client: AsyncClient
) -> None:
    works = await submitted(client, "a", "b", "c")
    steps = client.progress(works, timeout=60)
    assert await anext(steps) == Progress(3, waiting=3)
    show(server, "a", "Running")
    assert await anext(steps) == Progress(3, waiting=2, running=1)
    for name, state in (("a", "Completed"), ("b", "Failed"), ("c", "Cancelled")):
        show(server, name, state)
    last = [step async for step in steps][-1]
    assert last == Progress(3, completed=1, failed=1, cancelled=1)
    assert str(last) == "3 of 3 ended, 1 failed, 1 cancelled"


async def test_no_work_has_ended_at_once(client: AsyncClient) -> None:
    assert [step async for step in client.progress([])] == [Progress(0)]


async def test_what_is_too_late_or_deleted_ends_it(server: WatchedApi, client: AsyncClient) -> None:
    works = await submitted(client, "a")
    with pytest.raises(WaitTimeout, match="Job team/a is still Pending"):
        [step async for step in client.progress(works, timeout=0)]
    steps = client.progress(works)
    await anext(steps)
    await works[0].delete()
    with pytest.raises(WorkGone):
        await anext(steps)


def test_it_is_a_line_and_a_bar() -> None:
    step = Progress(4, waiting=1, running=2, failed=1)
    assert str(step) == "1 of 4 ended, 2 running, 1 waiting, 1 failed"
    assert (
        step._repr_html_()
        == '<progress value="1" max="4"></progress> 1 of 4 ended, 2 running, 1 waiting, 1 failed'
    )
