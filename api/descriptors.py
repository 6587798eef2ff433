"""How many connections a process may hold: what its limit of open files leaves.

A process begins with the soft limit of whoever started it, often 1,024, and may raise it to the hard limit. A
server that takes more connections than that can accept none at all, not even a probe. So the soft limit is
raised before a server listens, and each server takes fewer connections than files may be open. The rest is
for watches, the database, files and the probes of the kubelet.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

__all__ = ["RESERVED", "most_connections"]

RESERVED: Final = 128
"""Open files that no server's connections may use."""
_MOST_FILES: Final = 65_536
"""The soft limit is not raised beyond this, because some programs that a process starts close each file that
may be open."""


def most_connections(wanted: int) -> int:
    """Raise the soft limit of open files, and return how many connections a server may hold.

    Parameters
    ----------
    wanted
        What its settings say.

    Returns
    -------
    int
        The smaller one of ``wanted`` and the open files that are left after `RESERVED`; at least 1.
    """
    return max(1, min(wanted, _raise_soft_limit() - RESERVED))


def _raise_soft_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_FILES
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft >= most:
        return soft
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
