"""What accounts are guaranteed: whose work comes first because of it, and whose running work may be preempted
for it.

Others may use what is guaranteed while its account leaves it idle: they borrow it. Nothing is kept free. Work
belongs to the nearest account on its way up that has a guarantee. It is covered if it asks for anything that
the guarantee names and the account stays within the guarantee with it. Two things follow from that:

- *Order.* Pending work that is covered comes before all other work, as much of each account as fits its
  guarantee. So what becomes free goes to it, and work that was preempted for it does not take its nodes back.
- *Reclaim.* It may preempt running work of other accounts that borrow: that have no guarantee, or use more
  than theirs. Of each account no more is taken once it is within its guarantee. Work within a guarantee is
  preempted only for work of the same account.

Whether work is within its guarantee in nodes is known only from the matcher's answer. For the order it is
estimated as the fewest nodes that could hold it, for work that was preempted as one node for each pod, so
that it does not come first by mistake. Nothing is preempted before the answer of a trial showed it
(`fluxqueue.queue.scheduling.preemption.trials`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fluxqueue.api.fluxaccounts import GuaranteedStatus
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.graphnames import display_name
from fluxqueue.fluxion.messages import GraphNodeSpec
from fluxqueue.queue.model.accounts import NO_ACCOUNTS, AccountTree
from fluxqueue.queue.model.given_back import as_held
from fluxqueue.queue.model.moldable import GROWTH_PRIORITY
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.limit_scopes import LimitScope, ScopeUse, bare_amount
from fluxqueue.queue.scheduling.policies.backlog import Backlog, Key
from fluxqueue.queue.scheduling.policies.demands import held_amounts, known_amounts

__all__ = ["NODES", "NO_GUARANTEES", "GuaranteeUse", "Guarantees", "held_nodes", "largest_of"]

NODES = "nodes"
"""Stands for nodes where the other names are resource types of the graph."""
_MOST_EXAMINED = 1_000
"""Pending workloads of accounts with guarantees that are looked at in one cycle:
the first in order, equally many of each account."""
_LEAST_EXAMINED = 20
"""Of each account, however many there are."""

Holding = tuple[Workload, Iterable[str]]
"""A workload and its nodes, repetitions allowed."""


@dataclass(frozen=True, slots=True)
class GuaranteeUse:
    """How much of something is guaranteed to an account and how much it uses, in the graph's units."""

    kind: str
    guaranteed: int
    used: int

    @property
    def borrowed(self) -> int:
        """What it uses beyond its guarantee."""
        return max(self.used - self.guaranteed, 0)


class Guarantees:
    """The guarantees of all accounts, and what is used of them.

    Parameters
    ----------
    accounts
        All accounts.
    held
        The work that holds nodes. Without guarantees this costs nothing.
    """

    def __init__(self, accounts: AccountTree = NO_ACCOUNTS, held: Iterable[Holding] = ()) -> None:
        self._accounts = accounts
        self._scopes = {
            each.name: LimitScope(
                (Reason.ACCOUNT_LIMIT, each.name, None),
                each.name,
                None,
                each.guaranteed.nodes,
                each.guaranteed.amounts,
            )
            for each in accounts.accounts.values()
            if each.guaranteed is not None
        }
        self._uses = {name: ScopeUse() for name in self._scopes}
        if self._scopes:
            for workload, nodes in held:
                unique = set(nodes)
                for scope in self._above(workload.account):
                    self._uses[scope.title].add(scope, held_amounts(workload), unique)

    @property
    def any(self) -> bool:
        """True if any account has a guarantee."""
        return bool(self._scopes)

    def uses(self, account: str) -> list[GuaranteeUse]:
        """Return what is guaranteed to an account and used by it and the accounts below it;
        nothing without a guarantee of its own.
        """
        scope = self._scopes.get(account)
        if scope is None:
            return []
        use = self._uses[account]
        nodes = [GuaranteeUse(NODES, scope.nodes, len(use.nodes))] if scope.nodes is not None else []
        return nodes + [
            GuaranteeUse(kind, amount, use.amounts.get(kind, 0))
            for kind, amount in sorted(scope.amounts.items())
        ]

    def shown(self, account: str) -> list[GuaranteedStatus]:
        """Return the same as the status of a FluxAccount shows it."""
        return [_shown(each) for each in self.uses(account)]

    def covering(self, workload: Workload) -> str:
        """Return the account whose guarantee may cover a pending workload, as far as is known before a match;
        empty if none does.
        """
        scope = self._own(workload)
        if scope is None or not _within(scope, self._uses[scope.title], workload, 1):
            return ""
        return scope.title

    def covers(self, workload: Workload, nodes: Iterable[str], before: Iterable[Holding]) -> bool:
        """Return whether a workload is covered on these nodes, once work before it has its own."""
        scope = self._own(workload)
        if scope is None:
            return False
        use = self._uses[scope.title].copy()
        for each, its_nodes in before:
            if scope.title in self._accounts.path_of(each.account):
                use.add(scope, held_amounts(each), set(its_nodes))
        return (
            scope.refusal(use, known_amounts(workload.jobspec)) is None
            and scope.excess(use, set(nodes)) is None
        )

    def losing(
        self, workload: Workload, running: Sequence[Holding], *, reclaim: bool
    ) -> Iterator[WorkloadId]:
        """Yield who may be preempted for a workload.

        Parameters
        ----------
        workload
            That is to start.
        running
            Who could be preempted by all other rules, in the order in which they would be.
        reclaim
            True for work that is covered, which takes from other accounts only; False for work of higher
            priority.
        """
        own = self._own(workload)
        uses = {name: use.copy() for name, use in self._uses.items()}
        for victim, nodes in running:
            inside = own is not None and own.title in self._accounts.path_of(victim.account)
            if inside and reclaim:
                continue
            theirs = self._own(victim)
            same = theirs is not None and own is not None and theirs.title == own.title
            if theirs is not None and not same and not _over(theirs, uses[theirs.title]):
                continue
            unique = set(nodes)
            for scope in self._above(victim.account):
                uses[scope.title].remove(scope, held_amounts(victim), unique)
            yield victim.id

    def come_before(self, workload: Workload, victims: Sequence[Holding]) -> bool:
        """True if some victims of other accounts are covered once all have ended: they come before work that
        is not, and take its nodes back.
        """
        own, uses = self._own(workload), {name: use.copy() for name, use in self._uses.items()}
        for victim, nodes in victims:
            for each in self._above(victim.account):
                uses[each.title].remove(each, held_amounts(victim), set(nodes))
        theirs = ((victim, scope) for victim, _ in victims if (scope := self._own(victim)) is not None)
        return any(
            scope is not own and _within(scope, uses[scope.title], victim, victim.pods)
            for victim, scope in theirs
        )

    def first(self, backlogs: Iterable[Backlog], largest: Mapping[str, int]) -> frozenset[WorkloadId]:
        """Return the pending work that comes before all other, because it is covered.

        Parameters
        ----------
        backlogs
            Pending work of all queues. What was preempted for work of its account that still waits does not
            come first: it would take its nodes back before.
        largest
            Most of each resource type that a node has, for the least number of nodes.
        """
        if not self._scopes:
            return frozenset()
        uses = {name: use.copy() for name, use in self._uses.items()}
        nodes = {name: len(use.nodes) for name, use in uses.items()}
        chosen: set[WorkloadId] = set()
        waiting = {each.id: (each, self._own(each)) for each in self._first_of_each(backlogs)}
        for workload, scope in waiting.values():
            _, other = waiting.get(WorkloadId(workload.requeue_state.preempted_for), (None, None))
            if scope is None or workload.priority == GROWTH_PRIORITY or other is scope:
                continue
            wanted = _nodes_of(workload, largest)
            fits = scope.nodes is None or nodes[scope.title] + wanted <= scope.nodes
            if not fits or not _within(scope, uses[scope.title], workload, 0):
                continue
            chosen.add(workload.id)
            for each in self._above(workload.account):
                uses[each.title].add(each, known_amounts(workload.jobspec), ())
                nodes[each.title] += wanted
        return frozenset(chosen)

    def _first_of_each(self, backlogs: Iterable[Backlog]) -> Iterator[Workload]:
        """The first pending work of each account with a guarantee, together in the order without guarantees.

        So the backlog of one account, however long, keeps no other from what is guaranteed to it.
        """
        parts: dict[str, list[Iterator[Workload]]] = {}
        for backlog in backlogs:
            rows = np.bincount(backlog.accounts, minlength=len(backlog.account_names))
            for number, account in enumerate(backlog.account_names):
                if rows[number] and self._above(account):
                    parts.setdefault(account, []).extend(_halves(backlog, number))
        share = max(_MOST_EXAMINED // max(len(parts), 1), _LEAST_EXAMINED)
        return heapq.merge(
            *(islice(heapq.merge(*each, key=_base_key), share) for each in parts.values()), key=_base_key
        )

    def _own(self, workload: Workload) -> LimitScope | None:
        """The nearest guarantee of a workload, if that names anything it asks for."""
        scope = next(iter(self._above(workload.account)), None)
        if scope is None or scope.nodes is not None:
            return scope
        return scope if any(known_amounts(workload.jobspec).get(kind) for kind in scope.amounts) else None

    def _above(self, account: str) -> list[LimitScope]:
        return [
            scope for name in self._accounts.path_of(account) if (scope := self._scopes.get(name)) is not None
        ]


def _halves(backlog: Backlog, account: int) -> list[Iterator[Workload]]:
    """The work of an account: what comes first now, and the rest, each in the order without guarantees."""
    rows = np.flatnonzero(backlog.accounts == account)
    behind = next((number for number, row in enumerate(rows) if not backlog[int(row)].comes_first), len(rows))
    return [(backlog[int(row)] for row in part) for part in (rows[:behind], rows[behind:])]


NO_GUARANTEES = Guarantees()
"""A cluster in which nothing is guaranteed to an account."""


def held_nodes(live: Iterable[tuple[Workload, Allocation]]) -> Iterator[Holding]:
    """Return live work with its nodes, without what may still run on lost nodes."""
    kept = (held for held in live if not held[1].remnant)
    return (
        (as_held(workload, allocation), (slot.node for slot in allocation.open_slots))
        for workload, allocation in kept
    )


def largest_of(nodes: Iterable[GraphNodeSpec]) -> dict[str, int]:
    """Return the most of each resource type that any of these nodes has."""
    largest: dict[str, int] = {}
    for node in nodes:
        for pool in node.pools:
            largest[pool.type] = max(largest.get(pool.type, 0), pool.total)
    return largest


def _shown(each: GuaranteeUse) -> GuaranteedStatus:
    if each.kind == NODES:
        return GuaranteedStatus(NODES, str(each.guaranteed), str(each.used), str(each.borrowed))
    texts = (bare_amount(each.kind, amount) for amount in (each.guaranteed, each.used, each.borrowed))
    return GuaranteedStatus(display_name(each.kind), *texts)


def _within(scope: LimitScope, use: ScopeUse, workload: Workload, nodes: int) -> bool:
    if nodes and scope.nodes is not None and len(use.nodes) + nodes > scope.nodes:
        return False
    return scope.refusal(use, known_amounts(workload.jobspec)) is None


def _over(scope: LimitScope, use: ScopeUse) -> bool:
    if scope.nodes is not None and len(use.nodes) > scope.nodes:
        return True
    return any(use.amounts.get(kind, 0) > amount for kind, amount in scope.amounts.items())


def _nodes_of(workload: Workload, largest: Mapping[str, int]) -> int:
    """Estimate on how many nodes a workload would be:
    on as few as possible, or on one for each pod if it was preempted.
    """
    if workload.reason is Reason.PREEMPTED:
        return workload.pods
    amounts = known_amounts(workload.jobspec)
    fewest = (-(-amount // most) for kind, amount in amounts.items() if (most := largest.get(kind, 0)))
    return max(1, min(max(fewest, default=1), workload.pods))


def _base_key(workload: Workload) -> Key:
    """Place in the order without guarantees."""
    return (-workload.weighed_priority, workload.submitted_at, workload.id)
