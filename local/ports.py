"""Free loopback ports that probably stay free until a program has bound them.

A port that the kernel assigns for ``bind(0)`` is in the ephemeral range, where any outgoing connection may
take it a millisecond later. So ports are drawn from below that range, probed by a bind, and never returned
twice by this process. The rest of the race is left to the caller, which tries the next port.
"""

from __future__ import annotations

import random
import socket
import threading

__all__ = ["NoFreePort", "free_port", "is_free"]

_LOW, _HIGH = 20_000, 32_000
_given: set[int] = set()
_lock = threading.Lock()


class NoFreePort(RuntimeError):
    """Every candidate port is taken."""


def is_free(port: int) -> bool:
    """Return true if a program can bind this TCP port on the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Choose a free TCP port on the loopback address.

    Returns
    -------
    int
        A port between 20000 and 31999 that this process has not returned before.

    Raises
    ------
    NoFreePort
        1,000 candidates were all taken.
    """
    with _lock:
        for _ in range(1_000):
            port = random.randrange(_LOW, _HIGH)
            if port not in _given and is_free(port):
                _given.add(port)
                return port
    raise NoFreePort(
        f"no free TCP port between {_LOW} and {_HIGH} on 127.0.0.1: end other programs, or try again"
    )
