"""``kubectl fluxqueue shares``: the accounts as a tree, with what each is to have, what it used, and the
factor that follows.

Below an account whose own work is shared among users are those who used most. At the end is what is left of
budgets.

The figures are those that FluxAccounts show, rounded as there. The level fair share is computed from them, as
the queue computes its own (`fluxqueue.queue.model.fair_share`). The order is the queue's: below each parent,
the account that is furthest behind its share is first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TextIO

from fluxqueue.api.fluxaccounts import BudgetAmount, FairShareStatus, FluxAccount
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.listing import list_accounts
from fluxqueue.cli.tables import columns
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.fair_share import FairShare, fair_shares, shown_share

__all__ = ["budgets", "shares", "shares_of", "table"]

_HEADERS = ["ACCOUNT", "SHARES", "SHARE", "USE", "USED", "LEVEL", "FACTOR"]
_BUDGET_HEADERS = ["ACCOUNT", "BUDGET", "UNTIL", "HOURS", "USED", "RUNNING", "LEFT"]
_OWN = "(own work)"


def shares(client: ApiClient, out: TextIO, *, titles: bool = True) -> int:
    """Print the accounts.

    Raises
    ------
    ClusterError
        The CRD is not installed, or the server refuses.
    """
    accounts = list_accounts(client)
    if not accounts:
        out.write("There are no FluxAccounts: no use is counted, and nobody has shares.\n")
        return 0
    out.write(table(accounts, titles=titles))
    if left := budgets(accounts, titles=titles):
        out.write(f"\n{left}")
    return 0


def budgets(accounts: Sequence[FluxAccount], *, titles: bool = True) -> str:
    """Return what is left of budgets; nothing without any."""
    rows = [
        [each.metadata.name, amount.name, budget.end[:10], *(f"{hours:,.10g}" for hours in _hours(amount))]
        for each in sorted(accounts, key=lambda account: account.metadata.name)
        if (budget := each.status.budget) is not None
        for amount in budget.amounts or ()
    ]
    return columns(_BUDGET_HEADERS if titles else None, rows) if rows else ""


def _hours(amount: BudgetAmount) -> tuple[float, float, float, float]:
    return amount.hours, amount.used, amount.promised, amount.left


def table(accounts: Sequence[FluxAccount], *, titles: bool = True) -> str:
    """Return the accounts as the lines of a tree."""
    tree = account_tree(accounts)
    below: dict[str, list[str]] = {name: [] for name in (*tree.accounts, "")}
    for name, account in tree.accounts.items():
        below[account.path[1] if len(account.path) > 1 else ""].append(name)
    uses = {
        each.metadata.name: float(each.status.fair_share.use) if each.status.fair_share else 0.0
        for each in accounts
    }
    own = {
        name: max(uses[name] - math.fsum(uses[child] for child in below[name]), 0.0)
        if below[name]
        else uses[name]
        for name in uses
    }
    owners = set(tree.by_namespace.values())
    for name in uses:
        if below[name] and name not in owners:
            own[name] = 0.0  # what is left over there is the rounding of the figures
    shown = {each.metadata.name: each.status.fair_share or FairShareStatus() for each in accounts}
    rows = _Rows(tree, below, fair_shares(tree, own), own, shown)
    rows.add("", 0)
    return columns(_HEADERS if titles else None, rows.lines)


class _Rows:
    """Lines of the tree, each parent before the accounts below it."""

    def __init__(
        self,
        tree: AccountTree,
        below: dict[str, list[str]],
        fair: dict[str, FairShare],
        own: dict[str, float],
        shown: dict[str, FairShareStatus],
    ) -> None:
        self.lines: list[list[str]] = []
        self._tree = tree
        self._below = below
        self._fair = fair
        self._own = own
        self._shown = shown
        self._owners = set(tree.by_namespace.values())

    def add(self, parent: str, depth: int) -> None:
        """Add the accounts below one, and its own work if that is one of them."""
        names = sorted(self._below[parent], key=lambda name: (-self._fair[name].level, name))
        total = math.fsum(self._fair[name].use for name in names)
        works = bool(parent and names) and (parent in self._owners or self._own[parent] > 0)
        if works:
            total += self._own[parent]
            share = 1 / (1 + sum(self._tree.accounts[name].shares for name in names))
            self._line(
                f"{'  ' * depth}{_OWN}", 1, share, self._own[parent], total, self._shown[parent].factor
            )
            self._users(parent, depth + 1)
        for name in names:
            fair = self._fair[name]
            leaf = not self._below[name]
            shares = self._tree.accounts[name].shares
            self._line(
                f"{'  ' * depth}{name}",
                shares,
                fair.share,
                fair.use,
                total,
                self._shown[name].factor if leaf else None,
            )
            if leaf:
                self._users(name, depth + 1)
            self.add(name, depth + 1)

    def _users(self, account: str, depth: int) -> None:
        """Add those who used most of the own work of an account."""
        for each in self._shown[account].users or ():
            used = each.use / self._own[account] if self._own[account] else 0.0
            self.lines.append(
                [f"{'  ' * depth}{each.user}", "", "", str(each.use), f"{used:.1%}", "", f"{each.factor:.6g}"]
            )

    def _line(
        self, name: str, shares: int, share: float, use: float, total: float, factor: float | None
    ) -> None:
        used = use / total if total else 0.0
        level = "0" if not shares else f"{share / used:.3g}" if used else "inf"
        shown = "" if factor is None else f"{factor:.6g}"
        self.lines.append([name, str(shares), f"{share:.1%}", f"{use:.0f}", f"{used:.1%}", level, shown])


def shares_of(accounts: Iterable[FluxAccount]) -> dict[str, FairShare]:
    """Return the fair share of each account as it shows it, with its users."""
    return {each.metadata.name: shown_share(each) for each in accounts}
