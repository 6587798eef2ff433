"""Free loopback ports, chosen so that they stay free for the moment it takes a program to bind them.

A port the kernel hands out for ``bind(0)`` lies in the ephemeral range, where any outgoing connection of the machine may take it
a millisecond later. So candidates are drawn from below that range, probed by binding them, and never given out twice by this
process. What is left of the race is handled by the caller, who starts again with the next port.
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
    """Tell whether a program could bind this TCP port on the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Choose a loopback TCP port that nothing listens on.

    Returns
    -------
    int
        A port between 20000 and 31999, not returned before by this process.

    Raises
    ------
    NoFreePort
        After 1,000 candidates that were all taken.
    """
    with _lock:
        for _ in range(1_000):
            port = random.randrange(_LOW, _HIGH)
            if port not in _given and is_free(port):
                _given.add(port)
                return port
    raise NoFreePort(f"no free TCP port between {_LOW} and {_HIGH} on 127.0.0.1: end other programs, or try again")
