"""How many workloads an account may have at once, waiting and running: those beyond that wait outside of the
plan.

Admission cannot refuse them as Slurm does: it knows one object and no counts, and a CronJob or JobSet would
create what was refused again and again. So they are accepted and wait with the reason ``AccountLimit``. They
are not matched, hold no reservation and get no estimate, until those that were submitted before them have
ended. Work that holds nodes always counts first, then what waits in the order in which it was submitted,
whatever its priority: a limit that a higher priority could pass would bound nothing.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from operator import attrgetter

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.model.accounts import NO_ACCOUNTS, Account, AccountTree
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.limit_scopes import OverLimit
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["SubmittedLimits", "beyond_submitted"]

_Place = tuple[str, str, datetime, bool]
"""Topmost account with a limit, account, submit time, and whether it has nodes: what counts of a workload."""


def _has_nodes(workload: Workload) -> bool:
    return workload.state is not State.PENDING


def beyond_submitted(
    workloads: Iterable[Workload], accounts: AccountTree, holds: Callable[[Workload], bool] = _has_nodes
) -> dict[WorkloadId, OverLimit]:
    """Return which pending workloads are beyond what their account, or one above it, may have at once.

    Parameters
    ----------
    workloads
        All that have not ended.
    accounts
        All accounts. Without limits on submitted work this costs nothing.
    holds
        Returns whether a workload has nodes.
    """
    if not any(each.submitted is not None for each in accounts.accounts.values()):
        return {}
    return _beyond(workloads, accounts, holds)


class SubmittedLimits:
    """The same for the work of a ledger, found again only for accounts whose work changed.

    Accounts that share a limit are found together: those below the topmost account with one.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._accounts = NO_ACCOUNTS
        self._tops: dict[str, str] = {}
        """The topmost account with a limit over each account that has one."""
        self._least: dict[str, int] = {}
        """The least limit of all below it."""
        self._place_of: dict[WorkloadId, _Place] = {}
        self._below: defaultdict[str, set[WorkloadId]] = defaultdict(set)
        self._changed: set[str] = set()
        self._beyond: dict[str, dict[WorkloadId, OverLimit]] = {}
        self._all: dict[WorkloadId, OverLimit] = {}

    def beyond(self, accounts: AccountTree) -> Mapping[WorkloadId, OverLimit]:
        """Return which pending workloads are beyond what their account, or one above it, may have at once."""
        if accounts is not self._accounts:
            self._begin_again(accounts)
        if self._changed:
            self._beyond |= {top: self._find(top) for top in self._changed}
            self._changed.clear()
            self._all = {each: over for found in self._beyond.values() for each, over in found.items()}
        return self._all

    def _begin_again(self, accounts: AccountTree) -> None:
        self._accounts, self._all = accounts, {}
        for known in (self._tops, self._least, self._place_of, self._below, self._changed, self._beyond):
            known.clear()
        for name in accounts.accounts:
            if limits := _limits_over(name, accounts):
                self._tops[name] = top = limits[-1].name
                least = (each.submitted for each in limits if each.submitted is not None)
                self._least[top] = min(self._least.get(top, sys.maxsize), *least)
        if self._tops:
            for workload in self._ledger.all():
                self.workload_changed(workload.id)

    def _find(self, top: str) -> dict[WorkloadId, OverLimit]:
        below = self._below[top]
        if len(below) <= self._least[top]:
            return {}
        rows = map(self._ledger.get, below)
        return _beyond((row for row in rows if row is not None), self._accounts, _has_nodes)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Record to which limit a workload counts, and that something changed there that counts:
        each cycle gives many other reasons.
        """
        if not self._tops:
            return
        workload, former = self._ledger.get(workload_id), self._place_of.get(workload_id)
        top = self._tops.get(workload.account) if workload is not None else None
        place = (
            (top, workload.account, workload.submitted_at, _has_nodes(workload))
            if workload is not None and top is not None
            else None
        )
        if place == former:
            return
        if former is not None:
            self._changed.add(former[0])
            self._below[former[0]].remove(workload_id)
            del self._place_of[workload_id]
        if place is not None:
            self._changed.add(place[0])
            self._below[place[0]].add(workload_id)
            self._place_of[workload_id] = place


def _limits_over(account: str, accounts: AccountTree) -> tuple[Account, ...]:
    """The accounts that limit how much work of an account is submitted, itself first."""
    return tuple(each for each in accounts.limiting(account) if each.submitted is not None)


def _beyond(
    workloads: Iterable[Workload], accounts: AccountTree, holds: Callable[[Workload], bool]
) -> dict[WorkloadId, OverLimit]:
    limiting: dict[str, tuple[Account, ...]] = {}
    counted: Counter[str] = Counter()
    waiting: list[Workload] = []
    for workload in workloads:
        limits = limiting.get(workload.account)
        if limits is None:
            limits = limiting[workload.account] = _limits_over(workload.account, accounts)
        if limits and not holds(workload):
            waiting.append(workload)
        else:
            for each in limits:
                counted[each.name] += 1
    waiting.sort(key=attrgetter("submitted_at", "id"))
    beyond: dict[WorkloadId, OverLimit] = {}
    for workload in waiting:
        limits = limiting[workload.account]
        for each in limits:
            if each.submitted is not None and counted[each.name] >= each.submitted:
                beyond[workload.id] = _over(each.name, each.submitted, counted[each.name])
                break
        else:
            for each in limits:
                counted[each.name] += 1
    return beyond


@lru_cache(maxsize=1_024)
def _over(account: str, most: int, before: int) -> OverLimit:
    message = (
        f"the account {account!r} may have {most} workloads submitted at once, and "
        f"{before} were submitted before this"
    )
    return OverLimit((Reason.ACCOUNT_LIMIT, account, None), message)
