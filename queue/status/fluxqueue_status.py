"""What a FluxQueue's status shows: how much work it has, and what its rules mean.

Two conditions explain the rules. ``Accepting`` says whether new work is accepted. ``Starting`` says whether
accepted work may start: not while the queue is held, and never if its node selector matches no node. A third,
``PolicyInForce``, exists only where a foreign matcher chooses nodes, and says what of the rules it cannot do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime

from fluxqueue.api.fluxqueues import (
    FOREIGN_MATCHER_LOSES,
    POLICY_IN_FORCE,
    Flavor,
    FluxQueue,
    FluxQueueStatus,
    Policy,
    QueueState,
)
from fluxqueue.api.metadata import ObjectCondition
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.conditions import dated
from fluxqueue.queue.model.records import Allocation, Workload
from fluxqueue.queue.status.usage import WorkUsage, usage_by

__all__ = ["queue_status", "usage_by_queue"]


def usage_by_queue(
    workloads: Iterable[Workload], live: Iterable[tuple[Workload, Allocation]]
) -> dict[str, WorkUsage]:
    """Count by queue; a node counts once for each queue with an open slot on it."""
    return usage_by(lambda workload: (workload.queue,), workloads, live)


def queue_status(
    queue: FluxQueue, usage: WorkUsage, nodes: Sequence[Node], now: datetime, *, foreign_matcher: bool = False
) -> FluxQueueStatus:
    """Return the status that a FluxQueue should show.

    Parameters
    ----------
    queue
        As it is now, with its present status.
    usage
        Of its workloads.
    nodes
        Of the cluster, to check that its node selector matches one.
    now
        Transition time of conditions that change.
    foreign_matcher
        True if nodes are chosen by a matcher without a clock.
    """
    conditions = [
        _accepting(queue),
        _starting(queue, nodes),
        *([_in_force(queue)] if foreign_matcher else []),
    ]
    return FluxQueueStatus(
        observed_generation=queue.metadata.generation,
        pending=usage.pending,
        running=usage.running,
        nodes_in_use=usage.nodes,
        conditions=dated(conditions, queue.status.conditions, now),
    )


def _accepting(queue: FluxQueue) -> ObjectCondition:
    if queue.spec.state is QueueState.DRAINED:
        return ObjectCondition(
            type="Accepting",
            status="False",
            reason="Drained",
            message="new work is refused; queued work is finished",
        )
    return ObjectCondition(
        type="Accepting", status="True", reason=queue.spec.state.capitalize(), message="new work is accepted"
    )


def _starting(queue: FluxQueue, nodes: Sequence[Node]) -> ObjectCondition:
    selector = queue.spec.node_selector or {}
    if queue.spec.state is QueueState.HELD:
        return ObjectCondition(
            type="Starting", status="False", reason="Held", message="work waits until spec.state is open"
        )
    if selector and not _any_has(nodes, selector.items()):
        message = (
            f"no node has the labels {_in_words(selector)}: nothing can start; "
            "correct spec.nodeSelector or label nodes"
        )
        return ObjectCondition(type="Starting", status="False", reason="NoNodes", message=message)
    flavors = queue.spec.flavors or []
    empty = [each for each in flavors if not _any_has(nodes, _labels(each, selector))]
    if not empty:
        return ObjectCondition(
            type="Starting", status="True", reason="Open", message="work is started when it fits"
        )
    named = "; ".join(f"{each.name} ({_in_words(each.node_selector or {})})" for each in empty)
    if len(empty) == len(flavors):
        message = f"no node has the labels of any flavor: {named}; correct spec.flavors or label nodes"
        return ObjectCondition(type="Starting", status="False", reason="NoNodes", message=message)
    message = f"no node has the labels of {named}: correct spec.flavors or label nodes"
    return ObjectCondition(
        type="Starting", status="True", reason="Open", message=f"work is started when it fits; {message}"
    )


def _in_force(queue: FluxQueue) -> ObjectCondition:
    """Say what of the rules a foreign matcher cannot do."""
    stated = queue.spec.policy
    lost = [f"spec.policy {stated}"] if stated is not Policy.FCFS else []
    lost += ["spec.matchPolicy"] if queue.spec.match_policy else []
    if lost:
        message = f"{FOREIGN_MATCHER_LOSES}; not in force: {', '.join(lost)}"
        return ObjectCondition(type=POLICY_IN_FORCE, status="False", reason="ForeignMatcher", message=message)
    return ObjectCondition(
        type=POLICY_IN_FORCE, status="True", reason="ForeignMatcher", message=FOREIGN_MATCHER_LOSES
    )


def _any_has(nodes: Sequence[Node], labels: Set[tuple[str, str]]) -> bool:
    return any(labels <= (node.metadata.labels or {}).items() for node in nodes)


def _labels(flavor: Flavor, selector: Mapping[str, str]) -> Set[tuple[str, str]]:
    """Return what the nodes of a flavor have: no node has them if the queue wants another value of one."""
    return (flavor.node_selector or {}).items() | selector.items()


def _in_words(selector: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
