"""The FluxQueues as the leader last saw them, so that a restart plans with the same rules before the API server answers."""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store.rows import QueueRow
from fluxqueue.queue.store.transactions import Transactions

__all__ = ["Queues"]


class Queues(Transactions):
    """The part of the store about queues."""

    async def save_queues(self, epoch: Epoch, queues: Sequence[QueueRow]) -> None:
        """Make these the queues: new and changed ones are written, others removed."""
        raise NotImplementedError

    async def queues(self) -> list[QueueRow]:
        """All queues by name."""
        raise NotImplementedError
