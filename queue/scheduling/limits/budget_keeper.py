"""Keeps what accounts with budgets have used, and begins their periods: nobody has to do anything at that
time.

What freed allocations used is read from the tables when a leader begins, when a period begins, when an
account is edited, and every few minutes. In between the ledger adds each allocation that is freed
(`fluxqueue.queue.model.spending`). The tables have sums by day: how long the history is does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.model.spending import amounts_of_shares
from fluxqueue.queue.scheduling.limits.budgets import BudgetLine, BudgetRoom, MeasuredAnswer
from fluxqueue.queue.store.clock import SLEW
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["BudgetKeeper"]

_AGAIN = timedelta(minutes=5)
"""How old the copy of what was used may be: its entries end some milliseconds later than those of the tables.
And how old an answer may be that was over a budget: meanwhile other nodes may be free."""


class BudgetKeeper:
    """Keeps what accounts with budgets have used, and begins their periods."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._read_again = datetime.min.replace(tzinfo=UTC)
        self._rates: dict[FluxionJobId, tuple[tuple[NodeShare, ...], Mapping[str, int]]] = {}
        self._measured: dict[tuple[str, str], MeasuredAnswer] = {}
        self._first_end = datetime.max.replace(tzinfo=UTC)
        self.next_change = float("inf")
        """When the next period begins, in Unix seconds of the time of day; infinite without budgets."""
        self.lines: Mapping[str, BudgetLine] = {}
        """The budgets as the last cycle found them when it began."""

    async def room(self, tree: AccountTree) -> BudgetRoom:
        """Return what budgets leave now. Without budgets this costs nothing.

        Raises
        ------
        DatabaseUnavailable
            What was used has to be read from the tables, and they are away.
        """
        now = self._ledger.clock()
        if not tree.budgeted:
            self.next_change, self.lines = float("inf"), {}
            self._measured.clear()
            return BudgetRoom(now)
        spending = self._ledger.spending
        if spending.stale or spending.tree is not tree or now >= self._read_again:
            periods = tree.periods_at(now)
            await self._ledger.read_spending(tree, periods)
            self._first_end = min(period.end for period in periods.values())
            self._read_again = min(self._first_end, now + _AGAIN)
            now = max(now, self._ledger.clock())
        # Periods are those of the time of the queue. While that is behind, it goes faster than the time of
        # day until it has caught up.
        catching_up = self._ledger.wall() + (self._first_end - now) / (1 + SLEW)
        self.next_change = max(self._first_end, catching_up).timestamp()
        self._measured = {key: each for key, each in self._measured.items() if now < each.at + _AGAIN}
        room, rates = BudgetRoom.begin(now, self._ledger.spending, self._measured), {}
        for workload, allocation in self._ledger.live():
            if room.over(workload.account):
                known = self._rates.get(allocation.jobid)
                if known is None or known[0] is not allocation.shares:
                    known = allocation.shares, amounts_of_shares(allocation.shares)
                rates[allocation.jobid] = known
                room.count_running(workload, allocation, known[1])
        self._rates = rates
        self.lines = {name: line.copy() for name, line in room.lines.items()}
        return room
