"""The nodes that were chosen for FluxReservations which ask for a number of nodes.

The choice must outlive the process: work that waits for the reservation was planned on these nodes, and
people were told them. Nodes that a reservation names or selects are no choice and are not stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["ReservedNodes"]


class ReservedNodes(Transactions):
    """The part of the store about nodes of FluxReservations."""

    async def reserved_nodes(self) -> dict[str, tuple[str, ...]]:
        """Return the chosen nodes by the uid of their FluxReservation."""
        return {row["uid"]: tuple(row["nodes"]) for row in await self._read("reserved_nodes")}

    async def reserve_nodes(
        self, epoch: Epoch, chosen: Mapping[str, Sequence[str]], dropped: Collection[str]
    ) -> None:
        """Store choices by uid, and delete those of FluxReservations that are gone."""
        statements = [
            Statement("reserve_nodes", {"uid": uid, "nodes": list(nodes)}) for uid, nodes in chosen.items()
        ]
        if dropped:
            statements.append(Statement("unreserve_nodes", {"uids": list(dropped)}))
        if statements:
            await self._write(epoch, *statements)
