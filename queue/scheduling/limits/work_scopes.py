"""Which limits hold for a workload, and for each row of a backlog.

A workload is under the limits of its queue, of its namespace and its user in it, and of its account and those
above it, of which each may limit all of its work and that of each user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import QueueLimits
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.users import user_of
from fluxqueue.queue.scheduling.limits.limit_scopes import (
    LimitScope,
    Partition,
    ScopeKey,
    account_scopes,
    account_user_scopes,
    part_scopes,
    queue_scope,
)
from fluxqueue.queue.scheduling.limits.limit_stops import parts_of
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.growing_rows import Column

__all__ = ["RowGroups", "WorkScopes"]

RowGroups = tuple[Sequence[Sequence[LimitScope]], Column | None]
"""The limits of each group of rows, and the group of each row of a backlog; None:
all rows are in the first."""


class WorkScopes:
    """The limits of queues and accounts as they are in one cycle.

    Parameters
    ----------
    limits
        Of the queues that have limits.
    accounts
        All accounts.
    """

    def __init__(self, limits: Mapping[str, QueueLimits], accounts: AccountTree) -> None:
        self._limits = limits
        self._accounts = accounts
        self._known: dict[tuple[str, str, str, str], tuple[LimitScope, ...]] = {}

    def of(self, workload: Workload) -> tuple[LimitScope, ...]:
        """Return the limits under which a workload is: those in its queue,
        then those of its account and of the accounts above it.
        """
        key = workload.queue, workload.namespace, workload.submitted_by, workload.account
        scopes = self._known.get(key)
        if scopes is None:
            scopes = self._known[key] = (
                *self._in_queue(workload),
                *self._in_accounts(workload.account, user_of(workload)),
            )
        return scopes

    def find(self, key: ScopeKey, queue: str) -> LimitScope | None:
        """Return the limits with this key that hold for work of a queue; None if there are none any more."""
        reason, name, part = key
        if reason is Reason.ACCOUNT_LIMIT:
            found = self._in_accounts(name, part[1] if part is not None else "")
            return next((scope for scope in found if scope.key == key), None)
        limits = self._limits.get(queue) if name == queue else None
        if limits is None or part is None:
            return queue_scope(queue, limits) if limits is not None else None
        return next(iter(part_scopes(queue, limits, part[0], [part[1]])), None)

    def of_rows(self, queue: str, backlog: Backlog) -> Iterator[RowGroups]:
        """Yield every kind of limits that hold for rows of a queue's backlog."""
        if (limits := self._limits.get(queue)) is not None:
            yield [[queue_scope(queue, limits)]], None
            for partition in Partition:
                names, of_rows = parts_of(backlog, partition)
                if parts := part_scopes(queue, limits, partition, names):
                    yield [[part] for part in parts], of_rows
        if not self._accounts.limited:
            return
        accounts, users = backlog.account_names, backlog.user_names
        yield [account_scopes(name, self._accounts) for name in accounts], backlog.accounts
        if self._accounts.limits_users:
            pairs, of_rows = np.unique(backlog.accounts * len(users) + backlog.users, return_inverse=True)
            both = [divmod(pair, len(users)) for pair in pairs.tolist()]
            yield (
                [
                    account_user_scopes(accounts[account], self._accounts, users[user])
                    for account, user in both
                ],
                of_rows,
            )

    def _in_queue(self, workload: Workload) -> list[LimitScope]:
        limits, queue = self._limits.get(workload.queue), workload.queue
        if limits is None:
            return []
        parts = ((Partition.NAMESPACE, workload.namespace), (Partition.USER, user_of(workload)))
        of_parts = (
            scope for partition, name in parts for scope in part_scopes(queue, limits, partition, [name])
        )
        return [queue_scope(queue, limits), *of_parts]

    def _in_accounts(self, account: str, user: str) -> list[LimitScope]:
        return [*account_scopes(account, self._accounts), *account_user_scopes(account, self._accounts, user)]
