"""What the weights of queues add to the priorities of their work, at one time.

A hundred thousand workloads are of few kinds: what does not depend on the age is computed once for each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fluxqueue.api.fluxqueues import PriorityWeights
from fluxqueue.api.priorityfactors import Waiting, age_part, priority_parts
from fluxqueue.queue.model.fair_share import FairShare, user_factor
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.users import user_of

__all__ = ["AddedPriorities"]


class AddedPriorities:
    """What is added to the priority of each workload.

    Parameters
    ----------
    weights
        Weights and priority of each queue that has weights.
    accounts
        Fair share of each account.
    at
        Time up to which ages count.
    """

    def __init__(
        self,
        weights: Mapping[str, tuple[PriorityWeights, int]],
        accounts: Mapping[str, FairShare],
        at: datetime,
    ) -> None:
        self._weights = weights
        self._accounts = accounts
        self._at = at
        self._ageless: dict[tuple[str, float, int, int], int] = {}

    @property
    def any(self) -> bool:
        """True if any queue has weights."""
        return bool(self._weights)

    def of(self, workload: Workload) -> int:
        """Return what is added to the priority of a workload."""
        rules = self._weights.get(workload.queue)
        if rules is None:
            return 0
        weights, queue_priority = rules
        factor = user_factor(self._accounts.get(workload.account), user_of(workload))
        kind = workload.queue, factor, workload.priority, workload.pods
        if (added := self._ageless.get(kind)) is None:
            waiting = Waiting(workload.priority, 0.0, factor, workload.pods)
            added = self._ageless[kind] = (
                priority_parts(waiting, weights, queue_priority).total - workload.priority
            )
        return (
            added + age_part(weights, (self._at - workload.submitted_at).total_seconds())
            if weights.age
            else added
        )
