"""The tree of FluxAccounts: which account has a namespace, what is above it, and what is wrong with an
account.

People write accounts one by one, so a tree can be wrong at any time. No mistake takes effect beyond the
accounts that it is in, and each has a sentence for the status of its account:

- An account whose parent does not exist, is part of a circle of parents, or is too deep has no parent until
  that is corrected. Its own limits hold.
- A namespace that several accounts name belongs to the oldest of them.
- A quantity that cannot be read limits nothing, and neither does a budget whose period cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from fluxqueue.api.bounds import is_measured_in_bytes
from fluxqueue.api.fluxaccounts import (
    AccountBudget,
    AccountGuarantee,
    AccountLimits,
    AccountUserLimits,
    AccountWorkloadLimits,
    FluxAccount,
)
from fluxqueue.api.graphnames import resource_type
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.queue.model.budgets import HOUR_S, NODE, Budget, BudgetPeriod, InvalidPeriod, period_rule

__all__ = [
    "MAX_DEPTH",
    "NO_ACCOUNTS",
    "Account",
    "AccountProblem",
    "AccountTree",
    "Guarantee",
    "UserLimits",
    "account_tree",
    "graph_amounts",
]

MAX_DEPTH = 16
"""Most accounts on the way from one to the top of its tree, itself included."""
_LARGEST = 1 << 53
_MEBI = Decimal(1 << 20)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is guaranteed to an account: nodes (None: none are named), and amounts as those of limits."""

    nodes: int | None = None
    amounts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What each user may have in use at once: workloads and nodes (None: any number),
    and amounts as those of limits.
    """

    running: int | None = None
    nodes: int | None = None
    amounts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its limits.

    Attributes
    ----------
    name
        Of its FluxAccount.
    path
        Its name and those of the accounts above it, the top of the tree last.
    submitted
        Workloads that may wait or have nodes at once; None: any number.
    running, nodes
        Workloads and nodes that may be in use at once; None: any number.
    amounts
        Most of each resource type of the graph, in the graph's units (millicores, MiB, pieces).
    of_one, nodes_of_one
        The same, and nodes, of each workload alone.
    shares
        Of what its parent may use, in proportion to those of its siblings.
    guaranteed
        What it may have whenever it has work for it; None: nothing.
    budget
        What it may use in a period; None: any.
    of_user
        What each user of it and of the accounts below it may use; None: any.
    among_users
        True if its own work is ordered by what each of its users used.
    """

    name: str
    path: tuple[str, ...]
    running: int | None = None
    nodes: int | None = None
    amounts: Mapping[str, int] = field(default_factory=dict)
    of_one: Mapping[str, int] = field(default_factory=dict)
    nodes_of_one: int | None = None
    shares: int = 1
    submitted: int | None = None
    guaranteed: Guarantee | None = None
    budget: Budget | None = None
    of_user: UserLimits | None = None
    among_users: bool = False

    @property
    def limited(self) -> bool:
        """True if it has a limit of its own."""
        counts = (self.submitted, self.running, self.nodes, self.nodes_of_one, self.of_user)
        return any(count is not None for count in counts) or bool(self.amounts or self.of_one)


@dataclass(frozen=True, slots=True)
class AccountProblem:
    """What is wrong with an account: a word for programs, and a sentence with the remedy."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AccountTree:
    """All accounts of a cluster.

    Attributes
    ----------
    accounts
        By name.
    by_namespace
        Name of the account of each namespace that has one.
    problems
        Of each account with problems.
    limited, limits_users, budgeted
        True if any account has limits, limits for each user, or a budget.
    """

    accounts: Mapping[str, Account] = field(default_factory=dict)
    by_namespace: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, tuple[AccountProblem, ...]] = field(default_factory=dict)
    limited: bool = False
    limits_users: bool = False
    budgeted: bool = False

    def account_of(self, namespace: str) -> str:
        """Return the name of the account of a namespace; empty if it has none."""
        return self.by_namespace.get(namespace, "")

    def path_of(self, account: str) -> tuple[str, ...]:
        """Return the names of an account and of those above it; none if there is no such account."""
        found = self.accounts.get(account)
        return found.path if found is not None else ()

    def limiting(self, account: str) -> tuple[Account, ...]:
        """Return the accounts whose limits hold for the work of an account:
        itself and those above it that have limits.
        """
        return tuple(each for name in self.path_of(account) if (each := self.accounts[name]).limited)

    def budgets_over(self, account: str) -> tuple[Account, ...]:
        """Return the accounts whose budgets the work of an account uses:
        itself and those above it that have budgets.
        """
        return tuple(
            each for name in self.path_of(account) if (each := self.accounts[name]).budget is not None
        )

    def periods_at(self, now: datetime) -> dict[str, BudgetPeriod]:
        """Return the period that a time is in, by account that has a budget."""
        accounts = self.accounts.items() if self.budgeted else ()
        return {name: each.budget.period_at(now) for name, each in accounts if each.budget is not None}


NO_ACCOUNTS = AccountTree()
"""A cluster without FluxAccounts."""


def account_tree(fluxaccounts: Iterable[FluxAccount]) -> AccountTree:
    """Put FluxAccounts together to a tree, with a problem for each mistake in them."""
    known = {each.metadata.name: each for each in sorted(fluxaccounts, key=_age)}
    parents = {
        name: fluxaccount.spec.parent for name, fluxaccount in known.items() if fluxaccount.spec.parent
    }
    problems: dict[str, list[AccountProblem]] = {name: [] for name in known}
    for name in known:
        if (problem := _parent_problem(name, parents, known)) is not None:
            problems[name].append(problem)
    for name in [name for name, each in problems.items() if each]:
        parents.pop(name, None)
    by_namespace = _assign_namespaces(known, problems)
    accounts = {}
    for name, fluxaccount in known.items():
        accounts[name], unreadable = _account(fluxaccount, _path(name, parents))
        problems[name] += unreadable
    found = {name: tuple(each) for name, each in problems.items() if each}
    every = accounts.values()
    return AccountTree(
        accounts,
        by_namespace,
        found,
        limited=any(each.limited for each in every),
        limits_users=any(each.of_user for each in every),
        budgeted=any(each.budget for each in every),
    )


def _account(fluxaccount: FluxAccount, path: tuple[str, ...]) -> tuple[Account, list[AccountProblem]]:
    """Return an account at its place, and what of its quantities cannot be read."""
    spec = fluxaccount.spec
    limits, promised = spec.limits or AccountLimits(), spec.guaranteed or AccountGuarantee()
    amounts, unreadable = _amounts(limits.resources or {}, "limits", "it limits nothing")
    one = limits.per_workload or AccountWorkloadLimits()
    of_one, odd_of_one = _amounts(one.resources or {}, "limits.perWorkload", "it limits nothing")
    of_user, odd_of_user = _user_limits(limits.per_user)
    promised_amounts, more = _amounts(promised.resources or {}, "guaranteed", "nothing of it is guaranteed")
    guaranteed = (
        Guarantee(promised.nodes, promised_amounts)
        if promised.nodes is not None or promised_amounts
        else None
    )
    shares = 1 if spec.shares is None else max(spec.shares, 0)
    name = fluxaccount.metadata.name
    budget, odd = _budget(spec.budget)
    account = Account(
        name,
        path,
        limits.running,
        limits.nodes,
        amounts,
        of_one,
        one.nodes,
        shares,
        limits.submitted,
        guaranteed,
        budget,
        of_user,
    )
    account = replace(account, among_users=spec.share_among_users)
    return account, [*unreadable, *odd_of_one, *odd_of_user, *more, *odd]


def _user_limits(spec: AccountUserLimits | None) -> tuple[UserLimits | None, list[AccountProblem]]:
    """Return the limits of each user, and what of them cannot be read."""
    if spec is None:
        return None, []
    amounts, problems = _amounts(spec.resources or {}, "limits.perUser", "it limits nothing")
    limits = UserLimits(spec.running, spec.nodes, amounts)
    return (limits if limits != UserLimits() else None), problems


def _budget(spec: AccountBudget | None) -> tuple[Budget | None, list[AccountProblem]]:
    """Return a budget, and what of it cannot be read."""
    if spec is None:
        return None, []
    amounts, problems = _amounts(spec.resource_hours or {}, "budget", "it has no budget", "resourceHours")
    if spec.node_hours is not None:
        amounts[NODE] = spec.node_hours
    try:
        months, days, first = period_rule(spec)
    except InvalidPeriod as error:
        return None, [*problems, AccountProblem("InvalidPeriod", f"{error}; until then there is no budget")]
    seconds = {kind: amount * HOUR_S for kind, amount in amounts.items()}
    return (Budget(seconds, months, days, first) if seconds else None), problems


def _age(account: FluxAccount) -> tuple[str, str]:
    """Sort key: the oldest first."""
    return account.metadata.creation_timestamp or "", account.metadata.name


def _parent_problem(
    name: str, parents: Mapping[str, str], known: Mapping[str, FluxAccount]
) -> AccountProblem | None:
    parent = parents.get(name)
    if parent is None:
        return None
    if parent not in known:
        message = (
            f"spec.parent: there is no FluxAccount {parent!r}: create it, or correct spec.parent; until "
            "then this account has no parent"
        )
        return AccountProblem("ParentMissing", message)
    way = [name]
    while (above := parents.get(way[-1])) is not None and len(way) <= len(known):
        if above == name:
            message = (
                f"spec.parent: {_shown([*way, name])} is a circle: remove one of these parents; "
                "until then none of them has a parent"
            )
            return AccountProblem("Circle", message)
        if above in way:
            break  # a circle further up, in which this account is not
        way.append(above)
        if len(way) > MAX_DEPTH:
            message = (
                f"spec.parent: {parent!r} is below {MAX_DEPTH - 1} accounts or more, "
                f"a tree has at most {MAX_DEPTH} levels: "
                "choose an account further up; until then this account has no parent"
            )
            return AccountProblem("TooDeep", message)
    return None


def _shown(names: Sequence[str]) -> str:
    """Write a circle of parents; a long one without its middle."""
    shown = names if len(names) <= 2 * _SHOWN else [*names[:_SHOWN], "...", *names[-_SHOWN:]]
    return " > ".join(shown)


def _path(name: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    path = [name]
    while (above := parents.get(path[-1])) is not None:
        path.append(above)
    return tuple(path)


def _assign_namespaces(
    known: Mapping[str, FluxAccount], problems: Mapping[str, list[AccountProblem]]
) -> dict[str, str]:
    """Give each namespace to the first account that names it; the accounts are in order of age."""
    by_namespace: dict[str, str] = {}
    for name, each in known.items():
        taken = [
            namespace
            for namespace in each.spec.namespaces or ()
            if by_namespace.setdefault(namespace, name) != name
        ]
        if taken:
            more = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
            message = (
                f"spec.namespaces: namespace {taken[0]!r} belongs to the account "
                f"{by_namespace[taken[0]]!r}, which is older{more}: remove it from one of the two"
            )
            problems[name].append(AccountProblem("NamespaceTaken", message))
    return by_namespace


def graph_amounts(resources: Mapping[str, str | int | float]) -> dict[str, int]:
    """Return quantities in the graph's units, by resource type; those that cannot be read are left out."""
    return _amounts(resources, "", "")[0]


def _amounts(
    resources: Mapping[str, str | int | float], field_name: str, consequence: str, part: str = "resources"
) -> tuple[dict[str, int], list[AccountProblem]]:
    """Return quantities in the graph's units, rounded down, and what cannot be read."""
    amounts: dict[str, int] = {}
    problems: list[AccountProblem] = []
    for resource, text in resources.items():
        try:
            quantity = parse_quantity(text)
        except InvalidQuantity as error:
            message = f"spec.{field_name}.{part}.{resource}: {error}; until then {consequence}"
            problems.append(AccountProblem("InvalidQuantity", message))
            continue
        units = (
            quantity * 1000
            if resource == "cpu"
            else quantity / _MEBI
            if is_measured_in_bytes(resource)
            else quantity
        )
        amounts[resource_type(resource)] = min(math.floor(units), _LARGEST)
    return amounts, problems
