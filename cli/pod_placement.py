"""The pod of each rank of a workload, with its node and its state, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluxqueue.api import hostlists
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.pods import Pod
from fluxqueue.cli.tables import columns

__all__ = ["placement", "pod_state", "pod_table"]

_MANY_PODS = 24
_INDEXED = ("Job", "MiniCluster")
"""Kinds of which the completion index of a pod can be its rank."""


@dataclass(frozen=True)
class _PlacedPod:
    rank: int | None
    node: str
    pod: Pod | None


def placement(job: FluxJob, pods: Sequence[Pod], *, by_index: bool = True) -> list[_PlacedPod]:
    """Return the pod of each rank.

    An indexed pod has its rank as completion index. Any other pod gets a rank of its node, so that a row with
    two different nodes is a pod on a wrong node.

    Parameters
    ----------
    job
        Its nodes are an RFC 29 hostlist; entry i is the node of rank i. An invalid one counts as empty.
    pods
        The workload's pods; if several have one index, the newest counts.
    by_index
        True if an index is a rank. It is none of a Job that was started with fewer pods, nor of a gang: its
        Jobs count each by itself.

    Returns
    -------
    list
        Rank, its node and its pod, including ranks without a pod and pods without a rank.
    """
    try:
        hosts = hostlists.decode(job.status.nodes)
    except hostlists.InvalidHostlist:
        hosts = []
    by_index = by_index and job.spec.object_ref.kind in _INDEXED
    taken: dict[int, Pod] = {}
    others: list[Pod] = []
    for pod in sorted(
        pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name), reverse=True
    ):
        index = pod.completion_index
        if by_index and index is not None and index < len(hosts):
            if index in taken:
                continue
            taken[index] = pod
        else:
            others.append(pod)
    free: dict[str, list[int]] = {}
    for rank in reversed(range(len(hosts))):
        if rank not in taken:
            free.setdefault(hosts[rank], []).append(rank)
    unplaced: list[Pod] = []
    for pod in reversed(others):
        ranks = free.get(pod.spec.node_name or "")
        if ranks:
            taken[ranks.pop()] = pod
        else:
            unplaced.append(pod)
    placed = [_PlacedPod(rank, host, taken.get(rank)) for rank, host in enumerate(hosts)]
    return placed + [_PlacedPod(pod.completion_index, "", pod) for pod in unplaced]


def pod_state(pod: Pod) -> str:
    """Return the phase of a pod with what its node says of it, or what delays it:
    a scheduling gate, the scheduler, its deletion.
    """
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    if pod.spec.scheduling_gates:
        return f"Gated by {', '.join(gate.name for gate in pod.spec.scheduling_gates)}"
    scheduled = pod.status.condition("PodScheduled")
    if pod.held:
        before = (
            f"; {scheduled.message}"
            if scheduled is not None and scheduled.status == "False" and scheduled.message
            else ""
        )
        return f"Waits for the queue{before}"
    if pod.status.phase == "Pending" and scheduled is not None and scheduled.status == "False":
        return f"{scheduled.reason}: {scheduled.message}" if scheduled.message else scheduled.reason
    return f"{pod.status.phase}: {pod.status.message}" if pod.status.message else pod.status.phase


def pod_table(placed: Sequence[_PlacedPod], *, every_pod: bool) -> str:
    """Return a table of pods; empty if there are none."""
    if not placed:
        return ""
    shown = placed if every_pod else placed[:_MANY_PODS]
    rows = []
    for each in shown:
        on = each.pod.spec.node_name or "" if each.pod else ""
        if on and each.node and on != each.node:
            on += " (not its node)"
        rank = "" if each.rank is None else str(each.rank)
        rows.append(
            [
                rank,
                each.node,
                each.pod.metadata.name if each.pod else "",
                on,
                pod_state(each.pod) if each.pod else "",
            ]
        )
    text = columns(["RANK", "NODE", "POD", "RUNS ON", "POD STATE"], rows)
    hidden = len(placed) - len(shown)
    more = f"  ... and {hidden} more (-o wide shows all)\n" if hidden else ""
    return "\n" + "".join(f"  {line}\n" for line in text.splitlines()) + more
