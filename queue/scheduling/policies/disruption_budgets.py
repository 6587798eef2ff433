"""Which candidates for preemption the budgets of disruption allow together, in the order of preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from fluxqueue.queue.model.victim_views import BudgetShare

__all__ = ["allowed_together"]

T = TypeVar("T")


def allowed_together(candidates: Iterable[T], shares_of: Callable[[T], Sequence[BudgetShare]]) -> Iterator[T]:
    """Yield the candidates of which every budget allows all pods to be disrupted, with those of the
    candidates before.

    A workload is disrupted as a whole or not at all, so one that a budget allows only in part is left out and
    counts nothing.
    """
    used: Counter[tuple[str, str]] = Counter()
    for candidate in candidates:
        shares = shares_of(candidate)
        if all(used[share.namespace, share.name] + share.pods <= share.allowed for share in shares):
            for share in shares:
                used[share.namespace, share.name] += share.pods
            yield candidate
