"""What the workloads of a queue and of each account, and of each namespace and user in them, may use at once.

A workload over a limit of its queue waits with the reason ``QueueLimit``, over one of its account with
``AccountLimit``. It does not close its queue for other workloads, which may be under their limits. An account
counts with all accounts below it. Limits on running workloads and resources are known before a match, so such
workloads are not matched at all. The number of nodes is known only from the matcher's answer, because a
workload may share nodes that its queue or account uses already. That limit is checked on the nodes of the
answer, before the grant is stored, and a grant over it is cancelled. So a limit is never exceeded, not even
briefly.

A reservation counts as use, as if the work ran already: work that starts meanwhile can then not push the
reservation over a limit. Running work and reservations are counted once at the beginning of a cycle. The
cycle adds its own grants and reservations as it makes them.

The ResourceQuotas of namespaces (`fluxqueue.queue.scheduling.limits.quota_room`) and the budgets of accounts
(`fluxqueue.queue.scheduling.limits.budgets`) are respected in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from fluxqueue.api.fluxqueues import QueueLimits
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.model.accounts import NO_ACCOUNTS, AccountTree
from fluxqueue.queue.model.given_back import as_held
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.budgets import BudgetRoom
from fluxqueue.queue.scheduling.limits.limit_scopes import LimitScope, OverLimit, ScopeKey, ScopeUse
from fluxqueue.queue.scheduling.limits.limit_stops import LimitStops
from fluxqueue.queue.scheduling.limits.quota_room import NO_ROOM_LIMITED, QuotaRoom
from fluxqueue.queue.scheduling.limits.wide_answers import WideAnswers
from fluxqueue.queue.scheduling.limits.work_scopes import WorkScopes
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.demands import held_amounts, known_amounts

__all__ = ["Accounts", "Quotas", "Room", "no_accounts", "no_room_limited"]

Accounts = Callable[[], AccountTree]
"""Returns the accounts as they are now."""

Room = Callable[[], QuotaRoom]
"""Returns what the ResourceQuotas leave now."""

_MOST_SET_ASIDE = 20
"""Grants over the limits of one queue or account that are cancelled in one cycle before all its work waits
for the next."""
_UNLIMITED = 1 << 62
_NO_BUDGETS = BudgetRoom(datetime.min.replace(tzinfo=UTC))
_NONE_BEYOND: Mapping[WorkloadId, OverLimit] = MappingProxyType({})

_Mask = npt.NDArray[np.bool_]


def no_accounts() -> AccountTree:
    """Return that there are no accounts."""
    return NO_ACCOUNTS


def no_room_limited() -> QuotaRoom:
    """Return that there are no ResourceQuotas."""
    return NO_ROOM_LIMITED


@dataclass(frozen=True, slots=True)
class _Holding:
    scopes: tuple[LimitScope, ...]
    amounts: Mapping[str, int]
    nodes: frozenset[str]


@dataclass(slots=True)
class _SetAside:
    """Workloads whose grants were over a limit in this cycle, and how many there were for each limit."""

    workloads: dict[str, dict[WorkloadId, OverLimit]] = field(default_factory=dict)
    counts: Counter[ScopeKey] = field(default_factory=Counter)

    def closes(self, key: ScopeKey) -> bool:
        return self.counts[key] >= _MOST_SET_ASIDE


class Quotas:
    """The use of one cycle, measured against the limits.

    Parameters
    ----------
    limits
        Of the queues that have limits.
    live
        Workloads with their allocations. Only those under a limit are counted, so without limits this costs
        nothing.
    accounts
        All accounts.
    beyond
        Pending workloads beyond what their accounts may have submitted.
    stopping
        Queues in which work that waits for a limit keeps work behind it from starting under that limit.
    room
        What the ResourceQuotas leave.
    budgets
        What the budgets of accounts leave.
    wide
        Answers with more nodes than a limit allows.

    Attributes
    ----------
    accounts
        All accounts.
    version
        Changes with every change of use.

    Examples
    --------
    >>> quotas = Quotas(limits, ledger.live(), accounts)
    >>> quotas.refusal(workload) or quotas.excess(workload, hosts) or quotas.add_usage(workload, hosts)
    """

    def __init__(
        self,
        limits: Mapping[str, QueueLimits],
        live: Iterable[tuple[Workload, Allocation]],
        accounts: AccountTree = NO_ACCOUNTS,
        beyond: Mapping[WorkloadId, OverLimit] = _NONE_BEYOND,
        stopping: Collection[str] = (),
        room: QuotaRoom = NO_ROOM_LIMITED,
        budgets: BudgetRoom = _NO_BUDGETS,
        wide: WideAnswers | None = None,
    ) -> None:
        self._limits = limits
        self._beyond = beyond
        self._beyond_rows: dict[str, list[int]] = {}
        self._stopping = stopping
        self._stops: dict[str, LimitStops] = {}
        self.accounts = accounts
        self._by_account = accounts.limited
        self._scopes = WorkScopes(limits, accounts)
        self._uses: dict[ScopeKey, ScopeUse] = {}
        self._held: dict[WorkloadId, _Holding] = {}
        self._room = room
        self._budgets = budgets
        self._wide = wide if wide is not None else WideAnswers()
        self._aside = _SetAside()
        self.version = 0
        if limits or self._by_account:
            for workload, allocation in live:
                if allocation.remnant:
                    # pods that may still run on a lost node must not keep their own workload from starting
                    # elsewhere
                    continue
                self._count(as_held(workload, allocation), (slot.node for slot in allocation.open_slots))

    def limited(self, queue: str) -> bool:
        """True if work of a queue may be under a limit."""
        return self._by_account or queue in self._limits or self._room.any or self._budgets.any

    def refusal(self, workload: Workload) -> OverLimit | None:
        """Return which limit keeps a workload from being matched now; None if none does."""
        if (beyond := self._beyond.get(workload.id)) is not None:
            return beyond
        for scope in self._scopes.of(workload):
            if (over := scope.refusal(self._use(scope), known_amounts(workload.jobspec))) is not None:
                return over
        return self._room.refusal(workload) or self._budgets.refusal(workload)

    def excess(
        self, workload: Workload, hosts: Iterable[str], shares: Sequence[NodeShare] = ()
    ) -> OverLimit | None:
        """Return which limit keeps a workload from starting on these nodes; None if none does.

        Parameters
        ----------
        workload
            One for which `refusal` was None.
        hosts
            Nodes of the matcher's answer, repetitions allowed.
        shares
            What it gets of them, where that is known.
        """
        matched: set[str] | None = None
        for scope in self._scopes.of(workload):
            if not scope.counts_nodes:
                continue
            matched = set(hosts) if matched is None else matched
            if (over := scope.excess(self._use(scope), matched)) is not None:
                self._wide.note(scope, self._use(scope), workload.shape, matched)
                return over
        return self._budgets.excess(workload, shares)

    def reached(self, workload: Workload, *, exact: bool = False) -> OverLimit:
        """Return which limit a workload that `within` leaves out waits for,
        with the figures (`exact`) or in general terms.
        """
        if exact and (over := self._budgets.measured_refusal(workload) or self.refusal(workload)) is not None:
            return over
        scopes = self._scopes.of(workload)
        if (over := self._known_excess(workload)) is not None:
            return over
        closed = (scope for scope in scopes if scope.full(self._use(scope)) or self._aside.closes(scope.key))
        if (first := next(closed, None)) is not None:
            return first.reached()
        if (spent := self._budgets.reached(workload, self._aside.closes)) is not None:
            return spent
        if self._room.lacks(workload) or not scopes:
            return self._room.reached(workload)
        stops = self._stops.get(workload.queue)
        return (stops.over(scopes, workload.namespace) if stops is not None else None) or scopes[-1].reached()

    def add_usage(self, workload: Workload, hosts: Iterable[str], shares: Sequence[NodeShare] = ()) -> None:
        """Count a workload that now gets or reserves these nodes,
        instead of what was counted for it before.
        """
        self._count(workload, hosts)
        self.version += self._room.add(workload) + self._budgets.add(workload, shares)

    def _count(self, workload: Workload, hosts: Iterable[str]) -> None:
        scopes = self._scopes.of(workload)
        if not scopes:
            return
        self._uncount(workload.id)
        self._held[workload.id] = holding = _Holding(scopes, held_amounts(workload), frozenset(hosts))
        for scope in scopes:
            if (use := self._uses.get(scope.key)) is None:
                use = self._uses[scope.key] = ScopeUse()
            use.add(scope, holding.amounts, holding.nodes)
        self.version += 1

    def remove_usage(self, workload: WorkloadId) -> None:
        """Stop to count a workload, if it is counted."""
        self._uncount(workload)
        self.version += self._room.remove(workload) + self._budgets.remove(workload)

    def _uncount(self, workload: WorkloadId) -> None:
        holding = self._held.pop(workload, None)
        if holding is None:
            return
        for scope in holding.scopes:
            self._uses[scope.key].remove(scope, holding.amounts, holding.nodes)
        self.version += 1

    def without(self, workloads: Iterable[WorkloadId]) -> Quotas:
        """Return a copy in which these workloads hold nothing."""
        other = self._empty(self._room.copy(), self._budgets.copy())
        other._held = dict(self._held)
        other._uses = {key: use.copy() for key, use in self._uses.items()}
        for workload in workloads:
            other.remove_usage(workload)
        return other

    def set_aside(self, workload: Workload, over: OverLimit) -> None:
        """Leave a workload out for the rest of the cycle, because its answer was over a limit."""
        self._aside.workloads.setdefault(workload.queue, {})[workload.id] = over
        self._aside.counts[over.key] += 1
        self.version += 1

    @property
    def left_for_later(self) -> bool:
        """True if work under a limit waits for the next cycle, since many answers were over a budget or had
        too many nodes.
        """
        return self._budgets.left_for_later(self._aside.closes) or any(
            self._aside.closes(key) and self._wide.found_for(key) for key in self._aside.counts
        )

    def within(self, queue: str, backlog: Backlog) -> _Mask:
        """Return which rows of a queue's backlog may be matched;
        rows that hold reservations are not considered.
        """
        mask = np.ones(len(backlog), dtype=np.bool_)
        if not self.limited(queue) or not len(backlog):
            return mask
        for scopes, of_rows in self._scopes.of_rows(queue, backlog):
            self._close(mask, backlog, scopes, of_rows)
        self._wide.close(mask, backlog, self.accounts, lambda key: self._scopes.find(key, queue), self._use)
        for workload_id in self._aside.workloads.get(queue, ()):
            if (row := backlog.position(workload_id)) is not None:
                mask[row] = False
        if self._beyond:
            mask[self._rows_beyond(queue, backlog)] = False
        if queue in self._stopping:
            waiting = ~mask
            waiting[self._rows_beyond(queue, backlog) if self._beyond else []] = False
            self._stops[queue] = LimitStops.close(mask, waiting, backlog, self._waits_for, self.accounts)
        self._room.close(mask, queue, backlog)
        if self._budgets.any:
            self._budgets.close(mask, backlog, self._aside.closes)
        return mask

    def _waits_for(self, workload: Workload) -> OverLimit | None:
        """Return which limit a workload without nodes, also reserved ones,
        waits for and may get to by the end of others.
        """
        if workload.id in self._beyond or workload.id in self._held:
            return None
        return (
            self.refusal(workload)
            or self._known_excess(workload)
            or self._aside.workloads.get(workload.queue, {}).get(workload.id)
        )

    def note_backlogs_changed(self) -> None:
        """Forget what was found about the rows of the backlogs."""
        self._beyond_rows.clear()
        self._room.forget_rows()

    def _rows_beyond(self, queue: str, backlog: Backlog) -> list[int]:
        rows = self._beyond_rows.get(queue)
        if rows is None:
            rows = self._beyond_rows[queue] = [
                row for row, workload in enumerate(backlog) if workload.id in self._beyond
            ]
        return rows

    def _close(
        self,
        mask: _Mask,
        backlog: Backlog,
        scopes: Sequence[Sequence[LimitScope]],
        of_rows: npt.NDArray[np.int64] | None,
    ) -> None:
        """Clear the rows of a mask that are over a limit. ``scopes`` are the limits of each group of rows,
        ``of_rows`` is the group of each row; None if all rows are in the first.
        """
        full = [
            any(scope.full(self._use(scope)) or self._aside.closes(scope.key) for scope in group)
            for group in scopes
        ]
        if any(full):
            mask &= False if of_rows is None else ~np.array(full, dtype=np.bool_)[of_rows]
        for kind in sorted({kind for group in scopes for scope in group for kind in scope.kinds}):
            free = [
                min((scope.free(self._use(scope), kind) for scope in group), default=_UNLIMITED)
                for group in scopes
            ]
            by_shape = backlog.amounts_of_shapes(kind)
            if by_shape.max(initial=0) <= min(free):
                continue
            if of_rows is None:
                mask &= ((by_shape == 0) | (by_shape <= free[0]))[backlog.shapes]
            else:
                requested = by_shape[backlog.shapes]
                mask &= (requested == 0) | (requested <= np.array(free, dtype=np.int64)[of_rows])

    def together(self, workloads: Sequence[Workload]) -> int:
        """Return how many of these workloads, in order, may be matched in one step: as many as may all be
        granted.

        Where the number of nodes is limited it is one at a time, because each answer decides about the next
        workload.
        """
        namespaces = {workload.namespace for workload in workloads} & self._room.spaces.keys()
        if not workloads or not (
            namespaces or self._by_account or self._budgets.any or workloads[0].queue in self._limits
        ):
            return len(workloads)
        budgets = (
            self._budgets.trial({workload.account for workload in workloads})
            if self._budgets.any
            else self._budgets
        )
        trial = self._empty(self._room.copy(namespaces), budgets)
        for number, workload in enumerate(workloads):
            scopes = self._scopes.of(workload)
            for scope in scopes:
                if scope.key not in trial._uses:
                    trial._uses[scope.key] = self._use(scope).copy(nodes=False)
            if any(scope.counts_nodes for scope in scopes) or trial.refusal(workload) is not None:
                return max(1, number)
            if trial._budgets.refusal(workload, workload.pods) is not None:
                return max(1, number)
            trial.add_usage(workload, ())
        return len(workloads)

    def _known_excess(self, workload: Workload) -> OverLimit | None:
        """Return which limit a workload is over by what it asks for, or by what it got before;
        None if by neither.
        """
        for scope in self._scopes.of(workload):
            over = scope.too_large(known_amounts(workload.jobspec)) if scope.of_one else None
            if over is None and scope.counts_nodes:
                over = self._wide.refusal(scope, self._use(scope), workload.shape)
            if over is not None:
                return over
        return None

    def _use(self, scope: LimitScope) -> ScopeUse:
        return self._uses.get(scope.key) or ScopeUse()

    def _empty(self, room: QuotaRoom, budgets: BudgetRoom) -> Quotas:
        """Return a copy in which nothing is used of the limits, with this room and these budgets."""
        other = Quotas(self._limits, (), self.accounts, self._beyond, self._stopping, room, budgets)
        other._scopes = self._scopes
        return other
