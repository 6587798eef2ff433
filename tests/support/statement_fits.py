"""Where the pods of simple work fit, counted without the queue's code: for statements that too little is
free, or nothing could hold it.

Only work that asks for nothing but cpu and memory is counted: identical pods of a Job without rules about
nodes, volumes, ports, devices or topology, in a queue without rules of its own. Of all other work nothing is
said. What is counted as free is a part of what is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from support.statement_pictures import Picture, ShownWork

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import FluxQueueSpec
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.quantities import parse_quantity

__all__ = ["fits_empty_nodes", "fits_now"]

_RESOURCES = ("cpu", "memory")
_PLAIN_ANNOTATIONS = frozenset(
    {
        names.SUSPENDED_BY_ANNOTATION,
        names.SUBMITTED_BY_ANNOTATION,
        names.DURATION_ANNOTATION,
        names.PRIORITY_ANNOTATION,
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
_PLAIN_FIELDS = (
    "overhead",
    "resources",
    "node_selector",
    "affinity",
    "topology_spread_constraints",
    "tolerations",
    "volumes",
)
_MORE_PLAIN_FIELDS = (
    "resource_claims",
    "init_containers",
    "runtime_class_name",
    "scheduling_group",
    "workload_ref",
    "host_network",
)

_Amounts = Mapping[str, Decimal]


def fits_empty_nodes(work: ShownWork, picture: Picture) -> str:
    """Say on which nodes simple work would fit if they were empty;
    empty if it would not, or if nothing can be said.
    """
    asked = _asked(work, picture)
    if asked is None or any(
        _of_daemon_set(owner.kind) for pod in picture.pods for owner in pod.metadata.owner_references or ()
    ):
        return ""
    usable = {name: _allocatable(node) for name, node in picture.nodes.items() if not _closed(node)}
    return _enough(work, asked, usable)


def fits_now(work: ShownWork, picture: Picture) -> str:
    """Say on which nodes simple work would fit now, with nothing reserved for others;
    empty if it would not, or if nothing can be said.
    """
    asked = _asked(work, picture)
    others = any(each.workload != work.row.id for each in picture.ledger.reservations)
    if asked is None or others or picture.reservations or work.row.requeues:
        return ""
    taken = {share.node for each in picture.ledger.allocations for share in each.shares}
    taken |= {pod.spec.node_name for pod in picture.pods if pod.spec.node_name and not pod.terminal}
    free = {
        name: _allocatable(node)
        for name, node in picture.nodes.items()
        if name not in taken and not _closed(node)
    }
    return _enough(work, asked, free)


def _enough(work: ShownWork, asked: _Amounts, nodes: Mapping[str, _Amounts]) -> str:
    places = {name: min(int(room[each] // asked[each]) for each in asked) for name, room in nodes.items()}
    if sum(places.values()) < work.row.pods:
        return ""
    wanted = ", ".join(f"{each} {amount}" for each, amount in asked.items())
    return (
        f"its {work.row.pods} pods of {wanted} fit: "
        f"{', '.join(f'{count} on {name}' for name, count in sorted(places.items()) if count)}"
    )


def _asked(work: ShownWork, picture: Picture) -> _Amounts | None:
    """What each pod of simple work asks for; None if the work is not simple."""
    job, queue = work.job, picture.queues.get(work.fluxjob.spec.queue)
    if job is None or queue is None or not _is_plain_queue(queue.spec) or not _is_plain_job(job):
        return None
    total = dict.fromkeys(_RESOURCES, Decimal(0))
    for container in job.spec.template.spec.containers:
        resources = container.resources
        requests: dict[str, Any] = {**(resources.limits or {}), **(resources.requests or {})}
        if container.ports or requests.keys() - set(_RESOURCES):
            return None
        for each, amount in requests.items():
            total[each] += parse_quantity(amount)
    asked = {each: amount for each, amount in total.items() if amount}
    return asked or None


def _is_plain_queue(spec: FluxQueueSpec) -> bool:
    return msgspec.structs.replace(
        spec, policy=FluxQueueSpec().policy, default_duration_seconds=0
    ) == FluxQueueSpec(default_duration_seconds=0)


def _is_plain_job(job: Job) -> bool:
    annotations = {*(job.metadata.annotations or {})} | {*(job.spec.template.metadata.annotations or {})}
    ours = {
        key for key in annotations if key.startswith(("fluxqueue/", "kueue.x-k8s.io/"))
    } - _PLAIN_ANNOTATIONS
    controlled = job.metadata.controller is not None
    return not ours and not controlled and _is_plain_spec(job.spec.template.spec)


def _is_plain_spec(spec: PodSpec) -> bool:
    return not any(getattr(spec, each) for each in (*_PLAIN_FIELDS, *_MORE_PLAIN_FIELDS))


def _closed(node: Node) -> bool:
    return (
        node.spec.unschedulable
        or bool(node.spec.taints)
        or not node.status.ready
        or node.metadata.deletion_timestamp is not None
    )


def _allocatable(node: Node) -> _Amounts:
    room = node.status.allocatable or {}
    return {each: parse_quantity(room.get(each, 0)) for each in _RESOURCES}


def _of_daemon_set(kind: str) -> bool:
    return kind == "DaemonSet"
