"""Once a minute the sweep compares everything, repairs what differs and counts it.

Events may be lost, processes may end between two effects, and people delete things by hand. No controller
relies on having seen an event: the sweep makes each of them compare all objects and rows again, and has
cluster, tables and graph compared (`fluxqueue.queue.recovery.comparison`).

One difference is known without comparing. If Postgres became unavailable during a change, the leader's memory
may be behind the tables, or ahead of those it finds when Postgres is back. The tables are read again at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from fluxqueue.queue.crashpoints import CrashPoint, reach
from fluxqueue.queue.model.remembered import forget_all
from fluxqueue.queue.recovery.doctor import Doctor
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["Sweeper"]

log = structlog.get_logger()

_THOROUGH = 10
_FEW = 1_000
"""With more pods than this running, only every tenth sweep reads what each job holds from the tables and
Fluxion: no matching meanwhile."""
_MANY = 10_000
"""With more work than this in the queue, pending work is not compared:
reading it takes long, and the intake compares it each minute."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0


class Resyncable(Protocol):
    """A controller that can compare everything, whatever events it has seen."""

    def resync(self) -> None:
        """Compare everything the controller is responsible for."""


class Sweeper:
    """Compares and repairs.

    Parameters
    ----------
    ledger, doctor, trigger
        The queue, what compares it with the cluster, and how control tasks are requested.
    controllers
        Resynced in each sweep.
    adopt
        Writes released objects into the tables that lack them.
    prune
        Removes what ended before the retention.
    measure
        Sets the metrics of what is counted in each sweep.

    Attributes
    ----------
    doctor, adopt
        As given.
    """

    def __init__(
        self,
        ledger: Ledger,
        doctor: Doctor,
        trigger: Trigger,
        controllers: Sequence[Resyncable],
        adopt: Callable[[], Awaitable[object]],
        prune: Callable[[], Awaitable[None]],
        measure: Callable[[], Awaitable[None]],
    ) -> None:
        self.doctor = doctor
        self.adopt = adopt
        self._ledger = ledger
        self._trigger = trigger
        self._controllers = controllers
        self._prune = prune
        self._measure = measure
        self._sweeps = 0

    async def sweep(self) -> None:
        """Compare everything once."""
        await self.resync()
        self._sweeps += 1
        pods = sum(max(len(allocation.slots), 1) for _, allocation in self._ledger.live())
        thorough = self._sweeps % _THOROUGH == 0 or pods <= _FEW
        pending = len(self._ledger.contents().workloads) <= _MANY
        await self.doctor.repair(
            await self.doctor.examine(from_api=False, thorough=thorough, pending=pending)
        )
        reach(CrashPoint.SWEPT)
        await self._measure()
        self._trigger.release()
        self._trigger.schedule()
        forget_all()
        await self._prune()

    async def watch_memory(self) -> None:
        """Read the tables again whenever the leader's memory is in doubt; run until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._ledger.in_doubt.wait()
            try:
                await self.doctor.reload()
                await self.adopt()
                await self.resync()
                self._trigger.release()
                self._trigger.schedule()
            except DatabaseUnavailable as error:
                log.warning("ledger.reload_failed", error=str(error), retry_s=pause_s)
            else:
                log.info("ledger.reloaded", reason="Postgres became unavailable during a change")
            # a Postgres that reads and does not write puts each attempt in doubt
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S) if self._ledger.in_doubt.is_set() else _FIRST_PAUSE_S

    async def resync(self) -> None:
        """Make every controller compare everything, as at the start of a leader;
        other work goes on between two of them.
        """
        for controller in self._controllers:
            controller.resync()
            await asyncio.sleep(0)
