"""Shows in each FluxQueue how full it is, and what is wrong with its rules.

Counts move with every job, so a status is written at most every few seconds, and only when it says something else. It is what the leader
knows, not a sum over the API server. Two conditions tell what the rules come to: whether new work is accepted, and whether accepted work
may start (not while the queue is held, and never where its node selector finds no node).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueStatus, QueueState
from fluxqueue.api.objects import Node, ObjectCondition
from fluxqueue.kube.errors import ApiError, NotFound
from fluxqueue.kube.kinds import FLUXQUEUES
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.queue.caches import Caches
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.records import Allocation, SlotState, Workload

__all__ = ["FluxQueueWriter", "Use", "queue_status", "uses_of"]

log = structlog.get_logger()

_LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Use:
    """What a queue's workloads do at present."""

    pending: int = 0
    running: int = 0
    nodes: int = 0


def uses_of(workloads: Iterable[Workload], live: Iterable[tuple[Workload, Allocation]]) -> dict[str, Use]:
    """Count by queue; a node counts once for each queue that has a place on it."""
    pending: dict[str, int] = {}
    running: dict[str, int] = {}
    nodes: dict[str, set[str]] = {}
    for workload in workloads:
        counts = pending if workload.state is State.PENDING else running
        counts[workload.queue] = counts.get(workload.queue, 0) + 1
    for workload, allocation in live:
        nodes.setdefault(workload.queue, set()).update(slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED)
    return {queue: Use(pending.get(queue, 0), running.get(queue, 0), len(nodes.get(queue, ()))) for queue in {*pending, *running, *nodes}}


def queue_status(queue: FluxQueue, use: Use, nodes: Sequence[Node], now: datetime) -> FluxQueueStatus:
    """The status a FluxQueue should show.

    Parameters
    ----------
    queue
        As it stands, with the status it has.
    use
        Counts of its workloads.
    nodes
        Of the cluster, to tell whether its node selector finds any.
    now
        For conditions that change.
    """
    said = {condition.type: condition for condition in queue.status.conditions or ()}
    wanted = (_accepting(queue), _starting(queue, nodes))
    return FluxQueueStatus(
        observed_generation=queue.metadata.generation,
        pending=use.pending,
        running=use.running,
        nodes_in_use=use.nodes,
        conditions=[_dated(condition, said.get(condition.type), now) for condition in wanted],
    )


def _accepting(queue: FluxQueue) -> ObjectCondition:
    if queue.spec.state is QueueState.DRAINED:
        return ObjectCondition(type="Accepting", status="False", reason="Drained", message="new work is refused; what is here is finished")
    return ObjectCondition(type="Accepting", status="True", reason=queue.spec.state.capitalize(), message="new work is accepted")


def _starting(queue: FluxQueue, nodes: Sequence[Node]) -> ObjectCondition:
    selector = queue.spec.node_selector or {}
    if queue.spec.state is QueueState.HELD:
        return ObjectCondition(type="Starting", status="False", reason="Held", message="work waits until spec.state is open")
    if selector and not any(_has(node.metadata.labels or {}, selector) for node in nodes):
        labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
        message = f"no node has the labels {labels}: nothing can start; correct spec.nodeSelector or label nodes"
        return ObjectCondition(type="Starting", status="False", reason="NoNodes", message=message)
    return ObjectCondition(type="Starting", status="True", reason="Open", message="work is started when it fits")


def _has(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def _dated(condition: ObjectCondition, said: ObjectCondition | None, now: datetime) -> ObjectCondition:
    """With the time of its last change, which is that of its status."""
    since = said.last_transition_time if said is not None and said.status == condition.status else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.structs.replace(condition, last_transition_time=since)


class FluxQueueWriter:
    """Keeps the status of FluxQueues.

    Parameters
    ----------
    api, caches, ledger
        Where to write, what is there, and who waits and runs.
    """

    def __init__(self, api: Api, caches: Caches, ledger: Ledger) -> None:
        self._api = api
        self._caches = caches
        self._ledger = ledger
        self._changed = asyncio.Event()
        ledger.subscribe(lambda _found: self._changed.set())
        caches.fluxqueues.add_handler(lambda _change: self._changed.set())
        caches.nodes.add_handler(lambda _change: self._changed.set())

    def look_at_everything(self) -> None:
        """Compare every queue."""
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled, at most every few seconds."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._write()
            await asyncio.sleep(_LOOK_S)

    async def _write(self) -> None:
        queues = self._caches.fluxqueues.list()
        uses = uses_of(self._ledger.all(), self._ledger.live()) if queues else {}
        nodes = self._caches.nodes.list()
        for queue in queues:
            status = queue_status(queue, uses.get(queue.metadata.name, Use()), nodes, self._ledger.clock())
            if status == queue.status:
                continue
            # Zeroes are written too: a merge patch would leave the old figure.
            body: dict[str, Any] = {
                "status": {"pending": status.pending, "running": status.running, "nodesInUse": status.nodes_in_use}
                | {"observedGeneration": status.observed_generation, "conditions": msgspec.to_builtins(status.conditions)}
            }
            try:
                await self._api.patch(FLUXQUEUES, queue.metadata.name, body, patch_type=PatchType.MERGE, subresource="status")
            except NotFound:
                continue
            except ApiError as error:
                log.warning("the status of a queue could not be written", queue=queue.metadata.name, error=str(error))
                self._changed.set()
