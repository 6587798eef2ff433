"""Names, addresses and folders of real nodes.

Each node is a machine of its own: process 1 in new mount, PID, network, UTS and IPC namespaces. The first
machine also runs the control plane. Names and addresses are fixed, because one computer has only one such
cluster at a time: a second one would share the control groups and the network link.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION
from fluxqueue.local.user_folders import cache_folder, state_folder

__all__ = [
    "API_SERVER_PORT",
    "CONTROL_GROUP",
    "DNS_ADDRESS",
    "HOST_ADDRESS",
    "HOST_LINK",
    "NETWORK",
    "POD_NETWORK",
    "Machine",
    "NodeLayout",
    "content_digest",
    "nodes_cache",
]

NETWORK = "10.200.0"
"""Of the machines: .1, .2, ...; the computer itself is .254."""
HOST_ADDRESS = f"{NETWORK}.254"
POD_NETWORK = "10.244"
"""Of the pods: those of machine i are .i.0/24."""
DNS_ADDRESS = "10.96.0.10"
API_SERVER_PORT = 6443
HOST_LINK = "fluxqueue0"
"""The network link of the computer into the machines' network."""
CONTROL_GROUP = "fluxqueue-nodes"
"""The control group of everything that the kubelets start, in every hierarchy."""


@dataclass(frozen=True)
class Machine:
    """One machine.

    Attributes
    ----------
    number
        From 1 on.
    folder
        Its data: containers, logs, configuration, volumes.
    """

    number: int
    folder: Path

    @property
    def name(self) -> str:
        """The name of its node."""
        return f"n{self.number}"

    @property
    def address(self) -> str:
        """Its address in the network of the machines."""
        return f"{NETWORK}.{self.number}"

    @property
    def pods(self) -> str:
        """The network of its pods."""
        return f"{POD_NETWORK}.{self.number}.0/24"


@dataclass(frozen=True)
class NodeLayout:
    """The folders of one cluster of real nodes.

    Attributes
    ----------
    folder
        Data of the cluster; by default beside that of ``fluxqueue local``.
    """

    folder: Path = dataclasses.field(default_factory=lambda: state_folder().with_name("nodes"))

    @property
    def plane(self) -> Path:
        """Data of the control plane."""
        return self.folder / "plane"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.plane / "admin.kubeconfig"

    @property
    def state(self) -> Path:
        """The file that says which machines run."""
        return self.folder / "machines.json"

    def machine(self, number: int) -> Machine:
        """Return a machine by its number."""
        return Machine(number, self.folder / f"n{number}")


def nodes_cache() -> Path:
    """Return the folder of programs and images, which survive clusters."""
    return cache_folder() / "nodes"


def content_digest(*parts: bytes | str | Path) -> str:
    """Return 16 hexadecimal digits that change with texts, files and whole folders."""
    digest = hashlib.sha256(KUBERNETES_VERSION.encode())
    for part in parts:
        if isinstance(part, Path):
            files = sorted(path for path in part.rglob("*") if path.is_file()) if part.is_dir() else [part]
            for file in files:
                content = file.read_bytes()
                digest.update(f"{file.relative_to(part)} {len(content)} ".encode() + content)
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]
