"""The versions of Kubernetes that a local control plane can have.

Each minor version has one patch version, whose programs are built from ``local/data/kubernetes-MINOR/go.mod``, that of the default from
``local/data/controlplane/go.mod``. ``fluxqueue local up --kubernetes`` chooses one; where nobody does, ``FLUXQUEUE_KUBERNETES`` does, so
that every tier of tests and every benchmark runs on the version that it names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["DEFAULT_MINOR", "KUBERNETES_VERSION", "VERSIONS", "chosen_minor", "minor_of"]

VERSIONS: Mapping[str, str] = {"1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3", "1.37": "v1.37.2"}
"""The version that is built, by its minor version."""

DEFAULT_MINOR = "1.36"
KUBERNETES_VERSION = VERSIONS[DEFAULT_MINOR]
"""The default version, with whose programs etcd, kwok and helm are built."""


def chosen_minor() -> str:
    """Return what ``FLUXQUEUE_KUBERNETES`` names, or the default; it may be no version of `VERSIONS`."""
    return os.environ.get("FLUXQUEUE_KUBERNETES") or DEFAULT_MINOR


def minor_of(version: str) -> str:
    """Return the minor version of a version, such as 1.36 of v1.36.3."""
    return ".".join(version.removeprefix("v").split(".")[:2])
