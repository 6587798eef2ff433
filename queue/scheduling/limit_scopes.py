"""One limit and what is used of it: of a queue, of a namespace in a queue, or of an account with all accounts below it.

Each sentence names who is limited, the limit, what is used and what the workload asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Limits, QueueLimits
from fluxqueue.api.formatting import format_graph_amount
from fluxqueue.api.graphnames import CPU, POD_SLOTS
from fluxqueue.queue.model.accounts import AccountTree, graph_amounts

__all__ = ["LimitScope", "OverLimit", "ScopeKey", "ScopeUse", "account_scopes", "bare_amount", "queue_scopes"]

ScopeKey = tuple[Reason, str, str | None]
"""Reason of work over the limit, name of the queue or account, and the namespace of a limit of one namespace."""
_MILLI = 1000


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
    """The limits of a queue, a namespace in it, or an account.

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
    """

    key: ScopeKey
    title: str
    running: int | None
    nodes: int | None
    amounts: Mapping[str, int]

    def full(self, use: ScopeUse) -> bool:
        """True if no further workload may run."""
        return self.running is not None and use.running >= self.running

    def free(self, use: ScopeUse, kind: str) -> int:
        """Return how much of a resource type one more workload may have."""
        limit = self.amounts.get(kind)
        return 1 << 62 if limit is None else limit - use.amounts.get(kind, 0)

    def refusal(self, use: ScopeUse, requested: Mapping[str, int]) -> OverLimit | None:
        """Return why a workload that requests these amounts may not start; None if it may."""
        if self.full(use):
            message = f"{self.title} may run {self.running} workloads at once, and {use.running} run or have nodes reserved"
            return OverLimit(self.key, message, alone=not self.running)
        for kind in self.amounts:
            wanted = requested.get(kind, 0)
            if wanted and wanted > self.free(use, kind):
                return OverLimit(self.key, self._over_amount(kind, use, wanted), kind, wanted > self.amounts[kind])
        return None

    def excess(self, use: ScopeUse, matched: Set[str]) -> OverLimit | None:
        """Return why a workload may not have these nodes; None if it may."""
        if self.nodes is None or (wanted := len(use.nodes.keys() | matched)) <= self.nodes:
            return None
        message = f"{self.title} may use {self.nodes} nodes at once: it uses {len(use.nodes)}, and {wanted} with this"
        return OverLimit(self.key, message, alone=len(matched) > self.nodes)

    def reached(self) -> OverLimit:
        """Return that a workload waits for this limit, without figures."""
        kind = "FluxAccount" if self.key[0] is Reason.ACCOUNT_LIMIT else "FluxQueue"
        return OverLimit(self.key, f"{self.title} is at a limit (spec.limits of its {kind})")

    def _over_amount(self, kind: str, use: ScopeUse, wanted: int) -> str:
        most, used = self.amounts[kind], use.amounts.get(kind, 0)
        if kind == CPU:
            figures = f"{most / _MILLI:g} cores at once: it uses {used / _MILLI:g}, and this wants {wanted / _MILLI:g} more"
        else:
            used_amount, wanted_amount = bare_amount(kind, used), bare_amount(kind, wanted)
            figures = f"{format_graph_amount(kind, most)} at once: it uses {used_amount}, and this wants {wanted_amount} more"
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


def queue_scopes(queue: str, limits: QueueLimits, namespaces: Iterable[str]) -> list[LimitScope]:
    """Return the limits of a queue, and those of each of these namespaces in it if there are any."""
    title = f"the queue {queue!r}"
    scopes = [_of_queue((Reason.QUEUE_LIMIT, queue, None), title, limits)]
    if (part := limits.per_namespace) is not None:
        scopes += [_of_queue((Reason.QUEUE_LIMIT, queue, name), f"namespace {name!r} in {title}", part) for name in namespaces]
    return scopes


def account_scopes(account: str, accounts: AccountTree) -> list[LimitScope]:
    """Return the limits of an account and of those above it."""
    return [
        LimitScope((Reason.ACCOUNT_LIMIT, each.name, None), f"the account {each.name!r}", each.running, each.nodes, each.amounts)
        for each in accounts.limiting(account)
    ]


def _of_queue(key: ScopeKey, title: str, limits: Limits) -> LimitScope:
    amounts = dict(_amounts(tuple(limits.resources.items()))) if limits.resources else {}
    if limits.cores is not None:
        amounts[CPU] = min(limits.cores * _MILLI, amounts.get(CPU, limits.cores * _MILLI))
    return LimitScope(key, title, limits.running, limits.nodes, amounts)


@lru_cache(maxsize=256)
def _amounts(resources: tuple[tuple[str, str | int | float], ...]) -> Mapping[str, int]:
    return graph_amounts(dict(resources))


def bare_amount(kind: str, amount: int) -> str:
    """Format an amount without the name of its resource."""
    return str(amount) if kind == POD_SLOTS else format_graph_amount(kind, amount).rpartition(" ")[0]
