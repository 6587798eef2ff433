"""Pods of a workload on two nodes that start, are refused, or cannot be bound."""

from __future__ import annotations

from support.builders import PodBuilder, make_pod
from support.queue_builders import a_pod, a_workload, an_allocation

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.records import SlotState
from fluxqueue.queue.requeue.start_failures import StartFailure

REFUSAL = "0/4 nodes are available: 1 node(s) were unschedulable. preemption: 0/4 nodes are available."
TWO = an_allocation(["n1", "n2"], states=[SlotState.TAKEN] * 2, pods=["a", "b"])
LATE = StartFailure(Reason.BIND_FAILED, "pod a could not be bound", ("n1",))
ROW = a_workload("lammps", state=State.ALLOCATED, jobid=7)
FULL = "node n2 has too little cpu left"


def pod(name: str, builder: PodBuilder | None = None) -> Pod:
    """Return a pod, which runs on the first node if nothing else is said."""
    return a_pod(builder or make_pod(name).on_node("n1").phase("Running"), uid=name)


def refused(name: str) -> Pod:
    """Return a pod that the stock scheduler refuses."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": REFUSAL}
    return pod(name, make_pod(name).with_("status.conditions", [condition]))


def unbindable(name: str = "b", node: str = "n2") -> Pod:
    """Return a pod that our own scheduler cannot bind."""
    return pod(name, make_pod(name).by_fluxion(node).refused(FULL, node=node))
