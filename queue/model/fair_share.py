"""Fair share: how much each account used in proportion to its shares, and the factor that its work gets for
it.

The order is that of Slurm's Fair Tree. Among the accounts below one parent, the level fair share of each is
its part of the shares divided by its part of the use. The accounts are sorted by it, the largest first, and
each is followed by the accounts below it, in the same order among themselves. So work of an account that used
less than its share comes before all work of a sibling that used more, at each level of the tree and whatever
happens inside either. The factor is the place in this list: 1 for the first, then evenly down to 1/n for the
last of n. Accounts that are equal have the same place, and the accounts below them are sorted as if they had
one parent.

The own work of an account that has accounts below it is one more of these, with one share.

The own work of an account may be shared among its users. They are below it then, with equal shares: who used
less comes first. Their places divide that of the account, so all of them come before the work of the accounts
that follow, and other accounts do not notice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.queue.model.accounts import AccountTree

__all__ = ["FairShare", "UserShare", "fair_shares", "shown_share", "user_factor", "user_shares"]

_OWN_SHARES = 1
_DECIMALS = 6
"""Of a factor: what FluxAccounts show is what counts."""


class UserShare(NamedTuple):
    """What a user used of the own work of an account, halved with time,
    and the factor of the user's work there.
    """

    use: float
    factor: float


@dataclass(frozen=True, slots=True)
class FairShare:
    """The fair share of an account.

    Attributes
    ----------
    share
        Its part of the shares below its parent, from 0 to 1.
    use
        What it used with all accounts below it, halved with time.
    level
        Its part of the shares divided by its part of the use below its parent: above 1, it used less than its
        share.
    factor
        Of its own work, from 0 to 1; None if it has no namespaces, and accounts below it.
    step
        By how much the factor of the next place is lower.
    users
        Those who used anything in its own work, if that is shared among users.
    """

    share: float
    use: float
    level: float
    factor: float | None = None
    step: float = 0.0
    users: Mapping[str, UserShare] = field(default_factory=dict)


@dataclass(slots=True)
class _Node:
    """An account, or the own work of one that has accounts below it."""

    account: str
    shares: int
    use: float
    works: bool
    below: list[_Node] = field(default_factory=list)
    share: float = 0.0
    level: float = 0.0
    factor: float | None = None


def fair_shares(tree: AccountTree, uses: Mapping[str, float]) -> dict[str, FairShare]:
    """Return the fair share of each account.

    Parameters
    ----------
    tree
        All accounts.
    uses
        Use of the own work of each account, halved with time.
    """
    nodes = {
        name: _Node(name, account.shares, uses.get(name, 0.0), works=True)
        for name, account in tree.accounts.items()
    }
    tops: list[_Node] = []
    for name, account in tree.accounts.items():
        (nodes[account.path[1]].below if len(account.path) > 1 else tops).append(nodes[name])
    owners = set(tree.by_namespace.values())
    own: dict[str, _Node] = {}
    for node in nodes.values():
        if node.below:
            node.works = False
            if node.account in owners or node.use > 0:
                own[node.account] = _Node(node.account, _OWN_SHARES, node.use, works=True)
                node.below.append(own[node.account])
    for name in sorted(nodes, key=lambda each: -len(tree.accounts[each].path)):
        if nodes[name].below:
            nodes[name].use = math.fsum(each.use for each in nodes[name].below)
    for siblings in (tops, *(node.below for node in nodes.values())):
        _compare(siblings)
    works = sum(node.works for node in (*nodes.values(), *own.values()))
    _rank(tops, works, works)
    step = 1 / works if works else 0.0
    return {
        name: FairShare(node.share, node.use, node.level, own.get(name, node).factor, step)
        for name, node in nodes.items()
    }


def user_shares(account: FairShare, uses: Mapping[str, float]) -> dict[str, UserShare]:
    """Return the share of each user in the own work of an account.

    Who is not among them has used nothing, comes first, and has the factor of the account.
    """
    shares: dict[str, UserShare] = {}
    used = sorted((use, user) for user, use in uses.items() if use > 0)
    for _, equals in groupby(enumerate(used, start=1), key=lambda each: each[1][0]):
        first, *others = equals
        factor = round((account.factor or 0.0) - account.step * first[0] / (len(used) + 1), _DECIMALS)
        shares |= {user: UserShare(use, factor) for _, (use, user) in (first, *others)}
    return shares


def shown_share(account: FluxAccount) -> FairShare:
    """Return the fair share that an account shows; only its factors are those that count."""
    shown = account.status.fair_share
    if shown is None:
        return FairShare(0.0, 0.0, 0.0)
    users = {each.user: UserShare(each.use, each.factor) for each in shown.users or ()}
    return FairShare(shown.share, shown.use, 0.0, shown.factor, users=users)


def user_factor(account: FairShare | None, user: str) -> float:
    """Return the factor of the work of a user in an account; 0 without an account."""
    if account is None:
        return 0.0
    share = account.users.get(user)
    return share.factor if share is not None else account.factor or 0.0


def _compare(siblings: Sequence[_Node]) -> None:
    """Set the shares and the level fair shares of the nodes below one parent."""
    shares, use = sum(each.shares for each in siblings), math.fsum(each.use for each in siblings)
    for each in siblings:
        each.share = each.shares / shares if shares else 0.0
        used = each.use / use if use > 0 else 0.0
        each.level = 0.0 if not each.shares else each.share / used if used > 0 else math.inf


def _rank(nodes: Sequence[_Node], place: int, works: int) -> int:
    """Give each node that has work, and all below these nodes, its factor;
    return the place that follows them.
    """
    for _, tied in groupby(sorted(nodes, key=lambda each: -each.level), key=lambda each: each.level):
        equals = list(tied)
        working = [each for each in equals if each.works]
        for each in working:
            each.factor = round(place / works, _DECIMALS)
        place = _rank([child for each in equals for child in each.below], place - len(working), works)
    return place
