"""The last run times of everybody, from which durations are predicted."""

from __future__ import annotations

from fluxqueue.queue.model.users import PROGRAMS_OF
from fluxqueue.queue.store.transactions import Transactions

__all__ = ["RunTimes"]

_MOST_ROWS = 20_000


class RunTimes(Transactions):
    """The part of the store about run times."""

    async def last_run_times(self) -> list[tuple[tuple[str, str, str], float]]:
        """Return the last two run times of each user (else namespace), account and queue, the oldest first,
        out of the last 20,000 ends.
        """
        rows = await self._read("last_run_times", limit=_MOST_ROWS, programs_of=PROGRAMS_OF)
        return [((row["submitter"], row["account"], row["queue"]), row["run_s"]) for row in rows]
