"""What a computer must offer before real nodes can run on it, and the sentence that says what is missing.

Nothing is installed by this module. The programs of Debian's packages are searched on PATH; the CNI plugins
in the usual folders of the distributions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from fluxqueue.local.nodes.control_groups import find_hierarchies
from fluxqueue.local.nodes.layout import HOST_LINK, NETWORK

__all__ = ["CannotRunNodes", "cni_folder", "image_obstacle", "node_obstacle"]

_NODE_PROGRAMS = {
    "runc": "runc",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
"""Program -> package of Debian. The CNI plugin portmap needs iptables, kube-proxy nft and conntrack."""
_IMAGE_PROGRAMS = {"buildah": "buildah", "unshare": "util-linux", "debootstrap": "debootstrap", "tar": "tar"}
_CNI_PLUGINS = ("bridge", "host-local", "portmap", "loopback")
_CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--fork")


class CannotRunNodes(RuntimeError):
    """The computer lacks something that real nodes need; the message is one sentence that says what."""


def node_obstacle() -> str:
    """Return why real nodes cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "real nodes need root, because kubelet and containerd do: run the command with sudo"
    if missing := _missing(_NODE_PROGRAMS):
        return f"real nodes need programs that are missing here: install the packages {' '.join(missing)}"
    if cni_folder() is None:
        return (
            f"real nodes need CNI plugins ({', '.join(_CNI_PLUGINS)}): "
            "install the package containernetworking-plugins"
        )
    if reason := _namespace_obstacle():
        return f"real nodes need namespaces of their own, which cannot be made here: {reason}"
    if not find_hierarchies():
        return (
            "real nodes need control groups that root may write, and none below /sys/fs/cgroup is: run "
            "outside a container, or privileged"
        )
    return _network_obstacle()


def image_obstacle() -> str:
    """Return why images cannot be built here; empty if they can."""
    if os.geteuid() != 0:
        return "images of real nodes are built by root only: run the command with sudo"
    if missing := _missing(_IMAGE_PROGRAMS):
        return (
            f"building images needs programs that are missing here: install the packages {' '.join(missing)}"
        )
    return ""


def cni_folder() -> Path | None:
    """Return the folder of the CNI plugins; None if there is none that has all."""
    folders = (Path(folder) for folder in _CNI_FOLDERS)
    return next(
        (folder for folder in folders if all(os.access(folder / name, os.X_OK) for name in _CNI_PLUGINS)),
        None,
    )


def _missing(programs: Mapping[str, str]) -> Iterable[str]:
    return sorted({package for program, package in programs.items() if shutil.which(program) is None})


def _namespace_obstacle() -> str:
    try:
        tried = subprocess.run(
            ["unshare", *_NAMESPACES, "true"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"unshare ended with {tried.returncode}"


def _network_obstacle() -> str:
    if Path("/sys/class/net", HOST_LINK).exists():
        return (
            f"the network link {HOST_LINK} exists: another cluster of real nodes runs, "
            "end it with `fluxqueue local nodes down`"
        )
    routes = subprocess.run(
        ["ip", "-4", "route", "show", "root", f"{NETWORK}.0/24"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    if taken := routes.stdout.strip():
        return f"the network {NETWORK}.0/24 of the machines is in use here: {taken.splitlines()[0]}"
    return ""
