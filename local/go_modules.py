"""The Go modules of the project, of which `toolchain` builds programs,
and that of each version of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fluxqueue.local.binaries import BinariesError
from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION, minor_of

__all__ = ["CONTROL_PLANE", "GoModule", "Version", "control_plane", "read_version"]

Version = tuple[int, ...]


@dataclass(frozen=True)
class GoModule:
    """A Go module of the project, whose tools and own packages are programs to build.

    Attributes
    ----------
    name
        Its folder in the package data.
    content
        What is built and how long it takes, for the display.
    disk_gib
        Free disk space that the build needs.
    own
        Its own main packages, as folders.
    source
        The folder of ``go.mod``, if it is not in the package data.
    assets
        Files and folders of modules that are copied next to the programs, with their paths: module path ->
        paths within the module.
    kubernetes
        The version that Kubernetes' programs in it say.
    """

    name: str
    content: str
    disk_gib: int = 4
    own: tuple[str, ...] = ()
    source: Path | None = None
    assets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kubernetes: str = KUBERNETES_VERSION

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the compiler.

        Without the debugger's tables, which the linker would leave out anyway, the compiled packages take
        less disk.
        """
        settings = {
            "gitVersion": self.kubernetes,
            "gitMajor": "1",
            "gitMinor": minor_of(self.kubernetes).partition(".")[2],
        }
        said = (f"-X k8s.io/component-base/version.{name}={text}" for name, text in settings.items())
        return ("-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", " ".join(("-s -w", *said)))

    @property
    def folder(self) -> Path:
        """The folder of ``go.mod`` and ``go.sum``.

        Raises
        ------
        BinariesError
            The installation is incomplete.
        """
        folder = self.source or Path(__file__).with_name("data") / self.name
        if (folder / "go.sum").is_file():
            return folder.resolve()
        raise BinariesError(f"go.mod is missing from the installation ({folder}): install fluxqueue again")

    @property
    def go(self) -> Version:
        """The oldest Go that can build it, from ``go.mod``."""
        return read_version(re.search(r"^go ([\d.]+)$", (self.folder / "go.mod").read_text(), re.MULTILINE))


CONTROL_PLANE = GoModule(
    "controlplane", f"etcd, Kubernetes {KUBERNETES_VERSION}, kwok and helm (about 6 minutes on 2 cores, once)"
)


def control_plane(version: str) -> GoModule:
    """Return the module of a version of Kubernetes; that of the default has etcd, kwok and helm as well."""
    if version == KUBERNETES_VERSION:
        return CONTROL_PLANE
    content = f"Kubernetes {version} (about 6 minutes on 2 cores, once)"
    return GoModule(f"kubernetes-{minor_of(version)}", content, kubernetes=version)


def read_version(found: re.Match[str] | None) -> Version:
    """Return the numbers of a version that was found, or none."""
    return tuple(int(part) for part in found[1].strip(".").split(".")) if found else ()
