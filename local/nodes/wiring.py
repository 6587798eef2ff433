"""The network of the machines: a bridge inside the first one, with a link from each other machine and one
from the computer.

The computer gets one link and one address, and nothing is forwarded by it. All links but that one are inside
the machines' namespaces and vanish with them. Pods reach pods of other machines by a route per machine,
without address translation.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from fluxqueue.local.nodes.layout import HOST_ADDRESS, HOST_LINK, Machine
from fluxqueue.local.nodes.machines import MachineError, RunningMachine

__all__ = ["connect", "disconnect"]

_BRIDGE = "machines"


def connect(machines: Mapping[Machine, RunningMachine]) -> None:
    """Connect machines with each other and with this computer.

    Raises
    ------
    MachineError
        A link cannot be made; with the message of ``ip``.
    """
    (first, running), *others = machines.items()
    _ip(running, "link", "add", _BRIDGE, "type", "bridge")
    _ip(running, "addr", "add", f"{first.address}/24", "dev", _BRIDGE)
    _ip(running, "link", "set", _BRIDGE, "up")
    _ip(None, "link", "add", HOST_LINK, "type", "veth", "peer", "name", "host", "netns", str(running.pid))
    _ip(None, "addr", "add", f"{HOST_ADDRESS}/24", "dev", HOST_LINK)
    _ip(None, "link", "set", HOST_LINK, "up")
    _ip(running, "link", "set", "host", "master", _BRIDGE, "up")
    for machine, process in others:
        _ip(
            running,
            "link",
            "add",
            machine.name,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(process.pid),
        )
        _ip(running, "link", "set", machine.name, "master", _BRIDGE, "up")
        _ip(process, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        _ip(process, "link", "set", "eth0", "up")
    for machine, process in machines.items():
        _ip(process, "route", "add", "default", "via", HOST_ADDRESS)
        for other in machines:
            if other is not machine:
                _ip(process, "route", "add", other.pods, "via", other.address)


def disconnect() -> None:
    """Remove the link of this computer; no error if there is none."""
    subprocess.run(["ip", "link", "del", HOST_LINK], capture_output=True, timeout=20, check=False)


def _ip(inside: RunningMachine | None, *words: str) -> None:
    enter = ["nsenter", "-t", str(inside.pid), "-n", "--"] if inside else []
    done = subprocess.run([*enter, "ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise MachineError(f"the machines cannot be connected: ip {' '.join(words)}: {done.stderr.strip()}")
