"""Keeping a Store equal to what the API server has.

List once, page by page, then watch from the list's resourceVersion on. Bookmarks (about one a minute) move that version forward
while nothing happens, so that a watch which breaks can go on where it stopped, however long it was quiet. What can go wrong, and
what is done:

* The watch ends, as the server is asked to let it after 4 to 5 minutes (drawn, so that all watches do not end together): watch again.
* The connection breaks, or the server answers with an error: wait (0.5 to 30 s, jittered), watch again from the same version.
* Silence for longer than bookmarks are apart: the connection only looks alive (a half-closed one, a proxy that forgot it): watch
  again. Silent a second time in a row: list again, for the server may have been restored from a backup, and then it has no events
  that are newer than what we know.
* 410, as an answer, as an event, or between two pages: what we know is older than the server remembers. List again; the store turns
  the difference into changes. No change is lost, but states in between are, as with any level-triggered cache.
* 401 and 403: kept in :attr:`Reflector.last_error` and logged once; tried for ever, since RBAC may come later than we do.
* An object that does not fit its struct: left out of the store, named in :attr:`Reflector.undecodable`, logged.

There is no periodic resync: it would only hide bugs in handlers, and the sweep of the queue looks for those on purpose.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from typing import Any, Final, Generic

import msgspec
import structlog

from fluxqueue.kube.backoff import jittered_s
from fluxqueue.kube.decoding import Event, Meta, decode, decoder
from fluxqueue.kube.errors import ApiError, Expired, Forbidden, Silent, Unauthorized, Undecodable, decode_error
from fluxqueue.kube.kinds import Key, Kind, T
from fluxqueue.kube.store import Store
from fluxqueue.kube.transport import PAGE_LIMIT, Api

__all__ = ["Reflector"]

SILENCE_S: Final = 75.0
"""The API server sends a bookmark every 60 s (``defaultBookmarkFrequency`` in apiserver/pkg/storage/cacher)."""

WATCH_S: Final = (240, 300)
BASE_S: Final = 0.5
CAP_S: Final = 3.0
"""A queue is ready again only when the last of its watches is, so a short outage must not become a long one."""

SHORT_WATCH_S: Final = 1.0
"""A watch that ends sooner and brought nothing is a failure, or a server that closes at once would be asked without pause."""

log: Final = structlog.get_logger(__name__)


class Reflector(Generic[T]):
    """List and watch one kind into a store.

    Parameters
    ----------
    api, kind, store
        From where, what, and where to.
    namespace
        None for all.
    label_selector, field_selector
        What to leave out; an object that stops matching is deleted from the store.
    watch_s
        Between how many seconds the server is asked to end a watch.
    silence_s
        Seconds without a byte after which a watch is taken for dead.

    Attributes
    ----------
    synced
        Set when the store holds the first complete list.
    last_error
        Why news may be late; None while all is well.
    resource_version
        The state that the store shows.
    relists, reconnects
        How often, for metrics.
    undecodable
        Objects the store lacks because they do not fit their struct, and what is wrong with each.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind[T],
        store: Store[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        watch_s: tuple[int, int] = WATCH_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._api = api
        self._kind = kind
        self._store = store
        self._namespace = namespace
        self._selection = {"label_selector": label_selector, "field_selector": field_selector}
        self._watch_s = watch_s
        self._silence_s = silence_s
        self._heard_at = float("-inf")
        self._failures = 0
        self._silences = 0
        self._log: Any = log.bind(kind=kind.plural, **({"namespace": namespace} if namespace else {}))
        self.synced = asyncio.Event()
        self.last_error: ApiError | None = None
        self.resource_version = ""
        self.relists = 0
        self.reconnects = 0
        self.undecodable: dict[Key, str] = {}

    @property
    def age_s(self) -> float:
        """Seconds since the server was last heard (list, event, bookmark); infinity before the first time."""
        return time.monotonic() - self._heard_at

    @property
    def healthy(self) -> bool:
        """Whether the store is filled and the server was heard lately enough that news cannot be much older than that."""
        return self.synced.is_set() and self.age_s < 2 * self._silence_s

    async def run(self) -> None:
        """List and watch until cancelled; every failure is dealt with here."""
        while True:
            try:
                if not self.resource_version:
                    await self._list()
                await self._watch()
                continue
            except Expired as error:
                self._log.info("reflector.expired", resource_version=self.resource_version, error=str(error))
                self.resource_version = ""
            except Silent as error:
                self._silences += 1
                self._note(error)
                if self._silences > 1:
                    self.resource_version = ""
            except ApiError as error:
                self._note(error)
                if any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
                    self.resource_version = ""
            wait_s = jittered_s(self._failures, base_s=BASE_S, cap_s=CAP_S, random=random.random)
            self._failures += 1
            await asyncio.sleep(wait_s)

    async def _list(self) -> None:
        """Collect all pages; when the server forgets the list's moment half-way, all at once, which cannot expire."""
        started = time.monotonic()
        try:
            objects, version, undecodable = await self._pages(PAGE_LIMIT)
        except Expired:
            objects, version, undecodable = await self._pages(0)
        self._store.replace(objects)
        self.undecodable = undecodable
        for (namespace, name), why in undecodable.items():
            self._log.error("reflector.undecodable", namespace=namespace, name=name, error=why)
        self.resource_version = version
        self.relists += 1
        self._heard()
        self._log.info("reflector.listed", objects=len(objects), seconds=round(time.monotonic() - started, 3), resource_version=version)
        self.synced.set()

    async def _pages(self, limit: int) -> tuple[list[T], str, dict[Key, str]]:
        objects: list[T] = []
        undecodable: dict[Key, str] = {}
        token = ""
        while True:
            page = await self._api.page(self._kind, self._namespace, **self._selection, limit=limit, continue_token=token)
            objects += page.items
            undecodable |= page.undecodable
            self._heard()
            token = page.continue_token
            if not token:
                return objects, page.resource_version, undecodable

    async def _watch(self) -> None:
        """Follow until the server ends the stream; raises for every other end."""
        started = time.monotonic()
        events = 0
        stream = self._api.watch(
            self._kind,
            self._namespace,
            **self._selection,
            resource_version=self.resource_version,
            timeout_s=random.randint(*self._watch_s),
            silence_s=self._silence_s,
        )
        async with aclosing(stream):
            async for lines in stream:
                if not lines:
                    self._recovered()
                for line in lines:
                    self._take(decode(line, Event, f"watch {self._kind.plural}"))
                events += len(lines)
                self._heard()
                if lines:
                    self._failures = self._silences = 0
                    await asyncio.sleep(0)  # a storm of events must not starve the rest of the process
        self.reconnects += 1
        if not events and time.monotonic() - started < SHORT_WATCH_S:
            raise ApiError(200, "ShortWatch", f"watch {self._kind.plural}: closed by the server at once")

    def _take(self, event: Event) -> None:
        if event.type == "BOOKMARK":
            self.resource_version = decode(event.object, Meta, "bookmark").metadata.resource_version
            return
        if event.type == "ERROR":
            raise decode_error(0, bytes(event.object), doing=f"watch {self._kind.plural}")
        try:
            obj = decoder(self._kind.type).decode(event.object)
        except msgspec.MsgspecError as error:
            self._leave_out(event, str(error))
            return
        if self.undecodable:
            self.undecodable.pop((obj.metadata.namespace, obj.metadata.name), None)
        if event.type == "DELETED":
            self._store.remove(obj)
        else:
            self._store.apply(obj)
        self.resource_version = obj.metadata.resource_version

    def _leave_out(self, event: Event, why: str) -> None:
        """An old state of what we cannot read is worth less than none: a relist would not have it either."""
        meta = decode(event.object, Meta, f"watch {self._kind.plural}").metadata
        self.resource_version = meta.resource_version
        if stale := self._store.get(meta.namespace, meta.name):
            self._store.remove(stale)
        if event.type == "DELETED":
            self.undecodable.pop((meta.namespace, meta.name), None)
        else:
            self.undecodable[meta.namespace, meta.name] = why
            self._log.error("reflector.undecodable", namespace=meta.namespace, name=meta.name, error=why)

    def _heard(self) -> None:
        self._heard_at = time.monotonic()

    def _note(self, error: ApiError) -> None:
        """Log the first of a row of equal errors; a watch that the network cut once is not worth a line."""
        previous = self.last_error
        self.last_error = error
        if type(error) is not type(previous) or (isinstance(error, Unauthorized | Forbidden) and str(error) != str(previous)):
            level = "error" if isinstance(error, Unauthorized | Forbidden | Undecodable) else "warning"
            getattr(self._log, level)("reflector.failed", error=str(error), resource_version=self.resource_version)

    def _recovered(self) -> None:
        if self.last_error is not None:
            self._log.info("reflector.recovered", resource_version=self.resource_version)
            self.last_error = None
