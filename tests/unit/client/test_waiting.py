from __future__ import annotations

import time
from datetime import timedelta

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import Handle, InvalidWork, NoSuchWork, WorkGone
from fluxqueue.client.connections import Connection
from fluxqueue.client.waiting import Waiting, deadline_of


def test_time_outs_are_seconds_or_a_timedelta() -> None:
    assert deadline_of(None) is None
    now = time.monotonic()
    assert now + 59 < (deadline_of(timedelta(minutes=1)) or 0) < now + 120
    assert now + 59 < (deadline_of(60) or 0) < now + 120
    with pytest.raises(InvalidWork, match="negative"):
        deadline_of(-1)


async def test_a_fluxjob_that_never_comes_is_told_with_the_doctor() -> None:
    server = WatchedApi()
    server.put("jobs", {"metadata": {"name": "a", "namespace": "team", "uid": "u"}, "spec": {}})
    connection = Connection(server.api)
    waiting = Waiting(server.api, await connection.watch("team"), Handle("Job", "team", "a", ("u",)))
    with pytest.raises(NoSuchWork, match="kubectl fluxqueue doctor"):
        await waiting.fluxjob(within_s=0)
    server.remove("jobs", "a", "team")
    with pytest.raises(WorkGone):
        await waiting.fluxjob(within_s=60)
    await connection.close()
