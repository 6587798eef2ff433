"""What accounts with budgets have used in the present periods, by allocations that are freed.

The tables have it by account and day: the transaction that frees an allocation adds to them.
So a new leader reads what is used up, exactly as it was, with one query. From then on its copy adds each
allocation that it sees freed. A later read replaces the copy. What running allocations used is never added
up: it follows from their grants at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.budgets import NODE, BudgetPeriod

__all__ = ["Spending", "amounts_of_shares", "members_of", "overlap_s"]


def amounts_of_shares(shares: Sequence[NodeShare]) -> dict[str, int]:
    """Return what shares of nodes have together of each resource type of the graph, and how many they are."""
    amounts: dict[str, int] = {NODE: len(shares)}
    for share in shares:
        for kind, amount in share.amounts.items():
            amounts[kind] = amounts.get(kind, 0) + amount
    return amounts


def overlap_s(begin: datetime, end: datetime, since: datetime) -> float:
    """Return the seconds between two times that are behind a third one."""
    return max((end - max(begin, since)).total_seconds(), 0.0)


def members_of(tree: AccountTree) -> dict[str, list[str]]:
    """Return, for each account with a budget, itself and all accounts below it."""
    members: dict[str, list[str]] = {}
    for name in tree.accounts:
        for over in tree.budgets_over(name):
            members.setdefault(over.name, []).append(name)
    return members


@dataclass(slots=True)
class Spending:
    """Amount-seconds by account with a budget and resource type.

    Attributes
    ----------
    tree
        The accounts for which it was read.
    periods
        Of each account with a budget, the period for which it was read.
    used
        What freed allocations of the account and those below it used since its period began.
    stale
        True if it has to be read again.
    """

    tree: AccountTree = field(default_factory=AccountTree)
    periods: Mapping[str, BudgetPeriod] = field(default_factory=dict)
    used: dict[tuple[str, str], float] = field(default_factory=dict)
    stale: bool = True

    def add(self, account: str, shares: Sequence[NodeShare], begin: datetime, end: datetime) -> None:
        """Add what an account used by an allocation that is freed now."""
        if not self.periods or not account:
            return
        for over in self.tree.budgets_over(account):
            period = self.periods.get(over.name)
            seconds = overlap_s(begin, end, period.start) if period is not None else 0.0
            if not seconds:
                continue
            for kind, amount in amounts_of_shares(shares).items():
                key = over.name, kind
                self.used[key] = self.used.get(key, 0.0) + amount * seconds
