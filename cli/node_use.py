"""What nodes have, what fluxqueue's work uses of them, and the state that follows, in the words of sinfo.

The use is that of the FluxJobs: the slots of their jobspecs on the nodes of their hostlists. What runs beside
fluxqueue does not count here; the queue counts it when it matches. All functions but `read_cluster` are pure
functions of the objects.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

import msgspec

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import LIVE, FluxJob
from fluxqueue.api.formatting import natural_order
from fluxqueue.api.graphnames import CPU, MEMORY, is_gpu, resource_name
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.nodes import Node
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import list_jobs
from fluxqueue.cli.remedies import not_found

__all__ = [
    "NODE_STATES",
    "Amounts",
    "NodeUse",
    "asked_by_pod",
    "chosen",
    "count_cores",
    "list_nodes",
    "node_uses",
    "read_cluster",
]

NODE_STATES: Final = ("idle", "mixed", "allocated", "draining", "drained", "down")
_FORBIDDEN = 403
_PAGE = "500"
_NODES = "/api/v1/nodes"
_LONGEST_REASON = 60


class _ListMeta(PartialObject, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Nodes(PartialObject, frozen=True):
    items: tuple[Node, ...] = ()
    metadata: _ListMeta = _ListMeta()


@dataclass
class Amounts:
    """Cores, GiB of memory and GPUs."""

    cpu: float = 0.0
    memory_gib: float = 0.0
    gpus: int = 0

    def add(self, other: Amounts) -> None:
        """Add other amounts to these."""
        self.cpu += other.cpu
        self.memory_gib += other.memory_gib
        self.gpus += other.gpus


@dataclass
class NodeUse:
    """A node, and what is used of it.

    Attributes
    ----------
    node
        As the API server has it.
    total, used
        What it has for pods, and what work has of it.
    work
        Titles of the workloads with a slot there, each with its number of slots.
    whole
        True if a workload has the node alone.
    """

    node: Node
    total: Amounts
    used: Amounts = field(default_factory=Amounts)
    work: dict[str, int] = field(default_factory=dict)
    whole: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.metadata.name

    @property
    def state(self) -> str:
        """One of `NODE_STATES`."""
        if not self.node.status.ready:
            return "down"
        if self.node.spec.unschedulable:
            return "draining" if self.work else "drained"
        if not self.work:
            return "idle"
        full = (
            self.whole
            or self.used.cpu >= self.total.cpu
            or (self.total.gpus and self.used.gpus >= self.total.gpus)
        )
        return "allocated" if full else "mixed"

    @property
    def reason(self) -> str:
        """Why it gets no work, or only some; empty if nothing keeps work away."""
        node = self.node
        if not node.status.ready:
            ready = next((each for each in node.status.conditions or () if each.type == "Ready"), None)
            return (ready.reason or "NotReady") if ready is not None else "NoStatus"
        if (maintenance := node.metadata.annotation(names.MAINTENANCE_ANNOTATION)) is not None:
            return f"maintenance {maintenance}"[:_LONGEST_REASON]
        if node.spec.unschedulable:
            return "cordoned"
        pressure = [
            each.type
            for each in node.status.conditions or ()
            if each.type != "Ready" and each.status == "True"
        ]
        taints = [
            f"taint {taint.key}"
            for taint in node.spec.taints or ()
            if taint.effect in ("NoSchedule", "NoExecute")
        ]
        return ", ".join([*pressure, *taints])[:_LONGEST_REASON]


def read_cluster(
    client: ApiClient, namespace: str, selector: str = "", notes: TextIO | None = None
) -> list[NodeUse]:
    """Read nodes and FluxJobs.

    Parameters
    ----------
    client
        The API server.
    namespace
        Whose work is shown to a person who may not see that of all.
    selector
        Labels of the nodes.
    notes
        Standard error: says if not all work is shown.

    Raises
    ------
    ClusterError
        The person may not list nodes; the message says how to get the right.
    """
    try:
        nodes = list_nodes(client, selector)
    except ApiRefused as error:
        if error.status != _FORBIDDEN:
            raise
        raise ClusterError(
            "error: you may not list nodes; an administrator gives you the right by: kubectl create "
            "clusterrole nodes-view --verb=get,list --resource=nodes && kubectl create clusterrolebinding "
            f"NAME --clusterrole=nodes-view --user=YOU ({error})"
        ) from None
    try:
        listed, _ = list_jobs(client, None)
    except ApiRefused as error:
        if error.status != _FORBIDDEN:
            raise
        listed, _ = list_jobs(client, namespace)
        (notes or sys.stderr).write(
            f"Only the work of namespace {namespace} is shown: you may not list the FluxJobs of all.\n"
        )
    return node_uses(nodes, [item.job for item in listed])


def count_cores(client: ApiClient) -> float | None:
    """Return how many cores the nodes have; None if the person may not list them."""
    try:
        nodes = list_nodes(client)
    except ApiRefused:
        return None
    cores = 0.0
    for node in nodes:
        with contextlib.suppress(InvalidQuantity):
            cores += float(parse_quantity((node.status.allocatable or {}).get("cpu", 0)))
    return cores


def list_nodes(client: ApiClient, selector: str = "") -> list[Node]:
    """Return the nodes with some labels; raises `ClusterError` where the server refuses."""
    found: list[Node] = []
    params = {"limit": _PAGE, **({"labelSelector": selector} if selector else {})}
    while True:
        page = msgspec.json.decode(client.get(_NODES, params), type=_Nodes)
        found += page.items
        if not page.metadata.continue_:
            return found
        params["continue"] = page.metadata.continue_


def node_uses(nodes: Iterable[Node], jobs: Iterable[FluxJob]) -> list[NodeUse]:
    """Return the nodes in the order of their names, with the use of live work."""
    uses = {node.metadata.name: NodeUse(node, _total(node)) for node in nodes}
    for job in jobs:
        if state_of(job) in LIVE and job.status.nodes:
            _count(uses, job)
    return [uses[name] for name in sorted(uses, key=natural_order)]


def _count(uses: dict[str, NodeUse], job: FluxJob) -> None:
    from fluxqueue.queue.model.jobspecs import takes_whole_nodes

    title = f"{job.metadata.namespace}/{object_name(job) or job.metadata.name}"
    try:
        hosts = hostlists.decode(job.status.nodes)
        slots = asked_by_pod(job, len(hosts))
        whole = takes_whole_nodes(job.spec.jobspec)
    except (hostlists.InvalidHostlist, ValueError, KeyError, TypeError):
        return  # a FluxJob of another version: its use is unknown
    for at, host in enumerate(hosts):
        use = uses.get(host)
        if use is None:
            continue
        use.used.add(slots[at] if at < len(slots) else Amounts())
        use.work[title] = use.work.get(title, 0) + 1
        use.whole |= whole


def asked_by_pod(job: FluxJob, most: int) -> list[Amounts]:
    """Return what each pod of a workload asked for, in the order of ranks, for at most so many pods.

    Raises
    ------
    ValueError, KeyError, TypeError
        The jobspec is that of another version.
    """
    from fluxqueue.queue.model.jobspecs import slots_in

    return [
        _slot(members) for _, number, members in slots_in(job.spec.jobspec) for _ in range(min(number, most))
    ][:most]


def _slot(members: Mapping[str, int]) -> Amounts:
    gpus = sum(count for kind, count in members.items() if is_gpu(resource_name(kind)))
    return Amounts(members.get(CPU, 0) / 1000, members.get(MEMORY, 0) / 1024, gpus)


def _total(node: Node) -> Amounts:
    has = node.status.allocatable or node.status.capacity or {}
    gpus = sum(int(_number(has[name])) for name in has if is_gpu(name))
    return Amounts(_number(has.get("cpu", 0)), _number(has.get("memory", 0)) / (1 << 30), gpus)


def _number(text: str | int | float) -> float:
    try:
        return float(parse_quantity(text))
    except InvalidQuantity:
        return 0.0


def chosen(uses: Sequence[NodeUse], wanted: Sequence[str], states: Sequence[str]) -> list[NodeUse]:
    """Return the nodes of some names and states; empty: all.

    Raises
    ------
    ClusterError
        A name does not exist.
    """
    known = {use.name for use in uses}
    for name in wanted:
        if name not in known:
            raise not_found("nodes", name)
    return [use for use in uses if (not wanted or use.name in wanted) and (not states or use.state in states)]
