"""What `nodes` of the client returns: the nodes with what fluxqueue's work uses of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluxqueue.cli.node_use import NODE_STATES, NodeUse, node_uses
from fluxqueue.client.arguments import check_texts, many
from fluxqueue.client.errors import InvalidWork
from fluxqueue.client.listings import Listing, listing_of_kind
from fluxqueue.kube.errors import Forbidden
from fluxqueue.kube.kinds import FLUXJOBS, NODES

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["ListedNode", "NodeListing", "read_nodes"]


@dataclass(frozen=True)
class ListedNode:
    """One node.

    Attributes
    ----------
    name, state, reason
        Of the node; ``state`` is ``idle``, ``mixed``, ``allocated``, ``draining``, ``drained`` or ``down``;
        ``reason`` says why it takes no work, or only some.
    cores, memory_gib, gpus
        What it has for pods.
    cores_used, memory_gib_used, gpus_used
        What fluxqueue's work has of it.
    work
        The workloads there, as ``namespace/job/name``, each with its number of pods.
    """

    name: str
    state: str
    reason: str
    cores: float
    cores_used: float
    memory_gib: float
    memory_gib_used: float
    gpus: int
    gpus_used: int
    work: Mapping[str, int]


class NodeListing(Listing[ListedNode]):
    """The nodes, as a sequence; ``print`` and notebooks show a table.

    Parameters
    ----------
    uses
        The nodes, with what is used of them.
    only
        The namespace whose work alone is counted, because you may not list that of all; empty: all work is
        counted.

    Attributes
    ----------
    only
        As above.
    """

    def __init__(self, uses: Sequence[NodeUse], only: str = "") -> None:
        from fluxqueue.cli.node_listing import each_cells

        note = (
            f"Only the work of namespace {only} is shown: you may not list the FluxJobs of all."
            if only
            else ""
        )
        super().__init__([_listed(use) for use in uses], *each_cells(uses), "there are no such nodes", note)
        self.only = only


async def read_nodes(api: Api, namespace: str, selector: str, states: Iterable[str]) -> NodeListing:
    """Return the nodes of some labels and states.

    Raises
    ------
    InvalidWork
        There is no such state.
    FluxQueueError
        The API server refuses, or does not answer.
    """
    wanted = [*many("states", states, "['idle', 'mixed']")]
    check_texts("states", wanted, "['idle', 'mixed']")
    if unknown := [state for state in wanted if state.lower() not in NODE_STATES]:
        raise InvalidWork(
            f"states: {unknown[0]!r} is not a state of nodes: there are {', '.join(NODE_STATES)}"
        )
    only = ""
    with listing_of_kind("FluxJobs"):
        nodes = await api.list(NODES, label_selector=selector or None)
        try:
            jobs = await api.list(FLUXJOBS)
        except Forbidden:
            jobs, only = await api.list(FLUXJOBS, namespace), namespace
    kept = {state.lower() for state in wanted}
    return NodeListing([use for use in node_uses(nodes, jobs) if not kept or use.state in kept], only)


def _listed(use: NodeUse) -> ListedNode:
    total, used = use.total, use.used
    amounts = (total.cpu, used.cpu, total.memory_gib, used.memory_gib, total.gpus, used.gpus)
    return ListedNode(use.name, use.state, use.reason, *amounts, dict(use.work))
