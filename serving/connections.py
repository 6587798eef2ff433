"""The connections of a server, and which of them ends when there are too many or when they hold too much.

Every pod of a cluster can connect to a server that listens for the API server, and the API server has no
certificate by which it could be told from them. So nobody is preferred by name. Instead the connection that
is worth least ends, and the newcomer is served:

- An address with more than half of all connections loses one of its own, so one pod takes nothing from
  another address.
- Otherwise a connection ends that was never answered, of the address with most of them. A client that works
  is answered within milliseconds of its connection, one that only holds connections is not, and so the oldest
  ends first.
- Only then an idle connection ends, of the address with most connections. Its client may be about to use it,
  so this comes last.

Each step of a connection has a deadline, also its silence before a request and between two. Requests together
hold a limited number of bytes: beyond it, the oldest unfinished request ends of the address that holds most.
A request that is complete is never ended for another one.

A request that ends here is answered with 429 and ``Retry-After``. The API server repeats such a review up to
ten times within the time-out of the webhook (``k8s.io/client-go/rest/with_retry.go``), so not even an unlucky
admission fails.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ConnectionEnding", "ConnectionLimits", "Connections", "LimitedConnection", "Stage"]


class Stage(enum.Enum):
    """What a connection is doing."""

    HANDSHAKE = "handshake"
    """TLS is not complete."""
    IDLE = "idle"
    """No byte of a request has arrived since the last response."""
    RECEIVING = "receiving"
    """A request has begun and is not complete."""
    WAITING = "waiting"
    """A request is complete and waits for its turn."""
    ANSWERING = "answering"
    """The application has the request, and its response is not written."""


_COMPLETE = (Stage.WAITING, Stage.ANSWERING)


class ConnectionEnding(enum.Enum):
    """Why a connection was ended; the closed set of a metric's label."""

    CROWDED = "crowded"
    """There were too many connections."""
    BUSY = "busy"
    """A complete request waited too long for its turn."""
    MEMORY = "memory"
    """The requests together held too many bytes."""
    SLOW = "slow"
    """A handshake, a request or the reading of a response took too long."""
    IDLE = "idle"
    """No request arrived for too long."""
    LARGE = "large"
    """A request was larger than any object."""
    MALFORMED = "malformed"
    """The bytes are not HTTP as the API server speaks it."""


_LATE = {Stage.WAITING: ConnectionEnding.BUSY, Stage.IDLE: ConnectionEnding.IDLE}
"""Why a connection ends at the deadline of a stage, where it is not slowness."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a server.

    Attributes
    ----------
    connections
        The number of open connections, those in a handshake included.
    held_bytes
        The number of bytes in the bodies of all requests together.
    body_bytes
        The number of bytes in the body of one request.
    request_s
        Seconds for a handshake, and from the first byte of a request to its last.
    turn_s
        Seconds that a complete request waits for its turn; less than the time-out of the webhook, so that it
        can be sent again.
    response_s
        Seconds for an answer, until the client has read it.
    idle_s
        Seconds without a request. The clients of the control plane close idle connections themselves after 90
        seconds.
    one_request
        True if a connection ends after its first answer.
    whole_requests
        True if the application gets a request when it is complete. False: when its head is; the application
        then bounds the body itself.
    """

    connections: int = 1_024
    held_bytes: int = 16 * 2**20
    body_bytes: int = 3 * 2**20 + 2**18
    request_s: float = 5.0
    turn_s: float = 2.5
    response_s: float = 10.0
    idle_s: float = 180.0
    one_request: bool = False
    whole_requests: bool = True

    def allowed_s(self, stage: Stage) -> float:
        """Seconds that a connection may stay in a stage."""
        match stage:
            case Stage.HANDSHAKE | Stage.RECEIVING:
                return self.request_s
            case Stage.WAITING:
                return self.turn_s
            case Stage.ANSWERING:
                return self.response_s
            case Stage.IDLE:
                return self.idle_s


class LimitedConnection(Protocol):
    """A connection as this module sees it.

    Attributes
    ----------
    address
        Address of the client, without its port.
    stage, since
        What it is doing, and since when, in seconds of the server's clock.
    answered
        True once a request was answered on it.
    held
        The number of bytes that its request holds.
    """

    address: str
    stage: Stage
    since: float
    answered: bool
    held: int

    def end(self, ending: ConnectionEnding) -> None:
        """Answer what can be answered and close the connection; it then leaves by `Connections.leave`."""


class Connections:
    """All connections of a server.

    Parameters
    ----------
    limits
        The limits.
    clock
        Monotonic seconds.
    observe
        Called for each connection that was ended.
    timed
        Called whenever a connection begins something, which has a deadline: `sweep` is to be called soon.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Callable[[], float],
        observe: Callable[[ConnectionEnding], None],
        timed: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self.clock = clock
        self.timed = timed
        self._observe = observe
        self._open: dict[LimitedConnection, None] = {}
        self._by_address: Counter[str] = Counter()
        self._held = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """The number of bytes that all requests hold together."""
        return self._held

    def enter(self, connection: LimitedConnection) -> None:
        """Count a new connection; end the one that is worth least if there are too many."""
        self._open[connection] = None
        self._by_address[connection.address] += 1
        self.timed()
        if len(self._open) > self.limits.connections:
            self.end(self._least(connection), ConnectionEnding.CROWDED)

    def leave(self, connection: LimitedConnection) -> None:
        """Forget a connection that is closed or was ended; repeated calls do nothing."""
        if connection not in self._open:
            return
        del self._open[connection]
        self.release(connection)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def hold(self, connection: LimitedConnection, size: int) -> None:
        """Count bytes of a request; end unfinished requests, possibly this one,
        until all together hold no more than they may.
        """
        connection.held += size
        self._held += size
        while self._held > self.limits.held_bytes and (largest := self._largest()) is not None:
            self.end(largest, ConnectionEnding.MEMORY)

    def release(self, connection: LimitedConnection) -> None:
        """Forget the bytes of a request that was answered."""
        self._held -= connection.held
        connection.held = 0

    def end(self, connection: LimitedConnection, ending: ConnectionEnding) -> None:
        """End a connection that is still open."""
        if connection in self._open:
            self.leave(connection)
            self._observe(ending)
            connection.end(ending)

    def sweep(self) -> float | None:
        """End every connection that is past its deadline.

        Returns
        -------
        float or None
            Seconds to the next deadline; None if no connection is open.
        """
        now = self.clock()
        for connection in list(self._open):
            if now - connection.since > self.limits.allowed_s(connection.stage):
                self.end(connection, _LATE.get(connection.stage, ConnectionEnding.SLOW))
        deadlines = (each.since + self.limits.allowed_s(each.stage) for each in self._open)
        return max(0.0, next_s - now) if (next_s := min(deadlines, default=None)) is not None else None

    def end_handshakes(self) -> None:
        """End what has sent no request yet, because the server stops."""
        for connection in list(self._open):
            if connection.stage is Stage.HANDSHAKE:
                self.end(connection, ConnectionEnding.CROWDED)

    def _least(self, newcomer: LimitedConnection) -> LimitedConnection:
        """Return the connection to end for a newcomer; the newcomer itself if every other one has sent a
        complete request.
        """
        address, count = self._by_address.most_common(1)[0]
        shares = count <= self.limits.connections / 2
        # a flood makes this the usual case
        if not shares and (silent := self._oldest_silent(address, newcomer)) is not None:
            return silent
        candidates = [each for each in self._open if each is not newcomer and each.stage not in _COMPLETE]
        if not candidates:
            return newcomer
        if not shares and (own := [each for each in candidates if each.address == address]):
            return min(own, key=lambda each: each.since)
        if strangers := [each for each in candidates if not each.answered]:
            number = Counter(each.address for each in strangers)
            return min(strangers, key=lambda each: (-number[each.address], each.since))
        return min(candidates, key=lambda each: (-self._by_address[each.address], each.since))

    def _oldest_silent(self, address: str, newcomer: LimitedConnection) -> LimitedConnection | None:
        """Return the oldest connection of an address that was never answered and has no complete request;
        None if there is none.
        """
        silent = (
            each
            for each in self._open
            if each.address == address and not each.answered and each.stage not in _COMPLETE
        )
        return next((each for each in silent if each is not newcomer), None)

    def _largest(self) -> LimitedConnection | None:
        """Return the oldest unfinished request of the address whose unfinished requests hold most;
        None if there is none.
        """
        receiving = [each for each in self._open if each.stage is Stage.RECEIVING and each.held]
        held: Counter[str] = Counter()
        for each in receiving:
            held[each.address] += each.held
        return min(receiving, key=lambda each: (-held[each.address], each.since), default=None)
