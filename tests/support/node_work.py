"""Nodes, and FluxJobs with work on them, as the plugin reads them."""

from __future__ import annotations

from decimal import Decimal

import msgspec
from support.plugin_server import fluxjob

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta
from fluxqueue.api.nodes import Node, NodeSpec, NodeStatus, Taint
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of

__all__ = ["READY", "node", "one", "work"]

READY = (ObjectCondition(type="Ready", status="True"),)


def node(
    name: str,
    *,
    cordoned: bool = False,
    conditions: tuple[ObjectCondition, ...] = READY,
    taints: tuple[Taint, ...] = (),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Node:
    """Return a node of 8 cpu, 32 GiB and 2 GPUs."""
    return Node(
        metadata=ObjectMeta(name=name, labels=labels, annotations=annotations),
        spec=NodeSpec(unschedulable=cordoned, taints=list(taints)),
        status=NodeStatus(
            allocatable={"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}, conditions=list(conditions)
        ),
    )


def work(
    name: str, nodes: str, *sizes: SizedPods, state: str = "Running", rules: PlacementRules | None = None
) -> FluxJob:
    """Return a FluxJob with pods of some sizes on the nodes of a hostlist."""
    job = fluxjob(name, state=state, nodes=nodes)
    spec = (
        jobspec_of(name, sizes, duration_s=60, placement=rules)
        if rules
        else jobspec_of(name, sizes, duration_s=60)
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, jobspec=spec))


def one(cpu: int, pods: int = 1, gpus: int = 0) -> SizedPods:
    """Return pods of one size, with 1 GiB each."""
    return SizedPods(
        {
            "cpu": Decimal(cpu),
            "memory": Decimal(1 << 30),
            **({"nvidia.com/gpu": Decimal(gpus)} if gpus else {}),
        },
        pods,
    )
