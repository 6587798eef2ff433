"""What the nodes of a local cluster are: processes, which run what their pods say, or simulated, which only
say so.

Pods run as processes unless somebody says otherwise, the nodes were others when the cluster of the folder was
last up, they are many, or this machine lets this user make no namespaces: without them pods have no names of
Services.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys

__all__ = ["KINDS", "PROCESSES", "SIMULATED", "can_make_namespaces", "choose", "note_on"]

PROCESSES, SIMULATED = "processes", "simulated"
KINDS = (PROCESSES, SIMULATED)
_REMEDY = (
    "on Ubuntu `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0` helps, "
    "elsewhere root with CAP_SYS_ADMIN"
)
_MANY_NODES = 64
_TRY_TIMEOUT_S = 60


def choose(wanted: str, before: str, nodes: int) -> str:
    """Return the kind of the nodes of a cluster that is to be started.

    Parameters
    ----------
    wanted
        What was asked for; empty if nothing was.
    before
        What they were when the cluster was last up; empty if it never was.
    nodes
        How many.
    """
    if wanted or before:
        return wanted or before
    return PROCESSES if nodes <= _MANY_NODES and can_make_namespaces() else SIMULATED


def note_on(kind: str, nodes: int = 0) -> str:
    """Return what somebody who starts such nodes without asking for simulated ones has to know;
    empty if there is nothing.
    """
    if kind == SIMULATED and nodes > _MANY_NODES:
        return (
            f"more than {_MANY_NODES} nodes are simulated, and nothing computes: "
            "`--nodes processes` in addition for others"
        )
    if can_make_namespaces():
        return ""
    if kind == SIMULATED:
        return f"no namespaces can be made here, so its nodes are simulated, and nothing computes: {_REMEDY}"
    return (
        "no namespaces can be made here, so pods have no names of Services, "
        "and their mounts are replaced in commands, arguments and"
        f" variables: {_REMEDY}"
    )


@functools.cache
def can_make_namespaces() -> bool:
    """True if processes of this user can have namespaces of their own:
    tried in a program of its own, which becomes a reaper for it.
    """
    try:
        return (
            subprocess.run(
                [sys.executable, "-m", __name__],
                stdin=subprocess.DEVNULL,
                timeout=_TRY_TIMEOUT_S,
                check=False,
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


async def _try() -> bool:
    from fluxqueue.local.kubelet.children import Children
    from fluxqueue.local.kubelet.machine import can_make_namespaces as can

    children = Children()
    children.watch()
    return await can(children)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(_try()) else 1)
