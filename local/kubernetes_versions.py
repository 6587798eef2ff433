"""The versions of Kubernetes that a local control plane can have.

Each minor version has one patch version, whose programs are built from
``local/data/kubernetes-MINOR/go.mod``, that of the default from ``local/data/controlplane/go.mod``.
``fluxqueue local up --kubernetes`` chooses one; where nobody does, ``FLUXQUEUE_KUBERNETES`` does, so that
every tier of tests and every benchmark runs on the version that it names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "DEFAULT_MINOR",
    "KUBERNETES_VERSION",
    "VERSIONS",
    "StateIsNewer",
    "chosen_minor",
    "minor_of",
    "remember_version",
]

VERSIONS: Mapping[str, str] = {"1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3", "1.37": "v1.37.2"}
"""The version that is built, by its minor version."""

DEFAULT_MINOR = "1.36"
KUBERNETES_VERSION = VERSIONS[DEFAULT_MINOR]
"""The default version, with whose programs etcd, kwok and helm are built."""


class StateIsNewer(RuntimeError):
    """A newer Kubernetes has written the state of a control plane; the message says what to do."""


def chosen_minor() -> str:
    """Return what ``FLUXQUEUE_KUBERNETES`` names, or the default; it may be no version of `VERSIONS`."""
    return os.environ.get("FLUXQUEUE_KUBERNETES") or DEFAULT_MINOR


def minor_of(version: str) -> str:
    """Return the minor version of a version, such as 1.36 of v1.36.3."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def remember_version(folder: Path, version: str) -> None:
    """Write down which version uses the data folder of a control plane.

    Raises
    ------
    StateIsNewer
        A newer minor version used it before: this one may not be able to read what that has written.
    """
    path = folder / "kubernetes-version"
    former, minor = (path.read_text() if path.exists() else "1.0"), minor_of(version)
    if int(former.partition(".")[2]) > int(minor.partition(".")[2]):
        remedy = (
            "choose that version, delete the data (`fluxqueue local down --delete`), "
            "or name another folder (--dir)"
        )
        raise StateIsNewer(
            f"Kubernetes {former} used {folder} before, and {minor} may not be able to read its state: "
            f"{remedy}"
        )
    path.write_text(minor)
