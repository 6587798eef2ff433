"""Each program whose event loop decides or answers anything logs what blocks it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from fluxqueue.dashboard import main as dashboard
from fluxqueue.queue import main as queue
from fluxqueue.rest import main as rest
from fluxqueue.scheduler_plugin import main as scheduler
from fluxqueue.scheduler_plugin.metrics import REGISTRY
from fluxqueue.webhook.decisions import AdmissionSettings
from fluxqueue.webhook.metrics import WebhookMetrics
from fluxqueue.webhook.server import ServerSettings, serve


def monitors() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "loop-monitor"}


class Program:
    """A service, or a server, that ends at once and notes whether its loop is watched by then."""

    def __init__(self) -> None:
        self.before, self.watched = monitors(), False

    async def run(self) -> None:
        self.watched = bool(monitors() - self.before)

    serve = run


@pytest.mark.parametrize("run", [queue._run, scheduler._run, dashboard._run, rest._serve])
def test_the_loop_of_a_program_is_watched(run: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    program = Program()
    asyncio.run(run(program))
    assert program.watched


def test_the_loop_of_the_webhook_is_watched(tmp_path: Path) -> None:
    async def watched() -> bool:
        before = monitors()
        admission = cast(AdmissionSettings, None)  # no review arrives
        running = asyncio.create_task(
            serve(ServerSettings("127.0.0.1", 0, tmp_path), admission, lambda: dt.datetime.now(dt.UTC))
        )
        async with asyncio.timeout(60):
            while all(each["event"] != "webhook.listening" for each in logs):
                await asyncio.sleep(0.01)
            found = bool(monitors() - before)
            os.kill(os.getpid(), signal.SIGINT)
            await running
        return found

    with capture_logs() as logs:
        assert asyncio.run(watched())


def test_blocks_of_webhook_and_scheduler_are_in_their_metrics() -> None:
    metrics = WebhookMetrics()
    metrics.loop_blocked(2.5)
    assert b"fluxqueue_loop_blocked_seconds_sum 2.5" in metrics.render()
    assert b"fluxqueue_loop_blocked_seconds_sum" in generate_latest(REGISTRY)
