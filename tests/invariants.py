"""What must hold of a whole fluxqueue whenever nothing is under way: cluster, queue and matcher tell the same story.

Read from the outside: pods and nodes from the API server, allocations from Postgres, jobs from Fluxion's own service. A single look is
not taken at one moment, so after a change a test waits until there is nothing to say.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import psycopg
from replicas import matcher

from fluxqueue.api import names
from fluxqueue.api.objects import Node, Pod
from fluxqueue.api.quantities import parse_quantity
from fluxqueue.api.requests import pod_requests, summed
from fluxqueue.fluxion.client import FluxionClient
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import Call, JobInfo, Mode, NodeShare
from fluxqueue.local.inprocess import InProcessPlane

__all__ = ["fluxion_jobs", "unfinished", "violations"]

_OPEN_SLOTS = """
SELECT a.jobid, s.rank, s.node, s.pod_uid
  FROM fluxqueue.allocation a JOIN fluxqueue.slot s USING (jobid)
 WHERE a.freed_at IS NULL AND s.state <> 'ended'
"""
_RESERVED = "SELECT jobid, shares FROM fluxqueue.reservation"
_UNFINISHED = """
SELECT w.kind, w.name, w.state, w.reason, a.jobid
  FROM fluxqueue.workload w LEFT JOIN fluxqueue.allocation a ON a.workload = w.id AND a.freed_at IS NULL
 WHERE w.namespace = %s AND (a.jobid IS NOT NULL OR w.state NOT IN ('Completed', 'Failed', 'Cancelled'))
"""


def fluxion_jobs(plane: InProcessPlane) -> list[JobInfo]:
    """What Fluxion holds of workloads, of any namespace."""
    name = matcher(plane)
    if name is None:
        raise FluxionError("no queue leads at the moment, so nobody fills a matcher")
    with FluxionClient(f"127.0.0.1:{plane.programs[name].port}") as client:
        return [job for job in client.list_jobs(call=Call(), with_shares=True) if job.mode is not Mode.SYSTEM]


def unfinished(plane: InProcessPlane, namespace: str) -> list[str]:
    """Workloads of a namespace that the queue has not done with, in sentences."""
    return [
        f"the queue still has {kind} {name} as {state} {reason}, allocation {jobid}"
        for kind, name, state, reason, jobid in _asked(plane, _UNFINISHED, namespace)
    ]


def violations(plane: InProcessPlane) -> list[str]:
    """What contradicts itself, in sentences; empty if all is well."""
    slots = _asked(plane, _OPEN_SLOTS)
    pods = [msgspec.convert(item, Pod) for item in plane.control_plane.client.get("/api/v1/pods")["items"]]
    living = [pod for pod in pods if not pod.terminal]
    return [*_overbooked(plane, living), *_unlike(plane, slots), *_misplaced(living, slots)]


def _overbooked(plane: InProcessPlane, living: list[Pod]) -> list[str]:
    """No node bears more than it has."""
    found = []
    for item in plane.control_plane.client.get("/api/v1/nodes")["items"]:
        node = msgspec.convert(item, Node)
        asked = summed(pod_requests(pod.spec) for pod in living if pod.spec.node_name == node.metadata.name)
        offered = {name: parse_quantity(text) for name, text in (node.status.allocatable or {}).items()}
        found += [
            f"pods on {node.metadata.name} request {amount} {name} of {offered.get(name, 0)}"
            for name, amount in asked.items()
            if amount > offered.get(name, 0)
        ]
    return found


def _unlike(plane: InProcessPlane, slots: list[tuple[Any, ...]]) -> list[str]:
    """Fluxion holds the places that are stored, allocated and reserved, and no others."""
    stored = Counter((jobid, node) for jobid, _, node, _ in slots)
    for jobid, shares in _asked(plane, _RESERVED):
        stored.update({(jobid, share.node): sum(share.slots.values()) for share in msgspec.convert(shares, list[NodeShare])})
    try:
        held = Counter({(job.jobid, share.node): sum(share.slots.values()) for job in fluxion_jobs(plane) for share in job.shares})
    except FluxionError as error:
        return [f"Fluxion does not answer: {error}"]
    return [f"job {jobid} holds {held[jobid, node]} places on {node} in Fluxion, {stored[jobid, node]} are stored"
            for jobid, node in sorted(held | stored) if held[jobid, node] != stored[jobid, node]]  # fmt: skip


def _misplaced(living: list[Pod], slots: list[tuple[Any, ...]]) -> list[str]:
    """Each bound pod of ours stands in a place of its allocation, alone."""
    place_of = {uid: (jobid, node) for jobid, _, node, uid in slots if uid}
    found = []
    for pod in living:
        jobid = pod.metadata.annotation(names.ALLOCATION_ANNOTATION)
        if jobid is not None and pod.spec.node_name and place_of.get(pod.metadata.uid) != (int(jobid), pod.spec.node_name):
            where = place_of.get(pod.metadata.uid)
            found.append(f"pod {pod.metadata.name} of allocation {jobid} is on {pod.spec.node_name}, its place is {where}")
    return found


def _asked(plane: InProcessPlane, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(plane.database_dsn, autocommit=True) as connection:
        return connection.execute(query.encode(), parameters).fetchall()
