from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import AsyncWorkload, Handle, NotPermitted, NotPossible
from fluxqueue.client.connections import Connection


async def test_the_start_is_the_real_one_once_it_has_started() -> None:
    server = WatchedApi()
    connection = Connection(server.api)
    work = AsyncWorkload(connection, Handle("Job", "team", "a", ("u",)))
    server.show(
        "Job", "a", "u", state="Running", startedAt="2026-01-02T03:00:00Z", eta="2026-01-02T02:00:00Z"
    )
    assert await work.eta() == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert (await work.wait(started=True)).state == "Running"
    await connection.close()


async def test_an_edit_that_is_refused_says_why() -> None:
    server = WatchedApi()
    connection = Connection(server.api)
    pod = AsyncWorkload(connection, Handle("Pod", "team", "p", ("u",)))
    server.show("Pod", "p", "u", state="Running")
    with pytest.raises(NotPossible, match="kubectl delete pod p ends it"):
        await pod.cancel()
    job = AsyncWorkload(connection, Handle("Job", "team", "a", ("v",)))
    server.show("Job", "a", "v", state="Pending")
    server.put("jobs", {"metadata": {"name": "a", "namespace": "team", "uid": "v"}, "spec": {}})
    server.fail_next("patch", "fluxjobs", 403, "Forbidden", "fluxjobs is forbidden")
    with pytest.raises(NotPermitted, match="fluxjobs is forbidden"):
        await job.hold()
    await connection.close()
