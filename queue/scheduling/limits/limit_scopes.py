"""One limit and what is used of it: of a queue or an account (with all accounts below it), or of a namespace
or a user in it.

Each sentence names who is limited, the limit, what is used and what the workload asks for.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Limits, QueueLimits, WorkloadLimits
from fluxqueue.api.formatting import format_graph_amount
from fluxqueue.api.graphnames import CPU, POD_SLOTS
from fluxqueue.queue.model.accounts import AccountTree, graph_amounts
from fluxqueue.queue.model.users import user_title

__all__ = [
    "LimitScope",
    "OverLimit",
    "Part",
    "Partition",
    "ScopeKey",
    "ScopeUse",
    "account_scopes",
    "account_user_scopes",
    "bare_amount",
    "part_scopes",
    "queue_scope",
]


class Partition(enum.Enum):
    """By what work is divided, each part with the same limits."""

    NAMESPACE = "namespace"
    USER = "user"


Part = tuple[Partition, str]
"""A part of the work of a queue or account: of one namespace,
or of one user (`fluxqueue.queue.model.users.user_of`)."""
ScopeKey = tuple[Reason, str, Part | None]
"""Reason of work over the limit, name of the queue or account,
and the part of its work of which the limit is; None: all of it."""
_MILLI = 1000
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class OverLimit:
    """Which limit a workload is over, and a sentence with both figures.

    Attributes
    ----------
    kind
        Resource type of the limit; empty for workloads and nodes, of which all work has some.
    alone
        True if the workload is over the limit by itself, also while nothing else is used.
    """

    key: ScopeKey
    message: str
    kind: str = ""
    alone: bool = False

    @property
    def reason(self) -> Reason:
        """Why the workload waits."""
        return self.key[0]


@dataclass(frozen=True, slots=True)
class LimitScope:
    """The limits of a queue or an account, or of a namespace or a user in it.

    Attributes
    ----------
    key
        Identifies the scope.
    title
        Names it in messages.
    running, nodes
        Workloads and nodes that may be in use at once; None: any number.
    amounts
        Most of each resource type of the graph, in the graph's units.
    of_one, nodes_of_one
        The same, and nodes, of each workload alone, whatever others use.
    """

    key: ScopeKey
    title: str
    running: int | None
    nodes: int | None
    amounts: Mapping[str, int]
    of_one: Mapping[str, int] = field(default_factory=dict)
    nodes_of_one: int | None = None

    @property
    def counts_nodes(self) -> bool:
        """True if the nodes of a match are limited."""
        return self.nodes is not None or self.nodes_of_one is not None

    @property
    def kinds(self) -> Set[str]:
        """The resource types that have a limit."""
        return self.amounts.keys() | self.of_one.keys()

    def full(self, use: ScopeUse) -> bool:
        """True if no further workload may run."""
        return self.running is not None and use.running >= self.running

    def free(self, use: ScopeUse, kind: str) -> int:
        """Return how much of a resource type one more workload may have."""
        limit, of_one = self.amounts.get(kind), self.of_one.get(kind, _UNLIMITED)
        return of_one if limit is None else min(of_one, limit - use.amounts.get(kind, 0))

    def refusal(self, use: ScopeUse, requested: Mapping[str, int]) -> OverLimit | None:
        """Return why a workload that requests these amounts may not start; None if it may."""
        if (over := self.too_large(requested)) is not None:
            return over
        if self.full(use):
            message = (
                f"{self.title} may run {self.running} workloads at once, "
                f"and {use.running} run or have nodes reserved"
            )
            return OverLimit(self.key, message, alone=not self.running)
        for kind in self.amounts:
            wanted = requested.get(kind, 0)
            if wanted and wanted > self.free(use, kind):
                return OverLimit(
                    self.key, self._over_amount(kind, use, wanted), kind, wanted > self.amounts[kind]
                )
        return None

    def too_large(self, requested: Mapping[str, int]) -> OverLimit | None:
        """Return why one workload may not request these amounts, whatever others use; None if it may."""
        for kind, most in self.of_one.items():
            if (wanted := requested.get(kind, 0)) > most:
                figures = f"{_with_unit(kind, most)}, and this wants {_bare(kind, wanted)}"
                message = (
                    f"{self.title} allows one workload {figures}: ask for less (spec.limits.perWorkload of "
                    f"its {self._kind})"
                )
                return OverLimit(self.key, message, kind, alone=True)
        return None

    def excess(self, use: ScopeUse, matched: Set[str]) -> OverLimit | None:
        """Return why a workload may not have these nodes; None if it may."""
        return self.too_wide(len(matched)) or self.over_nodes(use, len(matched - use.nodes.keys()))

    def over_nodes(self, use: ScopeUse, further: int) -> OverLimit | None:
        """Return why a workload may not have so many nodes beyond those in use; None if it may."""
        if self.nodes is None or (wanted := len(use.nodes) + further) <= self.nodes:
            return None
        message = (
            f"{self.title} may use {self.nodes} nodes at once: it uses {len(use.nodes)}, "
            f"and {wanted} with this"
        )
        return OverLimit(self.key, message)

    def too_wide(self, nodes: int) -> OverLimit | None:
        """Return why one workload may not have so many nodes, whatever others use; None if it may."""
        if self.nodes_of_one is not None and nodes > self.nodes_of_one:
            figures = f"{self.nodes_of_one} nodes, and this would get {nodes}"
            message = (
                f"{self.title} allows one workload {figures}: ask for less (spec.limits.perWorkload of its "
                f"{self._kind})"
            )
            return OverLimit(self.key, message, alone=True)
        if self.nodes is not None and nodes > self.nodes:
            figures = f"{self.nodes} nodes at once, and this would get {nodes}"
            message = f"{self.title} may use {figures}: ask for less (spec.limits of its {self._kind})"
            return OverLimit(self.key, message, alone=True)
        return None

    def reached(self) -> OverLimit:
        """Return that a workload waits for this limit, without figures."""
        return OverLimit(self.key, f"{self.title} is at a limit (spec.limits of its {self._kind})")

    @property
    def _kind(self) -> str:
        return "FluxAccount" if self.key[0] is Reason.ACCOUNT_LIMIT else "FluxQueue"

    def _over_amount(self, kind: str, use: ScopeUse, wanted: int) -> str:
        used = _bare(kind, use.amounts.get(kind, 0))
        figures = (
            f"{_with_unit(kind, self.amounts[kind])} at once: it uses {used}, "
            f"and this wants {_bare(kind, wanted)} more"
        )
        return f"{self.title} may use {figures}"


@dataclass(slots=True)
class ScopeUse:
    """What the workloads of a scope use: of amounts and nodes only what its limits need."""

    running: int = 0
    amounts: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)

    def add(self, scope: LimitScope, amounts: Mapping[str, int], nodes: Iterable[str]) -> None:
        """Count one more workload."""
        self.running += 1
        for kind in scope.amounts:
            self.amounts[kind] = self.amounts.get(kind, 0) + amounts.get(kind, 0)
        if scope.nodes is not None:
            for node in nodes:
                self.nodes[node] = self.nodes.get(node, 0) + 1

    def remove(self, scope: LimitScope, amounts: Mapping[str, int], nodes: Iterable[str]) -> None:
        """Count one workload less, which was added with these figures."""
        self.running -= 1
        for kind in scope.amounts:
            self.amounts[kind] -= amounts.get(kind, 0)
        if scope.nodes is not None:
            for node in nodes:
                self.nodes[node] -= 1
                if not self.nodes[node]:
                    del self.nodes[node]

    def copy(self, *, nodes: bool = True) -> ScopeUse:
        """Return a copy, with or without the nodes."""
        return ScopeUse(self.running, self.amounts.copy(), self.nodes.copy() if nodes else {})


def queue_scope(queue: str, limits: QueueLimits) -> LimitScope:
    """Return the limits of a queue."""
    return _of_queue((Reason.QUEUE_LIMIT, queue, None), f"the queue {queue!r}", limits, limits.per_workload)


def part_scopes(
    queue: str, limits: QueueLimits, partition: Partition, names: Iterable[str]
) -> list[LimitScope]:
    """Return the limits of each of these namespaces, or users, in a queue; none if it has no such limits."""
    of_part = limits.per_namespace if partition is Partition.NAMESPACE else limits.per_user
    if of_part is None:
        return []
    title = user_title if partition is Partition.USER else "namespace {!r}".format
    return [
        _of_queue(
            (Reason.QUEUE_LIMIT, queue, (partition, name)), f"{title(name)} in the queue {queue!r}", of_part
        )
        for name in names
    ]


def account_scopes(account: str, accounts: AccountTree) -> list[LimitScope]:
    """Return the limits of an account and of those above it."""
    return [
        LimitScope(
            (Reason.ACCOUNT_LIMIT, each.name, None),
            f"the account {each.name!r}",
            each.running,
            each.nodes,
            each.amounts,
            each.of_one,
            each.nodes_of_one,
        )
        for each in accounts.limiting(account)
    ]


def account_user_scopes(account: str, accounts: AccountTree, user: str) -> list[LimitScope]:
    """Return the limits of a user in an account and in those above it."""
    return [
        LimitScope(
            (Reason.ACCOUNT_LIMIT, each.name, (Partition.USER, user)),
            f"{user_title(user)} in the account {each.name!r}",
            each.of_user.running,
            each.of_user.nodes,
            each.of_user.amounts,
        )
        for each in accounts.limiting(account)
        if each.of_user is not None
    ]


def _of_queue(key: ScopeKey, title: str, limits: Limits, of_one: WorkloadLimits | None = None) -> LimitScope:
    one = of_one or WorkloadLimits()
    return LimitScope(
        key, title, limits.running, limits.nodes, _limited_amounts(limits), _limited_amounts(one), one.nodes
    )


def _limited_amounts(limits: Limits | WorkloadLimits) -> dict[str, int]:
    amounts = dict(_amounts(tuple(limits.resources.items()))) if limits.resources else {}
    if limits.cores is not None:
        amounts[CPU] = min(limits.cores * _MILLI, amounts.get(CPU, limits.cores * _MILLI))
    return amounts


@lru_cache(maxsize=256)
def _amounts(resources: tuple[tuple[str, str | int | float], ...]) -> Mapping[str, int]:
    return graph_amounts(dict(resources))


def _with_unit(kind: str, amount: int) -> str:
    return f"{amount / _MILLI:g} cores" if kind == CPU else format_graph_amount(kind, amount)


def _bare(kind: str, amount: int) -> str:
    return f"{amount / _MILLI:g}" if kind == CPU else bare_amount(kind, amount)


def bare_amount(kind: str, amount: int) -> str:
    """Format an amount without the name of its resource."""
    return str(amount) if kind == POD_SLOTS else format_graph_amount(kind, amount).rpartition(" ")[0]
