"""The leader's epoch: the fence that every change passes.

A new leader raises the epoch of its shard under an exclusive advisory lock. Every change takes the same lock
shared and then checks the epoch, in its own transaction. So a new leader waits for changes that have begun,
and later changes of the former one are refused: a leader that was paused and continues gets `StaleLeader`,
and never writes half of something. Advisory locks are fair and write nothing; a lock on the leader's row
would write in every transaction.

An epoch is at least the Unix time of its beginning. So it stays the newest even if Postgres was restored from
an older backup and the matcher remembers later epochs.

There is one shard today, ``default``. The key stays because it names the fence, and the queues and locks of
control tasks, in tables that the version before reads; a second node set with a leader of its own would be a
second shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.store.rows import StalledTask
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Leadership"]

_log = structlog.get_logger(__name__)
STALLED_S: Final = 3.0
"""A change takes milliseconds, and the next leader waits longer than this for the Lease of a frozen one."""


class Leadership(Transactions):
    """The part of the store about the leader, its tasks and the clock."""

    async def acquire_leadership(
        self, holder: str, shard: str = "default", *, stalled_s: float = STALLED_S
    ) -> Epoch:
        """Become the leader of a shard: from now on every older epoch is refused.

        Changes of the former leader that began long ago are ended: it is frozen, and they hold the lock.
        Younger ones are awaited. Control tasks that it was running are queued again, in the same transaction.

        Parameters
        ----------
        holder
            Who leads from now on, for people.
        shard
            Lower case letters, digits and ``-``, at most 30.
        stalled_s
            The age in seconds from which a change is ended.

        Returns
        -------
        Epoch
            Larger than any before, of any shard.
        """
        (stalled,) = await self._read("end_stalled_changes", shard=shard, stalled_s=stalled_s)
        if stalled["ended"]:
            _log.warning("leadership.stalled_changes_ended", shard=shard, sessions=stalled["ended"])
        _, _, raised, _ = await self._transaction(
            Statement("queue_up_to_lead"),
            Statement("shut_out_former_leader", {"shard": shard}),
            Statement("raise_epoch", {"shard": shard, "holder": holder}),
            Statement("requeue_tasks_of_shard", {"shard": shard}),
        )
        epoch = Epoch(raised[0]["epoch"])
        _log.info("leadership.acquired", shard=shard, holder=holder, epoch=epoch)
        return epoch

    async def hold(self, epoch: Epoch) -> None:
        """Raise `StaleLeader` if this epoch is not the newest."""
        await self._write(epoch)

    async def now(self) -> datetime:
        """Return the time by the function of the tables, which follows the leader's clock (`keep_clock`)."""
        now: datetime = (await self._read("now"))[0]["now"]
        return now

    async def read_clocks(self) -> tuple[datetime, datetime | None]:
        """Return the time by Postgres' own clock, and the last time that a leader wrote, if there is one."""
        (row,) = await self._read("read_clocks")
        return row["postgres"], row["seen"]

    async def keep_clock(self, epoch: Epoch, time: datetime) -> None:
        """Tell the tables the leader's time, which no later leader begins before."""
        await self._write(epoch, Statement("keep_clock", {"epoch": epoch, "time": time}))

    async def stalled_tasks(self, shard: str = "default") -> list[StalledTask]:
        """Return the control tasks of a shard that are marked as running, oldest first;
        some of them may have no process any more.
        """
        return [StalledTask(**row) for row in await self._read("stalled_tasks", shard=shard)]

    async def requeue_tasks(self, epoch: Epoch, tasks: Sequence[int]) -> int:
        """Queue tasks again that no process runs any more.

        They get new ids: a process that still runs one cannot acknowledge, and so lose, the new one.

        Returns
        -------
        int
            How many of them were still marked as running.
        """
        (rows,) = await self._write(epoch, Statement("requeue_tasks", {"tasks": list(tasks)}))
        stopped: int = rows[0]["stopped"]
        return stopped
