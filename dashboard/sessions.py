"""Sessions of people who have signed in, in memory.

The cookie has a random number and its signature, so that a made-up one is refused before anything is looked
up. The token of the person stays here: it is in no cookie, no log and no page. A restart of the program, or
signing out, ends a session for good. A session ends an hour after it began, used or not, and the number of
sessions is limited, in all and for each person. Beyond the limit of all, whoever has most gives one up.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fluxqueue.dashboard.people import Person

__all__ = ["LIFETIME_S", "Session", "Sessions"]

LIFETIME_S: Final = 3_600.0
_MOST: Final = 2_000
_MOST_OF_ONE: Final = 20


@dataclass(frozen=True, slots=True)
class Session:
    """One person in one browser.

    Attributes
    ----------
    key
        What the cookie has.
    person
        Who it is.
    token
        With what he signed in; empty if a proxy named him.
    csrf
        What his forms must send back.
    ends
        On the clock of the sessions.
    """

    key: str
    person: Person
    token: str = field(repr=False)
    csrf: str = field(repr=False)
    ends: float


class Sessions:
    """All sessions.

    Parameters
    ----------
    clock
        Seconds that only increase.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._all: dict[str, Session] = {}
        self._notes: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, person: Person, token: str) -> tuple[Session, str]:
        """Begin a session; returns it and the value of its cookie."""
        self._forget_old()
        own = [key for key, session in self._all.items() if session.person.username == person.username]
        for key in own[: max(0, len(own) - _MOST_OF_ONE + 1)]:
            del self._all[key]
        while len(self._all) >= _MOST:
            self._make_room()
        key = secrets.token_urlsafe(32)
        session = Session(key, person, token, self._signed(f"csrf {key}"), self._clock() + LIFETIME_S)
        self._all[key] = session
        return session, f"{key}.{self._signed(key)}"

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is over, or never was."""
        key, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._signed(key).encode()):
            return None
        session = self._all.get(key)
        if session is None or self._clock() >= session.ends:
            self._all.pop(key, None)
            return None
        return session

    def lives(self, session: Session) -> bool:
        """True while a session is not over."""
        return self._all.get(session.key) is session and self._clock() < session.ends

    def end(self, session: Session) -> None:
        """End a session."""
        self._all.pop(session.key, None)
        self._notes.pop(session.key, None)

    def leave_note(self, session: Session, sentence: str) -> None:
        """Keep a sentence for the next page of a session."""
        if session.key in self._all:
            self._notes[session.key] = sentence

    def take_note(self, session: Session) -> str:
        """Return the sentence that was kept, once; empty if there is none."""
        return self._notes.pop(session.key, "")

    def _forget_old(self) -> None:
        now = self._clock()
        for key in [key for key, session in self._all.items() if now >= session.ends]:
            del self._all[key]
        self._notes = {key: note for key, note in self._notes.items() if key in self._all}

    def _make_room(self) -> None:
        """End the oldest session of whoever has most, so that nobody signs others out."""
        parties = Counter(session.person.party for session in self._all.values())
        ((party, _),) = parties.most_common(1)
        del self._all[next(key for key, session in self._all.items() if session.person.party == party)]

    def _signed(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(errors="replace"), hashlib.sha256).hexdigest()
