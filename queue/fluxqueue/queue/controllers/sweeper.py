"""Once a minute everything is compared with everything, and what differs is mended and counted.

Events may be lost, processes die between two effects, people delete things by hand. No controller relies on having seen an event: the
sweep makes each of them look at all objects and rows again, and has cluster, queue and graph compared (`fluxqueue.queue.doctor`).

One difference is known without comparing: when Postgres went away under a change, the leader's memory may be behind the tables, or ahead
of those it finds when Postgres is back. That is not left to the next sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Protocol

import structlog

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.controllers.doctor import Doctor
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.ledger import Ledger
from fluxqueue.queue.metrics import WORKLOADS
from fluxqueue.queue.store import DatabaseUnavailable
from fluxqueue.queue.tasks import Trigger

__all__ = ["Sweeper"]

log = structlog.get_logger()

_FORGET = 10_000
_THOROUGH = 10
_FEW = 1_000
"""With more work than this running, only every tenth sweep has tables and Fluxion say what each job holds: nothing is matched meanwhile."""
_MANY = 10_000
"""With more work than this in the queue, what waits is not compared: reading it takes long, and the intake says it again each minute."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0


class Looker(Protocol):
    """A controller that can be told to trust no event it has seen."""

    def look_at_everything(self) -> None:
        """Compare everything it is responsible for."""


class Sweeper:
    """Compares and mends.

    Parameters
    ----------
    ledger, doctor, trigger
        The queue, who compares, and how cycles are asked for.
    controllers
        Told to look at everything.
    adopt
        Takes back into the tables what the objects show and they do not.
    retention_s
        How long ended workloads stay in the table; their history stays for good.
    """

    def __init__(
        self,
        ledger: Ledger,
        doctor: Doctor,
        trigger: Trigger,
        controllers: Sequence[Looker],
        adopt: Callable[[], Awaitable[object]],
        *,
        retention_s: float,
    ) -> None:
        self._ledger = ledger
        self._doctor = doctor
        self._trigger = trigger
        self._controllers = controllers
        self._adopt = adopt
        self._sweeps = 0
        self._retention = timedelta(seconds=retention_s)

    async def sweep(self) -> None:
        """Compare everything once."""
        self._look_at_everything()
        self._sweeps += 1
        thorough = self._sweeps % _THOROUGH == 0 or len(self._ledger.live()) <= _FEW
        pending = len(self._ledger.told().workloads) <= _MANY
        await self._doctor.mend(await self._doctor.examine(anew=False, thorough=thorough, pending=pending))
        reach(Point.SWEPT)
        totals = dict.fromkeys(State, 0)
        for row in await self._ledger.store.counts():
            totals[row.state] += row.workloads
        for state, workloads in totals.items():
            WORKLOADS.labels(str(state)).set(workloads)
        while await self._ledger.store.forget(self._ledger.epoch, self._ledger.clock() - self._retention, _FORGET) == _FORGET:
            log.info("ended workloads left the table", workloads=_FORGET)
        await self._trigger.release()
        await self._trigger.schedule()

    async def watch_memory(self) -> None:
        """Whenever the leader's memory is in doubt, bring it to where a start begins; runs until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._ledger.doubted.wait()
            try:
                await self._doctor.reread()
                await self._adopt()
                self._look_at_everything()
                await self._trigger.release()
                await self._trigger.schedule()
            except DatabaseUnavailable as error:
                log.warning("the tables cannot be read anew", error=str(error), again_in_s=pause_s)
            else:
                log.info("the tables were read anew: Postgres had gone away under a change")
            await asyncio.sleep(pause_s)  # a Postgres that reads and does not write puts each attempt in doubt
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S) if self._ledger.doubted.is_set() else _FIRST_PAUSE_S

    def _look_at_everything(self) -> None:
        for controller in self._controllers:
            controller.look_at_everything()
