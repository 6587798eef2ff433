"""Turns at what is costly while it lasts: so many at a time in all, and fewer of one caller, so that whoever
asks for many waits alone, and not the others with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["CallerTurns", "party_of"]

_ACCOUNT: Final = "system:serviceaccount:"


def party_of(username: str) -> str:
    """Return who counts as one caller: a user, or all ServiceAccounts of a namespace, of which whoever may
    edit there has any number.
    """
    return username.rpartition(":")[0] if username.startswith(_ACCOUNT) else username


class CallerTurns:
    """Lets callers in.

    Parameters
    ----------
    at_once
        How many have a turn at a time.
    of_one
        How many of these one caller has.
    """

    def __init__(self, at_once: int, of_one: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._of_one = of_one
        self._own: dict[Hashable, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: Hashable) -> AsyncIterator[None]:
        """Wait for a turn of a caller, which ends with the context."""
        own, users = self._own.setdefault(caller, (asyncio.Semaphore(self._of_one), []))
        users.append(None)
        try:
            async with own, self._all:
                yield
        finally:
            users.pop()
            if not users:
                del self._own[caller]
