"""The files of a container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fluxqueue.local.kubelet.limits import ContainerGroup

__all__ = ["ContainerFiles"]


@dataclass(frozen=True)
class ContainerFiles:
    """The files of a container.

    Attributes
    ----------
    folder
        Where it works, if the pod says nothing else.
    logs
        The folder of its logs.
    root
        An empty folder for a root of its own; None if it shares that of this machine.
    mounts
        Source and target of its volumes and of the files that the node provides.
    message
        The file of its termination message.
    group
        Its control group.
    """

    folder: Path
    logs: Path
    root: Path | None
    mounts: Sequence[tuple[str, str]]
    message: Path
    group: ContainerGroup = field(default_factory=ContainerGroup)
