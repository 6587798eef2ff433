"""The budgets of accounts in a forecast: what was used until its beginning, and what its own work uses as its
clock goes on.

What was used is what the FluxAccounts show, with running work. When the next period begins, what ended in the
forecast before counts no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fluxqueue.api.fluxaccounts import BudgetStatus, FluxAccount
from fluxqueue.api.graphnames import resource_type
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.budgets import NODE, BudgetPeriod, amount_seconds
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.model.spending import Spending, amounts_of_shares
from fluxqueue.queue.scheduling.limits.budgets import BudgetRoom

__all__ = ["SimulatedBudgets", "shown_budgets"]


def shown_budgets(accounts: Iterable[FluxAccount]) -> dict[str, BudgetStatus]:
    """Return what FluxAccounts show of their budgets."""
    return {each.metadata.name: each.status.budget for each in accounts if each.status.budget is not None}


@dataclass(slots=True)
class SimulatedBudgets:
    """What is used of budgets on a virtual clock.

    Attributes
    ----------
    tree
        All accounts.
    shown
        What FluxAccounts showed when the forecast began, with the work that ran then.
    """

    tree: AccountTree
    shown: Mapping[str, BudgetStatus]
    _running: dict[WorkloadId, tuple[Workload, Allocation]] = field(default_factory=dict)
    _ended: list[tuple[str, Allocation, datetime]] = field(default_factory=list)
    _spending: Spending = field(default_factory=Spending)
    _counted: int = 0
    """How many that ended are counted in it."""
    _before: dict[tuple[str, str, datetime], float] = field(default_factory=dict)

    def begin(self, now: int, running: Iterable[tuple[Workload, Allocation]]) -> None:
        """Begin with the work that runs.
        It is part of what is shown as used, and is counted by itself from here on.
        """
        for workload, allocation in running:
            self.start(workload, allocation)
        time = datetime.fromtimestamp(now, UTC)
        for name, line in self._counted_room(
            time, Spending(self.tree, self.tree.periods_at(time))
        ).lines.items():
            status = self.shown.get(name)
            if status is None or status.start != f"{line.period.start:%Y-%m-%dT%H:%M:%SZ}":
                continue
            for each in status.amounts or ():
                kind = NODE if each.name == "nodes" else resource_type(each.name)
                used = amount_seconds(kind, each.used) - line.used.get(kind, 0.0)
                self._before[name, kind, line.period.start] = max(used, 0.0)

    def start(self, workload: Workload, allocation: Allocation) -> None:
        """Let work have nodes from now on."""
        if self.tree.budgets_over(workload.account):
            self._running[workload.id] = workload, allocation

    def end(self, workload: WorkloadId, now: int) -> None:
        """End work."""
        if (ended := self._running.pop(workload, None)) is not None:
            self._ended.append((ended[0].account, ended[1], datetime.fromtimestamp(now, UTC)))

    def room(self, now: int) -> BudgetRoom:
        """Return what the budgets leave."""
        time = datetime.fromtimestamp(now, UTC)
        if not self.tree.budgeted:
            return BudgetRoom(time)
        if (periods := self.tree.periods_at(time)) != self._spending.periods:
            self._begin_periods(periods)
        for account, allocation, end in self._ended[self._counted :]:
            self._spending.add(account, allocation.shares, allocation.granted_at, end)
        self._counted = len(self._ended)
        return self._counted_room(time, self._spending)

    def _counted_room(self, now: datetime, spending: Spending) -> BudgetRoom:
        """Return what is left of the budgets once all that runs is counted."""
        room = BudgetRoom.begin(now, spending)
        for workload, allocation in self._running.values():
            room.count_running(workload, allocation, amounts_of_shares(allocation.shares))
        return room

    def _begin_periods(self, periods: Mapping[str, BudgetPeriod]) -> None:
        """Count anew, now that a period began: what ended before all of them counts no longer."""
        first = min(period.start for period in periods.values())
        self._ended, self._counted = [each for each in self._ended if each[2] > first], 0
        used = {
            (name, kind): use
            for (name, kind, start), use in self._before.items()
            if periods[name].start == start
        }
        self._spending = Spending(self.tree, periods, used)

    def next_period(self, now: int) -> int | None:
        """Return when the next period of a budget begins; None without budgets."""
        return min(self._next_starts(now), default=None)

    def all_begun(self, now: int) -> int:
        """Return when the next period of every budget has begun; 0 without budgets."""
        return max(self._next_starts(now), default=0)

    def _next_starts(self, now: int) -> list[int]:
        return [
            int(period.end.timestamp())
            for period in self.tree.periods_at(datetime.fromtimestamp(now, UTC)).values()
        ]
