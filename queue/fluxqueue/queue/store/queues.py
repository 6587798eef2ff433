"""The FluxQueues as the leader last saw them, so that a restart plans with the same rules before the API server answers."""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store.rows import QueueRow, column
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Queues"]


class Queues(Transactions):
    """The part of the store about queues."""

    async def save_queues(self, epoch: Epoch, queues: Sequence[QueueRow]) -> None:
        """Make these the queues: new and changed ones are written, others removed."""
        names = column(queues, lambda queue: queue.name)
        await self._write(
            epoch,
            Statement("remove_queues", {"names": names}),
            Statement(
                "save_queues",
                {
                    "names": names,
                    "generations": column(queues, lambda queue: queue.generation),
                    "specs": column(queues, lambda queue: queue.spec),
                },
            ),
        )

    async def queues(self) -> list[QueueRow]:
        """All queues by name."""
        return [QueueRow(name=row["name"], generation=row["generation"], spec=row["spec"].decode()) for row in await self._read("queues")]
