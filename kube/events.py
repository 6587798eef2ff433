"""Recording of core/v1 Events about users' objects, which ``kubectl describe`` shows.

To record an Event must neither delay the caller nor fail it. So :meth:`EventRecorder.record` only queues it,
and a separate task sends it. A repeated Event about the same object raises the count of the first one: by a
patch if that was sent, and without a call if it is still queued. This keeps the number of writes per job low.
The memory of sent Events is bounded, and so is the queue. What does not fit is not taken and counted, and the
caller hears that; callers never wait. Namespaces take turns, and none may have more in the queue than is left
free. So a crowd of Events of one namespace neither delays nor displaces those of others. An Event that fails
waits for its next turn, and the pauses between attempts grow only while all of them fail.

Events expire on the server (after an hour by default), so if the Event to patch does not exist any more, it
is created again.
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

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.namespacelines import NamespaceLines
from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.errors import Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from fluxqueue.kube.kinds import Kind, T
from fluxqueue.kube.transport import Api

__all__ = ["EventRecorder", "Severity", "Subject"]

COMPONENT: Final = "fluxqueue"
REMEMBERED: Final = 4_096
WAITING: Final = 2_000
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
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: Kind[T], obj: T) -> Subject:
        """Return the subject for a decoded object."""
        meta = obj.metadata
        return cls(kind.api_version, kind.kind, meta.namespace, meta.name, meta.uid)


class _Event(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_EVENTS: Final = Kind("", "v1", "events", "Event", True, _Event)


@dataclass(frozen=True, slots=True)
class _EventKey:
    """What two Events have in common if the second one is a repetition."""

    subject: Subject
    severity: Severity
    reason: str
    message: str


@dataclass(slots=True)
class _EventSeries:
    """How often an Event was recorded, and the name of its object if it was sent."""

    count: int = 0
    first: str = ""
    last: str = ""
    name: str = ""
    failures: int = 0


class EventRecorder:
    """Sends Events in the background while :meth:`run` runs.

    Parameters
    ----------
    api
        The client that sends them.
    instance
        The replica that reports (``reportingInstance``), for example the name of its pod.
    component
        The program that reports (``reportingComponent``).
    now
        The wall clock, in UTC.
    remembered, waiting
        How many Events are remembered for counting, and how many may be queued: of a single namespace half
        of them.

    Attributes
    ----------
    sent, dropped
        How many calls were made, and how many Events were lost because the queue was full or the server
        refused them.
    """

    def __init__(
        self,
        api: Api,
        *,
        instance: str,
        component: str = COMPONENT,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
        remembered: int = REMEMBERED,
        waiting: int = WAITING,
    ) -> None:
        self._api = api
        self._instance = instance
        self._component = component
        self._now = now
        self._remembered = remembered
        self._waiting_limit = waiting
        self._known: OrderedDict[_EventKey, _EventSeries] = OrderedDict()
        self._waiting: NamespaceLines[_EventKey] = NamespaceLines()
        self._failures = 0
        """Of attempts since one succeeded."""
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.sent = 0
        self.dropped = 0

    def record(
        self, subject: Subject, reason: str, message: str, *, severity: Severity = Severity.NORMAL
    ) -> bool:
        """Queue an Event about an object; never waits and never raises.

        Parameters
        ----------
        subject
            The user's object. The Event is created in its namespace, or in ``default`` if it is
            cluster-scoped.
        reason
            One CamelCase word for programs, for example ``Allocated``.
        message
            A sentence for people; it is cut at 1,024 characters.
        severity
            WARNING if somebody should act.

        Returns
        -------
        bool
            False if there is no room: record it again later.
        """
        key = _EventKey(
            subject,
            severity,
            reason,
            message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…",
        )
        free = self._waiting_limit - len(self._waiting)
        if key not in self._waiting and self._waiting.length(subject.namespace) >= free:
            self.dropped += 1
            return False
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        series = self._known.setdefault(key, _EventSeries(first=at))
        series.count += 1
        series.last = at
        self._known.move_to_end(key)
        self._waiting.add(subject.namespace, key)
        self._forget_oldest()
        self._idle.clear()
        self._work.set()
        return True

    async def run(self) -> None:
        """Send queued Events until cancelled."""
        while True:
            await self._work.wait()
            while self._waiting:
                key = self._waiting.take()
                await self._send(key, self._known[key])
            self._work.clear()
            self._idle.set()

    async def flush(self) -> None:
        """Wait until the queue is empty; the caller limits the time."""
        await self._idle.wait()

    async def _send(self, key: _EventKey, series: _EventSeries) -> None:
        try:
            if not (series.name and await self._raise_count(key, series)):
                await self._create(key, series)
            series.failures = self._failures = 0
        except (Unreachable, ServerError, TooManyRequests) as error:
            series.failures += 1
            self._failures += 1
            if series.failures >= TRIES:
                self._drop(key, error)
                return
            self._known[key] = series
            self._waiting.add(key.subject.namespace, key)
            await asyncio.sleep(jittered_s(self._failures, base_s=0.2, cap_s=10.0, random=random.random))
        except Exception as error:  # an Event that cannot be sent must not stop the others
            self._drop(key, error)

    async def _create(self, key: _EventKey, series: _EventSeries) -> None:
        subject = key.subject
        namespace = subject.namespace or "default"
        name = f"{subject.name[:230]}.{secrets.token_hex(8)}"
        reference = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "uid": subject.uid,
        }
        if subject.namespace:
            reference["namespace"] = subject.namespace
        body: dict[str, Any] = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "type": key.severity.value,
            "reason": key.reason,
            "message": key.message,
            "count": series.count,
            "firstTimestamp": series.first,
            "lastTimestamp": series.last,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        await self._api.create(_EVENTS, body, namespace)
        series.name = name
        self.sent += 1

    async def _raise_count(self, key: _EventKey, series: _EventSeries) -> bool:
        """Raise the count of an Event that was sent; false if it has expired on the server."""
        body = {"count": series.count, "lastTimestamp": series.last}
        try:
            await self._api.patch(_EVENTS, series.name, body, namespace=key.subject.namespace or "default")
        except NotFound:
            series.name = ""
            return False
        self.sent += 1
        return True

    def _drop(self, key: _EventKey, error: Exception) -> None:
        """Count and log a lost Event; 403 is only a debug line, because a namespace that is being deleted
        accepts no new objects.
        """
        self.dropped += 1
        level = log.debug if isinstance(error, Forbidden) else log.warning
        level(
            "event.dropped", reason=key.reason, uid=key.subject.uid, error=f"{type(error).__name__}: {error}"
        )

    def _forget_oldest(self) -> None:
        """Forget the Events that were sent longest ago, but none that is queued."""
        while len(self._known) > max(self._remembered, len(self._waiting)):
            oldest, series = self._known.popitem(last=False)
            if oldest in self._waiting:
                self._known[oldest] = series
