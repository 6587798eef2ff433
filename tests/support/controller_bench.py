"""Common parts of the unit tests of controllers:
recorded Events and control tasks, and waiting for a condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import msgspec
from support.memory_api import MemoryApi

from fluxqueue.api import names
from fluxqueue.api.metadata import Namespace
from fluxqueue.kube.events import EventRecorder, Severity, Subject
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger

__all__ = [
    "RecordedEvents",
    "TriggerLog",
    "managed_caches",
    "running",
    "running_controllers",
    "subscribed",
    "until",
]

T = TypeVar("T")


@dataclass
class RecordedEvents:
    """Records Events with the methods of `EventRecorder`.

    Attributes
    ----------
    events
        Kind and name of each subject, reason, message and severity.
    full
        True if no Event is taken.
    """

    events: list[tuple[str, str, str, Severity]] = field(default_factory=list)
    full: bool = False

    @property
    def recorder(self) -> EventRecorder:
        """This object as the recorder that a controller gets."""
        return cast("EventRecorder", self)

    @property
    def reasons(self) -> list[str]:
        """The reasons, in order."""
        return [reason for _, reason, _, _ in self.events]

    def record(
        self, subject: Subject, reason: str, message: str, *, severity: Severity = Severity.NORMAL
    ) -> bool:
        """Record an Event."""
        if not self.full:
            self.events.append((f"{subject.kind} {subject.name}", reason, message, severity))
        return not self.full


class TriggerLog:
    """The control tasks that were triggered."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.trigger = Trigger(self._note)

    def _note(self, task: ControlTask) -> None:
        self.tasks.append(str(task.value))


def managed_caches(memory: MemoryApi, *, devices: bool = False) -> Caches:
    """Caches of the API server in memory, with a managed namespace ``default``;
    with claims of devices if ``devices``.
    """
    caches = Caches(memory.api, miniclusters=True, devices=devices)
    caches.namespaces.replace(
        [
            msgspec.convert(
                {"metadata": {"name": "default", "labels": {names.MANAGED_LABEL: "true"}}}, Namespace
            )
        ]
    )
    memory.show_in(caches)
    return caches


def subscribed(part: T, *others: object) -> T:
    """Return a part that is told of the changes of others, as it is in a leader."""
    subscribe(part, *others)
    return part


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines in the background. An error of one ends the test."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        failed = [task.exception() for task in tasks if task.done() and not task.cancelled()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert failed == [], "the work ended by itself"


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


class _Controller(Protocol):
    def resync(self) -> None: ...

    def run(self) -> Coroutine[Any, Any, None]: ...


@asynccontextmanager
async def running_controllers(*controllers: _Controller) -> AsyncIterator[None]:
    """Run controllers in the background, each of which compares all objects first."""
    for controller in controllers:
        controller.resync()
    async with running(*(controller.run() for controller in controllers)):
        yield
