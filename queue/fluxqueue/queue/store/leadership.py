"""Who leads, and since when: the fence every change passes.

Taking the lead of a shard raises its epoch under an exclusive advisory lock; every change takes the same lock shared and looks at the
epoch behind it, in its own transaction. So a take-over waits for the changes already under way and outruns all later ones: a leader
that was paused and wakes up finds `StaleLeader`, never a half-valid write. Advisory locks queue fairly and write nothing, which a row
lock on the leader's row would, on every transaction.

An epoch is at least the Unix time of its beginning, so it stays the newest even where Postgres was restored from an older backup and
the matcher still remembers the epochs after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog

from fluxqueue.queue.records import Epoch
from fluxqueue.queue.store.rows import StalledTask
from fluxqueue.queue.store.transactions import Statement, Transactions

__all__ = ["Leadership"]

_log = structlog.get_logger(__name__)


class Leadership(Transactions):
    """The part of the store about the leader, its tasks and the clock."""

    async def acquire_leadership(self, holder: str, shard: str = "default") -> Epoch:
        """Become the leader of a shard: from here on every older epoch is refused.

        Waits for changes of the former leader that are under way (at most the server's ``idle_in_transaction_session_timeout``). Its
        control tasks that were being done wait to be done again, in the same transaction.

        Parameters
        ----------
        holder
            Who leads from now on; for people.
        shard
            Lower case letters, digits and ``-``, at most 30.

        Returns
        -------
        Epoch
            Larger than any before, of any shard.
        """
        _, _, raised, _ = await self._transaction(
            Statement("queue_up_to_lead"),
            Statement("shut_out_former_leader", {"shard": shard}),
            Statement("raise_epoch", {"shard": shard, "holder": holder}),
            Statement("requeue_tasks_of_shard", {"shard": shard}),
        )
        epoch = Epoch(raised[0]["epoch"])
        _log.info("leadership acquired", shard=shard, holder=holder, epoch=epoch)
        return epoch

    async def current_epoch(self, shard: str = "default") -> Epoch | None:
        """The newest epoch of a shard; None if nobody ever led it."""
        rows = await self._read("current_epoch", shard=shard)
        return Epoch(rows[0]["epoch"]) if rows else None

    async def now(self) -> datetime:
        """The time of the database: the one clock of the queue."""
        now: datetime = (await self._read("now"))[0]["now"]
        return now

    async def stalled_tasks(self, shard: str = "default") -> list[StalledTask]:
        """Control tasks of a shard marked as being done, oldest first: those that nobody does any more are among them."""
        return [StalledTask(**row) for row in await self._read("stalled_tasks", shard=shard)]

    async def requeue_tasks(self, epoch: Epoch, tasks: Sequence[int]) -> int:
        """Let tasks that nobody does any more wait again.

        They get a new id: whoever still thought to do one cannot acknowledge, and so lose, its successor.

        Returns
        -------
        int
            How many of them were still marked as being done.
        """
        (rows,) = await self._write(epoch, Statement("requeue_tasks", {"tasks": list(tasks)}))
        stopped: int = rows[0]["stopped"]
        return stopped
