"""Which work keeps its place under a limit: in a queue with ``atLimit: stop``, what is behind it in order
does not use the limit up.

Without it, a wide workload of an account at its limit waits for as long as narrow ones behind it start in
what becomes free of the limit. With it, the first in order that waits for a limit keeps those behind it in
its queue from starting under the same limit, if they want any of what it waits for. It reserves no nodes:
work of other accounts starts on them. Work that is over the limit by itself waits for an edit and keeps
nobody, and neither does work beyond a limit on submitted work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.accounts import AccountTree
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.scheduling.limits.limit_scopes import LimitScope, OverLimit, Partition, ScopeKey
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.growing_rows import Column

__all__ = ["LimitStops", "parts_of", "rows_under"]

_MOST_EXAMINED = 1_000
"""Rows over a limit of which it is asked for which limit they wait,
of all alike that are over it by themselves only one."""
_Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class LimitStops:
    """The limits of a queue for which work waits in order.

    Attributes
    ----------
    first
        For each limit, the workload that waits for it.
    """

    first: dict[ScopeKey, Workload]

    @classmethod
    def close(
        cls,
        mask: _Mask,
        waiting: _Mask,
        backlog: Backlog,
        waits_for: Callable[[Workload], OverLimit | None],
        accounts: AccountTree,
    ) -> LimitStops:
        """Close the rows behind those that wait for a limit, under that limit.

        Parameters
        ----------
        mask
            Open rows of the backlog; False where a row is over a limit itself.
        waiting
            The rows that may keep others; used up here.
        backlog
            The rows, in order.
        waits_for
            Returns which limit a workload that is over one waits for; None if it keeps nobody.
        accounts
            All accounts.
        """
        stops = cls({})
        row = -1
        for _ in range(_MOST_EXAMINED):
            row += 1 + int(np.argmax(waiting[row + 1 :])) if row + 1 < len(waiting) else 0
            if row < 0 or not waiting[row]:
                break
            waiting[row] = False
            over = waits_for(backlog[row])
            if over is None:
                continue
            if over.alone:
                waiting &= ~_rows_like(row, backlog)
                continue
            behind = rows_under(over.key, backlog, accounts)
            if over.kind:
                behind &= (backlog.amounts_of_shapes(over.kind) > 0)[backlog.shapes]
            behind[: row + 1] = False
            waiting &= ~behind
            mask &= ~behind
            stops.first.setdefault(over.key, backlog[row])
        return stops

    def over(self, scopes: Sequence[LimitScope], namespace: str) -> OverLimit | None:
        """Return for which of these limits a workload of a namespace that was closed waits;
        None if for none of them.
        """
        found = next((scope for scope in scopes if scope.key in self.first), None)
        if found is None:
            return None
        waiting = self.first[found.key].ref_within(namespace)
        return OverLimit(
            found.key,
            f"{found.title} is at a limit, and {waiting} waits for it before this (spec.atLimit of the "
            "FluxQueue)",
        )


def _rows_like(row: int, backlog: Backlog) -> _Mask:
    """The rows that ask for the same under the same limits."""
    alike: _Mask = backlog.shapes == backlog.shapes[row]
    alike &= backlog.accounts == backlog.accounts[row]
    alike &= backlog.namespaces == backlog.namespaces[row]
    alike &= backlog.users == backlog.users[row]
    return alike


def rows_under(key: ScopeKey, backlog: Backlog, accounts: AccountTree) -> _Mask:
    """Return the rows of a backlog that are under a limit of their queue or their account,
    or of their namespace or user in it.
    """
    reason, name, part = key
    if reason is Reason.ACCOUNT_LIMIT:
        under = np.array(
            [name in accounts.path_of(account) for account in backlog.account_names], dtype=np.bool_
        )
        rows: _Mask = under[backlog.accounts]
    else:
        rows = np.ones(len(backlog), dtype=np.bool_)
    if part is not None:
        names, of_rows = parts_of(backlog, part[0])
        rows &= np.array([each == part[1] for each in names], dtype=np.bool_)[of_rows]
    return rows


def parts_of(backlog: Backlog, partition: Partition) -> tuple[tuple[str, ...], Column]:
    """Return the names of the parts of a backlog, and of each row the index into them."""
    if partition is Partition.USER:
        return backlog.user_names, backlog.users
    return backlog.namespace_names, backlog.namespaces
