"""Writes the status of FluxQueues.

Counts change with every job, so a status is written at most every few seconds, and only if it differs. Where
many queues are busy, two statuses a second are written that differ in counts only, those first that were
written longest ago. A change of a rule or a condition does not wait for that. The status shows what the
leader knows, not a sum over the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueStatus
from fluxqueue.api.nodes import Node
from fluxqueue.kube.events import EventRecorder
from fluxqueue.kube.kinds import FLUXQUEUES
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.status.fluxqueue_status import queue_status, usage_by_queue
from fluxqueue.queue.status.usage import WorkUsage
from fluxqueue.queue.status.work_status_writer import WorkStatusWriter
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["FluxQueueWriter"]

_COUNTS_AT_ONCE = 6
"""Statuses that differ in counts only, of one round."""


class FluxQueueWriter(WorkStatusWriter[FluxQueue]):
    """Keeps the status of FluxQueues current.

    Parameters
    ----------
    api, caches, ledger
        Where the status is written, which FluxQueues exist, and the queue.
    recorder
        For Events on queues whose status cannot be written.
    foreign_matcher
        True if nodes are chosen by a matcher without a clock.
    """

    def __init__(
        self,
        api: Api,
        caches: Caches,
        ledger: Ledger,
        recorder: EventRecorder | None = None,
        *,
        foreign_matcher: bool = False,
    ) -> None:
        super().__init__(FLUXQUEUES, caches.fluxqueues, api, ledger, recorder)
        self._nodes = caches.nodes
        self._foreign_matcher = foreign_matcher
        self._written_at: dict[str, float] = {}

    def queue_changed(self, _change: Change[FluxQueue]) -> None:
        """Compare every queue: one may be new."""
        self.resync()

    def node_changed(self, change: Change[Node]) -> None:
        """Compare if labels changed: nodes report their status all the time."""
        if (
            change.old is None
            or change.new is None
            or change.old.metadata.labels != change.new.metadata.labels
        ):
            self._changed.set()

    async def _write(self, names: list[str]) -> None:
        differing = self._differing(names)
        counts = [each for each in differing if _counts_only(*each)]
        counts.sort(key=lambda each: self._written_at.get(each[0].metadata.name, 0.0))
        if len(counts) > _COUNTS_AT_ONCE:
            self._changed.set()
        for queue, status in (*(each for each in differing if each not in counts), *counts[:_COUNTS_AT_ONCE]):
            name = queue.metadata.name
            try:
                await self._patch(name, status)
            except Exception as error:
                self._names.fail(name, error)
            self._written_at[name] = asyncio.get_running_loop().time()

    def _differing(self, names: Sequence[str]) -> list[tuple[FluxQueue, FluxQueueStatus]]:
        """Return the queues that do not show what they should, with that."""
        usage = usage_by_queue(self._ledger.all(), self._ledger.live())
        nodes, now = self._nodes.list(), self._ledger.wall()
        differing: list[tuple[FluxQueue, FluxQueueStatus]] = []
        for name in names:
            queue = self._objects.get("", name)
            if queue is None:
                self._written_at.pop(name, None)
                continue
            try:
                status = queue_status(
                    queue, usage.get(name, WorkUsage()), nodes, now, foreign_matcher=self._foreign_matcher
                )
            except Exception as error:
                self._names.fail(name, error)
                continue
            if status != queue.status:
                differing.append((queue, status))
        return differing


def _counts_only(queue: FluxQueue, wanted: FluxQueueStatus) -> bool:
    """True if a status that was written before differs in nothing but counts."""
    shown = queue.status
    same = msgspec.structs.replace(
        shown, pending=wanted.pending, running=wanted.running, nodes_in_use=wanted.nodes_in_use
    )
    return shown.conditions is not None and same == wanted
