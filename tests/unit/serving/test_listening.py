"""Where servers listen: on one family or on both."""

from __future__ import annotations

import socket

import pytest

from fluxqueue.serving.guarded_server import listen


def answers(family: socket.AddressFamily, address: str, port: int) -> bool:
    """True if a connection is accepted."""
    with socket.socket(family) as client:
        client.settimeout(60)
        try:
            client.connect((address, port))
        except ConnectionRefusedError:
            return False
        return True


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_server_on_all_ipv6_addresses_answers_both_families() -> None:
    with listen("::", 0) as listening:
        port = listening.getsockname()[1]
        assert answers(socket.AF_INET6, "::1", port)
        assert answers(socket.AF_INET, "127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_server_on_the_ipv6_loopback_answers_there_alone() -> None:
    with listen("::1", 0) as listening:
        port = listening.getsockname()[1]
        assert answers(socket.AF_INET6, "::1", port)
        assert not answers(socket.AF_INET, "127.0.0.1", port)
