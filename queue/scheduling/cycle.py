"""The state of one scheduling cycle. The phases of the scheduler fill it one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluxqueue.queue.model.changes import ReasonChange
from fluxqueue.queue.model.consolidations import UnderWay
from fluxqueue.queue.model.records import WorkloadId
from fluxqueue.queue.scheduling.limits.guarantees import NO_GUARANTEES, Guarantees
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import CycleContext, PassResult

__all__ = ["Cycle"]


@dataclass(slots=True)
class Cycle:
    """One scheduling cycle.

    Attributes
    ----------
    disciplines
        The discipline of each queue, read once at the beginning.
    match_policies
        Match policy of each queue that has one of its own.
    latest_nodes
        Queues whose reservations take the nodes that become free last.
    capacity_changed
        Something was freed or changed since the last cycle, so refusals and reservations are tried again.
    dropped
        Cause of each reservation that was lost or cancelled before the round, by workload.
    quotas
        Use of each queue against its limits: allocations and reservations, then the grants of this cycle.
    guarantees
        What is guaranteed to accounts, and used of it at the beginning of the cycle.
    under_way
        A consolidation that is not over.
    preempting
        Work for which other work stops.
    context
        What the passes of the round share.
    results
        What each pass of the round did.
    over_limit
        Workloads whose grants were cancelled, because they were over a limit.
    granted
        Number of grants stored.
    turns_left
        Another cycle is to follow, for work whose namespace had used up its turn.
    """

    disciplines: Mapping[str, Discipline]
    match_policies: dict[str, str] = field(init=False)
    latest_nodes: frozenset[str] = field(init=False)
    capacity_changed: bool = False
    dropped: dict[WorkloadId, str] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=lambda: Quotas({}, ()))
    guarantees: Guarantees = NO_GUARANTEES
    under_way: UnderWay = field(default_factory=UnderWay)
    preempting: frozenset[WorkloadId] = frozenset()
    context: CycleContext = field(default_factory=lambda: CycleContext(0))
    results: list[PassResult] = field(default_factory=list)
    over_limit: list[ReasonChange] = field(default_factory=list)
    granted: int = 0
    turns_left: bool = False

    def __post_init__(self) -> None:
        self.match_policies = {
            name: each.match_policy for name, each in self.disciplines.items() if each.match_policy
        }
        self.latest_nodes = frozenset(name for name, each in self.disciplines.items() if each.reserves_latest)
