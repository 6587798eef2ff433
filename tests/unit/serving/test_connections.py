"""Which connection ends when there are too many, when they hold too much, and when they take too long."""

from __future__ import annotations

from fluxqueue.serving.connections import ConnectionEnding, ConnectionLimits, Connections, Stage

LIMITS = ConnectionLimits(connections=4, held_bytes=1_000, request_s=5, turn_s=2, response_s=10)


class Fake:
    """A connection without a network."""

    def __init__(
        self, server: Server, address: str, stage: Stage = Stage.IDLE, *, answered: bool = False
    ) -> None:
        self.address, self.stage, self.since = address, stage, server.now
        self.answered = answered
        self.held = 0
        self.ended: ConnectionEnding | None = None

    def end(self, ending: ConnectionEnding) -> None:
        self.ended = ending


class Server:
    """The connections of a server, with a clock that a test sets."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.now = 0.0
        self.endings: list[ConnectionEnding] = []
        self.timed = 0
        self.connections = Connections(limits, lambda: self.now, self.endings.append, self._count)

    def _count(self) -> None:
        self.timed += 1

    def arrive(self, address: str, stage: Stage = Stage.IDLE, *, answered: bool = False) -> Fake:
        connection = Fake(self, address, stage, answered=answered)
        self.connections.enter(connection)
        self.now += 0.1
        return connection


def test_an_address_with_more_than_half_of_all_connections_loses_its_own() -> None:
    server = Server()
    api_server = server.arrive("10.0.0.1", Stage.HANDSHAKE)
    mine = [server.arrive("10.0.0.9", answered=True) for _ in range(3)]
    latest = server.arrive("10.0.0.9")
    assert [each.ended for each in (api_server, *mine, latest)] == [
        None,
        ConnectionEnding.CROWDED,
        None,
        None,
        None,
    ]
    assert len(server.connections) == 4
    assert server.endings == [ConnectionEnding.CROWDED]


def test_of_one_address_those_never_answered_end_first_and_the_oldest_of_them() -> None:
    server = Server()
    kept = server.arrive("10.0.0.1", answered=True)
    slow = [server.arrive("10.0.0.1", Stage.RECEIVING) for _ in range(3)]
    newcomer = server.arrive("10.0.0.1", Stage.HANDSHAKE)
    assert [each.ended for each in (kept, *slow, newcomer)] == [
        None,
        ConnectionEnding.CROWDED,
        None,
        None,
        None,
    ]


def test_many_addresses_lose_what_was_never_answered_before_a_connection_in_use() -> None:
    server = Server()
    used = [server.arrive("10.0.0.1", answered=True) for _ in range(2)]
    idle = [server.arrive("10.0.0.8"), server.arrive("10.0.0.9")]
    server.arrive("10.0.0.7", Stage.HANDSHAKE)
    assert [each.ended for each in (*used, *idle)] == [None, None, ConnectionEnding.CROWDED, None]


def test_a_complete_request_is_never_ended_for_a_newcomer() -> None:
    server = Server()
    busy = [
        server.arrive("10.0.0.1", stage)
        for stage in (Stage.WAITING, Stage.ANSWERING, Stage.WAITING, Stage.ANSWERING)
    ]
    newcomer = server.arrive("10.0.0.2", Stage.HANDSHAKE)
    assert newcomer.ended is ConnectionEnding.CROWDED
    assert not any(each.ended for each in busy)


def test_bytes_beyond_the_limit_end_the_oldest_request_of_the_address_that_holds_most() -> None:
    server = Server()
    attackers = [server.arrive("10.0.0.9", Stage.RECEIVING) for _ in range(2)]
    for each in attackers:
        server.connections.hold(each, 400)
    api_server = server.arrive("10.0.0.1", Stage.RECEIVING)
    server.connections.hold(api_server, 300)
    assert [each.ended for each in (*attackers, api_server)] == [ConnectionEnding.MEMORY, None, None]
    assert server.connections.held_bytes == 700


def test_bytes_are_given_back_with_the_answer_and_with_the_connection() -> None:
    server = Server()
    answered, lost = server.arrive("10.0.0.1", Stage.RECEIVING), server.arrive("10.0.0.1", Stage.RECEIVING)
    server.connections.hold(answered, 400)
    server.connections.hold(lost, 400)
    server.connections.release(answered)
    server.connections.leave(lost)
    server.connections.leave(lost)
    assert (server.connections.held_bytes, len(server.connections)) == (0, 1)


def test_each_stage_has_its_deadline() -> None:
    server = Server(ConnectionLimits(connections=10, request_s=5, turn_s=2, response_s=10, idle_s=20))
    stages = {stage: server.arrive("10.0.0.1", stage) for stage in Stage}
    assert server.timed == len(Stage)
    for now, over in (
        (1.5, set()),
        (4.0, {Stage.WAITING}),
        (6.0, {Stage.WAITING, Stage.HANDSHAKE, Stage.RECEIVING}),
        (11.0, set(Stage) - {Stage.IDLE}),
        (21.0, set(Stage)),
    ):
        server.now = now
        server.connections.sweep()
        assert {stage for stage, each in stages.items() if each.ended} == over
    assert stages[Stage.WAITING].ended is ConnectionEnding.BUSY
    assert stages[Stage.HANDSHAKE].ended is ConnectionEnding.SLOW
    assert stages[Stage.IDLE].ended is ConnectionEnding.IDLE


def test_a_sweep_tells_when_the_next_deadline_is() -> None:
    server = Server(ConnectionLimits(request_s=5, idle_s=20))
    assert server.connections.sweep() is None, "nobody is connected"
    server.arrive("10.0.0.1")
    server.now = 2
    assert server.connections.sweep() == 18
    server.arrive("10.0.0.1", Stage.HANDSHAKE)
    server.now = 3
    assert server.connections.sweep() == 4


def test_a_server_that_stops_waits_for_no_handshake() -> None:
    server = Server()
    shaking, receiving = (
        server.arrive("10.0.0.1", Stage.HANDSHAKE),
        server.arrive("10.0.0.1", Stage.RECEIVING),
    )
    server.connections.end_handshakes()
    assert (shaking.ended, receiving.ended) == (ConnectionEnding.CROWDED, None)
