"""What consolidations came to: what was won and lost in fact by moving work, once all of it has restarted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.consolidations import settled
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.model.requeue_records import MadeRoom, Moved
from fluxqueue.queue.scheduling.preemption.possible_victims import ShownVictims
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ConsolidationResults"]

_SETTLES_S: Final = 5.0
_SETTLED_WITHIN: Final = timedelta(minutes=10)
"""So long it is looked every few seconds whether all has started; then only when there is a cycle anyway."""


class ConsolidationResults:
    """Stores what consolidations came to.

    Parameters
    ----------
    ledger
        Work that got room, and work that was moved.
    shown
        What the cluster shows of it.
    """

    def __init__(self, ledger: Ledger, shown: ShownVictims) -> None:
        self._ledger = ledger
        self._shown = shown

    async def settle(self) -> float | None:
        """Store what was won and lost in fact, once work has started and all that was moved for it has.
        Return in how many seconds that is to be looked at again; None if that is not known.

        If nothing was moved after all, nothing is told of it.
        """
        again_s, states = None, {}
        for first in self._ledger.got_room():
            room, allocation = first.requeue_state.room, self._ledger.allocation(first.id)
            if (
                room is None
                or room.real_won_node_s is not None
                or not first.state.placed
                or allocation is None
            ):
                continue
            restarted = self._restarts_for(first.id, room)
            if first.state is State.ALLOCATED or restarted is None:
                if self._ledger.clock() < room.at + _SETTLED_WITHIN:
                    again_s = _SETTLES_S
                continue
            in_vain = bool(room.moved) and not restarted
            real = None if in_vain else settled(room, allocation.start, restarted)
            states[first.id] = structs.replace(first.requeue_state, room=real)
        await self._ledger.set_requeue_states(states)
        return again_s

    def _restarts_for(
        self, first: WorkloadId, room: MadeRoom
    ) -> list[tuple[Moved, datetime, datetime | None]] | None:
        """What was moved for a workload, when each restarted, and when it saved last before;
        None if one has not restarted yet.
        """
        found: list[tuple[Moved, datetime, datetime | None]] = []
        for each in self._ledger.moved():
            moved, allocation = each.requeue_state.moved, self._ledger.allocation(each.id)
            if moved is None or moved.first != first or moved.at != room.at:
                continue
            if each.state is not State.RUNNING or allocation is None or each.evicting:
                return None
            found.append((moved, allocation.start, self._shown.view(each, allocation).checkpoint))
        return found
