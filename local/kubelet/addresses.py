"""Loopback addresses: one network for an agent, in it one address for each pod.

Linux accepts every address of 127.0.0.0/8 without configuration, also for users. The agent's server listens
on the first address of its network, so two agents cannot have the same one. Addresses are reused as late as
possible.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Sequence

__all__ = ["NETWORKS", "PORTS", "AddressesExhausted", "PodAddresses", "agent_address", "bind_agent"]

NETWORKS = range(64, 128)
"""The second byte of the addresses of an agent: 127.64.0.0/10 in all."""
PORTS = range(10_250, 20_250, 1000)
"""Ports of the agent's server: that of a kubelet, and others if it is taken.
The status of a node tells which one it is."""
_NUMBERS = range(1 << 8, 1 << 14)
"""The last two bytes of the addresses of pods."""


class AddressesExhausted(RuntimeError):
    """No address is free."""


def agent_address(network: int) -> str:
    """Return the address of an agent's server."""
    return f"127.{network}.0.1"


def bind_agent(ports: Sequence[int] = PORTS) -> tuple[int, socket.socket]:
    """Choose a network by binding the agent's address in it; return the network and the socket.

    The next port is tried if no network has the one before, for example because a kubelet listens on all
    addresses. All agents try the same ports in the same order, so that two of them do not share a network.

    Raises
    ------
    AddressesExhausted
        None is free, or this is not Linux.
    """
    networks = random.sample(NETWORKS, len(NETWORKS))
    for port in ports:
        for network in networks:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                listener.bind((agent_address(network), port))
            except OSError:
                listener.close()
                continue
            return network, listener
    words = ", ".join(str(port) for port in ports)
    raise AddressesExhausted(
        f"no address between 127.{NETWORKS[0]}.0.1 and 127.{NETWORKS[-1]}.0.1 has one of the ports {words} "
        "free"
    )


class PodAddresses:
    """The addresses of a network's pods."""

    def __init__(self, network: int) -> None:
        self._network = network
        self._free = deque(number for number in _NUMBERS if number % 256 not in (0, 255))

    def take(self) -> str:
        """Return an address that no pod has.

        Raises
        ------
        AddressesExhausted
            Every one is used.
        """
        if not self._free:
            raise AddressesExhausted("every address of the agent's network is used")
        number = self._free.popleft()
        return f"127.{self._network}.{number // 256}.{number % 256}"

    def give_back(self, address: str) -> None:
        """Free an address."""
        *_, high, low = address.split(".")
        self._free.append(int(high) * 256 + int(low))
