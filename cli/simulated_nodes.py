"""Nodes that kwok simulates: pods on them have states, and no containers, so nothing is printed and nothing
can be entered.

Without the sentence of this module, ``logs`` and ``shell`` would show the API server's complaint about a
connection that was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.cli.api_client import ApiClient, ClusterError

__all__ = ["is_simulated", "nothing_runs_on", "simulated_nodes", "why_nothing_runs"]

_RUNTIME = "kwok://"
_ANNOTATION = "kwok.x-k8s.io/node"
_REMEDY = (
    "on this machine, `fluxqueue local down` and then `fluxqueue local up --nodes processes` give nodes on "
    "which pods compute"
)
_MOST = 8
"""So many nodes are asked; a cluster of both sorts names the first it finds."""


class _NodeInfo(PartialObject, frozen=True):
    container_runtime_version: str = ""


class _Status(PartialObject, frozen=True):
    node_info: _NodeInfo = _NodeInfo()


class _Node(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


def simulated_nodes(client: ApiClient, nodes: Iterable[str]) -> list[str]:
    """Return those of some nodes that are simulated; none if the person may not read nodes."""
    wanted = sorted({node for node in nodes if node and node != names.NO_NODE})[:_MOST]
    found = []
    for name in wanted:
        try:
            answer = client.get(f"/api/v1/nodes/{name}")
        except ClusterError:
            continue
        if is_simulated(answer):
            found.append(name)
    return found


def is_simulated(answer: bytes) -> bool:
    """True if a node, as the API server answers it, is simulated."""
    try:
        node = msgspec.json.decode(answer, type=_Node)
    except msgspec.DecodeError:
        return False
    return node.status.node_info.container_runtime_version.startswith(_RUNTIME) or bool(
        node.metadata.annotation(_ANNOTATION)
    )


def why_nothing_runs(client: ApiClient, nodes: Iterable[str]) -> str:
    """Return that pods on some nodes have no containers; empty if they have, or if it is not known."""
    found = simulated_nodes(client, nodes)
    return nothing_runs_on(found) if found else ""


def nothing_runs_on(found: Sequence[str]) -> str:
    """Return that pods on simulated nodes have no containers."""
    which = f"node {found[0]} is" if len(found) == 1 else f"nodes such as {found[0]} are"
    return (
        f"{which} simulated (kwok), so pods there have states and no containers: nothing is printed, "
        f"measured or entered; {_REMEDY}"
    )
