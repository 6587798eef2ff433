"""Whether this user can make the namespaces in which containers of the node agent have their mounts,
host names and names of Services.
"""

from __future__ import annotations

import os
import subprocess

import pytest

__all__ = ["can_be_made", "needs_namespaces"]


def can_be_made() -> bool:
    """True if a process of this user can have mounts and a host name of its own;
    in most containers it cannot.
    """
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    words = ["unshare", "--mount", "--uts", *own, "sh", "-c", "mount -t tmpfs none /tmp && hostname other"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def needs_namespaces() -> None:
    """Skip a test where there are none."""
    if not can_be_made():
        pytest.skip("no namespaces can be made here")
