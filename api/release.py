"""The name of the distribution, which people install, and its version.

The package index has another project called ``fluxqueue``. So the distribution has a name of its own, while
the package and the commands are called fluxqueue.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DISTRIBUTION", "version"]

DISTRIBUTION: Final = "fluxqueue-hpc"


def version() -> str:
    """Return the version of this installation."""
    from importlib import metadata

    return metadata.version(DISTRIBUTION)
