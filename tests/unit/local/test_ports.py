from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fluxqueue.local import ports
from fluxqueue.local.ports import NoFreePort, free_port, is_free


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        yield server.getsockname()[1]


def test_a_port_somebody_listens_on_is_not_free(listening: int) -> None:
    assert not is_free(listening)


def test_a_port_is_free_again_after_its_server_ended_with_connections_open() -> None:
    """TIME_WAIT of the former server must not drive a restarted one to another port."""
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        accepted, _ = server.accept()
        accepted.close()
        client.recv(1)
    assert is_free(port)


def test_ports_lie_below_those_of_outgoing_connections_and_are_given_once() -> None:
    given = [free_port() for _ in range(200)]
    assert len(set(given)) == 200
    assert all(20_000 <= port < 32_000 for port in given)


def test_a_taken_port_is_not_given(listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_LOW", listening)
    monkeypatch.setattr(ports, "_HIGH", listening + 1)
    with pytest.raises(NoFreePort, match=f"between {listening} and {listening + 1} on 127.0.0.1"):
        free_port()
