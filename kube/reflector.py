"""List and watch: keeping an ObjectCache equal to the state of the API server.

A reflector lists once, page by page, and then watches from the list's resourceVersion. Bookmarks (about one a
minute) advance that version while nothing changes, so a watch that breaks can continue at its version,
however long it was idle. The failures and their handling:

* The watch ends, as the server is asked to end it after 4 to 5 minutes (drawn, so that not all watches end
  together): watch again.
* The connection breaks, or the server returns an error: wait (0.5 to 3 s, jittered) and watch again from the
  same version.
* Nothing arrives for longer than the interval of bookmarks: the connection is only apparently open
  (half-closed, or dropped by a proxy). Watch again. If it happens twice in a row, list again, because the
  server may have been restored from a backup; then it has no events that are newer than the known version.
* 410, as a response, as an event, or between two pages: the known version is older than the server's history.
  List again; the cache turns the difference into changes. No change is lost, but intermediate states are, as
  in any level-triggered cache.
* 401 and 403: kept in :attr:`Reflector.last_error`, logged once and retried without end, because RBAC rules
  may be created later.
* An object does not fit its struct: it is left out of the cache, listed in :attr:`Reflector.undecodable` and
  logged.

There is no periodic resync. It would only hide bugs in handlers, and the queue's sweep looks for those.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic

import msgspec
import structlog

from fluxqueue.api.metadata import PartialObjectMetadata
from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.decoding import WatchEvent, decode, decode_object
from fluxqueue.kube.errors import (
    ApiError,
    Expired,
    Forbidden,
    Unauthorized,
    Undecodable,
    WatchTimeout,
    decode_error,
)
from fluxqueue.kube.kinds import Key, Kind, T
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import PAGE_LIMIT, Api

__all__ = ["Reflector", "WatchTimes"]

BASE_S: Final = 0.5
CAP_S: Final = 3.0
"""A queue is ready only when the last of its watches works again,
so a short outage must not become a long one."""

SHORT_WATCH_S: Final = 1.0
"""A watch that ends earlier without events counts as a failure;
otherwise a server that closes at once would be asked without a pause."""

log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """How long one watch lasts, in seconds.

    Attributes
    ----------
    lasts_s
        Shortest and longest time after which the server is asked to end a watch.
    idle_s
        Time without a byte after which a watch counts as broken. The API server sends a bookmark every 60 s
        (``defaultBookmarkFrequency`` in apiserver/pkg/storage/cacher).
    """

    lasts_s: tuple[int, int] = (240, 300)
    idle_s: float = 75.0


_WATCH_TIMES: Final = WatchTimes()


class Reflector(Generic[T]):
    """Lists and watches one kind into a cache.

    Parameters
    ----------
    api
        The client.
    kind
        The kind to watch.
    cache
        The cache to fill.
    namespace
        None for all namespaces.
    label_selector, field_selector
        The objects to watch; one that stops matching is removed from the cache.
    times
        How long each watch lasts.

    Attributes
    ----------
    synced
        Set when the cache has the first complete list.
    last_error
        Why changes may arrive late; None while the watch works.
    resource_version
        The version of the state in the cache.
    relists, reconnects
        How often it listed and watched again, for metrics.
    undecodable
        Objects that are not in the cache because they do not fit their struct, and the problem of each.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind[T],
        cache: ObjectCache[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        times: WatchTimes = _WATCH_TIMES,
    ) -> None:
        self._api = api
        self._kind = kind
        self._cache = cache
        self._namespace = namespace
        self._selection = {"label_selector": label_selector, "field_selector": field_selector}
        self._times = times
        self._received_at = float("-inf")
        self._failures = 0
        self._timeouts = 0
        self._log: Any = log.bind(kind=kind.plural, **({"namespace": namespace} if namespace else {}))
        self.synced = asyncio.Event()
        self.last_error: ApiError | None = None
        self.resource_version = ""
        self.relists = 0
        self.reconnects = 0
        self.undecodable: dict[Key, str] = {}

    @property
    def age_s(self) -> float:
        """Seconds since something was received (list, event, bookmark); infinity before the first time."""
        return time.monotonic() - self._received_at

    @property
    def healthy(self) -> bool:
        """True if the cache is filled and something was received recently,
        so that the cache is up to date.
        """
        return self.synced.is_set() and self.age_s < 2 * self._times.idle_s

    async def run(self) -> None:
        """List and watch until cancelled; handles all failures."""
        while True:
            try:
                if not self.resource_version:
                    await self._list()
                await self._watch()
                continue
            except Expired as error:
                self._log.info("reflector.expired", resource_version=self.resource_version, error=str(error))
                self.resource_version = ""
            except WatchTimeout as error:
                self._timeouts += 1
                self._failed(error)
                if self._timeouts > 1:
                    self.resource_version = ""
            except ApiError as error:
                self._failed(error)
                if any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
                    self.resource_version = ""
            wait_s = jittered_s(self._failures, base_s=BASE_S, cap_s=CAP_S, random=random.random)
            self._failures += 1
            await asyncio.sleep(wait_s)

    async def _list(self) -> None:
        """List all pages. If the list's version expires between two of them, it begins again:
        all in one response has no bound.
        """
        started = time.monotonic()
        objects, version, undecodable = await self._pages()
        for _ in self._cache.replacing(objects):
            await asyncio.sleep(0)  # many objects must not block the rest of the process
        known, self.undecodable = self.undecodable, {}
        for key, problem in undecodable.items():
            self._note_undecodable(key, problem, known)
        self.resource_version = version
        self.relists += 1
        self._received()
        self._log.info(
            "reflector.listed",
            objects=len(objects),
            seconds=round(time.monotonic() - started, 3),
            resource_version=version,
        )
        self.synced.set()

    async def _pages(self) -> tuple[list[T], str, dict[Key, str]]:
        """Return the objects that the cache keeps, the version of the list,
        and the problems of objects that were left out.
        """
        objects: list[T] = []
        undecodable: dict[Key, str] = {}
        token, limit = "", PAGE_LIMIT
        while True:
            page = await self._api.page(
                self._kind,
                self._namespace,
                label_selector=self._selection["label_selector"],
                field_selector=self._selection["field_selector"],
                limit=limit,
                continue_token=token,
            )
            if self._cache.keeps:
                objects += page.items
            undecodable |= page.undecodable
            self._received()
            token, limit = page.continue_token, min(page.limit, PAGE_LIMIT)
            if not token:
                return objects, page.resource_version, undecodable

    async def _watch(self) -> None:
        """Watch until the server ends the stream; any other end raises."""
        started = time.monotonic()
        events = 0
        stream = self._api.watch(
            self._kind,
            self._namespace,
            **self._selection,
            resource_version=self.resource_version,
            timeout_s=random.randint(*self._times.lasts_s),
            idle_s=self._times.idle_s,
        )
        async with aclosing(stream):
            async for lines in stream:
                if not lines:
                    self._recovered()
                for line in lines:
                    self._apply(decode(line, WatchEvent, f"watch {self._kind.plural}"))
                events += len(lines)
                self._received()
                if lines:
                    self._failures = self._timeouts = 0
                    await asyncio.sleep(0)  # many events in a row must not block the rest of the process
        self.reconnects += 1
        if not events and time.monotonic() - started < SHORT_WATCH_S:
            raise ApiError(200, "ShortWatch", f"watch {self._kind.plural}: closed by the server at once")
        self._received()

    def _apply(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            self.resource_version = decode(
                event.object, PartialObjectMetadata, "bookmark"
            ).metadata.resource_version
            return
        if event.type == "ERROR":
            raise decode_error(0, bytes(event.object), action=f"watch {self._kind.plural}")
        try:
            obj = decode_object(event.object, self._kind.type)
        except msgspec.MsgspecError as error:
            self._leave_out(event, str(error))
            return
        if self.undecodable:
            self.undecodable.pop((obj.metadata.namespace, obj.metadata.name), None)
        if event.type == "DELETED":
            self._cache.remove(obj)
        else:
            self._cache.apply(obj)
        self.resource_version = obj.metadata.resource_version

    def _leave_out(self, event: WatchEvent, problem: str) -> None:
        """Remove an object that cannot be decoded any more:
        no state is better than an old one, and a relist would not have it.
        """
        meta = decode(event.object, PartialObjectMetadata, f"watch {self._kind.plural}").metadata
        self.resource_version = meta.resource_version
        if stale := self._cache.get(meta.namespace, meta.name):
            self._cache.remove(stale)
        if event.type == "DELETED":
            self.undecodable.pop((meta.namespace, meta.name), None)
        else:
            self._note_undecodable((meta.namespace, meta.name), problem, self.undecodable)

    def _note_undecodable(self, key: Key, problem: str, known: Mapping[Key, str]) -> None:
        """Keep the problem of an object. It is logged once: its controller may change it again and again."""
        if key not in known:
            self._log.error("reflector.undecodable", namespace=key[0], name=key[1], error=problem)
        self.undecodable[key] = problem

    def _received(self) -> None:
        self._received_at = time.monotonic()

    def _failed(self, error: ApiError) -> None:
        """Keep the error, and log the first one of a row of equal errors."""
        previous = self.last_error
        self.last_error = error
        if type(error) is not type(previous) or (
            isinstance(error, Unauthorized | Forbidden) and str(error) != str(previous)
        ):
            level = "error" if isinstance(error, Unauthorized | Forbidden | Undecodable) else "warning"
            getattr(self._log, level)(
                "reflector.failed", error=str(error), resource_version=self.resource_version
            )

    def _recovered(self) -> None:
        if self.last_error is not None:
            self._log.info("reflector.recovered", resource_version=self.resource_version)
            self.last_error = None
