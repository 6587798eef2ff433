"""Compares Fluxion's graph with the tables, the nodes and the pods that are not ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fluxqueue.fluxion.messages import JobMode, NodeShare
from fluxqueue.queue.recovery.findings import Difference, Finding
from fluxqueue.queue.recovery.snapshot import SystemSnapshot
from fluxqueue.queue.scheduling.graph.graph_jobs import stored_jobid

__all__ = ["compare_graph"]


def compare_graph(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Yield the differences; a snapshot that is not thorough has only the ids of Fluxion's jobs."""
    if not snapshot.thorough:
        yield from _job_ids(snapshot)
        return
    yield from _jobs(snapshot)
    yield from _nodes(snapshot)
    yield from _foreign(snapshot)


def _job_ids(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Fluxion has the stored jobs and no others."""
    stored = {int(allocation.jobid) for allocation in snapshot.allocations if allocation.open_slots}
    held = {stored_jobid(job.jobid) for job in snapshot.graph_jobs if job.mode is JobMode.ALLOCATED}
    for jobid in sorted(stored ^ held):
        where = "stored and not in Fluxion" if jobid in stored else "in Fluxion and not stored"
        yield Finding(Difference.GRAPH_JOBS, f"job {jobid}", f"job {jobid} is {where}")


def _jobs(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """Fluxion holds the stored slots, allocated and reserved, and no others."""
    stored = Counter(
        (int(slot.jobid), slot.node) for allocation in snapshot.allocations for slot in allocation.open_slots
    )
    for reservation in snapshot.reservations:
        stored.update(
            {(int(reservation.jobid), share.node): sum(share.slots.values()) for share in reservation.shares}
        )
    held = Counter[tuple[int, str]]()
    for job in snapshot.graph_jobs:
        if job.mode in (JobMode.ALLOCATED, JobMode.RESERVED):
            held.update(
                {(stored_jobid(job.jobid), share.node): sum(share.slots.values()) for share in job.shares}
            )
    for jobid, node in sorted(stored.keys() | held.keys()):
        if stored[jobid, node] != held[jobid, node]:
            sentence = (
                f"job {jobid} holds room for {held[jobid, node]} pods on {node} in Fluxion, for "
                f"{stored[jobid, node]} in the tables"
            )
            yield Finding(Difference.GRAPH_JOBS, f"job {jobid}", sentence)


def _nodes(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """The graph has the nodes of the cluster with their amounts, and each is up if it is usable."""
    known = {use.node: use for use in snapshot.graph_nodes}
    for name in sorted(snapshot.specs.keys() | known.keys()):
        spec, use = snapshot.specs.get(name), known.get(name)
        if spec is None or use is None:
            missing = "the cluster" if spec is None else "the graph"
            yield Finding(Difference.GRAPH_NODES, f"node {name}", f"node {name} is not in {missing}")
        elif use.up == spec.down:
            graph, cluster = "up" if use.up else "down", "not usable" if spec.down else "usable"
            yield Finding(
                Difference.GRAPH_NODES,
                f"node {name}",
                f"node {name} is {graph} in the graph and {cluster} in the cluster",
            )
        elif wrong := [pool for pool in spec.pools if use.total.get(pool.type, 0) != pool.total]:
            pool = wrong[0]
            sentence = (
                f"node {name} has {use.total.get(pool.type, 0)} {pool.type} in the graph and {pool.total} "
                "in the cluster"
            )
            yield Finding(Difference.GRAPH_NODES, f"node {name}", sentence)


def _foreign(snapshot: SystemSnapshot) -> Iterator[Finding]:
    """The graph holds what pods that are not ours take of each node, or the node is closed."""
    taken: dict[str, NodeShare] = {
        share.node: share for job in snapshot.graph_jobs if job.mode is JobMode.SYSTEM for share in job.shares
    }
    closed = {use.node for use in snapshot.graph_nodes if use.closed}
    for node, wanted in sorted(snapshot.foreign.items()):
        spec = snapshot.specs.get(node)
        if spec is None or node in closed:
            continue
        sizes = {pool.type: pool.vertex_size for pool in spec.pools}
        amounts: Mapping[str, int] = taken[node].amounts if node in taken else {}
        for kind in sorted(sizes.keys() & (wanted.keys() | amounts.keys())):
            requested, held = wanted.get(kind, 0), amounts.get(kind, 0)
            if not requested <= held < requested + sizes[kind] + (0 if requested else 1):
                sentence = (
                    f"pods that are not ours have {requested} {kind} of node {node}, "
                    f"the graph holds {held} for them"
                )
                yield Finding(Difference.GRAPH_FOREIGN, f"node {node}", sentence)
