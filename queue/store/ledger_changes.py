"""How the leader's copy and the tables are changed together.

Every change is one transaction of the store. The `Delta` that it returns is applied at once to the copy in
memory (`fluxqueue.queue.store.ledger_state`), under one lock, so changes are applied in the order in which
they were committed. If the process dies between the two, nothing is lost: the next leader loads what was
committed.

If Postgres goes away during a change, nobody knows whether that was committed, and a Postgres that comes back
may lack the last changes. Then this copy is in doubt (`LedgerChanges.in_doubt`) until it is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Concatenate, ParamSpec

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import Epoch, WorkloadId
from fluxqueue.queue.store.database import DatabaseUnavailable
from fluxqueue.queue.store.deltas import Delta
from fluxqueue.queue.store.errors import Unstorable
from fluxqueue.queue.store.ledger_state import LedgerState
from fluxqueue.queue.store.store import Store

__all__ = ["LedgerChanges"]

_P = ParamSpec("_P")


class LedgerChanges(LedgerState):
    """The copy, with the tables that it is of.

    Parameters
    ----------
    store
        The tables.
    epoch
        The leadership under which changes are made: the store refuses those of an older one.
    clock, wall
        The time of the queue and the time of day (`fluxqueue.queue.store.clock`).
    """

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        clock: Callable[[], datetime],
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(clock, wall)
        self.epoch = epoch
        self.in_doubt = asyncio.Event()
        """Set while the copy may differ from the tables."""
        self._store = store
        self._lock = asyncio.Lock()

    def mark_in_doubt(self) -> None:
        """Record that the tables may differ: Postgres was away."""
        self.in_doubt.set()

    async def _change(
        self, write: Callable[Concatenate[Epoch, _P], Awaitable[Delta]], *args: _P.args, **kwargs: _P.kwargs
    ) -> Delta:
        """Write to the tables, and apply what that changed."""
        async with self._changing():
            delta = await write(self.epoch, *args, **kwargs)
            self.apply(delta)
        return delta

    async def _change_each(
        self, write: Callable[..., Awaitable[Delta]], changes: Sequence[object], **settings: bool
    ) -> None:
        """Write changes of several workloads together, or one by one if Postgres does not store something of
        them.

        Raises
        ------
        Unstorable
            Of one of them; all others are written.
        """
        try:
            await self._change(write, changes, **settings)
        except Unstorable as error:
            if len(changes) == 1:
                raise
            refused = error
            for change in changes:
                try:
                    await self._change(write, [change], **settings)
                except Unstorable as alone:
                    refused = Unstorable(f"{alone}: {change}")
            raise refused from None

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """One change at a time. One that was broken off may have been committed all the same."""
        async with self._lock:
            try:
                yield
            except (DatabaseUnavailable, asyncio.CancelledError):
                self.mark_in_doubt()
                raise

    def _state(self, workload_id: WorkloadId) -> State | None:
        workload = self.get(workload_id)
        return workload.state if workload else None
