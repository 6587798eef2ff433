"""The order in which complete requests are answered.

A review is decided in less than a millisecond, but a client that sends thousands of them would let everybody
else wait for all of its own. So every second turn goes to the addresses one after the other, however many
requests each of them has. The other turns go to the request that has waited longest. They keep many addresses
with one request each from taking nearly all turns of an address with many requests, as the API server's is.
Between a few turns the event loop reads what has arrived.

A large request takes a hundred times the time of a usual one. Large requests have lines of their own, which
get one turn of each round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

__all__ = ["Turns"]

_AT_ONCE = 4


class _Waiting:
    def __init__(self, address: str, key: Hashable, start: Callable[[], None]) -> None:
        self.address = address
        self.key = key
        self.start = start
        self.gone = False


class _Lines:
    """Waiting requests, in the order of their arrival and by address."""

    def __init__(self) -> None:
        self._all: deque[_Waiting] = deque()
        self._by_address: dict[str, deque[_Waiting]] = {}
        self._oldest_next = False

    def append(self, entry: _Waiting) -> None:
        self._all.append(entry)
        self._by_address.setdefault(entry.address, deque()).append(entry)

    def next(self) -> _Waiting | None:
        """Return the request whose turn it is; None if nobody waits."""
        while self._all and self._all[0].gone:
            self._all.popleft()
        self._oldest_next = not self._oldest_next
        if self._oldest_next:
            return self._all[0] if self._all else None
        while self._by_address:
            address = next(iter(self._by_address))
            line = self._by_address.pop(address)
            while line and line[0].gone:
                line.popleft()
            if line:
                self._by_address[address] = line
                return line[0]
        return None


class Turns:
    """Requests that wait.

    Parameters
    ----------
    later
        Calls a function in the next round of the event loop (`asyncio.AbstractEventLoop.call_soon`).
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._by_key: dict[Hashable, _Waiting] = {}
        self._usual, self._large = _Lines(), _Lines()
        self._given = 0
        self._scheduled = False

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._by_key)

    def take(self, address: str, key: Hashable, start: Callable[[], None], *, large: bool = False) -> None:
        """Start a request when it is its turn, at once if nobody waits.

        Parameters
        ----------
        address
            Address of its client.
        key
            Identity of the request for `leave`; no other waiting request has it.
        start
            Starts the request.
        large
            True for a request that takes much longer than others.
        """
        if not self._by_key and self._given < _AT_ONCE:
            self._given += _AT_ONCE if large else 1
            self._schedule()
            start()
            return
        entry = self._by_key[key] = _Waiting(address, key, start)
        (self._large if large else self._usual).append(entry)
        self._schedule()

    def leave(self, key: Hashable) -> None:
        """Remove a request whose client has gone, if it waits."""
        entry = self._by_key.pop(key, None)
        if entry is not None:
            entry.gone = True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._later(self._give)

    def _give(self) -> None:
        self._scheduled, self._given = False, 0
        while self._given < _AT_ONCE and (entry := self._usual.next()) is not None:
            self._start(entry)
        if (entry := self._large.next()) is not None:
            self._start(entry)
        if self._by_key:
            self._schedule()

    def _start(self, entry: _Waiting) -> None:
        self._given += 1
        self.leave(entry.key)
        entry.start()
