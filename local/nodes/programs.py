"""The programs of a real node, built once from ``local/data/nodes/go.mod``.

kubelet and kube-proxy have the version of the control plane. They, containerd with its shim, CoreDNS and the
pause program come from one module, so that what they share is compiled once. The cache folder is named after
the module's content: a change of any dependency makes another folder.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from fluxqueue.local.binaries import are_programs, cached_programs
from fluxqueue.local.go_modules import GoModule
from fluxqueue.local.go_programs import BuildDisplay
from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION
from fluxqueue.local.nodes.layout import content_digest, nodes_cache
from fluxqueue.local.toolchain import build_tools

__all__ = ["NODE_MODULE", "NodeProgram", "built_programs", "program_folder"]

NODE_MODULE = GoModule(
    "nodes",
    f"kubelet and kube-proxy {KUBERNETES_VERSION}, containerd and CoreDNS (about 7 minutes on 2 cores, once)",
    disk_gib=6,
    own=("coredns", "pause"),
)


class NodeProgram(Enum):
    """A program of a node; the value is its file name."""

    KUBELET = "kubelet"
    PROXY = "kube-proxy"
    CONTAINERD = "containerd"
    SHIM = "containerd-shim-runc-v2"
    CTR = "ctr"
    COREDNS = "coredns"
    PAUSE = "pause"


_NAMES = [program.value for program in NodeProgram]


def program_folder() -> Path:
    """Return the cache folder of this version's programs, built or not."""
    return nodes_cache() / f"{KUBERNETES_VERSION}-{content_digest(NODE_MODULE.folder)}"


def built_programs(display: BuildDisplay | None = None, *, build: bool = True) -> Path | None:
    """Return the folder of the programs; they are built if they are missing.

    Parameters
    ----------
    display
        Shows the progress of a build.
    build
        False returns None instead of building.

    Raises
    ------
    BinariesError
        The build failed.
    """
    folder = program_folder()
    if not build:
        return folder if are_programs(folder, _NAMES) else None
    return cached_programs(folder, _NAMES, lambda target: build_tools(target, display, NODE_MODULE))
