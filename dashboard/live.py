"""Changes of a page, sent to the browser as they happen (server-sent events).

A stream waits for a change in the cluster, lets a second of changes come together, and sends what differs
from what the browser has: rows of the table, or the middle of another page. It looks again who asks and what
he may see before everything it sends, so a right that is taken away ends the view within seconds. While the
API server does not answer that, nothing new is sent. What is sent is made once for all who see the same
(`job_table`, `site.SharedRenders`), and the streams of one person take a small part of the event loop
(`loop_shares`).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import orjson

from fluxqueue.dashboard.loop_shares import TooMany
from fluxqueue.dashboard.pages.queue_page import RowUpdates, read_query
from fluxqueue.dashboard.sessions import Session
from fluxqueue.dashboard.site import Asked, Content, NoSuchPage, Site

__all__ = [
    "GATHER_S",
    "MOST_STREAMS",
    "NO_ANSWER",
    "PAGE_GATHER_S",
    "STALE",
    "HtmlUpdates",
    "JobUpdates",
    "Streams",
    "Updates",
    "stream",
]

Make = Callable[[Site, Asked], Awaitable[Content]]

MOST_STREAMS: Final = 400
_MOST_OF_ONE: Final = 12
_MOST_OF_PERSON: Final = 60
GATHER_S: Final = 1.0
PAGE_GATHER_S: Final = 3.0
"""Pages that are made as a whole for each set of visible namespaces are sent more rarely than rows."""
_LOOK_S: Final = 10.0
NO_ANSWER: Final = "The API server does not answer"
STALE: Final = "Changes in the cluster do not arrive now: what is shown may be old"


class Streams:
    """The open streams, limited in all, for each session, and for each person in all of his sessions.

    Nobody has more than are left for others; ServiceAccounts of a namespace count together there.

    Parameters
    ----------
    most, of_session, of_person
        How many there may be.
    """

    def __init__(
        self, most: int = MOST_STREAMS, *, of_session: int = _MOST_OF_ONE, of_person: int = _MOST_OF_PERSON
    ) -> None:
        self._most, self._of_session, self._of_person = most, of_session, of_person
        self._open: Counter[tuple[str, str]] = Counter()

    def enter(self, session: Session) -> None:
        """Count a stream of a session.

        Raises
        ------
        TooMany
            There are too many.
        """
        counted, person = _counted(session), session.person
        if (
            self._open["session", session.key] >= self._of_session
            or self._open["person", person.username] >= self._of_person
            or self._open["party", person.party] >= self._most - self._open["all", ""]
        ):
            raise TooMany("too many pages are open: close some, or reload this one from time to time")
        self._open.update(counted)

    def leave(self, session: Session) -> None:
        """Count a stream no more."""
        self._open -= Counter(_counted(session))


def _counted(session: Session) -> tuple[tuple[str, str], ...]:
    person = session.person
    return ("all", ""), ("session", session.key), ("person", person.username), ("party", person.party)


class HtmlUpdates:
    """The middle of a page, sent whole if it differs from what was sent last.

    Parameters
    ----------
    make
        Makes the page.
    fresh
        True if nothing has changed since the page was made.
    """

    def __init__(self, make: Make, *, fresh: bool) -> None:
        self._make = make
        self._fresh = fresh
        self._sent = b""

    async def update(self, site: Site, asked: Asked) -> dict[str, Any] | None:
        """Return the new content; None if it is the same."""
        try:
            content = await self._make(site, asked)
        except NoSuchPage as error:
            return {"gone": str(error)}
        digest = hashlib.sha256(content.html.encode(errors="replace")).digest()
        changed = digest != self._sent and not self._fresh
        self._sent, self._fresh = digest, False
        return {"html": str(content.html)} if changed else None


class _TableUpdates:
    """Rows of the queue."""

    def __init__(self, updates: RowUpdates) -> None:
        self._updates = updates

    async def update(self, site: Site, asked: Asked) -> dict[str, Any] | None:
        return self._updates.update(site, asked)


class JobUpdates:
    """The page of one job, made again when its FluxJob changes, and from time to time: its pods and Events
    cost the API server requests.

    Parameters
    ----------
    updates
        Of the page.
    clock
        Seconds that only increase.
    """

    def __init__(self, updates: HtmlUpdates, clock: Callable[[], float] = time.monotonic) -> None:
        self._updates = updates
        self._clock = clock
        self._made: tuple[bool, str] | None = None
        self._again = 0.0

    async def update(self, site: Site, asked: Asked) -> dict[str, Any] | None:
        """Return the new content; None if it is the same, or not looked at yet."""
        namespace, name = asked.path.get("namespace", ""), asked.path.get("name", "")
        job = site.state.jobs.get(namespace, name)
        present = (asked.visible.shows(namespace), job.metadata.resource_version if job is not None else "")
        if present == self._made and self._clock() < self._again:
            return None
        self._made, self._again = present, self._clock() + _LOOK_S
        return await self._updates.update(site, asked)


Updates = HtmlUpdates | JobUpdates | _TableUpdates


def updates_of(name: str, make: Make, asked: Asked, version: int) -> Updates:
    """Return what follows a page that was made when the cluster had the version that its address names."""
    fresh = asked.parameters.get("version", "") == str(version)
    if name == "queue":
        return _TableUpdates(RowUpdates(read_query(asked.parameters), fresh=fresh))
    updates = HtmlUpdates(make, fresh=fresh)
    return JobUpdates(updates) if name == "job" else updates


async def stream(
    site: Site, asked: Asked, updates: Updates, *, gather_s: float = GATHER_S
) -> AsyncGenerator[bytes, None]:
    """Yield events until the session is over.

    Parameters
    ----------
    site, asked
        What the page is made from; what may be seen is looked up again each time.
    updates
        What the browser has.
    gather_s
        How long changes come together.
    """
    yield b"retry: 2000\n\n"
    said, party = "", asked.viewer.person.party
    while await site.door.holds(asked.viewer.session):
        version = site.state.version
        asked = await site.ask(asked.viewer, asked.parameters, asked.path)
        if site.shares.pause_s(party) > 0:
            await site.shares.wait(party)
            continue
        unanswered = asked.visible.unanswered
        why = NO_ANSWER if unanswered else STALE if site.stale() else ""
        changed = await site.shares.run(party, updates.update(site, asked)) if not unanswered else None
        if why != said or (why and changed is not None):
            changed, said = {**(changed or {}), "stale": why}, why
        yield b": nothing new\n\n" if changed is None else _event(changed)
        if changed is not None and "gone" in changed:
            return
        if unanswered:
            await asyncio.sleep(5 * gather_s)
        elif await site.state.changed_since(version, _LOOK_S):
            await asyncio.sleep(gather_s)
    yield b"event: over\ndata: {}\n\n"


def _event(changed: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(changed) + b"\n\n"
