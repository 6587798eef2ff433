"""What the tests of the service share: a caller of its health, and an engine that a test holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from fluxqueue.fluxion.compat.requests import CompatMatch, MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.messages import MatchBatch

__all__ = ["NOT_SERVING", "SERVICE", "SERVING", "HeldEngine", "health", "until"]

SERVICE = "fluxion.FluxionService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class HeldEngine(Engine):
    """An engine whose matches wait at a gate, so that a test decides when one is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.under_way = threading.Event()
        self.started = 0
        self.most_at_once = 0
        self._at_once = 0

    def _hold(self) -> None:
        self.started += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.under_way.set()
        assert self.gate.wait(20)
        self._at_once -= 1

    def match(self, jobspec: str, request: MatchRequestKind) -> CompatMatch:
        self._hold()
        return super().match(jobspec, request)

    def match_batch(self, *arguments: Any, **more: Any) -> MatchBatch:
        self._hold()
        return super().match_batch(*arguments, **more)


async def health(target: str, service: str) -> int:
    """Return the status of a service, or of the process (empty name)."""
    async with grpc.aio.insecure_channel(target) as channel:
        return int((await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))).status)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll a condition until it holds; each check is a call to the service,
    so this waits for answers and not for time.
    """
    async with asyncio.timeout(60):
        while not await condition():
            pass
