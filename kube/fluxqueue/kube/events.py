"""Telling people what happens to their objects: core/v1 Events, as `kubectl describe` shows them.

Saying something must never hold up or fail the one who says it, so :meth:`Recorder.record` only notes it down, and a task of its own
sends. What is said twice about the same object is one Event whose count goes up: by a patch if it has been sent, and without any call
if it still waits, because writes per job are a budget. The memory of what was sent is bounded, and so is the queue: when the API
server is away for long the newest news are dropped and counted, never the caller's time.

Events expire on the server (after an hour by default), so a patch that finds nothing creates the Event anew.
"""

from __future__ import annotations

import asyncio
import datetime
import enum
import random
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from fluxqueue.api.objects import ObjectMeta, Part
from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.errors import Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from fluxqueue.kube.kinds import Kind, T
from fluxqueue.kube.transport import Api

__all__ = ["Recorder", "Severity", "Subject"]

COMPONENT: Final = "fluxqueue"
REMEMBERED: Final = 4_096
WAITING: Final = 1_000
TRIES: Final = 5
MESSAGE_LIMIT: Final = 1_024
"""Characters; longer ones the API server refuses (ValidateEvent)."""

log: Final = structlog.get_logger(__name__)


class Severity(enum.StrEnum):
    """The ``type`` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: Kind[T], obj: T) -> Subject:
        """The subject that a decoded object is."""
        meta = obj.metadata
        return cls(kind.api_version, kind.kind, meta.namespace, meta.name, meta.uid)


class _Event(Part, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_EVENTS: Final = Kind("", "v1", "events", "Event", True, _Event)


@dataclass(frozen=True, slots=True)
class _Saying:
    """What makes two Events the same."""

    subject: Subject
    severity: Severity
    reason: str
    message: str


@dataclass(slots=True)
class _News:
    count: int = 0
    first: str = ""
    last: str = ""
    name: str = ""
    failures: int = 0


class Recorder:
    """Sends Events in the background; :meth:`run` must run.

    Parameters
    ----------
    api
        Through which they go.
    instance
        Which of several replicas says it (``reportingInstance``), for example the pod's name.
    now
        The wall clock, in UTC.
    remembered, waiting
        How many Events are known for counting, and how many may wait to be sent.

    Attributes
    ----------
    sent, dropped
        How many calls were made, and how many sayings were lost to a full queue or a refusing server.
    """

    def __init__(
        self,
        api: Api,
        *,
        instance: str,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
        remembered: int = REMEMBERED,
        waiting: int = WAITING,
    ) -> None:
        self._api = api
        self._instance = instance
        self._now = now
        self._remembered = remembered
        self._waiting_limit = waiting
        self._known: OrderedDict[_Saying, _News] = OrderedDict()
        self._waiting: OrderedDict[_Saying, None] = OrderedDict()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.sent = 0
        self.dropped = 0

    def record(self, subject: Subject, reason: str, message: str, *, severity: Severity = Severity.NORMAL) -> None:
        """Say something about an object; never waits, never raises.

        Parameters
        ----------
        subject
            The user's object; the Event goes to its namespace, for cluster-scoped ones to ``default``.
        reason
            One CamelCase word for machines, for example ``Allocated``.
        message
            A sentence for people; what is beyond 1,024 characters is cut off.
        severity
            WARNING where somebody should do something.
        """
        saying = _Saying(subject, severity, reason, message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…")
        if saying not in self._waiting and len(self._waiting) >= self._waiting_limit:
            self.dropped += 1
            return
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        news = self._known.setdefault(saying, _News(first=at))
        news.count += 1
        news.last = at
        self._known.move_to_end(saying)
        self._waiting[saying] = None
        self._forget_oldest()
        self._idle.clear()
        self._work.set()

    async def run(self) -> None:
        """Send what is recorded until cancelled."""
        while True:
            await self._work.wait()
            while self._waiting:
                saying, _ = self._waiting.popitem(last=False)
                await self._send(saying, self._known[saying])
            self._work.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Wait until nothing waits; for a clean stop, within the caller's own deadline."""
        await self._idle.wait()

    async def _send(self, saying: _Saying, news: _News) -> None:
        try:
            if not (news.name and await self._bump(saying, news)):
                await self._create(saying, news)
            news.failures = 0
        except (Unreachable, ServerError, TooManyRequests) as error:
            news.failures += 1
            if news.failures >= TRIES:
                self._drop(saying, error)
                return
            self._waiting[saying] = None
            self._waiting.move_to_end(saying, last=False)
            await asyncio.sleep(jittered_s(news.failures, base_s=0.2, cap_s=10.0, random=random.random))
        except Exception as error:  # an Event that cannot be sent must not end the telling of the others
            self._drop(saying, error)

    async def _create(self, saying: _Saying, news: _News) -> None:
        subject = saying.subject
        namespace = subject.namespace or "default"
        name = f"{subject.name[:230]}.{secrets.token_hex(8)}"
        reference = {"apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name, "uid": subject.uid}
        if subject.namespace:
            reference["namespace"] = subject.namespace
        body: dict[str, Any] = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "type": saying.severity.value,
            "reason": saying.reason,
            "message": saying.message,
            "count": news.count,
            "firstTimestamp": news.first,
            "lastTimestamp": news.last,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }
        await self._api.create(_EVENTS, body, namespace)
        news.name = name
        self.sent += 1

    async def _bump(self, saying: _Saying, news: _News) -> bool:
        """Raise the count of an Event that was sent; false when the server has forgotten it."""
        body = {"count": news.count, "lastTimestamp": news.last}
        try:
            await self._api.patch(_EVENTS, news.name, body, namespace=saying.subject.namespace or "default")
        except NotFound:
            news.name = ""
            return False
        self.sent += 1
        return True

    def _drop(self, saying: _Saying, error: Exception) -> None:
        """A namespace that is being deleted takes no new objects, which is nobody's fault."""
        self.dropped += 1
        level = log.debug if isinstance(error, Forbidden) else log.warning
        level("events.dropped", reason=saying.reason, uid=saying.subject.uid, error=f"{type(error).__name__}: {error}")

    def _forget_oldest(self) -> None:
        """Forget what was sent long ago, but nothing that still waits."""
        while len(self._known) > self._remembered:
            oldest = next(iter(self._known))
            if oldest in self._waiting:
                return
            del self._known[oldest]
