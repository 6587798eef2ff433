import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.dashboard_site import PeopleApi, Stage
from support.embedded_servers import serving

from fluxqueue.dashboard.service import LIMITS, DashboardService
from fluxqueue.dashboard.settings import DashboardSettings
from fluxqueue.kube.errors import ServerError
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.watches import Watches
from fluxqueue.serving.guarded_server import GuardedServer, listen

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def test_what_is_shown_is_old_while_a_watch_fails(tmp_path: Path) -> None:
    service = DashboardService(DashboardSettings("127.0.0.1", 0, tmp_path))
    assert not service.stale()
    jobs: Reflector[Any] = Reflector(PeopleApi().own, FLUXJOBS, service.state.jobs)
    service._watches = Watches(jobs)
    jobs.synced.set()
    jobs._received()
    assert not service.stale()
    jobs.last_error = ServerError(500, "InternalError", "as the test wants it")
    assert service.stale()


async def test_connections_that_are_kept_after_an_answer_keep_nobody_out() -> None:
    server = GuardedServer(Stage().app, listen("127.0.0.1", 0), replace(LIMITS, connections=4))
    async with serving(server) as port, asyncio.timeout(60):
        kept = []
        for _ in range(8):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            kept.append((reader, writer))
            for _ in range(2):
                writer.write(REQUEST)
                assert await reader.readuntil(b"\r\n\r\nok") != b""
                await asyncio.sleep(0.02)
        assert [await reader.read() for reader, _ in kept[:4]] == [b""] * 4, "the oldest ones were closed"
        for _, writer in kept:
            writer.close()


def test_before_the_queue_has_been_read_nothing_is_shown(tmp_path: Path) -> None:
    service = DashboardService(DashboardSettings("127.0.0.1", 0, tmp_path))
    assert service.problem() == "The dashboard starts: it has not read the queue yet"
    assert service.state.version == 0
